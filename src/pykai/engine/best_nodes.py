"""Find the best node without comparing all: BestNodes for many pods of one class, SortedNodes and NodesByRoom for pods
of many classes that differ in amounts alone.

Nodes with equal local scores are in the order of the measure of the one relative score, whatever its extremes; where
local scores differ by more than relative scores can, they decide. So the order of two nodes depends on the state of
these two only: untouched nodes stay in the order that was computed once, touched nodes are in a heap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush, merge
from itertools import islice

import numpy as np

from pykai.engine.ranked import UNFIT
from pykai.model.resources import Column, Mask, Rows

Measured = tuple[float, int]
"""A measure, and the node that has it."""
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


class SortedNodes:
    """Nodes by score, the best first, then by measure, the least first, then by row. `nodes` ascend; `scores` are of
    these and do not change. `measure` is by row.

    Nodes with equal score and measure are one list: measures are mostly the few possible numbers of free devices.
    """

    def __init__(self, nodes: Rows, scores: Column, measure: Column) -> None:
        levels, number = np.unique(-scores, return_inverse=True)
        self._measure = measure.copy()
        self._level = np.full(len(measure), -1)
        """By row the place of its score among all; -1: the node is not among them."""
        self._level[nodes] = number
        self._values: list[list[float]] = [[] for _ in levels]
        """By level the measures, ascending."""
        self._nodes: list[dict[float, list[int]]] = [{} for _ in levels]
        order = np.lexsort((measure[nodes], number))
        rows, number, measured = nodes[order], number[order], measure[nodes][order]
        starts = np.flatnonzero((np.diff(number, prepend=-1) != 0) | (np.diff(measured, prepend=np.nan) != 0))
        ends, listed = np.append(starts[1:], len(rows)), rows.tolist()
        columns = (number[starts], measured[starts], starts, ends[: len(starts)])
        for level, value, start, end in zip(*(column.tolist() for column in columns), strict=True):
            self._values[level].append(value)
            self._nodes[level][value] = listed[start:end]

    def put(self, node: int, measured: float) -> None:
        """Set the measure of a node; others than those it was made of are ignored."""
        level, old = int(self._level[node]), float(self._measure[node])
        if level < 0 or old == measured:
            return
        self._measure[node] = measured
        values, nodes = self._values[level], self._nodes[level]
        del nodes[old][bisect_left(nodes[old], node)]
        if not nodes[old]:
            del nodes[old], values[bisect_left(values, old)]
        if measured in nodes:
            insort(nodes[measured], node)
        else:
            nodes[measured] = [node]
            insort(values, measured)

    def above(self, least: float) -> Iterator[Measured]:
        """Yield the nodes with at least this measure, in order."""
        for values, nodes in zip(self._values, self._nodes, strict=True):
            for at in range(bisect_left(values, least), len(values)):
                for node in nodes[values[at]]:
                    yield values[at], node

    def of(self, nodes: Sequence[int]) -> list[int]:
        """Return some of the nodes in order."""
        level, measure = self._level, self._measure
        return [node for *_, node in sorted([(level[node], measure[node], node) for node in nodes])]


class NodesByRoom:
    """Nodes in groups by room, and in each group by measure, the least first, then by row. `steps`: where groups begin,
    ascending."""

    def __init__(self, steps: Sequence[float]) -> None:
        self._steps = steps
        self._groups: list[list[Measured]] = [[] for _ in range(len(steps) + 1)]
        self._place: dict[int, tuple[int, Measured]] = {}
        """Group and entry of each node."""

    def put(self, node: int, room: float, measured: float) -> None:
        """Set the room and the measure of a node."""
        place, old = (bisect_right(self._steps, room), (measured, node)), self._place.get(node)
        if place == old:
            return
        if old is not None:
            entries = self._groups[old[0]]
            del entries[bisect_left(entries, old[1])]
        insort(self._groups[place[0]], place[1])
        self._place[node] = place

    def above(self, room: float) -> Iterator[Measured]:
        """Yield the nodes with at least this room, the least measure first, then by row; if no group begins with this
        room, nodes with less are among them."""
        groups = [entries for entries in self._groups[bisect_right(self._steps, room) :] if entries]
        if groups:
            yield min(groups)[0]
            yield from islice(merge(*groups), 1, None)
