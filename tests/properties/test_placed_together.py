"""Pods of a gang that are placed together go where they would go one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from pykai.engine import common_order, ranking
from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place
from pykai.engine.order import pending_gangs
from pykai.engine.place import NodeSet, Placement, place_one
from pykai.objects import names
from pykai.objects.units import rfc3339
from tests.properties.clusters import ASKS, FREE, Lodging, clusters, pod_of
from tests.properties.small_world import NOW, OURS, POLICIES, Cluster, Fields

policies = st.sampled_from(sorted(POLICIES))


class OneByOne(Placement):
    """A placement that treats no pods as alike."""

    def _alike(self, pods: Sequence[int], nodes: NodeSet) -> int:
        return 0


@st.composite
def uneven(draw: st.DrawFn) -> Cluster:
    """Nodes that run out of GPUs, cores or slots, whichever comes first, and gangs of equal pods."""
    found = Cluster(queues=[_queue("d", ""), _queue("q", "d")])
    found.nodes = [_node(draw, f"n{number}") for number in range(draw(st.integers(2, 6)))]
    lodgings = [Lodging.of(item) for item in found.nodes]
    for number in range(draw(st.integers(1, 4))):
        count = draw(st.integers(2, 6))
        spec = {"queue": "q", "minMember": count, "preemptibility": "preemptible"}
        found.groups.append({"metadata": {"name": f"g{number}", "namespace": OURS}, "spec": spec})
        ask = ASKS[draw(st.sampled_from(["gpu", "gpu", "two gpus", "cpu", "much cpu"]))]
        pods = [pod_of(f"g{number}", ("", each), ask, {}) for each in range(count)]
        if draw(st.integers(0, 3)) == 3:
            _lodge(found, pods, lodgings, leaving=draw(st.booleans()))
        found.pods.extend(pods)
    return found


@st.composite
def singles(draw: st.DrawFn) -> Cluster:
    """Larger nodes, and pods that come one by one, often many of the same kind in a row."""
    gpus = draw(st.lists(st.sampled_from([0, 3, 4, 8]), min_size=2, max_size=5))
    kinds = st.sampled_from(["gpu", "two gpus", "cpu", "half", "memory"])
    runs = draw(st.lists(st.tuples(kinds, st.sampled_from([1, 3, 9, 16])), min_size=1, max_size=3))
    found = _arrivals(gpus, runs)
    lodgings = [Lodging.of(item) for item in found.nodes]
    _lodge(found, draw(st.lists(st.sampled_from(found.pods), max_size=3, unique_by=id)), lodgings, leaving=True)
    return found


@st.composite
def pooled(draw: st.DrawFn) -> Cluster:
    """Nodes in pools, with devices of two sizes, and pods that select one pool, some of them, or none."""
    found = draw(singles())
    for node in found.nodes:
        memory = draw(st.sampled_from(["3000", "20000"]))
        node["metadata"]["labels"].update({"pool": draw(st.sampled_from("abc")), names.GPU_MEMORY_LABEL: memory})
    for pod in found.pods:
        pools = draw(st.sampled_from(["", "", "a", "b", "ab", "bc"]))
        if pools:
            terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [*pools]}]}]
            rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            pod["spec"]["affinity"] = {"nodeAffinity": rule}
    return found


def _arrivals(gpus: Sequence[int], runs: Sequence[tuple[str, int]]) -> Cluster:
    """Nodes with so many GPUs, and so many gangs of one pod of each kind, one kind after the other."""
    found = Cluster(queues=[_queue("d", ""), _queue("q", "d")])
    for number, count in enumerate(gpus):
        offer = {"cpu": "32", "memory": "64Gi", "pods": "110", **({names.NVIDIA_GPU: str(count)} if count else {})}
        meta = {"name": f"n{number}", "labels": {}}
        found.nodes.append({"metadata": meta, "spec": {}, "status": {"allocatable": offer}})
    for number, kind in enumerate([kind for kind, count in runs for _ in range(count)]):
        spec = {"queue": "q", "minMember": 1, "preemptibility": "preemptible"}
        found.groups.append({"metadata": {"name": f"g{number:03}", "namespace": OURS}, "spec": spec})
        found.pods.append(pod_of(f"g{number:03}", ("", 0), ASKS[kind], {}))
    return found


def _queue(name: str, parent: str) -> Fields:
    return {"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": dict.fromkeys(_KINDS, FREE)}}


_KINDS = ("cpu", "memory", "gpu")


def _node(draw: st.DrawFn, name: str) -> Fields:
    offer = {"cpu": str(draw(st.integers(1, 8))), "memory": "64Gi", "pods": draw(st.sampled_from(["2", "3", "110"]))}
    gpus = draw(st.integers(0, 8))
    offer.update({names.NVIDIA_GPU: str(gpus)} if gpus else {})
    return {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": {"allocatable": offer}}


def _lodge(found: Cluster, pods: Sequence[Fields], lodgings: Sequence[Lodging], leaving: bool) -> None:
    for pod in pods:
        if any(room.take(found, pod) for room in lodgings) and leaving:
            pod["metadata"]["deletionTimestamp"] = rfc3339(NOW - 1)


@given(st.one_of(uneven(), clusters(most=12)), policies, st.booleans())
def test_pods_placed_together_go_where_each_would_go(cluster: Cluster, policy: str, wait_only: bool) -> None:
    snapshot = cluster.snapshot()
    together, one_by_one = (Cycle(snapshot, POLICIES[policy], NOW) for _ in range(2))
    for gang in pending_gangs(together):
        pods = pods_to_place(together.trial, together.orders, gang)
        done = Placement(together, gang, wait_only).place(pods)
        assert OneByOne(one_by_one, gang, wait_only).place(pods) == done
        assert together.trial.node == one_by_one.trial.node
        assert together.trial.status == one_by_one.trial.status
        assert together.trial.idle.tolist() == one_by_one.trial.idle.tolist()
        assert together.trial.queue_allocated == one_by_one.trial.queue_allocated


@example(_arrivals([3, 8, 4], [("gpu", 16)]), "packing")
@example(_arrivals([3, 8, 4], [("gpu", 5), ("half", 1), ("gpu", 9)]), "packing")
@given(singles(), policies)
def test_a_pod_that_takes_the_short_way_goes_where_it_would_go(cluster: Cluster, policy: str) -> None:
    with patch.object(ranking, "OFTEN", len(cluster.pods) % 4):  # nodes are put in order early
        _compare_short_way(cluster, policy)


@given(pooled(), policies, st.integers(0, 2), st.sampled_from([2, 512]))
def test_an_order_that_classes_share_has_the_best_node_first(
    cluster: Cluster, policy: str, few: int, looked_at: int
) -> None:
    """A ranking says which it is. Few nodes are put in order for each pod, and orders of some nodes are made early."""
    limits: dict[str, Any] = {"FEW": few, "MOST_LOOKED_AT": looked_at, "MOST_MISSES": 1}
    with patch.multiple(common_order, **limits), patch.object(ranking, "FIRST_PODS", 100):
        snapshot = cluster.snapshot()
        cycle = Cycle(snapshot, POLICIES[policy], NOW)
        for gang in pending_gangs(cycle):
            (pod,) = pods_to_place(cycle.trial, cycle.orders, gang)
            c = cycle.trial.of_class(pod)
            found, best = cycle.rankings.first(c), next(cycle.rankings.of(c).best(), None)
            assert found == best
            Placement(cycle, gang).place([pod])


def _compare_short_way(cluster: Cluster, policy: str) -> None:
    snapshot = cluster.snapshot()
    short, full = (Cycle(snapshot, POLICIES[policy], NOW) for _ in range(2))
    for gang in pending_gangs(short):
        pods = pods_to_place(short.trial, short.orders, gang)
        done = place_one(short, pods[0]) or Placement(short, gang).place(pods)
        assert Placement(full, gang).place(pods) == done
        assert short.trial.node == full.trial.node
        assert short.trial.status == full.trial.status
        assert short.trial.gpu_groups == full.trial.gpu_groups
        assert short.trial.idle.tolist() == full.trial.idle.tolist()
        assert short.trial.releasing.tolist() == full.trial.releasing.tolist()
