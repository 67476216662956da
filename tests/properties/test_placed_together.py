"""Pods of a gang that are placed together go where they would go one by one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place
from pykai.engine.order import pending_gangs
from pykai.engine.place import NodeSet, Placement
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
