"""BestNodes: find the best node for many pods of one class without comparing all nodes for each.

Nodes with equal local scores are in the order of the measure of the one relative score, whatever its extremes; where
local scores differ by more than relative scores can, they decide. So the order of two nodes depends on the state of
these two only: untouched nodes stay in the order that was computed once, touched nodes are in a heap.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from pykai.engine.ranked import UNFIT
from pykai.model.resources import Column, Mask

Entry = tuple[float, float, int, bool]
"""Local score, negated; measure; node; whether the class fits there without waiting for a release."""


def ordered_by_figures(levels: Column, span: float) -> bool:
    """Whether nodes with these local scores are ordered by them first: relative scores, which differ by `span` at most,
    never outweigh the difference of two."""
    steps = np.diff(np.unique(levels))
    return not len(steps) or bool(steps.min() > span)


class BestNodes:
    """The nodes of one class, the best first. `local`: scores without relative scores, -inf where the class does not
    fit; `measure`: that of the relative score, smaller is better."""

    def __init__(self, local: Column, measure: Column, fits_now: Mask) -> None:
        fitting = np.flatnonzero(local > UNFIT)
        scores, sizes, now = -local[fitting], measure[fitting], fits_now[fitting]
        order = np.lexsort((sizes, scores))[::-1]  # reversed, as the best is popped from the end
        columns = (scores, sizes, fitting, now)
        self._untouched: list[Entry] = list(zip(*(column[order].tolist() for column in columns), strict=True))
        self._touched: dict[int, Entry | None] = {}
        """Current entries of touched nodes; None: the class does not fit."""
        self._heap: list[Entry] = []
        """Entries of touched nodes, including outdated ones."""

    def put(self, node: int, entry: Entry | None) -> None:
        """Set the entry of a node that has changed; None: the class does not fit there."""
        self._touched[node] = entry
        if entry is not None:
            heappush(self._heap, entry)

    def first(self) -> Entry | None:
        """Return the best node, of equal ones the first row; None: the class fits nowhere."""
        heap, untouched, touched = self._heap, self._untouched, self._touched
        while heap and touched[heap[0][2]] is not heap[0]:
            heappop(heap)
        while untouched and untouched[-1][2] in touched:
            untouched.pop()
        if not heap:
            return untouched[-1] if untouched else None
        return min(heap[0], untouched[-1]) if untouched else heap[0]
