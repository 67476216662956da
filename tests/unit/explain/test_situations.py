"""Situations in which a workload waits, each with the reason that must dominate.

One line each: what stands in the cluster beside gang `g`, and the token that its reader must see first. Node `a` has 8
GPUs unless the situation brings nodes of its own; queue `q` has no bounds unless it brings queues.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pykai.cache.cluster import ClusterCache
from pykai.engine.policy import Policy
from pykai.explain.source import Decided, decided
from pykai.model.params import SchedulerParams
from pykai.model.plan import Category, Dominant
from pykai.model.resources import GPU
from pykai.objects import names
from pykai.objects.units import rfc3339
from tests import builders
from tests.builders import NOW, decoded
from tests.properties.small_world import PACKING
from tests.unit.engine.clusters import PRIORITIES, gang, node, pod, reservation

Objects = list[Any]


def queue(name: str = "q", parent: str = "", **shares: Any) -> Any:
    return builders.queue(name, parent, **shares)


def full(gpus: int = 8, on: str = "a", queue_name: str = "q", **more: Any) -> Objects:
    """A gang that holds GPUs of a node."""
    name = f"run{queue_name}"
    return [gang(name, queue=queue_name, **more), pod(f"{name}-0", on=on, gpus=gpus)]


def one(gpus: int = 1, spec: Any = None, **more: Any) -> Objects:
    """Gang `g` of one pod."""
    asks = {key: more.pop(key) for key in ("share", "devices", "cpu") if key in more}
    return [gang("g", **more), pod("g-0", spec=spec, gpus=0 if "share" in asks else gpus, **asks)]


def several(count: int, gpus: int, **more: Any) -> Objects:
    return [gang("g", **more), *(pod(f"g-{number}", gpus=gpus) for number in range(count))]


def running_since(seconds: int, obj: Any) -> Any:
    """The gang as it started so many seconds ago."""
    metadata = obj.metadata
    notes = {**(metadata.annotations or {}), names.LAST_START_TIMESTAMP: rfc3339(NOW - seconds)}
    return builders.as_kind(type(obj), {**_fields(obj), "metadata": {**_fields(metadata), "annotations": notes}})


def _fields(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


A, Q = node("a", 8), queue()
RACKS = [node(f"n{n}", 2, labels={"rack": f"r{n}"}) for n in range(2)]
SITE: dict[str, Any] = {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "site"}}
SITE["spec"] = {"levels": [{"nodeLabel": "rack"}]}
SELECT = {"nodeSelector": {"zone": "moon"}}
AFFINITY = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}]
            }
        }
    }
}
TAINTED = decoded(builders.node("a", 8, {"name": "a"}, taints=[{"key": "x", "effect": "NoSchedule"}]))
CORDONED = decoded(builders.node("a", 8, {"name": "a"}, unschedulable=True))
NOT_READY = decoded(builders.node("a", 8, {"name": "a"}, conditions=[{"type": "Ready", "status": "False"}]))
GATE = {"schedulingGates": [{"name": "wait"}]}
VOLUME = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
CONFIG = {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": "settings"}}]}]}
CLAIM = {"resourceClaims": [{"name": "c", "resourceClaimName": "gpu-claim"}]}
SHARED = [gang("s"), pod("s-0", on="a", share="0.6", device="d0"), reservation("a", "d0")]
LARGE = [gang("g"), builders.pod("g-0", "g", annotations={names.GPU_MEMORY: "100000"})]
TOPOLOGY = {"topology": "site", "requiredTopologyLevel": "rack"}
HALVES = [queue("q", gpu={"quota": 0}), queue("p", gpu={"quota": 0})]
WEIGHTLESS = queue("q", gpu={"quota": 0, "overQuotaWeight": 0})
NON: dict[str, Any] = {"preemptibility": "non-preemptible"}
SCATTERED = [gang("r", **NON), pod("r-0", on="a", gpus=1), gang("t", **NON), pod("t-0", on="b", gpus=1)]

SITUATIONS: dict[str, tuple[Objects, str]] = {
    "9 GPUs on 8-GPU nodes": ([A, Q, *one(9)], "TooLargeForEveryNode"),
    "more CPU than any node has": ([A, Q, *one(0, cpu="64")], "TooLargeForEveryNode"),
    "GPUs in a cluster without any": ([node("a"), Q, *one(1)], "TooLargeForEveryNode"),
    "9 GPUs, and the cluster is full": ([A, Q, *full(), *one(9)], "TooLargeForEveryNode"),
    "limit 0": ([A, queue(gpu={"limit": 0}), *one()], "OverLimit"),
    "limit used up": ([A, queue(gpu={"limit": 4}), *full(4), *one()], "OverLimit"),
    "limit of a parent": ([A, queue("top", gpu={"limit": 0}), queue("q", "top"), *one()], "OverLimit"),
    "limit of CPU": ([A, queue(cpu={"limit": 500}), *one(0, cpu="1")], "OverLimit"),
    "limit, and the cluster is full": ([A, queue(gpu={"limit": 8}), *full(), *one()], "OverLimit"),
    "limit, and too large": ([A, queue(gpu={"limit": 4}), *one(9)], "TooLargeForEveryNode"),
    "limit, and a wrong selector": ([A, queue(gpu={"limit": 0}), *one(spec=SELECT)], "NoMatchingNodes"),
    "missing queue": ([A, Q, *one(queue="nowhere")], "QueueDoesNotExist"),
    "missing queue, and too large": ([A, Q, *one(9, queue="nowhere")], "QueueDoesNotExist"),
    "parent of the queue missing": ([A, queue("q", "gone"), *one()], "QueueDoesNotExist"),
    "queue with children": ([A, queue("q"), queue("c", "q"), *one()], "QueueHasChildren"),
    "wrong selector": ([A, Q, *one(spec=SELECT)], "NoMatchingNodes"),
    "wrong selector, and the cluster is full": ([A, Q, *full(), *one(spec=SELECT)], "NoMatchingNodes"),
    "node affinity that no node meets": ([A, Q, *one(spec=AFFINITY)], "NoMatchingNodes"),
    "taint that is not tolerated": ([TAINTED, Q, *one()], "NoMatchingNodes"),
    "taint that is not tolerated, and the cluster is full": ([TAINTED, Q, *full(), *one()], "NoMatchingNodes"),
    "all nodes cordoned": ([CORDONED, Q, *one()], "NoMatchingNodes"),
    "no node is ready": ([NOT_READY, Q, *one()], "NoMatchingNodes"),
    "non-preemptible beyond quota": ([A, queue(gpu={"quota": 1}), *one(2, **NON)], "NonPreemptibleOverQuota"),
    "non-preemptible beyond the quota of a parent": (
        [A, queue("top", gpu={"quota": 1}), queue("q", "top"), *one(2, **NON)],
        "NonPreemptibleOverQuota",
    ),
    "quota held by others that cannot leave": (
        [A, queue(gpu={"quota": 4}), *full(4, **NON), *one(1, **NON)],
        "NonPreemptibleOverQuota",
    ),
    "queue at its fair share": (
        [A, *HALVES, *full(4), *full(4, queue_name="p"), *one()],
        "ReclaimQueueAtFairShare",
    ),
    "fair share of zero": (
        [
            A,
            queue("q", gpu={"quota": 0, "overQuotaWeight": 0}),
            queue("p", gpu={"quota": 8}),
            *full(queue_name="p"),
            *one(),
        ],
        "ReclaimQueueAtFairShare",
    ),
    "cluster full of its own queue's work": ([A, Q, *full(rank="high"), *one()], "InsufficientResources"),
    "CPU is short": ([A, Q, gang("r"), pod("r-0", on="a", cpu="8"), *one(0, cpu="2")], "InsufficientResources"),
    "pod slots are short": (
        [node("a", 8, pods=1), Q, gang("r"), pod("r-0", on="a"), *one()],
        "InsufficientResources",
    ),
    "GPUs free, but on two nodes": (
        [node("a", 2), node("b", 2), Q, *SCATTERED, *one(2, **NON)],
        "InsufficientResources",
    ),
    "gang one pod short of room": ([node("a", 3), Q, *several(4, 1, minMember=4)], "GangDoesNotFit"),
    "gang of whole nodes": ([A, Q, *several(2, 8, minMember=2)], "GangDoesNotFit"),
    "gang one pod short of existing": ([A, Q, *several(3, 1, minMember=4)], "PodsMissing"),
    "gang without a queue and without pods enough": (
        [A, Q, *several(3, 1, minMember=4, queue="nowhere")],
        "QueueDoesNotExist",
    ),
    "topology too narrow": (
        [*RACKS, SITE, Q, *several(4, 1, minMember=4, topologyConstraint=TOPOLOGY)],
        "TopologyTooNarrow",
    ),
    "topology that does not exist": (
        [*RACKS, Q, *several(2, 1, minMember=2, topologyConstraint=TOPOLOGY)],
        "TopologyDoesNotExist",
    ),
    "scheduling gate": ([A, Q, *one(spec=GATE)], "SchedulingGated"),
    "volume claim missing": ([A, Q, *one(spec=VOLUME)], "ReferencedObjectMissing"),
    "config map missing": ([A, Q, *one(spec=CONFIG)], "ReferencedObjectMissing"),
    "resource claim missing": ([A, Q, *one(spec=CLAIM)], "ResourceClaimNotReady"),
    "share larger than what is left of every device": (
        [node("a", 1), Q, *SHARED, *one(share="0.5")],
        "InsufficientResources",
    ),
    "shares free, but of two devices": (
        [
            node("a", 2),
            Q,
            gang("s"),
            *(pod(f"s-{n}", on="a", share="0.6", device=f"d{n}") for n in range(2)),
            *(reservation("a", f"d{n}") for n in range(2)),
            *one(share="0.5"),
        ],
        "InsufficientResources",
    ),
    "shares of two devices, and one is free": (
        [node("a", 2), Q, gang("s"), pod("s-0", on="a", gpus=1), *one(share="0.5", devices=2)],
        "InsufficientResources",
    ),
    "shares of two devices, and every node has one": (
        [node("a", 1), Q, *one(share="0.5", devices=2)],
        "TooLargeForEveryNode",
    ),
    "more memory of a GPU than any has": (
        [node("a", 1, labels={names.GPU_MEMORY_LABEL: "81559"}), Q, *LARGE],
        "TooLargeForEveryNode",
    ),
    "sub-group that does not exist": (
        [A, Q, gang("g", minMember=1), pod("g-0", gpus=1, part="workers")],
        "SubGroupDoesNotExist",
    ),
}


def state(objects: Objects, policy: Policy = PACKING) -> Decided:
    cache = ClusterCache(SchedulerParams(partitioned=False))
    found = [decoded(each) if isinstance(each, dict) else each for each in [*PRIORITIES, *objects]]
    cache.load(sorted(found, key=lambda each: type(each).__name__))
    return decided(cache, policy, NOW)


def dominant(objects: Objects, policy: Policy = PACKING) -> Dominant:
    (verdict,) = [each for each in state(objects, policy).plan.verdicts if each.gang[1] == "g"]
    assert verdict.dominant is not None
    return verdict.dominant


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_right_reason_dominates(situation: str) -> None:
    objects, token = SITUATIONS[situation]
    assert dominant(objects).token == token


def test_a_mismatch_says_what_does_not_match_also_where_nodes_are_full() -> None:
    selector = "no nodes with enough resources were found: 1 node(s) didn't match Pod's node affinity/selector."
    for situation in ("wrong selector, and the cluster is full", "limit, and a wrong selector"):
        assert dominant(SITUATIONS[situation][0]).message == selector
    taint = "taint that is not tolerated, and the cluster is full"
    assert dominant(SITUATIONS[taint][0]).message.endswith("1 node(s) had untolerated taint(s).")


def test_there_are_forty_situations() -> None:
    assert len(SITUATIONS) >= 40


def test_a_queue_depth_that_was_reached() -> None:
    objects = [A, Q, *full(), gang("f", age=10), pod("f-0", gpus=1), *one(2)]
    found = dominant(objects, replace(PACKING, queue_depth={"allocate": 1}))
    assert (found.token, found.category) == ("QueueDepthReached", Category.QUEUE_POLICY)


def test_protected_victims_are_named_with_the_end_of_their_protection() -> None:
    protected = queue("p", gpu={"quota": 0}, reclaimMinRuntime="10m")
    holder = running_since(60, gang("runp", queue="p"))
    objects = [A, queue("q", gpu={"quota": 8}), protected, holder, pod("runp-0", on="a", gpus=8), *one()]
    (verdict,) = state(objects).plan.verdicts
    assert verdict.dominant is not None
    assert (verdict.dominant.token, verdict.dominant.category) == ("InsufficientResources", Category.SHORTAGE)
    reclaim = next(each for each in verdict.actions if each.action == "reclaim")
    assert reclaim.code == "ReclaimVictimsProtected"
    assert reclaim.message.endswith(f"until {rfc3339(NOW + 540)}")


@pytest.mark.parametrize("situation", SITUATIONS)
def test_gpus_are_said_to_lack_only_where_they_do(situation: str) -> None:
    found = state(SITUATIONS[situation][0])
    (verdict,) = [each for each in found.plan.verdicts if each.gang[1] == "g"]
    codes = [each.code for each in verdict.actions]
    if "ConsolidationInsufficientGPUs" in codes:
        nodes, pods = found.snapshot.nodes, found.snapshot.pods
        gpus = [float(pods.of_class(row).request[GPU]) for row in range(len(pods.node))]
        used = sum(gpus[row] for row in range(len(gpus)) if pods.node[row] >= 0)
        wanted = sum(gpus[row] for row in pods.rows_of(verdict.pods).values())
        assert wanted > float(nodes.allocatable[GPU][nodes.ready].sum()) - used
