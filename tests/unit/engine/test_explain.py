"""What pods are told that found no node: reasons with counts, node by node where that is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.cache.cluster import ClusterCache
from pykai.engine.allocate import allocate
from pykai.engine.cycle import Cycle
from pykai.engine.explain import fit_error
from pykai.engine.reasons import ALL_CONSIDERED, NO_NODES, FitError, NodeReason
from pykai.model.params import SchedulerParams
from pykai.model.plan import Reason
from pykai.objects import kinds, names
from tests import builders
from tests.builders import as_kind, decoded
from tests.properties.small_world import NOW, PACKING
from tests.unit.plugins.small_clusters import Fields

from .clusters import PRIORITIES, bound, gang, node, plan, pod, reservation

MIG = "nvidia.com/mig-1g.5gb"
SHORT = "node(s) didn't have enough resources: "
NODE_SHORT = "Node didn't have enough resources: "


def asking(name: str, requests: dict[str, Any], notes: dict[str, str] | None = None, **spec: Any) -> Any:
    """A pending pod with requests and annotations of any kind."""
    meta = {"name": name, "namespace": "ns", "uid": name}
    annotations = {names.POD_GROUP_ANNOTATION: name.split("-")[0], **(notes or {})}
    containers = [{"name": "main", "resources": {"requests": requests}}]
    fields = {"schedulerName": names.SCHEDULER_NAME, "containers": containers, **spec}
    return as_kind(kinds.Pod, {"metadata": {**meta, "annotations": annotations}, "spec": fields})


def passed(*objects: Any, detailed: bool = False) -> Cycle:
    """A cycle after an allocate pass."""
    cache = ClusterCache(SchedulerParams(partitioned=False, detailed_fit_errors=detailed))
    cache.load([decoded(builders.queue()), *PRIORITIES, *objects])
    cycle = Cycle(cache.snapshot(NOW), PACKING, NOW)
    allocate(cycle)
    return cycle


def all_told(*objects: Any, detailed: bool = False) -> dict[str, str]:
    """What pods are told that were given no node."""
    cycle = passed(*objects, detailed=detailed)
    return {cycle.snapshot.pods.names[row]: text for row, text in cycle.reasons.pods.items()}


def told(*objects: Any, detailed: bool = False) -> str:
    """The same where there is one such pod."""
    (text,) = all_told(*objects, detailed=detailed).values()
    return text


def because(*reasons: str) -> str:
    return f"{NO_NODES}: " + ". \n".join(reasons) + "."


# ---------------------------------------------------------------------------------------------------------------- slots
HELD = [gang("held"), pod("held-0", "n")]
SLOTS = {
    "whole device": ([node("n", gpus=2, pods=1), *HELD], pod("new-0", gpus=1)),
    "share": ([node("n", gpus=2, pods=1)], pod("new-0", share="0.5")),
    "memory": ([node("n", gpus=2, pods=1)], asking("new-0", {}, {names.GPU_MEMORY: "1000"})),
    "mig": ([node("n", 0, 1, None, **{MIG: "2"}), *HELD], asking("new-0", {MIG: "1"})),
    "cores": ([node("n", pods=1), *HELD], pod("new-0", cpu="1")),
}


@pytest.mark.parametrize("which", SLOTS)
def test_a_node_without_slots_says_so(which: str) -> None:
    cluster, wish = SLOTS[which]
    assert told(*cluster, gang("new"), wish) == because("1 node(s) pod number exceeded")


def test_a_request_for_memory_names_full_nodes_beside_those_without_devices() -> None:
    cluster = [node("bare", labels={names.GPU_MEMORY_LABEL: ""}), node("n", gpus=1), reservation("n", "g")]
    taken = [gang("held"), pod("held-0", "n", share="0.75", device="g")]
    wish = asking("new-0", {}, {names.GPU_MEMORY: "8000"})
    unknown = "1 node is not a gpu node or the gpu memory count on the node was not synced yet"
    assert told(*cluster, *taken, gang("new"), wish) == because(unknown, f"1 {SHORT}GPUs")


def test_too_few_devices_come_before_slots() -> None:
    held = [gang("held"), pod("held-0", "n", gpus=1)]
    assert told(node("n", gpus=1, pods=1), *held, gang("new"), pod("new-0", share="0.5")) == because(f"1 {SHORT}GPUs")


# ------------------------------------------------------------------------------------------------------------- overhead
SANDBOX = {"overhead": {"cpu": "250m", "memory": "120Mi"}}
SUFFIX = (
    ". Not enough resources due to pod overhead resources. "
    "The overhead resources are  cpu: 0.25 cores, memory: 0.126 GB"
)
BUSY = [gang("busy"), pod("busy-0", "full", cpu="8"), pod("busy-1", "near", cpu="5")]
"""One node is full, one has 3 cores left."""


def test_who_would_fit_without_overhead_is_told() -> None:
    wish = asking("new-0", {"cpu": "3"}, **SANDBOX)
    text = told(node("full"), node("near"), *BUSY, gang("new"), wish)
    assert text == because(f"1 {SHORT}CPU cores", f"1 {SHORT}CPU cores{SUFFIX}")


@pytest.mark.parametrize(
    "wish",
    [
        asking("new-0", {"cpu": "3001m"}, **SANDBOX),
        asking("new-0", {"cpu": "3", names.NVIDIA_GPU: "1"}, **SANDBOX),
        asking("new-0", {"cpu": "3250m"}),
    ],
)
def test_overhead_is_not_blamed_for_what_it_does_not_cause(wish: Any) -> None:
    more = [node("gpus", gpus=1), gang("there"), pod("there-0", "gpus", gpus=1, cpu="8")]
    assert "overhead" not in told(node("full"), node("near"), *BUSY, *more, gang("new"), wish)


def test_a_share_may_fail_by_its_overhead() -> None:
    held = [gang("held"), pod("held-0", "n", cpu="7")]
    wish = asking("new-0", {"cpu": "1"}, {names.GPU_FRACTION: "0.5"}, **SANDBOX)
    assert told(node("n", gpus=1), *held, gang("new"), wish) == because(f"1 {SHORT}CPU cores{SUFFIX}")


# --------------------------------------------------------------------------------------------------------- node by node
def by_node(*lines: str) -> str:
    return f"\n{NO_NODES}." + "".join(f"\n{line}." for line in lines)


RUNNING = [gang("held"), pod("held-0", "n", gpus=1, cpu="6")]
FIGURES = {
    "GPUs": (pod("new-0", gpus=2), "GPUs, requested: 2, used: 1, capacity: 2"),
    "cores": (pod("new-0", cpu="2500m"), "CPU cores, requested: 2.5, used: 6, capacity: 8"),
    "devices": (pod("new-0", share="0.5", devices=2), "GPUs, requested: 1, used: 1, capacity: 2"),
    "memory of devices": (
        asking("new-0", {}, {names.GPU_MEMORY: "20000"}),
        "Each gpu on the node has a gpu memory capacity of 16000 Mib. 20000 Mib of gpu memory has been requested.",
    ),
    "portions": (
        asking("new-0", {}, {names.GPU_MEMORY: "8000", names.GPU_FRACTION_DEVICES: "2"}),
        "GPUs, requested: 1, used: 1, capacity: 2",
    ),
}


@pytest.mark.parametrize("which", FIGURES)
def test_a_pod_is_told_the_figures_of_each_node(which: str) -> None:
    wish, reason = FIGURES[which]
    text = told(node("n", gpus=2), *RUNNING, gang("new"), wish, detailed=True)
    assert text == by_node(f"n: {NODE_SHORT}{reason}")


def test_several_shortages_and_other_reasons() -> None:
    more: Fields = {"example.com/link": "4", MIG: "1"}
    taken = {"example.com/link": "3", "memory": "6G", MIG: "1"}
    nodes = [node("a", **more), node("b", cpu="16", memory="16G", **more)]
    cordoned = as_kind(
        kinds.Node, {"metadata": {"name": "c"}, "spec": {"unschedulable": True}, "status": nodes[1].status}
    )
    held = [gang("held"), asking("held-0", taken, nodeName="a"), asking("held-1", {MIG: "1"}, nodeName="b")]
    wish = asking("new-0", {"memory": "3G", "example.com/link": "2", MIG: "1"})
    lines = [
        "a: "
        f"{NODE_SHORT}memory, requested: 3, used: 6, capacity: 8, "
        f"{NODE_SHORT}example.com/link, requested: 2, used: 3, capacity: 4, "
        f"Node didn't have enough of mig profile: {MIG}, requested: 1, used: 1, capacity: 1",
        f"b: Node didn't have enough of mig profile: {MIG}, requested: 1, used: 1, capacity: 1",
        "c: node is unschedulable",
    ]
    assert told(*nodes, cordoned, *held, gang("new"), wish, detailed=True) == by_node(*lines)


def test_pods_of_larger_gangs_are_told_no_figures() -> None:
    """They change from one of its pods to the next; what devices are like does not."""
    wish = [gang("new", minMember=1), pod("new-0", gpus=2), pod("new-1", gpus=2)]
    text = told(node("n", gpus=2), *RUNNING, *wish, detailed=True)
    assert text == by_node(f"n: {NODE_SHORT}GPUs, {ALL_CONSIDERED}")


def test_pods_of_one_class_are_told_by_the_size_of_their_gangs() -> None:
    texts = []
    for order in ((1, 2), (2, 1)):
        ages = dict(zip(order, (200, 100), strict=True))
        single = [gang("single", age=ages[1]), pod("single-0", gpus=2)]
        pair = [gang("pair", age=ages[2]), pod("pair-0", gpus=2), pod("pair-1", gpus=2)]
        texts.append(all_told(node("n", gpus=2), *RUNNING, *single, *pair, detailed=True))
    figures = {"single-0": "requested: 2, used: 1, capacity: 2", "pair-0": ALL_CONSIDERED}
    assert texts == [{name: by_node(f"n: {NODE_SHORT}GPUs, {text}") for name, text in figures.items()}] * 2


def test_what_a_node_says_on_closer_look_is_told() -> None:
    cycle = passed(node("a"), node("b"), gang("new"), pod("new-0", cpu="1"), detailed=True)
    error = fit_error(cycle, cycle.trial.of_class(0), None, {1: "no zone", 0: "no port"})
    assert (error.counts, error.detailed(alone=True)) == (
        {"no zone": 1, "no port": 1},
        by_node("a: no port", "b: no zone"),
    )


def test_overhead_is_told_node_by_node() -> None:
    wish = asking("new-0", {"cpu": "3"}, **SANDBOX)
    text = told(node("full"), node("near"), *BUSY, gang("new"), wish, detailed=True)
    figures = f"{NODE_SHORT}CPU cores, requested: 3.25, used: "
    assert text == by_node(f"full: {figures}8, capacity: 8", f"near: {figures}5, capacity: 8{SUFFIX}")


def test_what_is_being_released_is_not_used() -> None:
    held = [gang("old"), pod("old-0", "n!", cpu="4"), gang("held"), pod("held-0", "n", cpu="2")]
    text = told(node("n"), *held, gang("new"), pod("new-0", cpu="7"), detailed=True)
    assert text == by_node(f"n: {NODE_SHORT}CPU cores, requested: 7, used: 2, capacity: 8")


@pytest.mark.parametrize(
    ("alone", "expected"), [(True, "short, figures. More"), (False, f"short, {ALL_CONSIDERED}. More")]
)
def test_the_parts_of_a_reason(alone: bool, expected: str) -> None:
    assert NodeReason("short", "figures", ". More").rendered(alone) == expected
    error = FitError({}, {"n": (NodeReason("closed"), NodeReason("short", "figures", ". More"))}, "base")
    assert error.detailed(alone) == f"\nbase.\nn: closed, {expected}."


def below(name: str, parent: str) -> Any:
    return as_kind(kinds.Queue, {"metadata": {"name": name}, "spec": {"parentQueue": parent}})


WRONG_QUEUES = [
    ("none", "QueueDoesNotExist", "Queue 'none' does not exist"),
    ("q", "PodSchedulingErrors", "Queue 'q' has child queues: workloads belong to a queue without children"),
    ("lost", "QueueDoesNotExist", "Queue 'lost' cannot be used: parent queue 'gone' does not exist"),
    ("deep", "QueueDoesNotExist", "Queue 'deep' cannot be used: parent queue 'gone' does not exist"),
    ("hen", "QueueDoesNotExist", "Queue 'hen' cannot be used: its parent queues form a circle"),
]


@pytest.mark.parametrize(("queue", "reason", "message"), WRONG_QUEUES)
def test_who_waits_in_a_queue_that_serves_nobody_is_told_so(queue: str, reason: str, message: str) -> None:
    queues = [
        below("child", "q"),
        below("lost", "gone"),
        below("deep", "lost"),
        below("hen", "egg"),
        below("egg", "hen"),
    ]
    found = plan(node("a", gpus=8), *queues, gang("g", queue=queue), pod("g-0", gpus=1))
    assert bound(found) == {}
    assert found.verdicts[0].reasons == (Reason(reason, message),)
    assert message in found.verdicts[0].pods["ns", "g-0"]
