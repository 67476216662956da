"""A score that depends on where a node stands among all that are considered, kept up to date entry by entry.

The measure is what a node has free of one resource. As long as its extremes stay where they are, a node that changes
changes no other node's score.
"""

from __future__ import annotations

import numpy as np

from pykai.engine.points import RelativeScore
from pykai.model.resources import Column, Mask, Rows


class Standing:
    """The relative scores one plugin gives to the nodes. Nodes that do not offer the resource have no measure."""

    def __init__(self, plugin: RelativeScore, resource: int, offered: Mask) -> None:
        self.resource = resource
        self._plugin = plugin
        self._offered = offered
        self._measure = np.full(len(offered), np.nan)
        self._low = self._high = np.nan
        self._at_low = self._at_high = 0
        """How many nodes have just the extreme measures."""
        self._known: dict[float, float] = {}
        """Scores by measure, between these extremes."""
        self._doubt = False
        """Whether an extreme may have moved since it was last looked for."""

    def put(self, node: int, free: float) -> float:
        """Note what is free on one node; its score, if it turns out that the extremes are `settled`."""
        old = float(self._measure[node])
        if old != old:
            free = np.nan
        elif free != old:
            self._measure[node] = free
            if not (self._low < old < self._high and self._low < free < self._high):
                self._count(old, free)
        score = self._known.get(free)
        if score is None:
            score = self._known[free] = float(self._plugin.relative(np.array([free]), self._low, self._high)[0])
        return score

    def _count(self, old: float, new: float) -> None:
        low, high = self._low, self._high
        self._at_low += (new == low) - (old == low)
        self._at_high += (new == high) - (old == high)
        if not (low <= new <= high and self._at_low and self._at_high):
            self._doubt = True

    def put_all(self, nodes: Rows, free: Column) -> None:
        """Note what is free on many nodes."""
        self._measure[nodes] = np.where(self._offered[nodes], free, np.nan)
        self._doubt = True

    def settled(self) -> bool:
        """Whether the extremes are where they were; False: all nodes have new scores, not only those that were put."""
        if not self._doubt:
            return True
        self._doubt = False
        low, high = _extremes(self._measure)
        self._at_low, self._at_high = (int(np.count_nonzero(self._measure == extreme)) for extreme in (low, high))
        if (low, high) == (self._low, self._high):
            return True
        self._low, self._high = low, high
        self._known.clear()
        return False

    def scores(self, nodes: Rows) -> Column:
        """The scores of nodes among all."""
        return self._plugin.relative(self._measure[nodes], self._low, self._high)

    def within(self, nodes: Rows) -> Column:
        """The scores that nodes have among each other."""
        measure = self._measure.take(nodes)
        return self._plugin.relative(measure, *_extremes(measure))


def _extremes(measure: Column) -> tuple[float, float]:
    return float(np.fmin.reduce(measure, initial=np.nan)), float(np.fmax.reduce(measure, initial=np.nan))
