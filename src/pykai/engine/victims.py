"""Victims in order: whose pods go first if somebody else needs their place (spec/scheduling.md §16.4).

The order is the order of service reversed: from the root always to the least deserving child, then the last gang of
the leaf. A gang loses surplus pods one by one before it goes whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.gang import active_in_order, active_pods, next_victims
from pykai.engine.order import in_order
from pykai.engine.quota import ZERO, Triple, plus, total
from pykai.model.resources import GPU, QUEUE_RESOURCES, Column, Mask, Rows
from pykai.model.status import IS_ACTIVE_ALLOCATED


@dataclass(frozen=True)
class Batch:
    """Pods of one gang that would go together."""

    gang: int
    pods: tuple[int, ...]


def held_by(cycle: Cycle, pods: Iterable[int]) -> Triple:
    """What pods count against their queue where they are."""
    trial = cycle.trial
    return total(trial.quota_amounts(trial.of_class(pod), trial.node[pod]) for pod in pods)


def _gang_amounts(cycle: Cycle) -> Column:
    """[resource, gang]: the sum over pods that hold a place."""
    trial, pods = cycle.trial, cycle.snapshot.pods
    rows = np.flatnonzero(np.array(IS_ACTIVE_ALLOCATED)[np.array(trial.status, dtype=np.int64)] & (pods.gang >= 0))
    table = np.array([trial.quota_amounts(c, -1) for c in pods.classes]).reshape(-1, QUEUE_RESOURCES).T
    gang, klass = pods.gang[rows], pods.klass[rows]
    sums = [np.bincount(gang, weights=row[klass], minlength=len(cycle.snapshot.gangs)) for row in table]
    amounts = np.array(sums, dtype=np.float64).reshape(QUEUE_RESOURCES, len(cycle.snapshot.gangs))
    by_memory = [c.row for c in pods.classes if c.memory_mib]
    for pod in rows[np.isin(klass, by_memory)].tolist() if by_memory else ():
        amounts[GPU, trial.gang[pod]] += trial.quota_amounts(trial.of_class(pod), trial.node[pod])[GPU]
    return amounts


class VictimPool:
    """Per leaf queue the gangs that could lose something, least deserving first; built when first asked for.

    Evictions take gangs from the front, so a list stays valid while its front is skipped; only a gang that lost a
    part of its pods changes its place in the order, and then its queue is sorted anew.
    """

    def __init__(self, cycle: Cycle) -> None:
        self.cycle = cycle
        gangs, trial = cycle.snapshot.gangs, cycle.trial
        self._queue = np.array(gangs.queue, dtype=np.int64)
        self._priority = np.array(gangs.priority, dtype=np.float64)
        held = np.bincount(gangs.podset_gang, weights=trial.active_allocated, minlength=len(gangs))
        minimum = np.bincount(gangs.podset_gang, weights=gangs.podset_min, minlength=len(gangs))
        self._active = np.array(gangs.preemptible, dtype=bool) & (held > 0) & (self._queue >= 0)
        self.goes_whole = held <= minimum
        """Gangs without a pod to spare: one batch takes all of it."""
        self.goes_whole[list(gangs.trees)] = False
        self.amounts = _gang_amounts(cycle)
        """[resource, gang]: what each gang holds of its queue."""
        self.chunks: dict[Hashable, int] = {}
        """How many gangs of a leaf the last search of a kind had to look at: a good guess for the next one."""
        self._pods: dict[int, tuple[int, ...]] = {}
        self._leaves: dict[int, list[int]] = {}
        self._front: dict[int, int] = {}
        self._figures: dict[int, tuple[float, float]] = {}
        self.queues: list[int] = np.unique(self._queue[self._active]).tolist()
        """Leaf queues with somebody to lose something."""

    @cached_property
    def class_requests(self) -> tuple[Column, Mask]:
        """[resource, class] requests, and which classes ask for GPU memory instead of devices."""
        classes = self.cycle.snapshot.pods.classes
        return np.array([c.request for c in classes]).T.copy(), np.array([c.memory_mib > 0 for c in classes])

    def changed(self, gangs: Iterable[int]) -> None:
        """Evictions were decided: these gangs lost pods, or some of theirs moved."""
        table = self.cycle.snapshot.gangs
        trees, minimum, first = table.trees, table.podset_min, table.first_podset
        for gang in gangs:
            left = active_pods(self.cycle.trial, gang)
            self._pods.pop(gang, None)
            self._active[gang] = bool(left)
            if left:
                self._leaves.pop(int(self._queue[gang]), None)
                self.amounts[:, gang] = held_by(self.cycle, left)
                self.goes_whole[gang] = gang not in trees and len(left) <= minimum[first[gang]]

    def pods(self, gang: int) -> tuple[int, ...]:
        """The pods of a gang that hold a place."""
        found = self._pods.get(gang)
        if found is None:
            found = self._pods[gang] = tuple(active_in_order(self.cycle.trial, self.cycle.orders, gang))
        return found

    def rows(self) -> Rows:
        """All gangs that could lose something."""
        return np.flatnonzero(self._active)

    def lowest_priority(self, queue: int) -> float:
        """Of the gangs of a queue at the start of the action."""
        return self._of(queue)[0]

    def largest_gpus(self, queue: int) -> float:
        """GPUs of the largest gang of a queue at the start of the action."""
        return self._of(queue)[1]

    def _of(self, queue: int) -> tuple[float, float]:
        found = self._figures.get(queue)
        if found is None:
            rows = self._active & (self._queue == queue)
            gpus = self.amounts[GPU][rows]
            found = (float(self._priority[rows].min()), float(gpus.max())) if rows.any() else (np.inf, 0.0)
            self._figures[queue] = found
        return found

    def leaf(self, queue: int) -> tuple[list[int], int]:
        """Gangs of a queue, least deserving first, and where those begin that still have something to lose."""
        found = self._leaves.get(queue)
        if found is None:
            found = self._leaves[queue] = in_order(self.cycle, np.flatnonzero(self._active & (self._queue == queue)))[
                ::-1
            ]
            self._front[queue] = 0
        front = self._front[queue]
        while front < len(found) and not self._active[found[front]]:
            front += 1
        self._front[queue] = front
        return found, front


class _Last:
    """Reverses the order of a key inside a heap."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Last) -> bool:
        return bool(other.key < self.key)


class _Leaf:
    """The candidates of one queue: a sorted list that is read on, and gangs put back with fewer pods."""

    def __init__(self, gangs: Sequence[int], start: int, may_go: Callable[[int], bool]) -> None:
        self.gangs = gangs
        self.may_go = may_go
        self.at = start
        self.again: list[tuple[_Last, int, list[int]]] = []

    def next_fresh(self) -> int | None:
        while self.at < len(self.gangs):
            if self.may_go(self.gangs[self.at]):
                return self.gangs[self.at]
            self.at += 1
        return None


Candidates = tuple[Sequence[int], int]
"""Gangs in order, and where to begin."""


class VictimWalk:
    """Pops batches of victims in order."""

    def __init__(self, cycle: Cycle, leaves: Mapping[int, Candidates], may_go: Callable[[int], bool]) -> None:
        self.cycle = cycle
        self._leaves = {queue: _Leaf(gangs, start, may_go) for queue, (gangs, start) in leaves.items()}
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
        if leaf.again and leaf.again[0][1] == gang:
            heapq.heappop(leaf.again)
        else:
            leaf.at += 1
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
        if candidate is None:
            key = None
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
