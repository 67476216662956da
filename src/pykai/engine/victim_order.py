"""The order of victims: the order of service reversed, from the root always to the least deserving queue, then the last
gang of the leaf. A gang loses surplus pods one by one before it goes whole.

For gangs that go whole the order of a whole tree of queues is one sort per level. The key of a queue changes only in
its dominant share, which only falls as the queue loses gangs; so "always take the least deserving child" is a merge of
falling sequences. `VictimWalk` is the slow twin, and serves where gangs can lose single pods.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.gang import evictable_in_order, next_victims
from pykai.engine.queues import ZERO, Triple, plus
from pykai.engine.victims import Batch, Front, Passes, VictimPool, held_by
from pykai.model.resources import GPU, Column, Mask, Rows

FIRST = 32
"""How many candidates are fetched at first; a search that needs more fetches four times as many each time."""
WALKED = 8
"""How many batches a walk, which goes on where it stopped, fetches at first; then as many as are known."""


@dataclass(frozen=True)
class Branches:
    """Candidates as whole branches of the tree of queues that compete with a leaf queue."""

    leaf: int
    below: Mapping[int, Sequence[int]]
    """Queue on the path of the leaf (-1: above the roots) -> its children with a branch, or that are one."""

    @classmethod
    def of(cls, pool: VictimPool, leaf: int, branches: Iterable[int]) -> Branches:
        parent, below = pool.cycle.snapshot.queues.parent, dict[int, list[int]]()
        for branch in branches:
            below.setdefault(parent[branch], []).append(branch)
        for queue in pool.cycle.snapshot.queues.paths[leaf]:
            if queue in below:
                below.setdefault(parent[queue], []).append(queue)
        return cls(leaf, below)

    def leaves(self, pool: VictimPool) -> dict[int, Rows]:
        """The candidates of each leaf queue, in the order of queues."""
        known, by_branch = pool.leaves(), pool.below(self.leaf)
        branches = [queue for children in self.below.values() for queue in children if queue not in self.below]
        return {leaf: known[leaf] for leaf in sorted(leaf for branch in branches for leaf in by_branch[branch])}


class VictimOrder:
    """Batches in order, extended on demand: `gangs` by batch; `pods`, `nodes` and `batch_of` by pod, batch by batch.

    `hint` says whose order it is: searches with the same hint tend to look equally far, so that is fetched at once.
    """

    def __init__(
        self,
        pool: VictimPool,
        leaves: Mapping[int, Rows] | Branches,
        passes: Passes | None = None,
        hint: Hashable = None,
    ) -> None:
        self.cycle = pool.cycle
        self.pool = pool
        self._given = leaves
        self._all_pass = passes is None
        self._passes: Passes = passes or every_gang
        self._walk: VictimWalk | None = None
        self._hint = hint
        self._wanted = pool.chunks.get(hint, FIRST)
        self._complete = False
        self._merged_next, self._all_merged = np.zeros(0, dtype=np.int64), False
        """Gangs that follow, and whether these are all: with many leaves more are merged than wanted."""
        self.gangs = self.pods = self.nodes = self.batch_of = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        """How many batches are known."""
        return len(self.gangs)

    @property
    def in_parts(self) -> bool:
        """Whether a gang may have several batches."""
        return self._walk is not None

    @cached_property
    def leaves(self) -> Mapping[int, Rows]:
        """The candidates of each leaf queue in order."""
        return self._given.leaves(self.pool) if isinstance(self._given, Branches) else self._given

    @property
    def _chunk(self) -> int:
        """How many of each leaf are looked at next."""
        return max(self._wanted // max(len(self.leaves), 1), 1)

    @property
    def expected(self) -> int:
        """How many batches were enough for the last search with the same hint."""
        return self.pool.chunks.get(self._hint, FIRST) // 2

    def needed(self, batches: int) -> None:
        """So many batches were enough for a search: a good guess for the next one with the same hint."""
        self.pool.chunks[self._hint] = max(2 * batches, FIRST)

    def batch(self, number: int) -> Batch:
        start, end = np.searchsorted(self.batch_of, (number, number + 1)).tolist()
        return Batch(int(self.gangs[number]), tuple(self.pods[start:end].tolist()))

    def one_by_one(self) -> Iterator[tuple[int, list[int], int]]:
        """Batches as far as each is on one node, with their pods and node; the order is extended on the way."""
        at = 0
        while (at < len(self.pods) or self.extend()) and not self.in_parts:
            pods, nodes, batches = (column[at:].tolist() for column in (self.pods, self.nodes, self.batch_of))
            at, start = len(self.pods), 0
            while start < len(pods):
                number, end = batches[start], start + 1
                while end < len(pods) and batches[end] == number:
                    end += 1
                if any(node != nodes[start] for node in nodes[start + 1 : end]):
                    return
                yield number, pods[start:end], nodes[start]
                start = end

    def extend(self) -> bool:
        """Fetch more of the order; False when there is no more."""
        known = len(self)
        while not self._complete and len(self) == known:
            if self._walk is None:
                self._merged()
            else:
                self._walked(self._walk)
            self._wanted *= 4
        return len(self) > known

    def _add(self, gangs: Rows, pods: Rows, counts: Rows) -> None:
        batches = np.repeat(np.arange(len(self), len(self) + len(gangs)), counts)
        self.gangs, self.pods = _joined(self.gangs, gangs), _joined(self.pods, pods)
        self.batch_of = _joined(self.batch_of, batches)
        self.nodes = _joined(self.nodes, self.pool.members.node[pods])

    def freed(self) -> Column:
        """[resource, pod]: what each pod of the order frees on its node."""
        table, by_memory = self.pool.class_requests
        rows = self.cycle.snapshot.pods.klass[self.pods]
        return self._with_memory(table.take(rows, axis=1), np.flatnonzero(by_memory[rows]), self.pods)

    def _with_memory(self, amounts: Column, which: Rows, pods: Rows) -> Column:
        """The same, with the GPUs of those pods that ask for memory of devices where they are."""
        for at in which.tolist():
            amounts[GPU, at] = self.cycle.trial.accepted_gpus(int(pods[at]))
        return amounts

    @property
    def queues(self) -> Rows:
        """By pod: its leaf queue."""
        return self.cycle.snapshot.gangs.columns.queue[self.gangs[self.batch_of]]

    def losses(self, which: Rows) -> tuple[Column, Column]:
        """[resource, pod]: what some pods count against their queues, and what the batch of each does."""
        pods, batch = self.pods[which], self.batch_of[which]
        rows = self.cycle.snapshot.pods.klass[pods]
        amounts = self.pool.class_amounts.take(rows, axis=1)
        self._with_memory(amounts, np.flatnonzero(self.pool.class_requests[1][rows]), pods)
        return amounts, summed_by(batch, amounts)

    # ---------------------------------------------------------------------------------------------------- slow, always
    def _walked(self, walk: VictimWalk) -> None:
        found: list[Batch] = []
        while len(found) < max(len(self), WALKED) and not self._complete:
            batch = walk.pop()
            if batch is None:
                self._complete = True
            else:
                found.append(batch)
        counts = [len(batch.pods) for batch in found]
        self._add(_rows(batch.gang for batch in found), _rows(p for batch in found for p in batch.pods), _rows(counts))

    # -------------------------------------------------------------------------------------------- fast, for whole gangs
    def _merged(self) -> None:
        """Add the next batches of the merged order, or start to walk where a gang could lose a part only."""
        if not len(self._merged_next):
            order, self._all_merged = self._first()
            if not self.pool.goes_whole[order].all():
                self._walk = VictimWalk(self.cycle, self.leaves, self._passes)
                for _ in range(len(self)):
                    self._walk.pop()
                return
            self._merged_next = order[len(self) :]
        more, self._merged_next = self._merged_next[: self._wanted], self._merged_next[self._wanted :]
        self._complete = self._all_merged and not len(self._merged_next)
        self._add(more, *self.pool.members.of(more))

    def _first(self) -> Front:
        """The first candidates of all in order."""
        if isinstance(self._given, Branches) and self._all_pass:
            return self._of_branches(self._given, -1)
        if len(self.leaves) == 1:
            return self._of_leaf(next(iter(self.leaves.values())))
        return self._front(-1)

    def _of_branches(self, branches: Branches, queue: int) -> Front:
        """The first candidates below a queue on the evictor's path: those of whole branches hold for all searches."""
        children = branches.below.get(queue, ())
        wanted = max(self._wanted // max(len(children), 1), 4)
        fronts = [
            self._of_branches(branches, child)
            if child in branches.below
            else self.pool.front(child, self._wanted).upto(wanted)
            for child in children
        ]
        return self.pool.merged_fronts(children, fronts)

    def _front(self, queue: int) -> Front:
        """The first candidates below a queue in order."""
        if queue in self.leaves:
            return self._of_leaf(self.leaves[queue])
        if queue in self._untouched:
            return self.pool.front(queue, self._wanted).upto(self._wanted)
        children = [q for q in self.pool.children(queue) if q in self._above]
        return self.pool.merged_fronts(children, [self._front(q) for q in children])

    def _of_leaf(self, gangs: Rows) -> Front:
        if self._all_pass:
            return Front(gangs, True).upto(self._chunk)
        found, at, wanted = gangs[:0], 0, self._chunk
        size = wanted + 1
        while len(found) <= wanted and at < len(gangs):
            piece = gangs[at : at + size]
            found, at, size = _joined(found, piece[self._passes(piece)]), at + len(piece), max(2 * size, FIRST)
        return Front(found, True).upto(wanted)

    @cached_property
    def _above(self) -> set[int]:
        """Queues with a leaf of the order below them, the leaves included."""
        paths = self.cycle.snapshot.queues.paths
        return {queue for leaf in self.leaves for queue in paths[leaf]}

    @cached_property
    def _untouched(self) -> set[int]:
        """Inner queues of which every candidate counts: their order is the same for all searches."""
        if not self._all_pass:
            return set()
        paths, mine = self.cycle.snapshot.queues.paths, self.leaves
        parts = [leaf for leaf, gangs in self.pool.leaves().items() if mine.get(leaf) is not gangs]
        return self._above - self.leaves.keys() - {queue for leaf in parts for queue in paths[leaf]}


def summed_by(groups: Rows, amounts: Column) -> Column:
    """[resource, item]: the sum of the amounts of all items in the item's group."""
    return np.array([np.bincount(groups, weights=row, minlength=1)[groups] for row in amounts], dtype=np.float64)


def every_gang(gangs: Rows) -> Mask:
    """Passes all gangs of an order that is not the pool's own."""
    return np.ones(len(gangs), dtype=bool)


def _joined(some: Rows, more: Rows) -> Rows:
    return np.concatenate((some, more)) if len(some) else more


def _rows(numbers: Iterable[int]) -> Rows:
    return np.fromiter(numbers, dtype=np.int64)


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
        """The next batch, or None when none is left."""
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
        return fresh, evictable_in_order(self.cycle.trial, self.cycle.orders, fresh)

    def _rest_key(self, gang: int, rest: Sequence[int]) -> Any:
        """The gang's place in the order with only `rest` of its pods left."""
        trial = self.cycle.trial
        mark = trial.mark()
        gone = set(evictable_in_order(trial, self.cycle.orders, gang)) - set(rest)
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
