"""After a search for victims that found nothing a gang is left alone for a while, if that is configured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykai.engine.budgets import SearchBudgets
from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.model.plan import ActionVerdict, Key, Plan, Verdict
from pykai.plugins.registry import BUILT_IN, make_all
from pykai.scheduler.decision import SearchBackoff
from tests import builders
from tests.builders import GPU, NOW, decoded

GANG: Key = ("ns", "train")
TEN = SearchBudgets(first_backoff={"default": 10.0}, longest_backoff={"default": 35.0})


def found(*codes: tuple[str, str], gang: Key = GANG) -> Plan:
    """A plan in which a gang waits, with the codes of some actions."""
    actions = tuple(ActionVerdict(action, code, "") for action, code in codes)
    return Plan(verdicts=(Verdict(gang, (), "", actions=actions),))


NOTHING = ("reclaim", "ReclaimNoSolutionFound")


@pytest.mark.parametrize(
    ("first", "longest", "expected"),
    [
        ({"default": 10.0}, {"default": 35.0}, [10, 20, 35, 35]),
        ({"default": 10.0}, {}, [10, 10, 10, 10]),
        ({"default": 10.0}, {"default": 5.0}, [10, 10, 10, 10]),
        ({"reclaim": 1.0, "default": 0.0}, {"default": 3.0}, [1, 2, 3, 3]),
        ({"preempt": 10.0}, {"default": 35.0}, [0, 0, 0, 0]),
        ({}, {"default": 35.0}, [0, 0, 0, 0]),
    ],
)
def test_it_doubles_up_to_the_longest(
    first: dict[str, float], longest: dict[str, float], expected: list[float]
) -> None:
    budgets = SearchBudgets(first_backoff=first, longest_backoff=longest)
    assert [budgets.backoff("reclaim", failures) for failures in (1, 2, 3, 4)] == expected
    assert budgets.backoff("reclaim", 100_000) == expected[-1]


def test_searches_that_find_nothing_start_and_extend_it() -> None:
    backoff = SearchBackoff(TEN)
    assert backoff.note(found(NOTHING), 100.0) == 110.0
    assert backoff.held(109.0) == {(GANG, "reclaim"): 110.0}
    assert backoff.held(110.0) == {}
    assert backoff.note(found(("reclaim", "ReclaimSearchBackoff")), 105.0) == 110.0
    assert backoff.note(found(NOTHING), 110.0) == 130.0


@pytest.mark.parametrize("code", ["ReclaimSearchBudgetSpent", "ReclaimNoEligibleVictims", "ReclaimSearchBackoff"])
def test_what_was_no_whole_search_neither_extends_nor_ends_it(code: str) -> None:
    backoff = SearchBackoff(TEN)
    backoff.note(found(NOTHING), 100.0)
    backoff.note(found(("reclaim", code)), 101.0)
    assert backoff.held(101.0) == {(GANG, "reclaim"): 110.0}
    assert SearchBackoff(TEN).note(found(("reclaim", code)), 101.0) is None


def test_it_ends_when_the_gang_waits_no_more_and_holds_for_one_action_only() -> None:
    backoff = SearchBackoff(TEN)
    backoff.note(found(NOTHING, ("preempt", "PreemptOverQueueQuota")), 100.0)
    assert set(backoff.held(100.0)) == {(GANG, "reclaim")}
    backoff.note(found(NOTHING, gang=("ns", "other")), 101.0)
    assert backoff.held(101.0) == {(("ns", "other"), "reclaim"): 111.0}
    assert backoff.note(Plan(), 102.0) is None
    assert backoff.held(102.0) == {}


def test_it_is_off_by_default() -> None:
    backoff = SearchBackoff(SearchBudgets())
    assert backoff.note(found(NOTHING), 100.0) is None
    assert backoff.held(100.0) == {}


def preempting(until: float) -> Plan:
    """A node of one GPU that is taken, and an urgent pod that wants it; no search for that one before `until`."""
    classes = [builders.priority_class("low", 10), builders.priority_class("urgent", 75)]
    groups = [builders.pod_group(name, "q", priorityClassName=name) for name in ("low", "urgent")]
    pods = [builders.pod("r", "low", "a", {GPU: "1"}), builders.pod("w", "urgent", "", {GPU: "1"})]
    objects = [builders.node("a", 1), builders.queue("q"), *classes, *groups, *pods]
    snapshot = builders.snapshot(map(decoded, objects))
    gang = next(
        (namespace, name)
        for namespace, name in zip(snapshot.gangs.namespaces, snapshot.gangs.names, strict=True)
        if name == "urgent"
    )
    held = replace(snapshot, search_backoff={(gang, "preempt"): until})
    return decide(held, Policy(make_all((name, {}) for name in BUILT_IN)), now=NOW)


def test_the_engine_does_not_search_before_the_backoff_ends_and_says_so() -> None:
    plan = preempting(NOW + 30)
    assert not plan.evictions
    assert plan.deadline == NOW + 30
    (verdict,) = plan.verdicts
    (said,) = [each for each in verdict.actions if each.action == "preempt"]
    assert said.code == "PreemptSearchBackoff"
    assert "the next one is made at" in said.message


def test_the_engine_searches_once_it_has_ended() -> None:
    plan = preempting(NOW)
    assert [each.pod[1] for each in plan.evictions] == ["r"]
