"""The victims a search has accumulated: batches in order as columns, what each frees, and which must go together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from pykai.engine.device_room import Leaving
from pykai.engine.feasibility import FeasibilityBound
from pykai.engine.gang import active_pods, intact
from pykai.engine.node_room import cumulated
from pykai.engine.reclaim_bound import VictimLosses
from pykai.engine.victim_order import VictimOrder
from pykai.engine.victims import Batch
from pykai.model.resources import GPU, Column, Mask, Rows

_UNBOUNDED = 1e9
"""More pods than any cluster has."""


class Outlook(Protocol):
    """Upper bounds of what the evictor can gain from victims."""

    def judge(self, victims: VictimLosses, nodes: Rows | None) -> tuple[Mask, Mask]:
        """Which of them are served after it, and from which of those it could get something (`ReclaimBound.judge`)."""
        ...

    def lost(self, victims: VictimLosses) -> Mask:
        """Which of a few of them could lose their place if all of them go (`ReclaimBound.lost`)."""
        ...

    def obtainable(self, victims: VictimLosses) -> Column:
        """[resource, victim]: what it could get at most when they go one after the other."""
        ...

    def obtainable_on_node(self, victims: VictimLosses, nodes: Rows) -> Column:
        """The same if only those of one node go; all of them are useful."""
        ...

    def obtainable_together(self, victims: VictimLosses) -> Column:
        """[resource]: what it could get at most when all of them go."""
        ...

    def returning(self, pods: Sequence[int], victims: VictimLosses) -> list[int]:
        """If all of these pods go: those with the fewest GPUs, as many as have to get a place again."""
        ...

    def opening(self, leaving: Leaving) -> Mask:
        """After which of some pods a node is open to it, if only those of one node go (`SinglePodFit.opening`)."""
        ...

    def within_limits(self, victims: VictimLosses) -> Mask:
        """Whether its queues could stay within their limits when they go one after the other."""
        ...


def _fresh(order: VictimOrder, known: set[int]) -> Rows:
    """Return the positions in an order of pods that are no victims yet.

    Pods whose node is gone, or belongs to another node pool, are left out: they free nothing.
    """
    there = order.nodes >= 0
    return np.flatnonzero(there & ~np.isin(order.pods, list(known)) if known else there)


class Accumulated:
    """The victim order as far as it is computed, without the pods that are victims already, and what it frees.

    While `proved` is False, figures use amounts only: the slower arithmetic on queues is done for few choices only.
    """

    def __init__(self, order: VictimOrder, known: set[int], room: FeasibilityBound, outlook: Outlook) -> None:
        self.room = room
        self.size = len(order)
        """Number of batches of the order that are included."""
        self.proved = True
        self._order = order
        self._known = known
        self._outlook = outlook
        self._fresh = fresh = _fresh(order, known)
        self.nodes, self.batch_of = order.nodes[fresh], order.batch_of[fresh]
        self._pods = order.pods[fresh]
        apart = self.batch_of[1:] != self.batch_of[:-1]
        self.single = bool((apart | (self.nodes[1:] == self.nodes[:-1])).all())
        """Whether every batch is on one node: then evicting its victims frees capacity on that node only."""

    @cached_property
    def amounts(self) -> Column:
        """[resource, pod]: what each frees."""
        return self._order.freed().take(self._fresh, axis=1)

    @cached_property
    def _victims(self) -> VictimLosses:
        gangs = self._order.gangs[self.batch_of]
        return VictimLosses(gangs, self._order.queues[self._fresh], *self._order.losses(self._fresh))

    @cached_property
    def _judged(self) -> tuple[Mask, Mask]:
        """By pod: whether it is served after the evictor, and whether that could gain from it.

        Node by node, also where a gang takes victims of several nodes at once: a prediction then, no proof (ADR 0010).
        """
        return self._outlook.judge(self._victims, self.nodes if self.single else None)

    @cached_property
    def _movable(self) -> Mask:
        return self.room.movable(self._pods, self.amounts)

    @property
    def goes(self) -> Mask:
        """By pod: whether it could leave its node at all and, where only single pods leave, whether a node is open to
        the evictor then: only after such a pod a choice can differ from the one before."""
        return self._goes if self.proved else self._opened(np.ones(len(self._pods), dtype=bool))

    @cached_property
    def _goes(self) -> Mask:
        return self._opened(self._judged[0])

    def _opened(self, goes: Mask) -> Mask:
        if not self.single:
            return goes
        return goes & self._outlook.opening(self._leaving_if(goes))

    def _leaving_if(self, goes: Mask) -> Leaving:
        return Leaving(self._pods, self.nodes, goes, self.amounts[GPU])

    @cached_property
    def _most_gains(self) -> tuple[Column, Column]:
        return self.room.gains(self._leaving_if(np.ones(len(self._pods), dtype=bool)), self.amounts)

    @cached_property
    def _gains(self) -> tuple[Column, Column]:
        useful = self._judged[1] | (self._movable & self._judged[0])
        return self.room.gains(self._leaving_if(useful), self.amounts) if self.single else self._most_gains

    @property
    def total(self) -> Column:
        """By pod: how many more of the wanted pods could fit into its domain by then."""
        return self._gains[0] if self.proved else self._most_gains[0]

    @property
    def own(self) -> Column:
        """By pod: how many more could fit on its node by then."""
        return self._gains[1] if self.proved else self._most_gains[1]

    @property
    def along(self) -> Column:
        """By pod: how many more could fit into its domain by then if all batches with a pod on its node go."""
        return self.own if self.single else self.own + self._elsewhere

    @cached_property
    def _elsewhere(self) -> Column:
        """By pod: how many more could fit by then on the other nodes of the batches on its node; no bound where one of
        these is in another domain."""
        count = len(self.room.counts)
        keys, first = np.unique(self.batch_of * count + self.nodes, return_index=True)
        batch, nodes = np.divmod(keys, count)
        sizes = np.bincount(batch)[batch]
        several = np.flatnonzero(sizes > 1)
        start = np.searchsorted(batch, batch[several])
        here = np.repeat(several, sizes[several])
        steps = np.arange(len(here)) - np.repeat(np.cumsum(sizes[several]) - sizes[several], sizes[several])
        there = np.repeat(start, sizes[several]) + steps
        here, there = here[here != there], there[here != there]
        _, new = np.unique(nodes[here] * count + nodes[there], return_index=True)
        here, there = here[new], nodes[there[new]]
        most = np.zeros(count)
        np.maximum.at(most, self.nodes, self.own)
        domains = self.room.domains
        found = np.where(domains[nodes[here]] == domains[there], most[there], _UNBOUNDED)
        by_pod = np.bincount(first[here], weights=found, minlength=len(self.nodes))
        return cumulated(self.nodes, by_pod.astype(np.float64))

    @property
    def own_enough(self) -> Mask:
        """By pod, where every batch is on one node: whether what could be had on its node by then, and what is free
        within reach, cover the need."""
        return self._own_enough if self.proved else np.ones(len(self._pods), dtype=bool)

    @cached_property
    def _own_enough(self) -> Mask:
        useful = self._victims.only(self._judged[1])
        elsewhere = self.room.unusable.sum() - self.room.unusable[self.nodes]
        return self.room.covered(self._outlook.obtainable_on_node(useful, self.nodes), elsewhere)

    @property
    def enough(self) -> Mask:
        """By pod: whether all that could be had by then covers the need, and limits could be kept."""
        return self._enough if self.proved else np.ones(len(self._pods), dtype=bool)

    @cached_property
    def _enough(self) -> Mask:
        after = self._judged[0]
        useful = self._victims.only(self._judged[1])
        enough = self.room.covered(self._outlook.obtainable(useful))
        return np.asarray(enough & self._outlook.within_limits(self._victims.only(after)))

    def batch(self, number: int) -> Batch:
        batch = self._order.batch(number)
        return Batch(batch.gang, tuple(pod for pod in batch.pods if pod not in self._known)) if self._known else batch

    def pods(self, numbers: Sequence[int]) -> list[int]:
        """The pods of some batches that are no victims yet."""
        return self._pods[self._positions(numbers)].tolist()  # type: ignore[no-any-return]

    def _positions(self, numbers: Sequence[int]) -> Rows:
        """Where the pods of some batches are."""
        starts, ends = (self.batch_of.searchsorted(numbers, side=side).tolist() for side in ("left", "right"))
        found = [at for start, end in zip(starts, ends, strict=True) for at in range(start, end)]
        return np.array(found, dtype=np.int64)

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
        pods = self._positions(numbers)
        victims = self._victims.take(pods)
        after, useful = self._outlook.judge(victims, None)
        if after.any() and not self._order.in_parts:
            after &= self._lost(pods)
        leaving = self._leaving(numbers, pods[after])
        if len(leaving) < len(numbers):  # without those that stay less is lost, so that more of them may stay
            return self.effective(leaving) if leaving else []
        if not self._outlook.within_limits(victims)[-1]:
            return []
        losses, unusable = victims.only(useful), self.room.unusable
        elsewhere = float(unusable.sum() - unusable[np.unique(self.nodes[pods])].sum())
        if not self.room.covered(self._outlook.obtainable_together(losses), elsewhere):
            return []
        gone, back = [*self._known, *self._pods[pods].tolist()], self._pods[pods[~useful]].tolist()
        if back and not self.room.packs(gone, back):
            return []
        least = self._outlook.returning(self._pods[pods].tolist(), losses)
        if least and not self.room.has_devices(gone, [*back, *least]):
            return []
        if not self.single:
            return numbers
        movable = self.room.movable(self._pods[pods], self.amounts[:, pods])
        may_go = useful | movable
        if len(numbers) == 1 and may_go.all():
            return numbers
        leaving = self._leaving(numbers, pods[may_go])
        if self._last_may_go(leaving):
            return leaving
        alone = self._outlook.judge(victims, np.arange(len(pods)))[1]
        first = self._leaving(numbers, pods[alone | movable])
        return first if self.room.enough([self.batch(number) for number in first]) else leaving

    def _lost(self, pods: Rows) -> Mask:
        """Which of some pods of whole gangs could lose their place if they go, and all victims that are known."""
        which = np.union1d(self._taken, self._fresh[pods])
        gangs = self._order.gangs[self._order.batch_of[which]]
        queues = self._order.cycle.snapshot.gangs.columns.queue[gangs]
        lost = self._outlook.lost(VictimLosses(gangs, queues, *self._order.losses(which)))
        return lost[np.searchsorted(which, self._fresh[pods])]

    @cached_property
    def _taken(self) -> Rows:
        """Where in the order the pods are that are victims already."""
        return np.flatnonzero(np.isin(self._order.pods, list(self._known)) & (self._order.nodes >= 0))

    def _last_may_go(self, numbers: list[int]) -> bool:
        """Whether those of some batches that find no place again, which are the last to be served, may lose theirs."""
        batches = [self.batch(number) for number in sorted(numbers)]
        sizes = range(1, len(batches))  # more batches free more, so the first that are enough are found by halves
        size = bisect_left(sizes, True, key=lambda n: self.room.enough(batches[:n])) + 1
        pods = self._positions(sorted(numbers)[:size])
        useful = self._outlook.judge(self._victims.take(pods), None)[1]
        return bool((useful | self.room.movable(self._pods[pods], self.amounts[:, pods])).all())

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
