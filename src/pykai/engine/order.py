"""The order of service: queues by fairness, then gangs within a queue; gangs of one equivalence class take one turn.

Two pending gangs are equivalent when no rule distinguishes them but age: same queue, priority, minimum and constraints
on topology, pods of the same classes. If the first of a class finds no place, nor do the others, as long as nothing is
freed: thousands of gangs that ask for the same cost one turn.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place, ready
from pykai.engine.plugin_api import GangOrder
from pykai.engine.queues import ZERO, QueueBook, QueueKey, Triple
from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.resources import Column, Rows

Key = tuple[Any, ...]
FEW = 16
"""Of so many times as many gangs a handful is put in order one by one: columns are made of all of them."""


def pending_gangs(cycle: Cycle) -> list[int]:
    """Gangs with a pending pod that are ready and whose queue is a leaf."""
    trial, gangs = cycle.trial, cycle.snapshot.gangs
    first, pending = gangs.first_podset, trial.pending
    waiting = [gang for gang in cycle.waiting_at_start if any(pending[first[gang] : first[gang + 1]])]
    return [gang for gang in waiting if ready(trial, gang)]


def in_order(cycle: Cycle, rows: Rows) -> list[int]:
    """Gangs by their order within a queue: policies first, then age, then name."""
    if len(rows) * FEW < len(cycle.snapshot.gangs):
        return [gang for _, gang in sorted([(cycle.gang_key(gang), gang) for gang in rows.tolist()])]
    return _by_columns(cycle, rows)[0]


def keyed_in_order(cycle: Cycle, gangs: Iterable[int]) -> dict[int, Key]:
    """Return gangs in the same order, and the key of each as of now."""
    rows = np.fromiter(gangs, dtype=np.int64)
    if len(rows) * FEW < len(cycle.snapshot.gangs):
        return {gang: key for key, gang in sorted([(cycle.gang_key(gang), gang) for gang in rows.tolist()])}
    found, columns = _by_columns(cycle, rows)
    objects = cycle.snapshot.gangs.objects
    metas = [objects[gang].metadata for gang in found]
    names = zip(*columns.tolist(), [meta.name for meta in metas], [meta.namespace for meta in metas], strict=True)
    return dict(zip(found, names, strict=True))


def _by_columns(cycle: Cycle, rows: Rows) -> tuple[list[int], Column]:
    """Many gangs in order, and their keys without names [key, gang]."""
    creation = cycle.snapshot.gangs.columns.creation[rows]
    columns = [plugin.gang_column(cycle.trial, rows) for plugin in cycle.policy.of(GangOrder)]
    order = np.lexsort([creation, *reversed(columns)])
    keys = np.array([*columns, creation])[:, order]
    result: list[int] = rows[order].tolist()
    objects = cycle.snapshot.gangs.objects

    def title(gang: int) -> tuple[str, str]:
        meta = objects[gang].metadata
        return meta.name, meta.namespace

    for start, end in runs(np.flatnonzero((keys[:, 1:] == keys[:, :-1]).all(axis=0)).tolist()):
        result[start:end] = sorted(result[start:end], key=title)
    return result, keys


def runs(tied: list[int]) -> Iterator[tuple[int, int]]:
    """Spans of equal neighbours; an entry of `tied` says that this one equals the next."""
    at = 0
    while at < len(tied):
        start = tied[at]
        while at + 1 < len(tied) and tied[at + 1] == tied[at] + 1:
            at += 1
        yield start, tied[at] + 2
        at += 1


class GangWalk:
    """Pops the next gang: from the root always to the best child, then the best gang of the leaf.

    Keys of a queue depend on its own use and on its best gang. Both change only along the path of the gang that was
    last popped or pushed, so only that path is keyed anew.
    """

    def __init__(self, cycle: Cycle, gangs: Iterable[int], keys: dict[int, Key] | None = None) -> None:
        """`keys`: of gangs that are known, as of now; they are dropped when pods of the gang move."""
        self.cycle = cycle
        self._queue_of = cycle.snapshot.gangs.queue
        self._queue_key = by_age if cycle.quota is None else cycle.quota.queue_key
        self._gang_keys, self._read = keys or {}, len(cycle.trial.moved)
        self._leaves: dict[int, list[tuple[Key, int]]] = {}
        self._requests: dict[int, Triple] = {}
        self._queued: set[int] = set(gangs)
        for gang in self._queued:
            queue = self._queue_of[gang]
            self._leaves.setdefault(queue, []).append((self._gang_key(gang), gang))
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
        queue = self._best_leaf()
        if queue is None:
            return None
        _, gang = heapq.heappop(self._leaves[queue])
        self._queued.discard(gang)
        self._dirty.add(queue)
        return gang

    def _best_leaf(self) -> int | None:
        """The leaf of the best gang of the best root; with a single leaf there is nothing to compare."""
        if len(self._leaves) == 1:
            only = next(iter(self._leaves))
            return only if self._leaves[only] else None
        dirty = self._dirty
        for queue in sorted(dirty) if len(dirty) > 1 else dirty:
            self._rekey(queue)
        dirty.clear()
        root = self._top(-1)
        return None if root is None else self._queue_of[self._best[root]]

    def push(self, gang: int) -> None:
        """Put a gang back: it has more to place."""
        self._requests.pop(gang, None)
        self._add(gang)

    def changed(self, gangs: Iterable[int]) -> None:
        """These gangs lost or got pods out of turn: their queues use something else, they ask for something else."""
        for gang in gangs:
            queue = self._queue_of[gang]
            self._dirty.add(queue)
            self._requests.pop(gang, None)
            if gang in self._queued:
                heap = self._leaves[queue]
                heap[:] = [(self._gang_key(gang) if each == gang else key, each) for key, each in heap]
                heapq.heapify(heap)

    def follow(self, gang: int, successor: int) -> None:
        """A gang had its turn: one of the same class and queue follows."""
        request = self._requests.get(gang)
        if request is not None:
            self._requests[successor] = request
        self._add(successor)

    def _add(self, gang: int) -> None:
        queue = self._queue_of[gang]
        heapq.heappush(self._leaves[queue], (self._gang_key(gang), gang))
        self._queued.add(gang)
        self._dirty.add(queue)

    def _gang_key(self, gang: int) -> Key:
        moved, known = self.cycle.trial.moved, self._gang_keys
        if known and self._read < len(moved):
            gang_of = self.cycle.trial.gang
            for each in {gang_of[pod] for pod in moved[self._read :]}:
                known.pop(each, None)
            self._read = len(moved)
        return known.get(gang) or self.cycle.gang_key(gang)

    def _rekey(self, leaf: int) -> None:
        """Key the path from a leaf to its root by what is now its best gang."""
        queues, book, keys, best = self.cycle.snapshot.queues, self.cycle.book, self._keys, self._best
        for queue in queues.paths[leaf]:
            gang = self._best_gang(queue)
            if gang is None:
                keys.pop(queue, None)
                best.pop(queue, None)
                continue
            best[queue] = gang
            reasons = (self._requests.get(gang) or self._request(gang), book.allocated[queue])
            if queue in keys and self._reasons[queue] == reasons:
                continue
            key = keys[queue] = self._queue_key(book, queue, reasons[0], ZERO)
            self._reasons[queue] = reasons
            heap = self._inner.setdefault(queues.parent[queue], [])
            if heap and heap[0][1] == queue:  # outdated: it was served last
                heapq.heapreplace(heap, (key, queue))
            else:
                heapq.heappush(heap, (key, queue))

    def _best_gang(self, queue: int) -> int | None:
        heap = self._leaves.get(queue)
        if heap is not None:
            return heap[0][1] if heap else None
        child = self._top(queue)
        return None if child is None else self._best[child]

    def _top(self, parent: int) -> int | None:
        heap, keys = self._inner.get(parent), self._keys
        while heap:
            key, queue = heap[0]
            if keys.get(queue) is key:
                return queue
            heapq.heappop(heap)
        return None

    def _request(self, gang: int) -> Triple:
        request = self._requests[gang] = next_request(self.cycle, gang)
        return request


def queue_key(cycle: Cycle, queue: int, request: Triple) -> QueueKey:
    """Sort key of a queue among its siblings, with what its first gang requests; the most deserving first."""
    key_of = by_age if cycle.quota is None else cycle.quota.queue_key
    return key_of(cycle.book, queue, request, ZERO)


def by_age(book: QueueBook, queue: int, request: Triple, victims: Triple) -> QueueKey:
    """The key where there is no policy for quotas."""
    return QueueKey(False, False, 0, False, 0, 0, book.ages[queue])


def next_request(cycle: Cycle, gang: int) -> Triple:
    """What the gang would take next from its queue."""
    pods = pods_to_place(cycle.trial, cycle.orders, gang)
    return cycle.queue_request(pods, cycle.snapshot.min_gpu_memory)


Distinguish = Callable[[int], Hashable]
"""Equal for gangs that an action does not distinguish."""
MAX_BLOCKED = 64
"""So many gangs of blocked classes still count when queues are compared; the rest of a backlog does not."""


class ClassWalk:
    """Pops gangs like GangWalk, of each equivalence class the first; the caller decides whether the next follows."""

    def __init__(
        self, cycle: Cycle, gangs: Iterable[int], depth: int | None = None, distinguish: Distinguish = lambda _: None
    ) -> None:
        self._lines: dict[int, deque[int]] = {}
        """Gang that had its turn, or has it next -> those of its class that follow."""
        self._blocked: set[int] = set()
        """Gangs that get no turn, but by whose requests their queues are compared with others."""
        classes, lines = EquivalenceClasses.of(cycle), dict[Hashable, deque[int]]()
        gang_keys = keyed_in_order(cycle, gangs)
        for gang in _best_of_each_queue(cycle, gang_keys, depth):
            lines.setdefault((classes.key(cycle, gang), distinguish(gang)), deque()).append(gang)
        for line in lines.values():
            self._lines[line.popleft()] = line
        self._walk = GangWalk(cycle, self._lines, gang_keys)
        self._expected = len(self._lines)
        """How many in the walk get a turn: without any the blocked ones do not matter."""

    def pop(self) -> int | None:
        """The next gang, or None when all had their turn."""
        while self._expected and (gang := self._walk.pop()) is not None:
            if gang not in self._blocked:
                self._expected -= 1
                return gang
            self.go_on(gang)
        return None

    def push(self, gang: int) -> None:
        """Put a gang back: it has more to place."""
        self._expected += 1
        self._walk.push(gang)

    def changed(self, gangs: Iterable[int]) -> None:
        """These gangs lost or got pods out of turn."""
        self._walk.changed(gangs)

    def go_on(self, gang: int) -> None:
        """The next gang of the same class gets its turn."""
        line = self._lines[gang]
        if line:
            successor = line.popleft()
            self._lines[successor], self._lines[gang] = line, deque()
            self._expected += successor not in self._blocked
            self._walk.follow(gang, successor)

    def give_up(self, gang: int) -> list[int]:
        """No more turns for this class; returns the gangs that would have followed."""
        rest = list(self._lines[gang])
        kept = rest[: max(MAX_BLOCKED - len(self._blocked), 0)]
        self._blocked.update(kept)
        self._lines[gang] = deque(kept)
        self.go_on(gang)
        return rest


def _best_of_each_queue(cycle: Cycle, gangs: Iterable[int], depth: int | None) -> Iterable[int]:
    if depth is None:
        return gangs
    queue_of = cycle.snapshot.gangs.queue
    taken: Counter[int] = Counter()
    found: list[int] = []
    for gang in gangs:
        taken[queue_of[gang]] += 1
        if taken[queue_of[gang]] <= depth:
            found.append(gang)
    return found


class EquivalenceClasses:
    """The equivalence classes of a cycle's gangs, each kept until a pod of the gang moves."""

    def __init__(self, read: int) -> None:
        self._known: dict[int, Hashable] = {}
        self._read = read

    @classmethod
    def of(cls, cycle: Cycle) -> EquivalenceClasses:
        """The up-to-date classes of the cycle."""
        known = cycle.state(_equivalence_classes)
        for pod in cycle.trial.moved[known._read :]:
            known._known.pop(cycle.trial.gang[pod], None)
        known._read = len(cycle.trial.moved)
        return known

    def alike(self, cycle: Cycle, gangs: Iterable[int]) -> Iterable[list[int]]:
        """The gangs of each class, in their order."""
        found: dict[Hashable, list[int]] = {}
        for gang in gangs:
            found.setdefault(self.key(cycle, gang), []).append(gang)
        return found.values()

    def key(self, cycle: Cycle, gang: int) -> Hashable:
        """Equal for equivalent gangs; its own row for a gang that is like no other."""
        known = self._known.get(gang)
        if known is None:
            known = self._known[gang] = _class_key(cycle, gang)
        return known


def _equivalence_classes(cycle: Cycle) -> EquivalenceClasses:
    return EquivalenceClasses(len(cycle.trial.moved))


def _class_key(cycle: Cycle, gang: int) -> Hashable:
    gangs, trial = cycle.snapshot.gangs, cycle.trial
    podset, tree = gangs.first_podset[gang], gangs.trees.get(gang)
    if tree is not None and (gangs.first_podset[gang + 1] > podset + 1 or trial.active_used[podset]):
        return gang  # one sub-group's place, or that of a pod, decides about the others'
    pods = pods_to_place(trial, cycle.orders, gang)
    classes = (trial.klass[pods[0]],) if len(pods) == 1 else tuple([trial.klass[pod] for pod in pods])
    resources: list[Hashable] = []
    if any(cycle.resources.of_class(cycle.snapshot.pods.classes[row]).all for row in set(classes)):
        resources = [state.alike(pod) for pod in pods for state in cycle.resources.of(pod).all]
        if None in resources:
            return gang
    return (
        gangs.queue[gang],
        gangs.priority[gang],
        trial.adds_preemptible(gang),
        gangs.podset_min[podset],
        trial.active_used[podset],
        len(gangs.pods(gang)),
        classes,
        tuple(resources),
        tree and _constraints(tree),
    )


def _constraints(member: PodSet | SubGroupSet) -> Hashable:
    """What a tree with one podset says beyond the minimum of that."""
    if isinstance(member, PodSet):
        return member.name, member.topology
    return member.name, member.min_satisfied, member.topology, *map(_constraints, member.children)
