from __future__ import annotations

from typing import Any

import pytest

from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.model.plan import Plan
from pykai.objects import kinds
from pykai.plugins.disruption_budgets import Budgets, DisruptionBudgets
from pykai.plugins.registry import BUILT_IN, make_all
from tests import builders
from tests.builders import GPU, as_kind, decoded

WEB = {"app": "web"}
READY = [{"type": "Ready", "status": "True"}]


def budget(allowed: int | None = None, desired: int = 3, **spec: Any) -> Any:
    fields: dict[str, Any] = {"selector": {"matchLabels": WEB}, **spec}
    status = {"observedGeneration": 1, "disruptionsAllowed": allowed, "desiredHealthy": desired}
    return as_kind(
        kinds.PodDisruptionBudget,
        {
            "metadata": {"name": "web", "namespace": "ns", "generation": 1},
            "spec": fields,
            **({} if allowed is None else {"status": status}),
        },
    )


def web(name: str, on: str, ready: bool = True, **rest: Any) -> list[Any]:
    """A pod of the web application that runs on a node, with a group of its own, or in `group`."""
    group = rest.pop("group", name)
    made = builders.pod(name, group, on, {GPU: "1"}, labels=WEB, **rest)
    made["status"] = {"phase": "Running", "conditions": READY if ready else []}
    return [decoded(made), decoded(builders.pod_group(group, metadata={"namespace": "ns"}))]


def urgent(name: str = "urgent", gpus: str = "1") -> list[Any]:
    group = builders.pod_group(name, metadata={"namespace": "ns"})
    group["spec"]["priorityClassName"] = "urgent"
    return [decoded(builders.pod(name, name, "", {GPU: gpus})), decoded(group)]


def decided(mode: str, *objects: Any, **rest: Any) -> Plan:
    nodes = rest.get("nodes") or [builders.node("a", 2), builders.node("b", 2)]
    unlimited = [decoded(builders.queue())]
    classes = [decoded(builders.priority_class("urgent", 75))]
    flat = [each for item in objects for each in (item if isinstance(item, list) else [item])]
    snapshot = builders.snapshot([*map(decoded, nodes), *unlimited, *classes, *flat])
    arguments = [*((name, {}) for name in BUILT_IN), ("disruptionbudgets", {"mode": mode})]
    return decide(snapshot, Policy(make_all(arguments)), now=builders.NOW)


FOUR = [web("w0", "a"), web("w1", "a"), web("w2", "b"), web("w3", "b")]
OTHER = [web("w0", "a"), web("w1", "a"), web("w2", "b")]


def plain(name: str, on: str) -> list[Any]:
    made = builders.pod(name, name, on, {GPU: "1"})
    made["status"] = {"phase": "Running", "conditions": READY}
    return [decoded(made), decoded(builders.pod_group(name, metadata={"namespace": "ns"}))]


def evicted(plan: Plan) -> list[str]:
    return sorted(each.pod[1] for each in plan.evictions)


def test_ignored_budgets_change_nothing() -> None:
    assert len(evicted(decided("ignore", *FOUR, budget(0), urgent(gpus="2")))) == 2


@pytest.mark.parametrize(("allowed", "gpus", "victims"), [(0, "1", 0), (1, "1", 1), (1, "2", 0), (2, "2", 2)])
def test_victims_are_at_most_what_a_budget_allows(allowed: int, gpus: str, victims: int) -> None:
    plan = decided("respect", *FOUR, budget(allowed, 4 - allowed), urgent(gpus=gpus))
    assert len(evicted(plan)) == victims


def test_two_evictors_of_a_cycle_share_a_budget() -> None:
    plan = decided("respect", *FOUR, budget(1), urgent("u1"), urgent("u2"))
    assert len(evicted(plan)) == 1


def test_other_victims_are_taken_instead() -> None:
    for mode in ("respect", "prefer"):
        assert evicted(decided(mode, *OTHER, plain("other", "b"), budget(0), urgent())) == ["other"]


def test_a_preferred_budget_is_broken_where_nothing_else_helps() -> None:
    assert len(evicted(decided("prefer", *FOUR, budget(0), urgent()))) == 1
    assert evicted(decided("respect", *FOUR, budget(0), urgent())) == []


def test_the_verdict_names_the_budget() -> None:
    (verdict,) = decided("respect", *FOUR, budget(0), urgent()).verdicts
    preempt = next(each for each in verdict.actions if each.action == "preempt")
    assert preempt.message == "no victims: PodDisruptionBudget ns/web allows no more disruptions"


def test_a_gang_goes_whole_or_not_at_all() -> None:
    gang = [*(web(f"w{at}", "ab"[at // 2], group="gang")[0] for at in range(4))]
    group = decoded(builders.pod_group("gang", min_member=4, metadata={"namespace": "ns"}))
    assert evicted(decided("respect", *gang, group, budget(3, 1), urgent())) == []
    assert len(evicted(decided("respect", *gang, group, budget(4, 0), urgent()))) == 4


def allowed_by(*objects: Any) -> tuple[int, set[str]]:
    flat = [each for item in objects for each in (item if isinstance(item, list) else [item])]
    snapshot = builders.snapshot([decoded(builders.node(n, 2)) for n in "ab"] + [decoded(builders.queue()), *flat])
    of_pod = Budgets(snapshot).of_pod
    budgets = {each for some in of_pod.values() for each in some}
    return sum(each.allowed for each in budgets), {snapshot.pods.names[row] for row in of_pod}


NAMES = {"w0", "w1", "w2", "w3"}
ALLOWED = [  # budget, pods, how many may go, which count
    (budget(1), FOUR, 1, NAMES),
    # an eviction that the status does not show yet uses the budget up
    (budget(1), [*FOUR[:3], web("w3", "b", terminating=True)], 0, {"w0", "w1", "w2"}),
    # what the status says is never exceeded
    (budget(0, 2), FOUR, 0, NAMES),
    # pods that are not ready: free where the budget is met, else they count
    (budget(0), [*FOUR[:3], web("w3", "b", ready=False)], 0, {"w0", "w1", "w2"}),
    (budget(0, 4), [*FOUR[:3], web("w3", "b", ready=False)], 0, NAMES),
    (
        budget(0, 4, unhealthyPodEvictionPolicy="AlwaysAllow"),
        [*FOUR[:3], web("w3", "b", ready=False)],
        0,
        {"w0", "w1", "w2"},
    ),
    # without a status
    (budget(minAvailable=3), FOUR, 1, NAMES),
    (budget(minAvailable="60%"), FOUR, 1, NAMES),
    (budget(maxUnavailable=2), FOUR, 2, NAMES),
    (budget(maxUnavailable="30%"), FOUR, 2, NAMES),
    (budget(minAvailable="some"), FOUR, 0, NAMES),
    # selectors: none selects nothing, an empty one all of the namespace
    (budget(1, selector=None), FOUR, 0, set()),
    (budget(1, selector={}), FOUR, 1, NAMES),
]


@pytest.mark.parametrize(("stated", "pods", "allowed", "counted"), ALLOWED)
def test_what_a_budget_allows(stated: Any, pods: Any, allowed: int, counted: set[str]) -> None:
    assert allowed_by(stated, *pods) == (allowed, counted)


def test_a_status_of_an_older_spec_allows_nothing() -> None:
    stale = as_kind(
        kinds.PodDisruptionBudget,
        {
            "metadata": {"name": "web", "namespace": "ns", "generation": 2},
            "spec": {"selector": {"matchLabels": WEB}},
            "status": {"observedGeneration": 1, "disruptionsAllowed": 4, "desiredHealthy": 0},
        },
    )
    assert allowed_by(stale, *FOUR) == (0, NAMES)


def test_modes() -> None:
    assert DisruptionBudgets.from_arguments({}) == ()
    assert DisruptionBudgets.from_arguments({"mode": "respect"}) == (DisruptionBudgets(),)
    with pytest.raises(ValueError, match=r"arguments\.mode: must be ignore, prefer or respect, not 'obey'"):
        DisruptionBudgets.from_arguments({"mode": "obey"})
