"""How long searches for victims may take: seconds of a clock that is given, never read here.

Counts bound every search (`policy.SearchLimits`); budgets bound one that runs live. Without a clock time stands still:
no budget is ever spent, and the same input gives the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

Clock = Callable[[], float]
"""Seconds that only go forward, counted from anywhere."""
SEARCHING = ("reclaim", "preempt", "consolidation")
"""The actions that search for victims."""
DEFAULT = "default"
"""The key for every action or generator that has none of its own."""
MOST_DOUBLINGS = 60
"""Of a backoff: more would be longer than any limit."""
ACTION_SECONDS = 300.0
JOB_SECONDS = 240.0
GENERATOR_SECONDS: Mapping[str, float] = {DEFAULT: 120.0, "NodeLocalGreedy": 30.0, "MultiNodeGang": 120.0}


def standing() -> float:
    """The clock of decisions that must not depend on time."""
    return 0.0


@dataclass(frozen=True)
class SearchBudgets:
    """Seconds, 0 unlimited. `actions` and `generators`: by name or `default`, as far as they were configured."""

    actions: Mapping[str, float] = field(default_factory=dict)
    job: float = JOB_SECONDS
    least_job: float = 0.0
    """What one gang's search gets even where its action has no time left."""
    generators: Mapping[str, float] = field(default_factory=dict)
    first_backoff: Mapping[str, float] = field(default_factory=dict)
    """By action or `default`: how long a gang is not searched for again after the first search that found nothing; 0 or
    absent: it is searched for in every cycle."""
    longest_backoff: Mapping[str, float] = field(default_factory=dict)
    """The most, as it doubles with every further search that finds nothing."""

    def backoff(self, action: str, failures: int) -> float:
        """How long an action does not search for a gang again after so many searches in a row that found nothing."""
        first, longest = (
            each.get(action, each.get(DEFAULT, 0.0)) for each in (self.first_backoff, self.longest_backoff)
        )
        return min(first * 2.0 ** min(failures - 1, MOST_DOUBLINGS), max(first, longest))

    def of_action(self, action: str) -> float:
        """For all searches of an action together."""
        return self.actions.get(action, self.actions.get(DEFAULT, ACTION_SECONDS))

    def of_generator(self, generator: str) -> float:
        """For one way of choosing victims in one gang's search."""
        usual = GENERATOR_SECONDS.get(generator, GENERATOR_SECONDS[DEFAULT])
        return self.generators.get(generator, self.generators.get(DEFAULT, usual))


UNLIMITED = SearchBudgets({DEFAULT: 0.0}, 0.0, generators={DEFAULT: 0.0})
"""No search is cut short: plans depend on their input alone, whatever the clock."""


@dataclass(frozen=True)
class Deadline:
    """When a search ends at the latest; `reduced`: sooner than one gang may search, as its action has less time."""

    clock: Clock
    end: float
    reduced: bool = False

    @property
    def over(self) -> bool:
        return self.clock() >= self.end

    def within(self, seconds: float) -> Deadline:
        """The same, or so many seconds from now if that is sooner; 0 is unlimited."""
        return Deadline(self.clock, min(self.end, self.clock() + _limit(seconds)), self.reduced)


class ActionBudget:
    """The time one run of an action has for its searches; it begins now. `exhausted`: a search was cut short by it."""

    def __init__(self, budgets: SearchBudgets, action: str, clock: Clock) -> None:
        self.exhausted = False
        self._budgets = budgets
        self._clock = clock
        self._end = clock() + _limit(budgets.of_action(action))

    def for_job(self) -> Deadline | None:
        """The deadline of the next gang's search; None: there is no time left to begin it."""
        now = self._clock()
        most = _limit(self._budgets.job)
        given = max(min(self._end - now, most), self._budgets.least_job)
        self.exhausted = self.exhausted or now >= self._end
        return Deadline(self._clock, now + given, reduced=given < most) if given > 0 else None

    def note(self) -> None:
        """A search was cut off: was it for want of the action's time?"""
        self.exhausted = self.exhausted or self._clock() >= self._end


def _limit(seconds: float) -> float:
    return seconds if seconds > 0 else inf
