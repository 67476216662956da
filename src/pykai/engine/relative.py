"""A score that depends on where a node stands among all that are considered, kept up to date entry by entry.

The measure is what a node has free of one resource, so it is the same for all classes of pods that are measured by that
resource. As long as its extremes stay where they are, a node that changes changes no other node's score.
"""

from __future__ import annotations

import numpy as np

from pykai.engine.plugin_api import RelativeScore
from pykai.model.resources import Column, Mask, Rows

FEW = 8
"""Up to this many nodes are scored one by one: a loop is faster than columns then."""


class Standing:
    """The relative scores one plugin gives to all nodes. Nodes that do not offer the resource have no measure.

    The owner says in `outdated` where something changed.
    """

    def __init__(self, plugin: RelativeScore, offered: Mask, free: Column) -> None:
        self._plugin = plugin
        self._offered = offered
        self.outdated: set[int] = set()
        """Nodes whose score does not follow from what is free now."""
        self._measure = np.where(offered, free, np.nan)
        self._low = self._high = np.nan
        self._at_low = self._at_high = 0
        """How many nodes have just the extreme measures."""
        self._known: dict[float, float] = {}
        """Scores by measure, between these extremes."""
        self._doubt = True
        """Whether an extreme may have moved since it was last looked for."""
        self._scores = np.zeros(len(offered))

    def scores(self, free: Column) -> Column:
        """The scores of all nodes, by what is free there now; read only."""
        many = len(self.outdated) > FEW
        if many:
            self._measure, self._doubt = np.where(self._offered, free, np.nan), True
        else:
            for node in self.outdated:
                self._put(node, float(free[node]))
        if (self._doubt and self._extremes_moved()) or many:
            self._scores = np.array(self._plugin.relative(self._measure, self._low, self._high))
        else:
            for node in self.outdated:
                if self._offered[node]:
                    self._scores[node] = self._score(float(self._measure[node]))
        self.outdated.clear()
        return self._scores

    def _put(self, node: int, free: float) -> None:
        old = float(self._measure[node])
        if old != old or free == old:
            return
        self._measure[node] = free
        if not (self._low < old < self._high and self._low < free < self._high):
            self._count(old, free)

    def _count(self, old: float, new: float) -> None:
        low, high = self._low, self._high
        self._at_low += (new == low) - (old == low)
        self._at_high += (new == high) - (old == high)
        if not (low <= new <= high and self._at_low and self._at_high):
            self._doubt = True

    def _extremes_moved(self) -> bool:
        self._doubt = False
        low, high = _extremes(self._measure)
        self._at_low, self._at_high = (int(np.count_nonzero(self._measure == extreme)) for extreme in (low, high))
        if (low, high) == (self._low, self._high):
            return False
        self._low, self._high = low, high
        self._known.clear()
        return True

    def _score(self, measure: float) -> float:
        score = self._known.get(measure)
        if score is None:
            score = self._known[measure] = float(self._plugin.relative(np.array([measure]), self._low, self._high)[0])
        return score

    def within(self, nodes: Rows, free: Column) -> Column:
        """The scores that nodes have among each other, by what is free there now."""
        measure = np.where(self._offered.take(nodes), free, np.nan)
        return self._plugin.relative(measure, *_extremes(measure))


def _extremes(measure: Column) -> tuple[float, float]:
    return float(np.fmin.reduce(measure, initial=np.nan)), float(np.fmax.reduce(measure, initial=np.nan))
