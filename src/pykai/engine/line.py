"""The line of victims: in which order gangs would be evicted, as columns, as far as anybody has asked.

For gangs that go whole the order of a whole tree of queues is one sort per level. A queue's key changes only in its
dominant share, and that only falls as the queue loses gangs; so "always take the least deserving child" is a merge of
falling sequences. `VictimWalk` is the slow twin, and serves where gangs can lose single pods.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from pykai.engine.quota import ZERO
from pykai.engine.victims import Batch, Candidates, VictimPool, VictimWalk
from pykai.model.resources import GPU, QUEUE_RESOURCES, UNLIMITED, Column

FIRST_CHUNK = 8
Front = tuple[list[int], bool]
"""The first candidates of a leaf, and whether these are all."""


class VictimLine:
    """Batches in order, extended on demand; with them their pods, nodes and what they free, as parallel columns.

    `hint` says whose line it is: searches with the same hint tend to look equally far, so that is fetched at once.
    """

    def __init__(
        self, pool: VictimPool, leaves: Mapping[int, Candidates], may_go: Callable[[int], bool], hint: Hashable = None
    ) -> None:
        self.cycle = pool.cycle
        self._pool = pool
        self._leaves = leaves
        self._may_go = may_go
        self._walk: VictimWalk | None = None
        self._hint = hint
        self._chunk = pool.chunks.get(hint, FIRST_CHUNK)
        self._complete = False
        self.batches: list[Batch] = []
        self.pods: list[int] = []
        self.batch_of: list[int] = []
        self.nodes: list[int] = []
        self._classes: list[int] = []

    def extend(self) -> bool:
        """Fetch more of the line; False when there is no more."""
        if self._complete:
            return False
        more = self._merged() if self._walk is None else self._walked()
        self._add(more)
        self._pool.chunks[self._hint] = self._chunk
        self._chunk *= 4
        return bool(more) or (not self._complete and self.extend())

    def _add(self, more: Sequence[Batch]) -> None:
        trial, first = self.cycle.trial, len(self.batches)
        self.batches.extend(more)
        pods = [pod for batch in more for pod in batch.pods]
        self.pods.extend(pods)
        self.batch_of.extend(first + number for number, batch in enumerate(more) for _ in batch.pods)
        self.nodes.extend([trial.node[pod] for pod in pods])
        self._classes.extend([trial.klass[pod] for pod in pods])

    def freed(self) -> Column:
        """[resource, pod]: what each pod of the line frees on its node."""
        table, by_memory = self._pool.class_requests
        rows = np.array(self._classes, dtype=np.int64)
        amounts = table[:, rows]
        for at in np.flatnonzero(by_memory[rows]).tolist() if by_memory.any() else ():
            amounts[GPU, at] = self.cycle.trial.accepted_gpus(self.pods[at])
        return amounts

    # ---------------------------------------------------------------------------------------------------- slow, always
    def _walked(self) -> list[Batch]:
        assert self._walk is not None
        found: list[Batch] = []
        while len(found) < self._chunk:
            batch = self._walk.pop()
            if batch is None:
                self._complete = True
                break
            found.append(batch)
        return found

    # -------------------------------------------------------------------------------------------- fast, for whole gangs
    def _merged(self) -> list[Batch]:
        """The next batches of the merged line, or the start of a walk where a gang could lose a part only."""
        fronts = {queue: self._front(gangs, start) for queue, (gangs, start) in self._leaves.items()}
        if not all(self._pool.goes_whole[gang] for gangs, _ in fronts.values() for gang in gangs):
            self._walk = VictimWalk(self.cycle, self._leaves, self._may_go)
            return [batch for batch in self._walked() if batch.gang not in {b.gang for b in self.batches}]
        order = self._merge(-1, fronts)
        self._complete = all(complete for _, complete in fronts.values())
        known = {batch.gang for batch in self.batches}
        sure = order[: self._sure(order, fronts)]
        return [Batch(gang, self._pool.pods(gang)) for gang in sure if gang not in known]

    def _sure(self, order: Sequence[int], fronts: Mapping[int, Front]) -> int:
        """How much of the order holds: up to the last gang of any leaf that was cut off."""
        at = {gang: position for position, gang in enumerate(order)}
        return min((at[gangs[-1]] + 1 for gangs, complete in fronts.values() if not complete), default=len(order))

    def _front(self, gangs: Sequence[int], start: int) -> Front:
        """The first candidates of a leaf, and whether these are all."""
        found: list[int] = []
        for gang in gangs[start:] if start else gangs:
            if self._may_go(gang):
                if len(found) == self._chunk:
                    return found, False
                found.append(gang)
        return found, True

    def _merge(self, parent: int, fronts: Mapping[int, Front]) -> list[int]:
        """The gangs below a queue in order."""
        if parent in fronts:
            return fronts[parent][0]
        below = [q for q in self._children(parent) if self._has_leaf(q, fronts)]
        orders = [self._merge(q, fronts) for q in below]
        if len(orders) <= 1:
            return orders[0] if orders else []
        ranks = self._ranks(below)
        keys = np.concatenate([self._keys_of(q, o, ranks[q]) for q, o in zip(below, orders, strict=True)], axis=1)
        gangs = [gang for order in orders for gang in order]
        return [gangs[at] for at in np.lexsort((keys[3], -keys[2], -keys[1], -keys[0])).tolist()]

    def _children(self, parent: int) -> Sequence[int]:
        queues = self.cycle.snapshot.queues
        return queues.children[parent] if parent >= 0 else [q for q, above in enumerate(queues.parent) if above < 0]

    def _has_leaf(self, queue: int, fronts: Mapping[int, Front]) -> bool:
        paths = self.cycle.snapshot.queues.paths
        return any(queue in paths[leaf] for leaf in fronts)

    def _ranks(self, children: Sequence[int]) -> dict[int, tuple[int, int]]:
        """What of the children's keys does not change: before the dominant share, and after it."""
        cycle = self.cycle
        if cycle.quota is None:
            return {q: (0, rank) for rank, q in enumerate(children)}
        keys = {q: cycle.quota.queue_key(cycle.book, q, ZERO, ZERO) for q in children}
        first = sorted({key[:4] for key in keys.values()})
        last = sorted(children, key=lambda q: keys[q][5:])
        return {q: (first.index(keys[q][:4]), last.index(q)) for q in children}

    def _keys_of(self, queue: int, order: Sequence[int], ranks: tuple[int, int]) -> Column:
        """Sort columns of a child's gangs: constant part, dominant share left when it is gone, constant, position."""
        lost = np.cumsum(self._pool.amounts[:, order], axis=1) if order else np.zeros((QUEUE_RESOURCES, 0))
        book = self.cycle.book
        left = np.array(book.allocated[queue])[:, None] - lost
        share = np.round(_dominant_shares(left, book.allocatable[queue], book.total), 9)
        size = len(order)
        return np.array([np.full(size, ranks[0]), share, np.full(size, ranks[1]), np.arange(size)], dtype=np.float64)


def _dominant_shares(amounts: Column, allocatable: Sequence[float], cluster: Sequence[float]) -> Column:
    """Of each column of [resource, n] the largest ratio to what the queue may use."""
    bound = [
        everything if share == UNLIMITED else share for share, everything in zip(allocatable, cluster, strict=True)
    ]
    scale = np.array([1 / b if b > 0 else (1000.0 if b == 0 else 0.0) for b in bound])
    return np.asarray(np.maximum((amounts * scale[:, None]).max(axis=0), 0.0)) if amounts.size else np.zeros(0)
