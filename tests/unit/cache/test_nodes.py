"""The table of the nodes is the same one for as long as the nodes say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pykai.cache.cluster import Change, ClusterCache
from pykai.model.nodes import NodeTable
from pykai.model.params import SchedulerParams
from pykai.objects import kinds

OFFERED = {"cpu": "8", "pods": "110", "nvidia.com/gpu": "4"}


def node(*, seen: str = "00:00", ready: str = "True", offered: Any = None, labels: Any = None, spec: Any = None) -> Any:
    condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": f"2026-01-01T{seen}:00Z"}
    written = {
        "metadata": {"name": "n1", "labels": labels or {"rack": "a"}, "annotations": {"seen": seen}},
        "spec": spec or {},
        "status": {"allocatable": offered or OFFERED, "conditions": [condition]},
    }
    return kinds.decode(json.dumps(written), kinds.Node)


def device_slice() -> Any:
    spec = {"driver": "gpu.example.com", "nodeName": "n1", "devices": [{"name": "gpu-0"}]}
    return kinds.decode(json.dumps({"metadata": {"name": "s1"}, "spec": spec}), kinds.ResourceSlice)


def tables(*states: Any) -> list[NodeTable]:
    """The table after each change."""
    cache, found = ClusterCache(SchedulerParams()), []
    for state in states:
        cache.apply(Change(state))
        found.append(cache.snapshot(0.0).nodes)
    return found


def test_a_heartbeat_makes_no_new_table() -> None:
    first, second = tables(node(), node(seen="00:05"))
    assert second is first


@pytest.mark.parametrize(
    "changed",
    [
        node(ready="False"),
        node(offered={**OFFERED, "cpu": "4"}),
        node(labels={"rack": "b"}),
        node(spec={"taints": [{"key": "k", "effect": "NoSchedule"}]}),
        node(spec={"unschedulable": True}),
        device_slice(),
    ],
    ids=["condition", "amount", "label", "taint", "cordon", "devices of a driver"],
)
def test_a_node_that_says_something_else_does(changed: Any) -> None:
    first, second, third = tables(node(), changed, changed)
    assert second is not first
    assert third is second


def test_what_was_derived_from_a_table_stays_with_it() -> None:
    asked = []

    def values(nodes: NodeTable, key: str) -> list[str | None]:
        asked.append(key)
        return [labels.get(key) for labels in nodes.labels]

    for table in tables(node(), node(seen="00:05")):
        assert table.derived(values, "rack") == ["a"]
        assert table.derived(values, "zone") == [None]
    assert asked == ["rack", "zone"]
