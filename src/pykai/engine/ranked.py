"""Ranked: the scores of nodes for the pods of one class, and which nodes the next pods get.

The best node is the first maximum: rows are in name order, which breaks ties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pykai.model.resources import Column, Mask, Rows

UNFIT = -np.inf


class Filling(NamedTuple):
    """Nodes, how many pods each gets (None: one), and whether the pods wait there for a release."""

    rows: Rows
    copies: Rows | None
    wait: bool

    def split(self, count: int) -> tuple[Filling, Filling]:
        """Return the nodes of the first `count` pods, and those of the rest."""
        rows, copies, wait = self
        if copies is None:
            return Filling(rows[:count], None, wait), Filling(rows[count:], None, wait)
        first = np.clip(count - (copies.cumsum() - copies), 0, copies)
        rest = copies - first
        return Filling(rows[first > 0], first[first > 0], wait), Filling(rows[rest > 0], rest[rest > 0], wait)


_NOTHING = np.empty(0, dtype=np.int64)


class Ranked(NamedTuple):
    """Columns over some nodes, valid until something is placed or evicted; scores are -inf where the class does not
    fit. `local`: without relative scores; `by_order`: relative scores follow the order of a single measure."""

    rows: Rows
    local: Column
    total: Column
    fits_now: Mask
    """Where the class fits without waiting for a release."""
    by_order: bool
    span: float | None
    """Largest possible difference of relative scores; None: placing a pod may lower the score of its node."""
    holds: tuple[Callable[[Rows], Mask], Callable[[Rows, bool], Column]]
    """Functions: on which nodes two pods of the class fit; how many fit on each (True: on idle plus releasing)."""

    def best(self, extra: Column | None = None) -> Iterator[tuple[int, bool]]:
        """Yield node rows from best to worst, and whether the class fits there without waiting for a release. The full
        order is computed only if the caller goes beyond the first node."""
        scores = self.total if extra is None else self.total + extra[self.rows]
        if not len(scores):
            return
        first = int(scores.argmax())
        if scores[first] == UNFIT:
            return
        yield int(self.rows[first]), bool(self.fits_now[first])
        for at in np.argsort(-scores, kind="stable").tolist():
            if scores[at] == UNFIT:
                return
            if at != first:
                yield int(self.rows[at]), bool(self.fits_now[at])

    def best_alike(self, count: int, extra: Column | None) -> Filling:
        """Return the nodes that up to `count` pods of the class would get one after the other, as far as one look at
        the scores can tell; no rows: no node is feasible.

        Nodes with equal local scores keep their order whatever the extremes become, so they are filled in that order,
        up to the first node with another local score. A node gets as many pods as fit where placing a pod never lowers
        its score and no other node can overtake it; else each node gets one pod, and only the last may have room left.
        """
        base, total = self.local, self.total
        if extra is not None:
            mine = extra[self.rows]
            base, total = base + mine, total + mine
        first = int(total.argmax()) if len(total) else 0
        if not len(total) or total[first] == UNFIT:
            return Filling(_NOTHING, None, False)
        wait = not self.fits_now[first]
        if count == 1 or not self.by_order:
            return Filling(self.rows[first : first + 1], None, wait)
        alike = (base == base[first]) & (self.fits_now != wait)
        among, others = alike.nonzero()[0], np.where(alike, UNFIT, total)
        next_other = int(others.argmax())
        if others[next_other] != UNFIT:
            ahead = total[among] - others[next_other]
            among = among[(ahead > 0) | ((ahead == 0) & (among < next_other))]
        rows = self.rows[among[(-total[among]).argsort(kind="stable")[:count]]]
        twice = self.holds[0](rows)
        if not np.count_nonzero(twice):
            return Filling(rows, None, wait)
        apart = base[first] - np.where(alike, UNFIT, base).max()
        if self.span is None or apart <= self.span:
            return Filling(rows[: max(int(twice.argmax()), 1)], None, wait)
        return self._filled(rows, count, wait)

    def _filled(self, rows: Rows, count: int, wait: bool) -> Filling:
        """Fill nodes in this order, up to the first one on which more pods fit by waiting for a release."""
        copies_of = self.holds[1]
        at_all = copies_of(rows, True)
        copies = at_all if wait else np.minimum(at_all, copies_of(rows, False))
        more = copies < at_all
        end = int(more.argmax()) + 1 if more.any() else len(rows)
        filled = np.minimum(copies[:end].cumsum(), count).astype(np.int64)
        taken = filled.copy()
        taken[1:] -= filled[:-1]
        return Filling(rows[:end][taken > 0], taken[taken > 0], wait)
