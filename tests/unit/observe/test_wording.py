"""Reasons as a screen shows them, beside the texts that conditions and events carry."""

from __future__ import annotations

import pytest

from pykai.model.plan import Category, Dominant, Evict, Plan, Verdict
from pykai.observe.tables import console, plan_tables
from pykai.observe.wording import eviction_reason, reason_line, short_name, suggestion, without_figures

SHORT = "no nodes with enough resources were found: {} node(s) didn't have enough resources: GPUs."
STANDING = (
    "Pod ns/x-0 was preempted by workload ns/y.\na uses <GPU: 4, CPU: 1 (cores), memory: 0 (GB)> with a quota of <GPU: "
    "2, CPU: Unlimited (cores), memory: Unlimited (GB)>, fair-share of <GPU: 3, CPU: 1 (cores), memory: 0 (GB)> and "
    "queue priority of <100>."
)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (SHORT.format(4), SHORT.format(4)),
        (
            "no nodes with enough resources were found: 1 node(s) had untolerated taint(s).",
            "no node is feasible: 1 node(s) had untolerated taint(s).",
        ),
        (
            "no nodes with enough resources were found: 1 node(s) didn't match Pod's node affinity/selector. \n2 "
            "node(s) didn't have enough resources: GPUs.",
            "no nodes with enough resources were found: 1 node(s) didn't match Pod's node affinity/selector. 2 "
            "node(s) didn't have enough resources: GPUs.",
        ),
        ("PodSchedulingErrors: Resources were found for 1 pods..", "Resources were found for 1 pods."),
        ("Queue 'q' does not exist", "Queue 'q' does not exist"),
    ],
)
def test_a_reason_is_one_line_about_what_is_wrong(message: str, shown: str) -> None:
    assert reason_line(message) == shown


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (STANDING, "a used 4 GPUs with a quota of 2 and a fair share of 3"),
        ("Pod ns/x-0 was preempted by higher priority workload ns/y", "its priority is lower"),
        ("Pod ns/x-0 was evicted since its gang is stale", "was evicted since its gang is stale"),
    ],
)
def test_an_eviction_is_a_short_line(message: str, shown: str) -> None:
    assert eviction_reason(message, "ns/x-0") == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("pg-train-42e66fa2-cdc1-48fe-b87b-d612b2461321", "train"),
        ("team/pg-a-b-42e66fa2-cdc1-48fe-b87b-d612b2461321", "team/a-b"),
        ("team/pg-lws-42e66fa2-cdc1-48fe-b87b-d612b2461321-group-0",) * 2,
        ("team/pg-train", "team/pg-train"),
    ],
)
def test_a_podgroup_is_shown_by_the_name_of_its_workload(name: str, shown: str) -> None:
    assert short_name(name) == shown


def test_an_unknown_name_comes_with_the_closest_or_some_of_the_known() -> None:
    assert suggestion("tset", ["test", "other"]) == ": did you mean 'test'?"
    assert suggestion("x", ["b", "a"]) == "; there are a, b"
    assert suggestion("x", [f"queue-{number:02d}" for number in range(12)]).endswith("queue-09 ...")
    assert suggestion("x", []) == ""


def test_reasons_that_differ_in_figures_are_the_same() -> None:
    first, second = (f"Resources were not found for pod ns/p{n} due to: {SHORT.format(n)}" for n in (1, 2))
    assert without_figures(first) == without_figures(second)


def verdict(name: str, token: str, category: Category, text: str) -> Verdict:
    pods = {("ns", f"{name}-0"): text}
    return Verdict(("ns", name), (), text, pods, dominant=Dominant(token, category, text))


def test_a_plan_shows_equal_reasons_once_and_short_evictions() -> None:
    fair = "queue {} uses 4 of its fair share of 4 GPUs and the workload requests 1"
    plan = Plan(
        evictions=(Evict(("ns", "x-0"), ("ns", "x"), "reclaim", STANDING, ("ns", "y"), 1),),
        verdicts=(
            *(verdict(f"f{n}", "ReclaimQueueAtFairShare", Category.QUEUE_POLICY, fair.format(n)) for n in range(60)),
            *(verdict(f"s{n}", "InsufficientResources", Category.SHORTAGE, SHORT.format(n)) for n in range(60)),
            verdict("one", "OverLimit", Category.QUEUE_POLICY, "OverLimit: q has reached its limit"),
        ),
    )
    out = console()
    with out.capture() as shown:
        for table in plan_tables(plan, 20):
            out.print(table)
    text = " ".join(shown.get().split())
    assert "ns/f0 and 59 more 60 ReclaimQueueAtFairShare: the queue would exceed its fair share" in text
    assert "ns/s0 and 59 more 60 InsufficientResources: no nodes with enough" in text
    assert "ns/one 1 OverLimit: q has reached its limit" in text
    assert "a used 4 GPUs with a quota of 2 and a fair share of 3" in text
    assert "Unlimited" not in text
    assert len(shown.get().splitlines()) < 20
