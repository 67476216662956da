"""Queues: what is admitted, what may not be deleted, and warnings about quotas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykai.admission.queue_rules import QueueRules, validate_queue, validate_queue_deletion
from pykai.admission.verdict import AdmissionVerdict
from tests.unit.admission.bad_input_objects import UNLIMITED_QUEUE, queue


def quotas(cpu: float = 0, gpu: float = 0, memory: float = 0) -> dict[str, Any]:
    return {"cpu": {"quota": cpu}, "gpu": {"quota": gpu}, "memory": {"quota": memory}}


def with_children(item: dict[str, Any], *names: str) -> dict[str, Any]:
    return {**item, "status": {"childQueues": list(names)}}


@pytest.mark.parametrize(
    "item",
    [
        queue({}),
        queue(UNLIMITED_QUEUE, parentQueue="default", priority=-5),
        queue({"gpu": {"quota": 0.7, "limit": 1e300}}, preemptMinRuntime="1h30m", reclaimMinRuntime="0"),
        queue({"gpu": None}, parentQueue="", displayName="Team"),
    ],
)
def test_admitted(item: dict[str, Any]) -> None:
    assert admitted(item, None, QueueRules())


def admitted(item: dict[str, Any], old: Any, rules: QueueRules) -> bool:
    """Whether KAI would say nothing; advice of our own does not count."""
    return replace(validate_queue(item, old, rules), advice=()) == AdmissionVerdict()


@pytest.mark.parametrize(
    ("item", "advice"),
    [
        (queue(UNLIMITED_QUEUE), []),
        (queue(UNLIMITED_QUEUE, parentQueue="there"), []),
        (
            queue({**UNLIMITED_QUEUE, "gpu": {"quota": 4}}),
            ["spec.resources.gpu.limit is not set and counts as 0: the queue can use no GPUs; -1 is unlimited"],
        ),
        (
            queue({"gpu": {"quota": 4, "limit": -1}}),
            [
                "spec.resources.cpu.limit is not set and counts as 0: the queue can use no CPU; -1 is unlimited",
                "spec.resources.memory.limit is not set and counts as 0: the queue can use no memory; -1 is unlimited",
            ],
        ),
        (
            queue({**UNLIMITED_QUEUE, "gpu": {"quota": 8, "limit": 4}}),
            ["spec.resources.gpu.quota (8) is above its limit (4): the queue never gets all of it"],
        ),
        (
            queue({**UNLIMITED_QUEUE, "cpu": {"quota": -1, "limit": 0}}),
            ["spec.resources.cpu.quota (unlimited) is above its limit (0): the queue never gets all of it"],
        ),
        (
            queue(UNLIMITED_QUEUE, parentQueue="ghost"),
            ["parent queue 'ghost' does not exist: workloads of this queue wait until it does"],
        ),
    ],
)
def test_advice_about_queues_that_do_not_say_what_was_meant(item: dict[str, Any], advice: list[str]) -> None:
    verdict = validate_queue(item, None, QueueRules({"there": queue(UNLIMITED_QUEUE, name="there")}))
    assert (verdict.allowed, verdict.warnings, list(verdict.advice)) == (True, (), advice)


def test_a_cycle_elsewhere_is_not_this_queues_fault() -> None:
    others = {"a": queue({}, name="a", parentQueue="b"), "b": queue({}, name="b", parentQueue="a")}
    assert admitted(queue({}, parentQueue="a"), None, QueueRules(others))


def test_a_queue_with_children_stays() -> None:
    assert validate_queue_deletion(queue({})) == AdmissionVerdict()
    verdict = validate_queue_deletion(with_children(queue({}), "c1", "c2"))
    assert verdict == AdmissionVerdict(False, "cannot delete queue team: it has child queues [c1 c2]")
    there_are = {"team": queue({}), "c2": queue({}, name="c2")}
    verdict = validate_queue_deletion(with_children(queue({}), "c1", "c2"), there_are)
    assert verdict == AdmissionVerdict(False, "cannot delete queue team: it has child queues [c2]")
    assert validate_queue_deletion(with_children(queue({}), "c1"), there_are) == AdmissionVerdict()


PARENT = with_children(queue(quotas(1000, 2, 5000), name="p"), "team", "twin", "ghost")
TWIN = queue(quotas(600, 1, 100), name="twin", parentQueue="p")
ITSELF_BEFORE = queue(quotas(999, 2, 999), parentQueue="p")
THERE_ARE = {"p": PARENT, "twin": TWIN, "team": ITSELF_BEFORE}


@pytest.mark.parametrize(
    ("resources", "warnings"),
    [
        (quotas(400, 1, 4900), ()),
        (quotas(401), ("total children CPU quota (1001) exceeds parent queue p CPU quota (1000)",)),
        (
            quotas(1500, 2.5, 5001),
            (
                "child queue CPU quota (1500) exceeds parent queue p CPU quota (1000)",
                "total children CPU quota (2100) exceeds parent queue p CPU quota (1000)",
                "child queue GPU quota (2.50) exceeds parent queue p GPU quota (2.00)",
                "total children GPU quota (3.50) exceeds parent queue p GPU quota (2.00)",
                "child queue Memory quota (5001) exceeds parent queue p Memory quota (5000)",
                "total children Memory quota (5101) exceeds parent queue p Memory quota (5000)",
            ),
        ),
        (
            quotas(gpu=-1),
            (
                "child queue GPU quota (unlimited) exceeds parent queue p GPU quota (2.00)",
                "total children GPU quota (unlimited) exceeds parent queue p GPU quota (2.00)",
            ),
        ),
    ],
)
def test_quotas_are_compared_with_the_parents(resources: dict[str, Any], warnings: tuple[str, ...]) -> None:
    item = queue(resources, parentQueue="p")
    assert validate_queue(item, None, QueueRules(THERE_ARE, compare_quotas=True)).warnings == warnings
    assert admitted(item, None, QueueRules(THERE_ARE))


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ("gone", 'failed to get parent queue gone: queues.scheduling.run.ai "gone" not found'),
        ("bare", "parent queue bare has no resources defined"),
    ],
)
def test_comparing_needs_a_parent_with_quotas(parent: str, message: str) -> None:
    rules = QueueRules({"bare": {"metadata": {"name": "bare"}, "spec": {}}}, compare_quotas=True)
    assert validate_queue(queue({}, parentQueue=parent), None, rules) == AdmissionVerdict(False, message)


def test_quotas_are_compared_with_the_childrens_on_update() -> None:
    there_are = {
        "a": queue(quotas(700, 1, 10), name="a"),
        "b": queue(quotas(200, 1.5, 10), name="b"),
    }
    old = with_children(queue(quotas(1000, 5, 50)), "a", "b")
    new = with_children(queue(quotas(500, 2, 15)), "a", "b")
    rules = QueueRules(there_are, compare_quotas=True)
    assert validate_queue(new, old, rules).warnings == (
        "child queue a CPU quota (700) exceeds parent CPU quota (500)",
        "total children CPU quota (900) exceeds parent CPU quota (500)",
        "total children GPU quota (2.50) exceeds parent GPU quota (2.00)",
        "total children Memory quota (20) exceeds parent Memory quota (15)",
    )
    assert admitted(new, queue({}), rules)


def test_nothing_exceeds_an_unlimited_parent() -> None:
    rules = QueueRules({"p": queue(quotas(-1, -1, -1), name="p")}, compare_quotas=True)
    for amounts in (quotas(gpu=5), quotas(-1, -1, -1)):
        assert validate_queue(queue(amounts, parentQueue="p"), None, rules).warnings == ()


def bounds(**amounts: tuple[float, float]) -> dict[str, Any]:
    """(quota, limit) by resource; unlimited where there is none."""
    both = {**dict.fromkeys(("cpu", "gpu", "memory"), (-1, -1)), **amounts}
    return {name: {"quota": quota, "limit": limit} for name, (quota, limit) in both.items()}


ALLOCATED = {
    "cpu": "2500m",
    "memory": "3G",
    "nvidia.com/gpu": "1500m",
    "nvidia.com/mig-1g.5gb": 1,
    "gpu.nvidia.com": "1",
}
FIXED = {"cpu": "1", "memory": "1G", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("before", "now", "lines"),
    [
        (bounds(), bounds(), []),
        (bounds(cpu=(1000, 2000)), bounds(cpu=(1000, 2000)), []),  # below already: no reduction
        (bounds(cpu=(0, 3000)), bounds(cpu=(0, 2600)), []),
        (bounds(cpu=(0, 3000)), bounds(cpu=(0, -1)), []),
        (
            bounds(cpu=(2000, 3000)),
            bounds(cpu=(500, 2000)),
            [
                "CPU limit (2 cores) is below the currently allocated 2.5 cores",
                "CPU quota (0.5 cores) is below the non-preemptible allocation (1 cores)",
            ],
        ),
        (
            bounds(),
            bounds(gpu=(0, 3.25), memory=(0, 2999)),
            [
                "GPU limit (3.25) is below the currently allocated 3.5",
                "GPU quota (0) is below the non-preemptible allocation (1)",
                "Memory limit (2999000000 bytes) is below the currently allocated 3000000000 bytes",
                "Memory quota (0 bytes) is below the non-preemptible allocation (1000000000 bytes)",
            ],
        ),
        (bounds(), bounds(gpu=(1, 3.5), memory=(1000, 3000)), []),
    ],
)
def test_reductions_below_what_the_queue_holds(before: dict[str, Any], now: dict[str, Any], lines: list[str]) -> None:
    status = {"allocated": ALLOCATED, "allocatedNonPreemptible": FIXED}
    old, new = ({**queue(amounts), "status": status} for amounts in (before, now))
    assert validate_queue(new, old, QueueRules()).warnings == ()
    assert validate_queue(new, old, QueueRules(enforcement="Warning")).warnings == tuple(lines)
    blocked = validate_queue(new, old, QueueRules(enforcement="Block"))
    assert blocked.message == (f"queue team update rejected: {'; '.join(lines)}" if lines else "")
    assert blocked.allowed is not bool(lines)
    assert validate_queue({**queue(now)}, queue(before), QueueRules(enforcement="Block")).allowed, "nothing is held"


HOLDING = {"cpu": "2", "nvidia.com/gpu": "3", "memory": "0"}


@pytest.mark.parametrize(
    ("allocated", "told"),
    [
        (HOLDING, ["workloads of queue q still hold cpu: 2, nvidia.com/gpu: 3"]),
        ({"cpu": "0"}, []),
        ({"cpu": "lots", "memory": None}, []),
        (None, []),
    ],
)
def test_deleting_a_queue_in_use_gives_a_warning(allocated: dict[str, Any] | None, told: list[str]) -> None:
    verdict = validate_queue_deletion({"metadata": {"name": "q"}, "spec": {}, "status": {"allocated": allocated}})
    assert verdict.allowed
    assert [line[: len(start)] for line, start in zip(verdict.warnings, told, strict=True)] == told
