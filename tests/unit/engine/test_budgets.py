"""How much time searches get: of their action, for one gang, for one generator."""

from __future__ import annotations

from math import inf

import pytest

from pykai.engine.budgets import ActionBudget, Deadline, SearchBudgets, standing


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# action's limit, job's limit, least of a job, seconds passed -> what the next gang gets (None: nothing), reduced?
GIVEN: list[tuple[float, float, float, float, float | None, bool]] = [
    (300, 240, 0, 0, 240, False),
    (300, 240, 0, 60, 240, False),
    (300, 240, 0, 100, 200, True),
    (300, 240, 0, 300, None, True),
    (300, 240, 0, 301, None, True),
    (300, 240, 5, 298, 5, True),
    (300, 240, 5, 400, 5, True),
    (10, 240, 20, 0, 20, True),
    (300, 0, 0, 100, 200, True),
    (0, 240, 0, 9999, 240, False),
    (0, 0, 0, 9999, inf, False),
    (0, 0, 5, 9999, inf, False),
]


@pytest.mark.parametrize(("action", "job", "least", "passed", "given", "reduced"), GIVEN)
def test_a_gang_gets_its_limit_or_what_is_left(
    action: float, job: float, least: float, passed: float, given: float | None, reduced: bool
) -> None:
    clock = Clock()
    budget = ActionBudget(SearchBudgets({"reclaim": action}, job, least), "reclaim", clock)
    clock.now += passed
    deadline = budget.for_job()
    assert (None if deadline is None else deadline.end - clock.now) == given
    assert (deadline is None or deadline.reduced) == reduced
    assert budget.exhausted == (0 < action <= passed)


def test_the_end_of_an_action_can_be_noted_later() -> None:
    clock = Clock()
    budget = ActionBudget(SearchBudgets({"default": 10.0}), "preempt", clock)
    budget.for_job()
    budget.note()
    assert not budget.exhausted
    clock.now += 10
    budget.note()
    assert budget.exhausted


def test_a_generator_has_its_own_deadline_within_the_gangs() -> None:
    clock = Clock()
    whole = Deadline(clock, clock.now + 60, reduced=True)
    assert [whole.within(seconds).end - clock.now for seconds in (30, 90, 0)] == [30, 60, 60]
    assert whole.within(30).reduced
    part = whole.within(30)
    clock.now += 29
    assert not part.over
    clock.now += 1
    assert part.over
    assert not whole.over


def test_time_that_stands_still_is_never_over() -> None:
    budget = ActionBudget(SearchBudgets({"default": 1e-9}, job=1e-9), "preempt", standing)
    deadline = budget.for_job()
    assert deadline is not None
    assert not deadline.within(1e-9).over
    assert not budget.exhausted


def test_a_name_takes_its_own_budget_then_the_given_default_then_the_usual_one() -> None:
    usual = SearchBudgets()
    assert [usual.of_action(name) for name in ("reclaim", "preempt")] == [300.0, 300.0]
    assert [usual.of_generator(name) for name in ("NodeLocalGreedy", "MultiNodeGang", "Other")] == [30.0, 120.0, 120.0]
    own = SearchBudgets({"default": 7.0, "reclaim": 0.0}, generators={"NodeLocalGreedy": 1.0})
    assert [own.of_action(name) for name in ("reclaim", "preempt")] == [0.0, 7.0]
    assert [own.of_generator(name) for name in ("NodeLocalGreedy", "MultiNodeGang")] == [1.0, 120.0]
    assert SearchBudgets(generators={"default": 3.0}).of_generator("NodeLocalGreedy") == 3.0


@pytest.mark.parametrize(
    ("action", "pauses"),
    [
        ("reclaim", [2.0, 4.0, 5.0, 5.0]),
        ("preempt", [10.0, 20.0, 35.0, 35.0]),
        ("consolidation", [50.0, 50.0, 50.0, 50.0]),  # the first pause is longer than the longest
    ],
)
def test_the_pause_after_failed_searches_doubles_up_to_the_longest(action: str, pauses: list[float]) -> None:
    first = {"default": 10.0, "reclaim": 2.0, "consolidation": 50.0}
    budgets = SearchBudgets(first_backoff=first, longest_backoff={"default": 35.0, "reclaim": 5.0})
    assert [budgets.backoff(action, failures) for failures in (1, 2, 3, 4)] == pauses
    assert budgets.backoff(action, 10**6) == pauses[-1]
    assert SearchBudgets().backoff(action, 1) == 0.0
