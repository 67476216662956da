"""The victims a search has accumulated: a line of batches as columns, what each frees, and who must go together."""

from __future__ import annotations

import numpy as np

from pykai.engine.gang import active_pods, intact
from pykai.engine.line import VictimLine
from pykai.engine.room import Room
from pykai.engine.victims import Batch
from pykai.model.resources import Column, Mask, Rows


def _fresh(line: VictimLine, known: set[int]) -> tuple[Rows, Rows, Column]:
    """Node and batch of each pod that is no victim yet, and [resource, pod] what it frees.

    A pod whose node is gone, or belongs to another node pool, frees nothing that could be given out.
    """
    there = line.nodes >= 0
    if not known and there.all():
        return line.nodes, line.batch_of, line.freed()
    fresh = np.flatnonzero(there & ~np.isin(line.pods, list(known)))
    return line.nodes[fresh], line.batch_of[fresh], line.freed().take(fresh, axis=1)


class Accumulated:
    """The line of victims as far as it is known, without the pods that are victims already, and what it frees."""

    def __init__(self, line: VictimLine, known: set[int], room: Room) -> None:
        self.room = room
        self._line = line
        self._known = known
        self.nodes, self.batch_of, self.amounts = _fresh(line, known)
        self.total, self.own = room.gains(self.nodes, self.amounts)
        self.single = bool((self.batch_of[1:] != self.batch_of[:-1]).all())
        """Whether every batch is one pod: then a node's own gain is all that its victims gain."""

    def batch(self, number: int) -> Batch:
        batch = self._line.batch(number)
        return Batch(batch.gang, tuple(pod for pod in batch.pods if pod not in self._known)) if self._known else batch

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

    def whole_gangs(self, numbers: list[int]) -> list[int]:
        """The batches, and of gangs that would be left with less than their minimum those that come before as well."""
        if not self._line.in_parts:
            return numbers
        gangs, trial, orders = self._line.gangs, self._line.cycle.trial, self._line.cycle.orders
        more: list[int] = []
        for gang in np.unique(gangs[numbers]).tolist():
            mine = [number for number in numbers if gangs[number] == gang]
            gone = {pod for number in mine for pod in self._line.batch(number).pods} | self._known
            present = active_pods(trial, gang)
            left = [pod for pod in present if pod not in gone]
            if left and intact(trial, orders, gang, present) and not intact(trial, orders, gang, left):
                more.extend(n for n in np.flatnonzero(gangs[: max(mine)] == gang).tolist() if n not in mine)
        return [*numbers, *more]
