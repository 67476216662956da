"""Victims in order: whose pods go first if somebody else needs their place (spec/scheduling.md §16.4).

The order is the order of service reversed: from the root always to the least deserving child, then the last gang of
the leaf. A gang loses surplus pods one by one before it goes whole.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pykai.engine.cycle import Cycle
from pykai.engine.gang import active_in_order, active_pods, next_victims
from pykai.engine.quota import ZERO, Triple, plus, total
from pykai.model.resources import Mask, Rows


@dataclass(frozen=True)
class Batch:
    """Pods of one gang that would go together."""

    gang: int
    pods: tuple[int, ...]


def held_by(cycle: Cycle, pods: Iterable[int]) -> Triple:
    """What pods count against their queue where they are."""
    trial = cycle.trial
    return total(trial.quota_amounts(trial.of_class(pod), trial.node[pod]) for pod in pods)


Passes = Callable[[Rows], Mask]
"""Which of some gangs may be considered as victims."""


class _Last:
    """Reverses the order of a key inside a heap."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Last) -> bool:
        return bool(other.key < self.key)


class _Leaf:
    """The candidates of one queue: a sorted list that is read on, and gangs put back with fewer pods."""

    AT_ONCE = 64

    def __init__(self, gangs: Rows, passes: Passes) -> None:
        self._gangs = gangs
        self._passes = passes
        self._fresh: deque[int] = deque()
        self.again: list[tuple[_Last, int, list[int]]] = []

    def next_fresh(self) -> int | None:
        while not self._fresh and len(self._gangs):
            piece, self._gangs = self._gangs[: self.AT_ONCE], self._gangs[self.AT_ONCE :]
            self._fresh.extend(piece[self._passes(piece)].tolist())
        return self._fresh[0] if self._fresh else None

    def take(self, gang: int) -> None:
        """The gang has had its turn."""
        if self.again and self.again[0][1] == gang:
            heapq.heappop(self.again)
        else:
            self._fresh.popleft()


class VictimWalk:
    """Pops batches of victims in order."""

    def __init__(self, cycle: Cycle, leaves: Mapping[int, Rows], passes: Passes) -> None:
        self.cycle = cycle
        self._leaves = {queue: _Leaf(gangs, passes) for queue, gangs in leaves.items()}
        self._lost: dict[int, Triple] = {}
        self._parents: dict[int, list[int]] = {}
        queues = cycle.snapshot.queues
        for leaf in self._leaves:
            for queue in queues.paths[leaf]:
                siblings = self._parents.setdefault(queues.parent[queue], [])
                if queue not in siblings:
                    siblings.append(queue)
        self._keys: dict[int, Any] = {}

    def pop(self) -> Batch | None:
        """The next batch, or None when nobody is left."""
        if len(self._leaves) == 1:
            only = next(iter(self._leaves))
            return None if self._next_below(only) is None else self._take(only)
        queue = -1
        while queue not in self._leaves:
            choices = [(key, q) for q in self._parents.get(queue, ()) if (key := self._key(q)) is not None]
            if not choices:
                return None
            queue = max(choices, key=lambda c: c[0])[1]
        return self._take(queue)

    def _take(self, queue: int) -> Batch:
        gang, pods = self._candidate(queue)
        leaf = self._leaves[queue]
        leaf.take(gang)
        trial = self.cycle.trial
        if len(pods) == 1:
            chosen, more = pods, False
        else:
            chosen, more = next_victims(trial, self.cycle.orders, gang, pods)
        if more:
            rest = [pod for pod in pods if pod not in chosen]
            heapq.heappush(leaf.again, (_Last(self._rest_key(gang, rest)), gang, rest))
        amount = held_by(self.cycle, chosen)
        for q in self.cycle.snapshot.queues.paths[queue]:
            self._lost[q] = plus(self._lost.get(q, ZERO), amount)
            self._keys.pop(q, None)
        return Batch(gang, tuple(chosen))

    def _candidate(self, queue: int) -> tuple[int, list[int]]:
        """The gang to be popped from a leaf and the pods it still holds."""
        leaf = self._leaves[queue]
        fresh = leaf.next_fresh()
        if leaf.again and (fresh is None or self.cycle.gang_key(fresh) < leaf.again[0][0].key):
            return leaf.again[0][1], leaf.again[0][2]
        assert fresh is not None
        return fresh, active_in_order(self.cycle.trial, self.cycle.orders, fresh)

    def _rest_key(self, gang: int, rest: Sequence[int]) -> Any:
        """The gang's place in the order with only `rest` of its pods left."""
        trial = self.cycle.trial
        mark = trial.mark()
        gone = set(active_pods(trial, gang)) - set(rest)
        for pod in gone:
            row = trial.podset[pod]
            trial.journal.put(trial.active_allocated, row, trial.active_allocated[row] - 1)
        key = self.cycle.gang_key(gang)
        trial.journal.undo_to(mark)
        return key

    def _key(self, queue: int) -> Any:
        """Order key of a queue with what it has lost so far and would lose next; None where nothing is left."""
        if queue in self._keys:
            return self._keys[queue]
        candidate = self._next_below(queue)
        key: Any = None
        if candidate is None:
            pass
        elif self.cycle.quota is None:
            key = (self.cycle.snapshot.queues.creation[queue], queue)
        else:
            lost = plus(self._lost.get(queue, ZERO), held_by(self.cycle, candidate[1]))
            key = self.cycle.quota.queue_key(self.cycle.book, queue, ZERO, lost)
        self._keys[queue] = key
        return key

    def _next_below(self, queue: int) -> tuple[int, list[int]] | None:
        leaf = self._leaves.get(queue)
        if leaf is not None:
            return self._candidate(queue) if leaf.again or leaf.next_fresh() is not None else None
        keyed = [(key, q) for q in self._parents.get(queue, ()) if (key := self._key(q)) is not None]
        return self._next_below(max(keyed, key=lambda c: c[0])[1]) if keyed else None
