"""The line of victims: in which order gangs would be evicted, as columns, as far as anybody has asked.

For gangs that go whole the order of a whole tree of queues is one sort per level. A queue's key changes only in its
dominant share, and that only falls as the queue loses gangs; so "always take the least deserving child" is a merge of
falling sequences. `VictimWalk` is the slow twin, and serves where gangs can lose single pods.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from pykai.engine.pool import VictimPool
from pykai.engine.quota import BILLION, ZERO
from pykai.engine.victims import Batch, Passes, VictimWalk
from pykai.model.resources import GPU, Column, Rows

FIRST_CHUNK = 8
WALKED_AT_ONCE = 32
"""A walk goes on where it stopped, so little is fetched at a time; merging starts anew and fetches more and more."""
Front = tuple[Rows, bool]
"""The first candidates of a leaf, and whether these are all."""


class VictimLine:
    """Batches in order, extended on demand: `gangs` by batch; `pods`, `nodes` and `batch_of` by pod, batch by batch.

    `hint` says whose line it is: searches with the same hint tend to look equally far, so that is fetched at once.
    """

    def __init__(self, pool: VictimPool, leaves: Mapping[int, Rows], passes: Passes, hint: Hashable = None) -> None:
        self.cycle = pool.cycle
        self._pool = pool
        self.leaves = leaves
        self._passes = passes
        self._walk: VictimWalk | None = None
        self._hint = hint
        self._chunk = pool.chunks.get(hint, FIRST_CHUNK)
        self._complete = False
        self.gangs = self.pods = self.nodes = self.batch_of = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        """How many batches are known."""
        return len(self.gangs)

    @property
    def in_parts(self) -> bool:
        """Whether a gang may have several batches."""
        return self._walk is not None

    def batch(self, number: int) -> Batch:
        start, end = np.searchsorted(self.batch_of, (number, number + 1)).tolist()
        return Batch(int(self.gangs[number]), tuple(self.pods[start:end].tolist()))

    def extend(self) -> bool:
        """Fetch more of the line; False when there is no more."""
        known = len(self)
        while not self._complete and len(self) == known:
            if self._walk is None:
                self._merged()
            else:
                self._walked(self._walk)
            self._pool.chunks[self._hint] = self._chunk
            self._chunk *= 4
        return len(self) > known

    def _add(self, gangs: Rows, pods: Rows, counts: Rows) -> None:
        batches = np.repeat(np.arange(len(self), len(self) + len(gangs)), counts)
        self.gangs, self.pods = _joined(self.gangs, gangs), _joined(self.pods, pods)
        self.batch_of = _joined(self.batch_of, batches)
        self.nodes = _joined(self.nodes, self._pool.members.node[pods])

    def freed(self) -> Column:
        """[resource, pod]: what each pod of the line frees on its node."""
        table, by_memory = self._pool.class_requests
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
        """[resource, pod]: what some pods of the line count against their queues, and the GPUs of the batch of each."""
        pods, batch = self.pods[which], self.batch_of[which]
        rows = self.cycle.snapshot.pods.klass[pods]
        amounts = self._pool.class_amounts.take(rows, axis=1)
        self._with_memory(amounts, np.flatnonzero(self._pool.class_requests[1][rows]), pods)
        return amounts, np.bincount(batch, weights=amounts[GPU], minlength=1)[batch].astype(np.float64)

    # ---------------------------------------------------------------------------------------------------- slow, always
    def _walked(self, walk: VictimWalk) -> None:
        found: list[Batch] = []
        while len(found) < WALKED_AT_ONCE and not self._complete:
            batch = walk.pop()
            if batch is None:
                self._complete = True
            else:
                found.append(batch)
        counts = [len(batch.pods) for batch in found]
        self._add(_rows(batch.gang for batch in found), _rows(p for batch in found for p in batch.pods), _rows(counts))

    # -------------------------------------------------------------------------------------------- fast, for whole gangs
    def _merged(self) -> None:
        """Add the next batches of the merged line, or start to walk where a gang could lose a part only."""
        fronts = {queue: self._front(gangs) for queue, gangs in self.leaves.items()}
        if not all(self._pool.goes_whole[gangs].all() for gangs, _ in fronts.values()):
            self._walk = VictimWalk(self.cycle, self.leaves, self._passes)
            for _ in range(len(self)):
                self._walk.pop()
            return
        order = self._merge(-1, fronts)
        self._complete = all(complete for _, complete in fronts.values())
        more = order[len(self) : self._sure(order, fronts)]
        self._add(more, *self._pool.members.of(more))

    def _sure(self, order: Rows, fronts: Mapping[int, Front]) -> int:
        """How much of the order holds: up to the last gang of any leaf that was cut off."""
        ends = [gangs[-1] for gangs, complete in fronts.values() if not complete]
        return min((int(np.flatnonzero(order == gang)[0]) + 1 for gang in ends), default=len(order))

    def _front(self, gangs: Rows) -> Front:
        """The first candidates of a leaf, and whether these are all."""
        found, at = gangs[:0], 0
        while len(found) <= self._chunk and at < len(gangs):
            piece = gangs[at : at + self._chunk + 1]
            found, at = _joined(found, piece[self._passes(piece)]), at + len(piece)
        return found[: self._chunk], len(found) <= self._chunk

    def _merge(self, parent: int, fronts: Mapping[int, Front]) -> Rows:
        """The gangs below a queue in order."""
        if parent in fronts:
            return fronts[parent][0]
        below = [q for q in self._children(parent) if self._has_leaf(q, fronts)]
        orders = [self._merge(q, fronts) for q in below]
        if len(orders) <= 1:
            return orders[0] if orders else _rows(())
        first, last = self._ranks(below)
        sizes = [len(order) for order in orders]
        shares = np.concatenate([self._shares(q, order) for q, order in zip(below, orders, strict=True)])
        keys = (-np.repeat(last, sizes), -np.floor(shares * BILLION + 0.5), -np.repeat(first, sizes))
        return np.concatenate(orders)[np.lexsort(keys)]

    def _children(self, parent: int) -> Sequence[int]:
        queues = self.cycle.snapshot.queues
        return queues.children[parent] if parent >= 0 else [q for q, above in enumerate(queues.parent) if above < 0]

    def _has_leaf(self, queue: int, fronts: Mapping[int, Front]) -> bool:
        paths = self.cycle.snapshot.queues.paths
        return any(queue in paths[leaf] for leaf in fronts)

    def _ranks(self, children: Sequence[int]) -> tuple[list[int], list[int]]:
        """What of each child's key does not change: before the dominant share, and after it."""
        cycle = self.cycle
        if cycle.quota is None:
            return [0] * len(children), list(range(len(children)))
        keys = {q: cycle.quota.queue_key(cycle.book, q, ZERO, ZERO) for q in children}
        first = sorted({key[:4] for key in keys.values()})
        last = sorted(children, key=lambda q: keys[q][5:])
        return [first.index(keys[q][:4]) for q in children], [last.index(q) for q in children]

    def _shares(self, queue: int, order: Rows) -> Column:
        """A child's dominant share after each of its gangs is gone, in order."""
        lost = np.cumsum(self._pool.amounts.take(order, axis=1), axis=1)
        left = np.array(self.cycle.book.allocated[queue])[:, None] - lost
        left *= self._pool.scale(queue)
        return np.asarray(np.maximum.reduce(left, initial=0.0))


def _joined(some: Rows, more: Rows) -> Rows:
    return np.concatenate((some, more)) if len(some) else more


def _rows(numbers: Iterable[int]) -> Rows:
    return np.fromiter(numbers, dtype=np.int64)
