"""Backoff of victim searches: after a search without solution, an action skips the gang for a while.

Any change may make the next search succeed, so this is off unless `minFailedSearchBackoff` is configured: it trades
eviction latency for shorter cycles in a cluster with a backlog.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pykai.engine.budgets import SEARCHING, SearchBudgets
from pykai.engine.reasons import SearchToken
from pykai.model.plan import Key, Plan

Searched = tuple[Key, str]
"""A gang and the action that searched for it."""
_FAILED = {action: f"{action.capitalize()}{SearchToken.NO_SOLUTION}" for action in SEARCHING}


class _Failures(NamedTuple):
    """Consecutive searches without solution, and the instant until which the next is held back."""

    searches: int
    until: float


class SearchBackoff:
    """Failed searches by gang and action; gangs that are no longer pending are forgotten."""

    def __init__(self, budgets: SearchBudgets) -> None:
        self._budgets = budgets
        self._actions = [action for action in SEARCHING if budgets.backoff(action, 1) > 0]
        self._failures: dict[Searched, _Failures] = {}

    def held(self, now: float) -> Mapping[Searched, float]:
        """Return the searches held back at `now`, and until when."""
        return {searched: failed.until for searched, failed in self._failures.items() if failed.until > now}

    def note(self, plan: Plan, now: float) -> float | None:
        """Record the results of a cycle; return when the first held search is due, None without one.

        A search that exceeded its budget, or that the feasibility bound ruled out, neither extends nor ends a backoff.
        """
        if not self._actions:
            return None
        kept: dict[Searched, _Failures] = {}
        for verdict in plan.verdicts:
            for found in verdict.actions:
                searched, action = (verdict.gang, found.action), found.action
                known = self._failures.get(searched)
                if action in self._actions and found.code == _FAILED[action]:
                    count = known.searches + 1 if known else 1
                    known = _Failures(count, now + self._budgets.backoff(action, count))
                if known is not None:
                    kept[searched] = known
        self._failures = kept
        return min((failed.until for failed in kept.values() if failed.until > now), default=None)
