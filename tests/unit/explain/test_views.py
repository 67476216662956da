"""Queues, order of service, evictions and devices: small clusters, figures by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pykai.cache.cluster import ClusterCache
from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.explain.device_map import device_map
from pykai.explain.source import Decided
from pykai.explain.views import Amount, EvictionView, Overview
from pykai.model.params import SchedulerParams
from pykai.objects.units import rfc3339
from pykai.observe.metrics import SCHEDULER, Metrics
from pykai.plugins import registry
from pykai.scheduler.cycle_metrics import record
from pykai.scheduler.decision import make_decision, no_judge
from tests.builders import NOW, decoded, node, pod, pod_group, priority_class, queue, snapshot

from pykai.config import scheduler_config  # isort: skip
from pykai.config.scheduler_config import SchedulerConfig  # isort: skip

Manifest = dict[str, Any]


def policy() -> Policy:
    return scheduler_config.policy(SchedulerConfig(), registry.make, registry.BUILT_IN)


def overview(*objects: Manifest) -> Overview:
    """What the built-in policy makes of a cluster."""
    taken, rules = snapshot(objects), policy()
    return Overview(Decided(taken, decide(taken, rules, NOW), rules, NOW, ClusterCache(SchedulerParams())))


def gang(name: str, queue: str, gpus: int = 1, at: str = "", **spec: Any) -> list[Manifest]:
    """A pod group of one pod, waiting or running at a node."""
    age = {"creationTimestamp": rfc3339(NOW - 100 + spec.pop("age", 0))}
    started = {"annotations": {"kai.scheduler/last-start-timestamp": rfc3339(NOW - 3600)}} if at else {}
    return [
        pod_group(name, queue, metadata={**age, **started}, **spec),
        pod(f"{name}-0", name, at, {"gpu": gpus, "cpu": "1"}),
    ]


def two_teams(quota_a: int = 2, quota_b: int = 2, **spec: Any) -> list[Manifest]:
    """A department with two teams, on one node of four GPUs."""
    return [
        node("n1", 4),
        queue("dept", gpu={"quota": quota_a + quota_b}),
        queue("a", "dept", gpu={"quota": quota_a}),
        queue("b", "dept", gpu={"quota": quota_b, **spec}),
    ]


def test_a_tree_with_what_waits_below_each_queue() -> None:
    found = overview(*two_teams(), *gang("x", "a", 3, "n1"), *gang("y", "b", 2), *gang("z", "b", 2)).queues
    assert [(each.name, each.depth, each.parent, each.leaf) for each in found] == [
        ("dept", 0, "", False),
        ("a", 1, "dept", True),
        ("b", 1, "dept", True),
    ]
    dept, a, b = found
    assert (dept.quota.gpu, dept.allocated.gpu, dept.requested.gpu) == (4, 3, 7)
    assert (dept.running, dept.waiting, dept.waiting_pods) == (1, 2, 2)
    assert a.allocated == Amount(cpu=1.0, memory=0.0, gpu=3.0)
    assert (a.quota.gpu, a.borrowed, a.limit.gpu) == (2, 1, -1)
    assert (b.fair_share.gpu, b.allocated.gpu, b.requested.gpu, b.borrowed) == (2, 0, 4, 0)


@pytest.mark.parametrize(
    ("objects", "reclaims"),
    [
        pytest.param([*two_teams(), *gang("x", "a", 4, "n1"), *gang("y", "b", 1)], {"b": ("a",)}, id="above quota"),
        pytest.param([*two_teams(), *gang("x", "a", 2, "n1"), *gang("y", "b", 1)], {}, id="within quota"),
        pytest.param(
            [*two_teams(), *gang("x", "a", 4, "n1", preemptibility="non-preemptible"), *gang("y", "b", 1)],
            {},
            id="not preemptible",
        ),
        pytest.param([*two_teams(), *gang("x", "a", 4, "n1")], {}, id="nobody asks, so the fair share is nothing"),
        pytest.param([*two_teams(limit=0), *gang("x", "a", 4, "n1"), *gang("y", "b", 1)], {}, id="a limit of nothing"),
        pytest.param(
            [
                node("n1", 4),
                queue("one", gpu={"quota": 2}),
                queue("a", "one", gpu={"quota": 2}),
                queue("two", gpu={"quota": 2}),
                queue("b", "two", gpu={"quota": 2}),
                *gang("x", "a", 4, "n1"),
                *gang("y", "b", 1),
            ],
            {"b": ("one",)},
            id="departments compete, and stand for what is below them",
        ),
    ],
)
def test_who_may_reclaim_from_whom(objects: list[Manifest], reclaims: dict[str, tuple[str, ...]]) -> None:
    found = overview(*objects)
    assert {each.name: each.may_reclaim_from for each in found.queues if each.may_reclaim_from} == reclaims
    lost = {(each.name, to) for each in found.queues for to in each.may_lose_to}
    assert lost == {(victim, name) for name, victims in reclaims.items() for victim in victims}
    evicts = {each.evictor_queue for each in found.evictions}
    assert evicts == set(reclaims), "what the overview says may happen is what the plan does"


@pytest.mark.parametrize(("by_priority", "reclaims"), [("true", ("a",)), ("false", ())])
def test_a_queue_of_higher_priority_may_take_what_is_within_quota(by_priority: str, reclaims: tuple[str, ...]) -> None:
    objects = [node("n1", 4), queue("a", gpu={"quota": 4}), queue("b", gpu={"quota": 4}, priority=200)]
    taken = snapshot([*objects, *gang("x", "a", 4, "n1"), *gang("y", "b", 1)])
    arguments = {"proportion": {"queuePriorityInQuotaReclaim": by_priority}}
    rules = Policy(registry.make_all([(name, arguments.get(name, {})) for name in registry.BUILT_IN]))
    found = Overview(Decided(taken, decide(taken, rules, NOW), rules, NOW, ClusterCache(SchedulerParams())))
    assert [each.may_reclaim_from for each in found.queues if each.name == "b"] == [reclaims]
    assert tuple(each.queue for each in found.evictions) == reclaims


def test_what_does_not_count_as_capacity_decides_nothing_either() -> None:
    """Fair shares are of the nodes that are ready: the book of the overview is the engine's own."""
    down = node("n2", 4, conditions=[{"type": "Ready", "status": "False"}])
    found = overview(*two_teams(), down, *gang("x", "a", 4, "n1"), *gang("y", "b", 1))
    assert found.book.total[-1] == 4


def test_figures_equal_the_metrics_of_the_scheduler() -> None:
    objects = [*two_teams(1, 3), *gang("x", "a", 3, "n1"), *gang("y", "b", 2)]
    cache = ClusterCache(SchedulerParams(partitioned=False))
    cache.load(_decoded(objects))
    decision = make_decision(cache, policy(), no_judge, NOW)
    metrics = Metrics(SCHEDULER, "kai")
    record(decision, metrics)
    text = metrics.text().decode()
    for each in Overview(Decided(decision.snapshot, decision.plan, decision.policy, NOW, cache)).queues:
        shown = {
            "queue_fair_share_gpu": each.fair_share.gpu,
            "queue_fair_share_cpu_cores": each.fair_share.cpu,
            "queue_fair_share_memory_gb": each.fair_share.memory / 1e9,
        }
        for name, value in shown.items():
            (line,) = re.findall(rf'^kai_{name}{{.*queue_metadata_name="{each.name}".*}} (.*)$', text, re.MULTILINE)
            assert float(line) == value, (each.name, name)


def _decoded(objects: list[Manifest]) -> list[Any]:
    return sorted(map(decoded, objects), key=lambda obj: type(obj).__name__)


def test_the_order_of_service_has_positions_in_the_queue_and_in_all() -> None:
    found = overview(
        *two_teams(2, 2),
        priority_class("high", 90),
        *gang("x", "a", 2, "n1"),
        *gang("w", "a", 2, "n1", age=1),
        *gang("old", "b", 3, age=2),
        *gang("urgent", "b", 4, age=9, priorityClassName="high"),
        *gang("mine", "a", 4, age=1),
    )
    assert [each.name for each in found.queue_order("b")] == ["urgent", "old"]
    assert [each.position for each in found.queue_order("b")] == [1, 2]
    assert [each.overall for each in found.waiting] == [1, 2, 3]
    assert {each.name: each.position for each in found.queue_order("dept")} == {"urgent": 1, "old": 2, "mine": 1}
    assert [each.name for each in found.running("dept")] == ["w", "x"]
    with pytest.raises(KeyError):
        found.queue_order("none")


def test_states_of_workloads() -> None:
    found = overview(
        *two_teams(2, 2),
        *gang("x", "a", 3, "n1"),
        *gang("now", "b", 1),
        *gang("soon", "b", 1, age=1),
        *gang("never", "a", 9),
    )
    states = {name: found.workload(("ns", name)) for name in ("x", "now", "soon", "never")}
    assert {name: view.state for name, view in states.items() if view} == {
        "x": "Running",
        "now": "Starting",
        "soon": "Pipelined",
        "never": "Waiting",
    }
    never = states["never"]
    assert never is not None
    assert never.reason
    assert "GPU" in never.message
    assert found.workload(("ns", "none")) is None


def test_an_eviction_names_both_sides_and_the_work_lost() -> None:
    (found,) = overview(*two_teams(), *gang("x", "a", 4, "n1"), *gang("y", "b", 1)).evictions
    assert (found.pod, found.workload, found.queue, found.node) == ("x-0", "x", "a", "n1")
    assert (found.action, found.evictor, found.evictor_queue) == ("reclaim", "y", "b")
    assert found.lost_gpu_hours == pytest.approx(4.0)
    assert found.gist == "a used 4 GPUs with a quota of 2 and a fair share of 3"


def test_the_work_lost_counts_from_the_start_of_the_pod() -> None:
    """A pod of a gang may have started later than the gang."""
    group, holder = gang("x", "a", 4, "n1")
    holder["status"]["startTime"] = rfc3339(NOW - 900)
    (found,) = overview(*two_teams(), group, holder, *gang("y", "b", 1)).evictions
    assert found.lost_gpu_hours == pytest.approx(1.0)


def test_the_gist_of_other_evictions_is_their_message() -> None:
    found = EvictionView(0.0, "ns", "p", "w", "q", "preempt", "Pod ns/p was preempted by workload ns/w")
    assert found.gist == "was preempted by workload ns/w"
    assert found.lost_gpu_hours is None


def shared(name: str, at: str, group: str, fraction: str) -> list[Manifest]:
    labels = {"runai-gpu-group": group}
    return [
        pod_group(name, "q"),
        pod(f"{name}-0", name, at, annotations={"gpu-fraction": fraction}, labels=labels),
    ]


def test_devices_whole_shared_and_free() -> None:
    taken = snapshot(
        [
            queue("q"),
            node("n1", 4, labels={"nvidia.com/gpu.memory": "1000"}),
            node("n2", 8),
            node("n3", 8, unschedulable=True),
            *gang("w", "q", 2, "n1"),
            *shared("s", "n1", "g1", "0.5"),
            *shared("t", "n1", "g1", "0.25"),
            *gang("v", "q", 3, "n2"),
        ]
    )
    found = device_map(taken)
    first, second, third = found.nodes
    assert [len(device.holders) for device in first.devices] == [1, 1, 2, 0]
    assert [holder.share for holder in first.devices[2].holders] == [0.5, 0.25]
    assert (first.allocated, first.free, first.segments) == (2.75, 1, (0.25,))
    assert (second.allocated, second.free, second.segments) == (3, 5, ())
    assert third.conditions == ("node is unschedulable",)
    totals = found.totals
    assert (totals.nodes, totals.gpus, totals.allocated, totals.free, totals.shared) == (3, 12, 5.75, 6, 1)
    assert (totals.free_parts, totals.largest_part, totals.unavailable) == (0.25, 0.25, 8)
    assert totals.fits == {1: 6, 2: 2, 4: 1, 8: 0}
    assert totals.fragmentation == 1.0, "no pod of eight GPUs can use what is free"


def test_a_cluster_without_anything() -> None:
    found = overview()
    assert (found.queues, found.waiting, found.evictions) == ((), (), ())
    assert device_map(found.snapshot).totals.fits == {}
