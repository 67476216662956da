"""The judge: for every rule a plan that breaks it, and nothing but the tables to judge by."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.cache.cluster import ClusterCache
from pykai.model.params import SchedulerParams
from pykai.model.plan import Bind, Evict, Nomination, Plan, Timestamp, Verdict
from pykai.model.snapshot import Snapshot
from pykai.objects import kinds, names
from pykai.verify.judge import verify
from tests import builders
from tests.builders import as_kind, decoded
from tests.unit.plugins.small_clusters import Fields

GPU = names.NVIDIA_GPU


def queue(name: str, parent: str, **gpu: float) -> Any:
    return decoded(builders.queue(name, parent, gpu=gpu))


def node(name: str, spec: Fields | None = None, **labels: str) -> Any:
    """A node of four pods with two devices of 16 GB."""
    return decoded(builders.node(name, 2, {names.GPU_MEMORY_LABEL: "16000", **labels}, {"pods": "4"}, **(spec or {})))


def gang(name: str, leaf: str = "a", rank: str = "", **spec: Any) -> Any:
    return decoded(builders.pod_group(name, leaf, **{"priorityClassName": rank, **spec}))


def pod(name: str, group: str, on: str = "", spec: Fields | None = None, **asks: str) -> Any:
    """A pod that runs where `on` names a node and is terminating where it ends with an exclamation mark."""
    annotations = {key.replace("_", "-"): value for key, value in asks.items() if key.startswith("gpu_")}
    requests = {"gpu" if key == "gpus" else key: value for key, value in asks.items() if key in REQUESTS}
    labels = {key: asks[name] for key, name in LABELS.items() if name in asks}
    metadata = {"annotations": annotations, "labels": labels, "terminating": on.endswith("!")}
    return decoded(builders.pod(name, group, on.strip("!"), requests, spec, **metadata))


REQUESTS = ("cpu", "memory", "gpus")
LABELS = {names.GPU_GROUP_LABEL: "device", names.SUBGROUP_LABEL: "part"}
PARTS = [{"name": "left", "minMember": 1}, {"name": "right", "minMember": 2}]
NESTED = [{"name": "branch", "minSubGroup": 1}, {"name": "leaf", "parent": "branch", "minMember": 2}]
TOGETHER = {"topology": "site", "requiredTopologyLevel": "rack"}

CLUSTER = [
    as_kind(kinds.PriorityClass, {"metadata": {"name": "low"}, "value": 10}),
    as_kind(kinds.PriorityClass, {"metadata": {"name": "high"}, "value": 90}),
    as_kind(kinds.Topology, {"metadata": {"name": "site"}, "spec": {"levels": [{"nodeLabel": "rack"}]}}),
    *(
        queue("d", ""),
        queue("a", "d"),
        queue("b", "d", quota=0),
        queue("tight", "d", limit=1),
        queue("safe", "d", quota=2),
        queue("tiny", "d", limit=0.25),
    ),
    *(queue("held", "d", quota=1), node("n1", rack="r1"), node("n2", rack="r2"), node("full", rack="r1")),
    *(node("tainted", {"taints": [{"key": "x", "effect": "NoSchedule"}]}), node("closed", {"unschedulable": True})),
    *(gang("one"), pod("one-0", "one", cpu="1", gpus="1"), gang("next"), pod("next-0", "next", cpu="1")),
    *(gang("big"), pod("big-0", "big", cpu="9"), gang("sharp"), pod("sharp-0", "sharp", gpu_fraction="0.7")),
    *(gang("twin"), pod("twin-0", "twin", gpu_fraction="0.7")),
    *(gang("pair", minMember=2), pod("pair-0", "pair", cpu="1"), pod("pair-1", "pair", cpu="1")),
    *(gang("parts", minMember=None, subGroups=PARTS), pod("left-0", "parts", part="left", cpu="1")),
    *(pod("right-0", "parts", part="right", cpu="1"), pod("right-1", "parts", part="right", cpu="1")),
    *(gang("near", minMember=2, topologyConstraint=TOGETHER), pod("near-0", "near"), pod("near-1", "near")),
    *(gang("nested", minMember=None, subGroups=NESTED), pod("deep-0", "nested", part="leaf", cpu="1")),
    *(pod("deep-1", "nested", part="leaf", cpu="1"), pod("stray-0", "parts", part="nowhere", cpu="1")),
    *(gang("mib", "tiny"), pod("mib-0", "mib", gpu_memory="8000")),
    *(gang("choosy"), pod("choosy-0", "choosy", spec={"nodeSelector": {"rack": "r9"}})),
    *(gang("wants-gpus", "tight"), pod("wants-gpus-0", "wants-gpus", gpus="2")),
    *(gang("fixed", "held", preemptibility="non-preemptible"), pod("fixed-0", "fixed", gpus="2")),
    *(gang("low", rank="low"), pod("low-0", "low", "full", cpu="4"), gang("high", rank="high"), pod("high-0", "high")),
    *(gang("other", "b", "low"), pod("other-0", "other", "full", cpu="3", gpus="1")),
    *(gang("quiet", "safe"), pod("quiet-0", "quiet", "n2", gpus="1")),
    *(gang("firm", preemptibility="non-preemptible"), pod("firm-0", "firm", "n2", cpu="1")),
    *(
        gang("duo", rank="low", minMember=2),
        pod("duo-0", "duo", "n2", cpu="1"),
        pod("duo-1", "duo", "tainted", cpu="1"),
    ),
    *(gang("going"), pod("going-0", "going", "closed!", cpu="1", device="old", gpu_fraction="0.5")),
]


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    cache = ClusterCache(SchedulerParams(partitioned=False))
    cache.load(CLUSTER)
    return cache.snapshot(1000.0)


def bind(name: str, on: str = "n1", *groups: str, **fields: Any) -> Bind:
    shared = {"devices": 1, "portion": 0.7} if groups else {"devices": 0, "portion": 0.0}
    return Bind(("ns", name), on, "Regular", **{**shared, **fields}, gpu_groups=groups)


def wait(name: str, on: str = "n1", *groups: str) -> Nomination:
    return Nomination(("ns", name), on, groups)


def evict(name: str, action: str = "preempt", by: str | None = "high", **fields: Any) -> Evict:
    evictor = None if by is None else ("ns", by)
    return Evict(("ns", name), ("ns", name.rsplit("-", 1)[0]), action, "", evictor, 1, **fields)


HIGH = wait("high-0", "full")
GOOD = {
    "nothing": Plan(),
    "a bind": Plan((bind("one-0", devices=1, portion=1.0),)),
    "two shares on two new devices": Plan((bind("sharp-0", "n1", "x"), bind("twin-0", "n1", "y"))),
    "a gang": Plan((bind("pair-0"), bind("pair-1", "full"))),
    "a gang that waits in part and so as a whole": Plan((), (wait("pair-0"), wait("pair-1", "full"))),
    "sub-groups": Plan((bind("left-0"), bind("right-0"), bind("right-1"))),
    "preemption": Plan((), (HIGH,), (evict("low-0"),)),
    "a move": Plan((), (HIGH, wait("low-0")), (evict("low-0", "consolidation", moves_to="n1"),)),
    "reclaim between queues": Plan((), (HIGH,), (evict("other-0", "reclaim"),)),
    "a place that changed hands": Plan((bind("next-0"),), (), (evict("low-0", heir=("ns", "next")),)),
    "a gang goes whole": Plan((), (HIGH,), (evict("duo-0"), evict("duo-1"))),
}


@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_right_plan_passes(snapshot: Snapshot, name: str, everything: bool) -> None:
    assert [str(v) for v in verify(snapshot, GOOD[name], everything=everything)] == []


NODE, DEVICE, PLACE = "a node holds its pods", "a device holds its shares", "a node may have the pod"
GANG, TORN, MOVES = "a gang gets its minimum", "a gang goes whole or keeps its minimum", "a moved pod has a place"
SHARE, UNKNOWN, ONCE = "a pod gets the devices it requests", "unknown name", "one decision per pod"
BAD: list[tuple[str, Plan, str]] = [
    ("a pod nobody knows", Plan((bind("ghost-0"),)), UNKNOWN),
    ("a node nobody knows", Plan((bind("next-0", "n9"),)), UNKNOWN),
    ("an eviction of nobody", Plan((), (HIGH,), (evict("ghost-0"),)), UNKNOWN),
    ("a pod of no sub-group", Plan((bind("stray-0"),)), "only pending pods are placed"),
    ("evicted by itself", Plan((), (wait("low-0"),), (evict("low-0", by="low"),)), "no gang evicts itself"),
    ("reclaimed by nobody", Plan((), (HIGH,), (evict("other-0", "reclaim", by="ghost"),)), UNKNOWN),
    ("half of a nested sub-group", Plan((bind("deep-0"),)), GANG),
    ("too much memory of devices", Plan((bind("mib-0", "n1", "x", portion=0.5),)), "a queue keeps its limit"),
    ("an evictor nobody knows", Plan((), (HIGH,), (evict("low-0", by="ghost"),)), UNKNOWN),
    ("a mark on nobody", Plan(timestamps=(Timestamp(("ns", "ghost"), "stale", None),)), UNKNOWN),
    (
        "the wrong gang",
        Plan((), (HIGH,), (Evict(("ns", "low-0"), ("ns", "duo"), "preempt", "", ("ns", "high"), 1),)),
        UNKNOWN,
    ),
    (
        "a reason for who has a place",
        Plan((bind("next-0"),), (), (), (Verdict(("ns", "next"), (), "", {("ns", "next-0"): ""}),)),
        "verdicts are for pending pods",
    ),
    ("bound twice", Plan((bind("next-0"), bind("next-0"))), ONCE),
    ("bound and promised", Plan((bind("next-0"),), (wait("next-0"),)), ONCE),
    ("bound and evicted", Plan((bind("low-0"),), (HIGH,), (evict("low-0", moves_to="n1"),)), ONCE),
    ("evicted twice", Plan((), (HIGH,), (evict("low-0"), evict("low-0"))), ONCE),
    ("bound while it runs", Plan((bind("low-0"),)), "only pending pods are placed"),
    ("evicted while it waits", Plan((), (HIGH,), (evict("next-0"),)), "only what runs is evicted"),
    ("too much CPU", Plan((bind("big-0"),)), NODE),
    ("too much CPU for later", Plan((), (wait("big-0"),)), NODE),
    ("no pod slot for a reservation", Plan((bind("sharp-0", "n2", "x"), bind("twin-0", "n2", "y"))), NODE),
    (
        "more devices than there are",
        Plan((bind("one-0", "n2", devices=1, portion=1.0), bind("sharp-0", "n2", "x"))),
        NODE,
    ),
    (
        "started before the victim left",
        Plan((bind("high-0", "full"), bind("next-0", "full"), bind("choosy-0", "full")), (), ()),
        NODE,
    ),
    ("two shares too large for a device", Plan((bind("sharp-0", "n1", "x"), bind("twin-0", "n1", "x"))), DEVICE),
    ("a share without a device", Plan((bind("sharp-0", "n1", devices=1, portion=0.7),)), SHARE),
    ("a device for who wants none", Plan((bind("next-0", "n1", "x", devices=0, portion=0.0),)), SHARE),
    ("another portion", Plan((bind("sharp-0", "n1", "x", portion=0.5),)), SHARE),
    ("a taint", Plan((bind("next-0", "tainted"),)), PLACE),
    ("a closed node", Plan((bind("next-0", "closed"),)), PLACE),
    ("a selector", Plan((bind("choosy-0"),)), PLACE),
    ("apart", Plan((bind("near-0", "n1"), bind("near-1", "n2"))), "a sub-group stays together"),
    ("above the limit", Plan((bind("wants-gpus-0", devices=2, portion=1.0),)), "a queue keeps its limit"),
    ("above the quota", Plan((bind("fixed-0", devices=2, portion=1.0),)), "non-preemptible work keeps the quota"),
    ("half a gang", Plan((bind("pair-0"),)), GANG),
    ("half a gang at once", Plan((bind("pair-0"),), (wait("pair-1", "full"),)), GANG),
    ("one sub-group of two", Plan((bind("left-0"),)), GANG),
    ("a part of a sub-group", Plan((bind("left-0"), bind("right-0"))), GANG),
    ("a gang torn apart", Plan((), (HIGH,), (evict("duo-0"),)), TORN),
    ("who cannot be evicted", Plan((), (wait("high-0", "n2"),), (evict("firm-0"),)), "non-preemptible work stays"),
    ("for nobody", Plan((), (), (evict("low-0"),)), "an eviction makes a place"),
    ("not stale", Plan((), (), (evict("low-0", "stalegangeviction", None),)), "only stale gangs go without an evictor"),
    ("preempted by another queue", Plan((), (HIGH,), (evict("other-0"),)), "preemption goes down in a queue"),
    (
        "preempted by its equal",
        Plan((bind("next-0"),), (), (evict("quiet-0", by="next"),)),
        "preemption goes down in a queue",
    ),
    ("reclaimed within a queue", Plan((), (HIGH,), (evict("low-0", "reclaim"),)), "reclaim goes between queues"),
    ("reclaimed within quota", Plan((), (HIGH,), (evict("quiet-0", "reclaim"),)), "quotas are safe from reclaim"),
    ("consolidated away", Plan((), (HIGH,), (evict("low-0", "consolidation"),)), "consolidation moves"),
    ("moves nowhere", Plan((), (HIGH,), (evict("low-0", "consolidation", moves_to="n1"),)), MOVES),
    ("moves elsewhere", Plan((), (HIGH, wait("low-0")), (evict("low-0", "consolidation", moves_to="n2"),)), MOVES),
]


@pytest.mark.parametrize(("plan", "rule"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_wrong_plan_is_found_out(snapshot: Snapshot, plan: Plan, rule: str) -> None:
    found = verify(snapshot, plan)
    assert rule in {violation.rule for violation in found}, [str(violation) for violation in found]
    assert verify(snapshot, plan, everything=False) == found


def test_figures_are_told(snapshot: Snapshot) -> None:
    assert str(verify(snapshot, Plan((bind("big-0"),)))[0]) == "a node holds its pods: n1: 0 + 9000 of 8000 cpu now"


def test_a_rule_holds_where_its_plugin_runs(snapshot: Snapshot) -> None:
    plan = Plan((bind("wants-gpus-0", "tainted", devices=2, portion=1.0),))
    assert {v.rule for v in verify(snapshot, plan)} == {PLACE, "a queue keeps its limit"}
    assert {v.rule for v in verify(snapshot, plan, ["proportion"])} == {"a queue keeps its limit"}
    assert verify(snapshot, plan, ["topology"]) == []
