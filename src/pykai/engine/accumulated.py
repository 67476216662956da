"""The victims a search has accumulated: a order of batches as columns, what each frees, and who must go together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from pykai.engine.feasibility import FeasibilityBound, Leaving
from pykai.engine.gang import active_pods, intact
from pykai.engine.reclaim_bound import VictimLosses
from pykai.engine.victim_order import VictimOrder
from pykai.engine.victims import Batch
from pykai.model.resources import GPU, Column, Mask, Rows


class Outlook(Protocol):
    """What the evictor can expect of victims."""

    def judge(self, victims: VictimLosses, nodes: Rows | None) -> tuple[Mask, Mask]:
        """Which of them are served after it, and from which of those it could get something (`ReclaimBound.judge`)."""
        ...

    def obtainable(self, victims: VictimLosses) -> Column:
        """GPUs it could get at most when they go one after the other."""
        ...

    def opening(self, leaving: Leaving) -> Mask:
        """After which of some pods a node is open to it, if only those of one node go (`SinglePodFit.opening`)."""
        ...

    def within_limits(self, victims: VictimLosses) -> Mask:
        """Whether its queues could stay within their limits when they go one after the other."""
        ...


def _fresh(order: VictimOrder, known: set[int]) -> Rows:
    """The pods of a order, by position, that are no victims yet.

    A pod whose node is gone, or belongs to another node pool, frees nothing that could be given out.
    """
    there = order.nodes >= 0
    return np.flatnonzero(there & ~np.isin(order.pods, list(known)) if known else there)


class Accumulated:
    """The order of victims as far as it is known, without the pods that are victims already, and what it frees."""

    def __init__(self, order: VictimOrder, known: set[int], room: FeasibilityBound, outlook: Outlook) -> None:
        self.room = room
        self._order = order
        self._known = known
        fresh = _fresh(order, known)
        self.nodes, self.batch_of = order.nodes[fresh], order.batch_of[fresh]
        self._pods = order.pods[fresh]
        self.amounts = order.freed().take(fresh, axis=1)
        apart = self.batch_of[1:] != self.batch_of[:-1]
        self.single = bool((apart | (self.nodes[1:] == self.nodes[:-1])).all())
        """Whether every batch is on one node: then a node's own gain is all that its victims gain."""
        self._victims = VictimLosses(order.queues[fresh], *order.losses(fresh))
        self._outlook = outlook
        after, useful = outlook.judge(self._victims, self.nodes if self.single else None)
        self._movable = room.movable(self.amounts)
        self.goes: Mask = after | self._movable
        """By pod: whether it could leave its node at all and, where only single pods leave, whether a node is open to
        the evictor then: only after such a pod a choice can differ from the one before."""
        amounts = np.where(useful | self._movable, self.amounts, 0.0) if self.single else self.amounts
        self.total, self.own = room.gains(self.nodes, amounts)
        self.enough: Mask = room.enough_gpus(outlook.obtainable(self._victims.only(useful)))
        """By pod: whether all GPUs that could be had by then cover the need."""
        self.enough &= outlook.within_limits(self._victims.only(after))
        if self.single:
            self.goes &= outlook.opening(Leaving(self._pods, self.nodes, self.goes, self.amounts[GPU]))

    def batch(self, number: int) -> Batch:
        batch = self._order.batch(number)
        return Batch(batch.gang, tuple(pod for pod in batch.pods if pod not in self._known)) if self._known else batch

    def pods(self, numbers: Sequence[int]) -> list[int]:
        """The pods of some batches that are no victims yet."""
        starts, ends = (np.searchsorted(self.batch_of, numbers, side=side).tolist() for side in ("left", "right"))
        return [pod for start, end in zip(starts, ends, strict=True) for pod in self._pods[start:end].tolist()]

    def where(self, mask: Mask) -> Rows:
        """The batches of the pods of a mask, in order, each once."""
        found = self.batch_of[mask]
        return found[np.flatnonzero(np.diff(found, prepend=-1))]

    def batches_on(self, nodes: Rows, upto: int) -> list[int]:
        """Batches with a pod on one of the nodes, of those up to a batch: node by node."""
        rank = np.full(len(self.room.counts), -1)
        rank[nodes] = np.arange(len(nodes))
        ranks = rank[self.nodes[: np.searchsorted(self.batch_of, upto, side="right")]]
        on = np.flatnonzero(ranks >= 0)
        return list(dict.fromkeys(self.batch_of[on[np.argsort(ranks[on], kind="stable")]].tolist()))

    def effective(self, numbers: list[int]) -> list[int]:
        """Of some batches those that would not stay where they are if all of them had to go; none where what they leave
        cannot be enough. Those that may leave only because others do, too, stay where the others leave enough."""
        pods = np.flatnonzero(np.isin(self.batch_of, numbers))
        victims = self._victims.take(pods)
        after, useful = self._outlook.judge(victims, None)
        if not self._outlook.within_limits(victims.only(after))[-1]:
            return []
        if not self.room.enough_gpus(self._outlook.obtainable(victims.only(useful)))[-1]:
            return []
        gone = [*self._known, *self._pods[pods].tolist()]
        if not useful.all() and not self.room.packs(gone, self._pods[pods[~useful]].tolist()):
            return []
        if not self.single:
            return numbers
        may_go = useful | self._movable[pods]
        if len(numbers) == 1 and may_go.all():
            return numbers
        leaving = self._leaving(numbers, pods[may_go])
        if self._last_may_go(leaving):
            return leaving
        alone = self._outlook.judge(victims, np.arange(len(pods)))[1]
        first = self._leaving(numbers, pods[alone | self._movable[pods]])
        return first if self.room.enough([self.batch(number) for number in first]) else leaving

    def _last_may_go(self, numbers: list[int]) -> bool:
        """Whether those of some batches that find no place again, which are the last to be served, may lose theirs."""
        batches = [self.batch(number) for number in sorted(numbers)]
        sizes = range(1, len(batches))  # more batches free more, so the first that are enough are found by halves
        size = bisect_left(sizes, True, key=lambda n: self.room.enough(batches[:n])) + 1
        pods = np.flatnonzero(np.isin(self.batch_of, sorted(numbers)[:size]))
        return bool((self._outlook.judge(self._victims.take(pods), None)[1] | self._movable[pods]).all())

    def _leaving(self, numbers: list[int], pods: Rows) -> list[int]:
        """Of some batches those with one of these pods, by position."""
        leaving = set(self.batch_of[pods].tolist())
        return [number for number in numbers if number in leaving]

    def whole_gangs(self, numbers: list[int]) -> list[int]:
        """The batches, and of gangs that would be left with less than their minimum those that come before as well."""
        if not self._order.in_parts:
            return numbers
        gangs, trial, orders = self._order.gangs, self._order.cycle.trial, self._order.cycle.orders
        more: list[int] = []
        for gang in np.unique(gangs[numbers]).tolist():
            mine = [number for number in numbers if gangs[number] == gang]
            gone = {pod for number in mine for pod in self._order.batch(number).pods} | self._known
            present = active_pods(trial, gang)
            left = [pod for pod in present if pod not in gone]
            if left and intact(trial, orders, gang, present) and not intact(trial, orders, gang, left):
                more.extend(n for n in np.flatnonzero(gangs[: max(mine)] == gang).tolist() if n not in mine)
        return [*numbers, *more]
