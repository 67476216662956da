"""BestNodes: the best node for pods of one class that keep coming, found without comparing all nodes each time.

Nodes that score alike but for one relative score are in the order of its measure, whatever the extremes; where their
other scores lie further apart than relative ones can, these come first. So the order of nodes depends on nothing but
their own figures: those that nobody touches stay in the order that was computed once, the others are in a heap.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from pykai.engine.ranked import UNFIT
from pykai.model.resources import Column, Mask

Entry = tuple[float, float, int, bool]
"""Score without relative ones, negated; measure; node; whether the class fits there without waiting for a release."""


def ordered_by_figures(levels: Column, span: float) -> bool:
    """Whether nodes with these scores, without relative ones, are in order of them first: no relative score, which
    lie apart by `span` at most, makes up for the difference of two."""
    steps = np.diff(np.unique(levels))
    return not len(steps) or bool(steps.min() > span)


class BestNodes:
    """The nodes of one class, the best first. `local`: scores without relative ones, -inf where the class does not fit;
    `measure`: of the relative score, the smaller the better."""

    def __init__(self, local: Column, measure: Column, fits_now: Mask) -> None:
        fitting = np.flatnonzero(local > UNFIT)
        scores, sizes, now = -local[fitting], measure[fitting], fits_now[fitting]
        order = np.lexsort((sizes, scores))[::-1]  # the first is the last: it is taken from the end
        columns = (scores, sizes, fitting, now)
        self._untouched: list[Entry] = list(zip(*(column[order].tolist() for column in columns), strict=True))
        self._touched: dict[int, Entry | None] = {}
        """Nodes as they are now; None: the class does not fit."""
        self._heap: list[Entry] = []
        """Of touched nodes, outdated entries among them."""

    def put(self, node: int, entry: Entry | None) -> None:
        """A node has changed; None: the class does not fit there."""
        self._touched[node] = entry
        if entry is not None:
            heappush(self._heap, entry)

    def first(self) -> Entry | None:
        """The best node; of equal ones the first row. None: the class fits nowhere."""
        heap, untouched, touched = self._heap, self._untouched, self._touched
        while heap and touched[heap[0][2]] is not heap[0]:
            heappop(heap)
        while untouched and untouched[-1][2] in touched:
            untouched.pop()
        if not heap:
            return untouched[-1] if untouched else None
        return min(heap[0], untouched[-1]) if untouched else heap[0]
