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
    """Limits of searches for victims: simulated scenarios, a count so that the machine's speed changes no result."""

    scenarios_per_gang: int = 2000


@dataclass(frozen=True)
class Policy:
    """Ordered plugins and actions, how many gangs per queue each action tries, and the limits of searches.

    `names`: the configured name of each plugin; empty where plugins were not configured by name.
    """

    plugins: tuple[object, ...]
    actions: tuple[str, ...] = ACTIONS
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    limits: SearchLimits = SearchLimits()
    budgets: SearchBudgets = SearchBudgets()
    names: tuple[str, ...] = ()
    _by_point: dict[type[Any], tuple[Any, ...]] = field(init=False, default_factory=dict, repr=False, compare=False)

    def of(self, point: type[Point]) -> tuple[Point, ...]:
        """Return the plugins that implement an extension point, in order.

        A plugin implements a point if it has all of its methods. `isinstance` is slower, as it collects the members of
        a Protocol on each call: 10 ms of the first cycle for all plugins and points.
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
