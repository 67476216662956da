"""The order in which gangs get their turn: queues by fairness, then gangs within a queue (spec/scheduling.md §5)."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place, ready
from pykai.engine.quota import ZERO, Triple

Key = tuple[Any, ...]
FEW = 16
"""Of so many times as many gangs a handful is put in order one by one: columns are made of all of them."""


def pending_gangs(cycle: Cycle) -> list[int]:
    """Gangs with a pending pod that are ready and whose queue is a leaf."""
    trial, gangs = cycle.trial, cycle.snapshot.gangs
    first, pending = gangs.first_podset, trial.pending
    waiting = [gang for gang in cycle.waiting_at_start if any(pending[first[gang] : first[gang + 1]])]
    return [gang for gang in waiting if ready(trial, gang)]


def in_order(cycle: Cycle, gangs: Iterable[int]) -> list[int]:
    """Gangs by their order within a queue: policies first, then age, then name."""
    rows = np.fromiter(gangs, dtype=np.int64)
    if len(rows) * FEW < len(cycle.snapshot.gangs):
        return sorted(rows.tolist(), key=cycle.gang_key)
    creation = cycle.snapshot.gangs.columns.creation[rows]
    columns = [plugin.gang_column(cycle.trial, rows) for plugin in cycle.gang_order]
    order = np.lexsort([creation, *reversed(columns)])
    keys = np.array([*columns, creation])[:, order]
    result: list[int] = rows[order].tolist()
    for start, end in runs(np.flatnonzero((keys[:, 1:] == keys[:, :-1]).all(axis=0)).tolist()):
        result[start:end] = sorted(result[start:end], key=cycle.gang_key)
    return result


def runs(tied: list[int]) -> Iterator[tuple[int, int]]:
    """Spans of equal neighbours; an entry of `tied` says that this one equals the next."""
    at = 0
    while at < len(tied):
        start = tied[at]
        while at + 1 < len(tied) and tied[at + 1] == tied[at] + 1:
            at += 1
        yield start, tied[at] + 2
        at += 1


class Bystander(NamedTuple):
    """Gangs of one shape that wait in a queue and get no turn now, but make their queue look as it does."""

    key: Key
    queue: int
    request: Triple


class GangWalk:
    """Pops the next gang: from the root always to the best child, then the best gang of the leaf.

    Keys of a queue depend on its own use and on its best gang. Both change only along the path of the gang that was
    last popped or pushed, so only that path is keyed anew.
    """

    def __init__(self, cycle: Cycle, gangs: Iterable[int], bystanders: Iterable[Bystander] = ()) -> None:
        self.cycle = cycle
        self._leaves: dict[int, list[tuple[Key, int]]] = {}
        self._requests: dict[int, Triple] = {}
        """By gang; bystanders are numbered below -1."""
        self._in_line: set[int] = set(gangs)
        for gang in self._in_line:
            queue = cycle.snapshot.gangs.queue[gang]
            self._leaves.setdefault(queue, []).append((cycle.gang_key(gang), gang))
        for number, bystander in enumerate(bystanders):
            self._leaves.setdefault(bystander.queue, []).append((bystander.key, -2 - number))
            self._requests[-2 - number] = bystander.request
        for heap in self._leaves.values():
            heapq.heapify(heap)
        self._inner: dict[int, list[tuple[Key, int]]] = {}
        """Parent queue (-1: the roots) -> heap of (key, child); outdated entries are skipped."""
        self._keys: dict[int, Key] = {}
        self._best: dict[int, int] = {}
        self._reasons: dict[int, tuple[Triple, Triple]] = {}
        """What a queue was keyed by: the request of its best gang, and its use."""
        self._dirty: set[int] = set(self._leaves)

    def pop(self) -> int | None:
        """The next gang, or None when all had their turn."""
        while (queue := self._best_leaf()) is not None:
            _, gang = heapq.heappop(self._leaves[queue])
            self._in_line.discard(gang)
            self._dirty.add(queue)
            if gang >= 0:
                return gang
        return None

    def _best_leaf(self) -> int | None:
        """Down the tree by the best child; with a single leaf there is nothing to compare."""
        if len(self._leaves) == 1:
            only = next(iter(self._leaves))
            return only if self._leaves[only] else None
        for queue in sorted(self._dirty):
            self._rekey(queue)
        self._dirty.clear()
        at = -1
        while at not in self._leaves:
            child = self._top(at)
            if child is None:
                return None
            at = child
        return at

    def push(self, gang: int) -> None:
        """Put a gang back: it has more to place."""
        self._requests.pop(gang, None)
        self._add(gang)

    def changed(self, gangs: Iterable[int]) -> None:
        """These gangs lost or got pods out of turn: their queues use something else, they ask for something else."""
        for gang in gangs:
            queue = self.cycle.snapshot.gangs.queue[gang]
            self._dirty.add(queue)
            self._requests.pop(gang, None)
            if gang in self._in_line:
                heap = self._leaves[queue]
                heap[:] = [(self.cycle.gang_key(gang) if each == gang else key, each) for key, each in heap]
                heapq.heapify(heap)

    def confine(self, gangs: Iterable[int]) -> None:
        """Forget the trees without any of these gangs: who is in another tree has no say in their order."""
        queue_of, paths = self.cycle.snapshot.gangs.queue, self.cycle.snapshot.queues.paths
        roots = {paths[queue_of[gang]][-1] for gang in gangs}
        for leaf in [leaf for leaf in self._leaves if paths[leaf][-1] not in roots]:
            del self._leaves[leaf]
            self._dirty.discard(leaf)
            self._keys.pop(paths[leaf][-1], None)

    def follow(self, gang: int, heir: int) -> None:
        """A gang had its turn: one of the same queue that asks for the same gets in line."""
        request = self._requests.get(gang)
        if request is not None:
            self._requests[heir] = request
        self._add(heir)

    def _add(self, gang: int) -> None:
        queue = self.cycle.snapshot.gangs.queue[gang]
        heapq.heappush(self._leaves[queue], (self.cycle.gang_key(gang), gang))
        self._in_line.add(gang)
        self._dirty.add(queue)

    def _rekey(self, leaf: int) -> None:
        """Key the path from a leaf to its root by what is now its best gang."""
        queues, allocated = self.cycle.snapshot.queues, self.cycle.book.allocated
        for queue in queues.paths[leaf]:
            gang = self._best_gang(queue)
            if gang is None:
                self._keys.pop(queue, None)
                self._best.pop(queue, None)
                continue
            self._best[queue] = gang
            reasons = (self._request(gang), allocated[queue])
            if queue in self._keys and self._reasons[queue] == reasons:
                continue
            key = self._keys[queue] = self._key(queue, reasons[0])
            self._reasons[queue] = reasons
            heapq.heappush(self._inner.setdefault(queues.parent[queue], []), (key, queue))

    def _best_gang(self, queue: int) -> int | None:
        heap = self._leaves.get(queue)
        if heap is not None:
            return heap[0][1] if heap else None
        child = self._top(queue)
        return None if child is None else self._best[child]

    def _top(self, parent: int) -> int | None:
        heap = self._inner.get(parent, [])
        while heap and self._keys.get(heap[0][1]) is not heap[0][0]:
            heapq.heappop(heap)
        return heap[0][1] if heap else None

    def _request(self, gang: int) -> Triple:
        request = self._requests.get(gang)
        if request is None:
            request = self._requests[gang] = next_request(self.cycle, gang)
        return request

    def _key(self, queue: int, request: Triple) -> Key:
        cycle = self.cycle
        if cycle.quota is None:
            return (cycle.snapshot.queues.creation[queue], queue)
        return tuple(cycle.quota.queue_key(cycle.book, queue, request, ZERO))


def next_request(cycle: Cycle, gang: int) -> Triple:
    """What the gang would take next from its queue."""
    pods = pods_to_place(cycle.trial, cycle.orders, gang)
    return cycle.queue_request(pods, cycle.snapshot.min_gpu_memory)


Run = deque[tuple[Bystander, int]]
"""Gangs that are neighbours in the order of their queue and ask for the same, each as a bystander."""


class Waiting:
    """Everybody who waits, as bystanders of each other; a queue is worked out when first asked for.

    Neighbours in the order of a queue that ask for the same stand for each other: they are kept as one run.
    """

    def __init__(self, cycle: Cycle, gangs: Sequence[int]) -> None:
        self.cycle = cycle
        self._waiting = dict.fromkeys(gangs)
        self._runs: dict[int, list[Run]] = {}
        """Leaf queue -> runs in order."""

    def served(self, gang: int) -> None:
        """The gang got its place: it does not wait any more."""
        self._waiting.pop(gang, None)

    def changed(self, gangs: Iterable[int]) -> None:
        """These gangs lost or got pods out of turn: they ask for something else."""
        for gang in gangs:
            if gang in self._waiting:
                self._runs.pop(self.cycle.snapshot.gangs.queue[gang], None)

    @cached_property
    def _by_queue(self) -> dict[int, list[int]]:
        queue_of, found = self.cycle.snapshot.gangs.queue, dict[int, list[int]]()
        for gang in self._waiting:
            found.setdefault(queue_of[gang], []).append(gang)
        return found

    def _runs_of(self, queue: int) -> list[Run]:
        known = self._runs.get(queue)
        if known is None:
            known = self._worked_out(queue)
            if not self._supposed(queue):
                self._runs[queue] = known
        return known

    def _worked_out(self, queue: int) -> list[Run]:
        cycle, found = self.cycle, list[Run]()
        for gang in in_order(cycle, [gang for gang in self._by_queue[queue] if gang in self._waiting]):
            request = next_request(cycle, gang)
            if not found or found[-1][0][0].request != request:
                found.append(deque())
            found[-1].append((Bystander(cycle.gang_key(gang), queue, request), gang))
        return found

    def _supposed(self, queue: int) -> bool:
        """Whether somebody who waits there is supposed to lose pods: what it asks for now holds only now."""
        trial, queue_of = self.cycle.trial, self.cycle.snapshot.gangs.queue
        losers = {trial.gang[pod] for pod in trial.virtual}
        return any(queue_of[gang] == queue for gang in losers if gang in self._waiting)

    def bystanders(self, branches: set[int], busy: set[int]) -> Iterator[Bystander]:
        """Who waits in these branches (root queues) beside the gangs that are busy."""
        paths = self.cycle.snapshot.queues.paths
        for queue in self._by_queue:
            if paths[queue][-1] in branches:
                for run in self._runs_of(queue):
                    while run and run[0][1] not in self._waiting:
                        run.popleft()
                    idle: Sequence[tuple[Bystander, int]] = run
                    if run and run[0][1] in busy:
                        idle = [entry for entry in run if entry[1] in self._waiting and entry[1] not in busy]
                    if idle:
                        yield idle[0][0]
