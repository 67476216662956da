"""Victims in order: whose pods go first if somebody else needs their place (spec/scheduling.md §16.4).

The order is the order of service reversed: from the root always to the least deserving child, then the last gang of
the leaf. A gang loses surplus pods one by one before it goes whole.
"""

from __future__ import annotations

import heapq
from collections import deque
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


Passes = Callable[[Rows], Mask]
"""Which of some gangs may be considered as victims."""


class VictimPool:
    """Per leaf queue the gangs that could lose something, least deserving first; worked out when first asked for.

    Evictions take gangs out of a list, which stays in order; only a gang that lost a part of its pods changes its
    place, and then its queue is sorted anew.
    """

    def __init__(self, cycle: Cycle) -> None:
        self.cycle = cycle
        self.chunks: dict[Hashable, int] = {}
        """How many gangs of a leaf the last search of a kind had to look at: a good guess for the next one."""
        self._shrunk: set[int] = set()
        """Leaf queues whose list has gangs in it that have lost everything."""
        self._mixed: set[int] = set()
        """Leaf queues whose list may be in the wrong order."""
        self._figures: dict[int, tuple[float, float]] = {}
        self._scales: dict[int, Column] = {}

    @cached_property
    def _active(self) -> Mask:
        """Gangs that could lose something."""
        return np.array(self.cycle.snapshot.gangs.preemptible, dtype=bool) & (self._held > 0) & (self._queue >= 0)

    @cached_property
    def goes_whole(self) -> Mask:
        """Gangs without a pod to spare: one batch takes all of it."""
        gangs = self.cycle.snapshot.gangs
        whole = self._held <= np.bincount(gangs.podset_gang, weights=gangs.podset_min, minlength=len(gangs))
        whole[list(gangs.trees)] = False
        return np.asarray(whole)

    @cached_property
    def _held(self) -> Column:
        gangs = self.cycle.snapshot.gangs
        held = np.bincount(gangs.podset_gang, weights=self.cycle.trial.active_allocated, minlength=len(gangs))
        return np.asarray(held, dtype=np.float64)

    @cached_property
    def _queue(self) -> Rows:
        return np.array(self.cycle.snapshot.gangs.queue, dtype=np.int64)

    @cached_property
    def queues(self) -> list[int]:
        """Leaf queues with somebody to lose something."""
        return np.unique(self._queue[self._active]).tolist()  # type: ignore[no-any-return]

    @cached_property
    def members(self) -> Members:
        return Members(self.cycle)

    @cached_property
    def priority(self) -> Column:
        """Of each gang."""
        return np.array(self.cycle.snapshot.gangs.priority, dtype=np.float64)

    @cached_property
    def amounts(self) -> Column:
        """[resource, gang]: what each gang holds of its queue."""
        trial, pods, rows = self.cycle.trial, self.cycle.snapshot.pods, self.members.pods
        size, gang, klass = len(self.cycle.snapshot.gangs), pods.gang[rows], pods.klass[rows]
        table = np.array([trial.quota_amounts(c, -1) for c in pods.classes]).reshape(-1, QUEUE_RESOURCES).T
        sums = [np.bincount(gang, weights=row[klass], minlength=size) for row in table]
        amounts = np.array(sums, dtype=np.float64).reshape(QUEUE_RESOURCES, size)
        by_memory = [c.row for c in pods.classes if c.memory_mib]
        for pod in rows[np.isin(klass, by_memory)].tolist() if by_memory else ():
            amounts[GPU, trial.gang[pod]] += trial.quota_amounts(trial.of_class(pod), trial.node[pod])[GPU]
        return amounts

    @cached_property
    def class_requests(self) -> tuple[Column, Mask]:
        """[resource, class] requests, and which classes ask for GPU memory instead of devices."""
        classes = self.cycle.snapshot.pods.classes
        return np.array([c.request for c in classes]).T.copy(), np.array([c.memory_mib > 0 for c in classes])

    def scale(self, queue: int) -> Column:
        """[resource, 1]: what turns use of a queue into a share of what it may use; 0 where that has no bound."""
        found = self._scales.get(queue)
        if found is None:
            bounds = [bound for *_, bound in self.cycle.book.bounds[queue]]
            scale = [1 / bound if bound > 0 else (1000.0 if bound == 0 else 0.0) for bound in bounds]
            found = self._scales[queue] = np.array(scale)[:, None]
        return found

    def changed(self, gangs: Iterable[int]) -> None:
        """These gangs lost, got or moved pods. Who had nothing to lose before still does not."""
        table = self.cycle.snapshot.gangs
        for gang in gangs:
            if not self._active[gang]:
                continue
            left = active_in_order(self.cycle.trial, self.cycle.orders, gang)
            self._held[gang], self._active[gang] = len(left), bool(left)
            if not left:
                self._shrunk.add(int(self._queue[gang]))
                continue
            self._mixed.add(int(self._queue[gang]))
            self.amounts[:, gang] = held_by(self.cycle, left)
            self.members.replace(gang, left)
            self.goes_whole[gang] = gang not in table.trees and len(left) <= table.podset_min[table.first_podset[gang]]

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
            found = (float(self.priority[rows].min()), float(gpus.max())) if rows.any() else (np.inf, 0.0)
            self._figures[queue] = found
        return found

    def leaf(self, queue: int) -> Rows:
        """Gangs of a queue with something to lose, least deserving first."""
        if queue in self._shrunk:
            self._leaves[queue] = self._leaves[queue][self._active[self._leaves[queue]]]
        if queue in self._mixed:
            self._leaves[queue] = self._last_first(self._leaves[queue])
        self._shrunk.discard(queue)
        self._mixed.discard(queue)
        return self._leaves[queue]

    @cached_property
    def _leaves(self) -> dict[int, Rows]:
        gangs = self._last_first(self.rows())
        queue = self._queue[gangs]
        return {q: gangs[queue == q] for q in self.queues}

    def _last_first(self, gangs: Rows) -> Rows:
        return np.array(in_order(self.cycle, gangs)[::-1], dtype=np.int64)


class Members:
    """The pods of each gang that hold a place, and their nodes, as columns.

    A gang's pods lie together, from `first` on; those that would be placed first in front.
    """

    def __init__(self, cycle: Cycle) -> None:
        self.cycle = cycle
        gang_of = cycle.snapshot.pods.gang
        active = np.array(IS_ACTIVE_ALLOCATED)[np.array(cycle.trial.status, dtype=np.int64)]
        rows = np.flatnonzero(active & (gang_of >= 0))
        self.pods: Rows = rows[np.argsort(gang_of[rows], kind="stable")]
        self.count: Rows = np.bincount(gang_of[rows], minlength=len(cycle.snapshot.gangs))
        self.first: Rows = np.cumsum(self.count) - self.count
        self.node: Rows = np.array(cycle.trial.node, dtype=np.int64)
        """By pod."""
        self._sorted = self.count < 2

    def of(self, gangs: Rows) -> tuple[Rows, Rows]:
        """The pods of some gangs, gang by gang, and how many each has."""
        for gang in gangs[~self._sorted[gangs]].tolist():
            start, self._sorted[gang] = int(self.first[gang]), True
            pods = active_in_order(self.cycle.trial, self.cycle.orders, gang)
            self.pods[start : start + len(pods)] = pods
        count = self.count[gangs]
        ends = np.cumsum(count)
        offsets = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - count, count)
        return self.pods[np.repeat(self.first[gangs], count) + offsets], count

    def replace(self, gang: int, pods: Sequence[int]) -> None:
        """From now on these are the gang's pods."""
        self.first[gang], self.count[gang], self._sorted[gang] = len(self.pods), len(pods), True
        self.pods = np.append(self.pods, pods)
        self.node[list(pods)] = [self.cycle.trial.node[pod] for pod in pods]


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
