"""Which objects count: pods that have not failed, nodes that are workers, gangs of our pool that have not given up."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.cache.cluster import Change, ClusterCache
from pykai.model.params import SchedulerParams
from pykai.objects import kinds, names
from tests import builders
from tests.builders import as_kind, decoded
from tests.unit.plugins.small_clusters import node

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


def pod(name: str, phase: str, group: str = "near") -> Any:
    return decoded({**builders.pod(name, group), "status": {"phase": phase}})


def group(name: str, **labels: str) -> Any:
    return decoded(builders.pod_group(name, metadata={"labels": labels}))


OBJECTS = [
    pod("failed", "Failed"),
    pod("waits", "Pending"),
    pod("far", "Pending", "far"),
    group("far", **{names.NODE_POOL_LABEL: "far"}),
    group("near"),
]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("partitioned", "gangs", "far"), [(True, ["near"], -1), (False, ["far", "near"], 0)])
def test_failed_pods_and_gangs_of_other_pools_do_not_count(
    partitioned: bool, gangs: list[str], far: int, at_once: bool
) -> None:
    cache = ClusterCache(SchedulerParams(partitioned=partitioned))
    if at_once:
        cache.load(OBJECTS)
    else:
        for obj in OBJECTS:
            cache.apply(Change(obj))
    found = cache.snapshot(0.0)
    assert found.gangs.names == gangs
    assert dict(zip(found.pods.names, found.pods.gang.tolist(), strict=True)) == {"waits": len(gangs) - 1, "far": far}
    assert ("ns", "failed") not in cache.of(kinds.Pod)


def tried(*conditions: tuple[str, str]) -> Any:
    """A gang that is tried once, with conditions of these numbers, each for a node pool."""
    fields = [{"type": "UnschedulableOnNodePool", "transitionID": n, "nodePool": pool} for n, pool in conditions]
    spec = {"queue": "q", "schedulingBackoff": 1}
    meta = {"name": "g", "namespace": "ns"}
    return as_kind(kinds.PodGroup, {"metadata": meta, "spec": spec, "status": {"schedulingConditions": fields}})


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
