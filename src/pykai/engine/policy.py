"""Policy: the ordered plugins, the actions and the limits of searches. A value, like every input of `decide`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pykai.engine.budgets import SearchBudgets

Point = TypeVar("Point")


ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")


@dataclass(frozen=True)
class SearchLimits:
    """How far the search for victims may go, in simulated scenarios: a count, so that speed does not change results."""

    scenarios_per_gang: int = 2000


@dataclass(frozen=True)
class Policy:
    """Plugins in order; actions in order; how many gangs per queue an action looks at; how far a search may go.

    `names`: of each plugin, as it was configured; empty where plugins were not chosen by name.
    """

    plugins: tuple[object, ...]
    actions: tuple[str, ...] = ACTIONS
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    limits: SearchLimits = SearchLimits()
    budgets: SearchBudgets = SearchBudgets()
    names: tuple[str, ...] = ()
    _by_point: dict[type[Any], tuple[Any, ...]] = field(init=False, default_factory=dict, repr=False, compare=False)

    def of(self, point: type[Point]) -> tuple[Point, ...]:
        """The plugins that implement an extension point, in order.

        A plugin implements a point if it has all of its methods. `isinstance` would give the same answer, but asks a
        Protocol for its members anew each time: all plugins and points together took 10 ms of the first cycle.
        """
        found = self._by_point.get(point)
        if found is None:
            members = [name for name in vars(point) if not name.startswith("_")]
            found = tuple(plugin for plugin in self.plugins if all(hasattr(plugin, name) for name in members))
            self._by_point[point] = found
        return found

    def first(self, point: type[Point]) -> Point | None:
        found = self.of(point)
        return found[0] if found else None
