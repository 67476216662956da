"""Backoff of searches for victims: after one that found nothing, an action leaves the gang alone for a while.

The next search may find something as soon as anything changes, so this is off unless `minFailedSearchBackoff` is
configured: it trades the speed of evictions for cycles that are shorter in a cluster with a backlog.
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
    """How many searches in a row found nothing, and until when there is no further one."""

    searches: int
    until: float


class SearchBackoff:
    """Gangs for which searches found nothing, by action. Those that wait no more are forgotten."""

    def __init__(self, budgets: SearchBudgets) -> None:
        self._budgets = budgets
        self._actions = [action for action in SEARCHING if budgets.backoff(action, 1) > 0]
        self._failures: dict[Searched, _Failures] = {}

    def held(self, now: float) -> Mapping[Searched, float]:
        """What is not searched for yet, and until when."""
        return {searched: failed.until for searched, failed in self._failures.items() if failed.until > now}

    def note(self, plan: Plan, now: float) -> float | None:
        """Take in the results of a cycle; when the first of the searches that are held is due.

        A search that ran out of time, or that arithmetic ruled out, neither extends nor ends a backoff.
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
