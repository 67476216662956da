"""Which objects count: nodes that are workers, gangs that have not given up."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.cache.cluster import ClusterCache
from pykai.model.params import SchedulerParams
from pykai.objects import kinds, names
from tests.unit.plugins.small_clusters import kind, node

POOLS = [(True, ["worker"]), (False, ["far", "worker"])]


@pytest.mark.parametrize(("partitioned", "expected"), POOLS)
def test_only_workers_count_with_and_without_node_pools(partitioned: bool, expected: list[str]) -> None:
    params = SchedulerParams(partitioned=partitioned, restrict_nodes=True)
    worker = {params.cpu_worker_key: "true"}
    cache = ClusterCache(params)
    cache.load(
        [node("worker", worker), node("far", {params.gpu_worker_key: "", names.NODE_POOL_LABEL: "far"}), node("other")]
    )
    assert sorted(cache.snapshot(0.0).nodes.names) == expected


def tried(*conditions: tuple[str, str]) -> Any:
    """A gang that is tried once, with conditions of these numbers, each for a node pool."""
    fields = [{"type": "UnschedulableOnNodePool", "transitionID": n, "nodePool": pool} for n, pool in conditions]
    spec = {"queue": "q", "schedulingBackoff": 1}
    meta = {"name": "g", "namespace": "ns"}
    return kind(kinds.PodGroup, {"metadata": meta, "spec": spec, "status": {"schedulingConditions": fields}})


NUMBERS = [
    ([("1", "default")], []),
    ([("1", "default"), ("2", "other")], ["g"]),
    ([("odd", "default")], []),
    ([("odd", "default"), ("1", "other")], ["g"]),
    ([("1", "default"), ("odd", "other")], []),
    ([("", "default"), ("odd", "other")], []),
]


@pytest.mark.parametrize(("conditions", "left"), NUMBERS)
def test_a_condition_whose_number_cannot_be_read_is_older_than_all(
    conditions: list[tuple[str, str]], left: list[str]
) -> None:
    cache = ClusterCache(SchedulerParams())
    cache.load([tried(*conditions)])
    assert cache.snapshot(0.0).gangs.names == left
