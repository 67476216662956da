"""Redaction on random clusters: nothing of the original is in the file, and the plan is the same up to names."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, settings

from pykai.cache.cluster import ClusterCache
from pykai.config.snapshot_file import RawObjects
from pykai.explain.redact import Words, _projected, redacted
from pykai.explain.source import Decided, decided, joined
from pykai.model.params import SchedulerParams
from tests.properties.clusters import clusters
from tests.properties.small_world import LEVELS, NOW, PACKING, PRIORITIES, Cluster

Document = dict[str, Any]


def document_of(cluster: Cluster) -> Document:
    levels = [{"nodeLabel": level} for level in LEVELS]
    return {
        "rawObjects": {
            "nodes": cluster.nodes,
            "queues": cluster.queues,
            "podGroups": cluster.groups,
            "pods": cluster.pods,
            "priorityClasses": [{"metadata": {"name": name}, "value": value} for name, value in PRIORITIES.items()],
            "topologies": [{"metadata": {"name": "site"}, "spec": {"levels": levels}}],
        }
    }


def state_of(document: Document) -> Decided:
    cache = ClusterCache(SchedulerParams(partitioned=False))
    cache.load(joined(msgspec.json.decode(json.dumps(document["rawObjects"]), type=RawObjects).all()))
    return decided(cache, PACKING, NOW)


@settings(max_examples=12)
@given(clusters())
def test_the_plan_is_the_same_up_to_names(cluster: Cluster) -> None:
    document = document_of(cluster)
    words = Words({name: [_projected(name, obj) for obj in found] for name, found in document["rawObjects"].items()})
    before, after = state_of(document).plan, state_of(redacted(document)).plan

    def renamed(pod: tuple[str, str], node: str) -> tuple[str, str, str]:
        return words.of(pod[0]), words.of(pod[1]), words.of(node)

    assert [renamed(each.pod, each.node) for each in before.binds] == [(*each.pod, each.node) for each in after.binds]
    assert [renamed(each.pod, each.node) for each in before.nominations] == [
        (*each.pod, each.node) for each in after.nominations
    ]
    assert [renamed(each.pod, "")[:2] for each in before.evictions] == [each.pod for each in after.evictions]
    tokens = [verdict.dominant.token for verdict in before.verdicts if verdict.dominant]
    assert tokens == [verdict.dominant.token for verdict in after.verdicts if verdict.dominant]
