"""Time budgets of searches for victims, in seconds of a clock that the caller passes.

Counts bound every search (`policy.SearchLimits`); budgets bound searches of a live scheduler. With the clock
`standing` no time passes: no budget is ever spent, and equal inputs give equal plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

Clock = Callable[[], float]
"""Monotonic seconds from an arbitrary origin."""
SEARCHING = ("reclaim", "preempt", "consolidation")
"""The actions that search for victims."""
DEFAULT = "default"
"""The key for actions and generators without a key of their own."""
MOST_DOUBLINGS = 60
"""Upper bound of the doublings of a backoff, against overflow."""
ACTION_SECONDS = 300.0
JOB_SECONDS = 240.0
GENERATOR_SECONDS: Mapping[str, float] = {DEFAULT: 120.0, "NodeLocalGreedy": 30.0, "MultiNodeGang": 120.0}


def standing() -> float:
    """Return 0: the clock of decisions that must not depend on time."""
    return 0.0


@dataclass(frozen=True)
class SearchBudgets:
    """Budgets in seconds, 0 is unlimited. `actions` and `generators`: the configured ones, by name or `default`."""

    actions: Mapping[str, float] = field(default_factory=dict)
    job: float = JOB_SECONDS
    least_job: float = 0.0
    """The least that one gang's search gets, even if the budget of its action is spent."""
    generators: Mapping[str, float] = field(default_factory=dict)
    first_backoff: Mapping[str, float] = field(default_factory=dict)
    """By action or `default`: the pause after a gang's first failed search; 0 or absent: no pause."""
    longest_backoff: Mapping[str, float] = field(default_factory=dict)
    """By action or `default`: the longest pause, as it doubles with every further failed search."""

    def backoff(self, action: str, failures: int) -> float:
        """Return how long an action does not search for a gang after `failures` failed searches in a row."""
        first, longest = (
            configured.get(action, configured.get(DEFAULT, 0.0))
            for configured in (self.first_backoff, self.longest_backoff)
        )
        return min(first * 2.0 ** min(failures - 1, MOST_DOUBLINGS), max(first, longest))

    def of_action(self, action: str) -> float:
        """Return the budget of all searches of an action together."""
        return self.actions.get(action, self.actions.get(DEFAULT, ACTION_SECONDS))

    def of_generator(self, generator: str) -> float:
        """Return the budget of one generator within one gang's search."""
        usual = GENERATOR_SECONDS.get(generator, GENERATOR_SECONDS[DEFAULT])
        return self.generators.get(generator, self.generators.get(DEFAULT, usual))


UNLIMITED = SearchBudgets({DEFAULT: 0.0}, 0.0, generators={DEFAULT: 0.0})
"""No search is cut short: plans depend on their input alone, whatever the clock."""


@dataclass(frozen=True)
class Deadline:
    """When a search must end; `reduced`: its action has less time left than the budget of one gang."""

    clock: Clock
    end: float
    reduced: bool = False

    @property
    def over(self) -> bool:
        return self.clock() >= self.end

    def within(self, seconds: float) -> Deadline:
        """Return the earlier of this deadline and so many seconds from now; 0 is unlimited."""
        return Deadline(self.clock, min(self.end, self.clock() + _limit(seconds)), self.reduced)


class ActionBudget:
    """The time budget of one run of an action, from now on. `exhausted`: whether it cut a search short."""

    def __init__(self, budgets: SearchBudgets, action: str, clock: Clock) -> None:
        self.exhausted = False
        self._budgets = budgets
        self._clock = clock
        self._end = clock() + _limit(budgets.of_action(action))

    def for_job(self) -> Deadline | None:
        """Return the deadline of the next gang's search; None: there is no time left to begin it."""
        now = self._clock()
        most = _limit(self._budgets.job)
        given = max(min(self._end - now, most), self._budgets.least_job)
        self.exhausted = self.exhausted or now >= self._end
        return Deadline(self._clock, now + given, reduced=given < most) if given > 0 else None

    def note(self) -> None:
        """Note that a search was cut short, and whether the action's budget was the cause."""
        self.exhausted = self.exhausted or self._clock() >= self._end


def _limit(seconds: float) -> float:
    return seconds if seconds > 0 else inf
