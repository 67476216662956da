"""Ranked: nodes with their scores for the pods of one class, from which places are taken.

The best node is the first maximum: rows are in name order, which is the tie rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pykai.model.resources import Column, Mask, Rows

UNFIT = -np.inf


class Filling(NamedTuple):
    """Nodes, how many pods each of them takes, and whether the pods must wait there."""

    rows: Rows
    copies: Rows
    wait: bool


_NOTHING = np.empty(0, dtype=np.int64)
_ONE = np.ones(1, dtype=np.int64)


class Ranked(NamedTuple):
    """Columns over some nodes, good until something is placed or evicted; scores are -inf where the class does not
    fit. `local`: without scores that are relative to other nodes; `by_order`: those keep the order of one measure."""

    rows: Rows
    local: Column
    total: Column
    fits_now: Mask
    """Where the class fits without waiting for a release."""
    by_order: bool
    span: float | None
    """How far relative scores lie apart at most; None: a pod may make its node worse for the next one."""
    copies: Callable[[Rows, bool], Column]
    """How many pods of the class fit on nodes; True: counting what is being released."""

    def best(self, extra: Column | None = None) -> Iterator[tuple[int, bool]]:
        """Node rows from best to worst, and whether the class fits there without waiting for a release; the full order
        is only computed if the first one is not taken."""
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
        """The nodes that `count` pods of the class would be given one after the other, as far as that can be said at
        once; no rows: nothing fits.

        Nodes that score alike but for relative scores keep their order, whatever becomes of the extremes, so they are
        filled in that order, up to the first other node. A node is filled whole where a pod never makes it worse for
        the next one, and no other node can come between; else it takes one pod, and only the last one of the filling
        may have more to give.
        """
        base, total = self.local, self.total
        if extra is not None:
            mine = extra[self.rows]
            base, total = base + mine, total + mine
        first = int(total.argmax()) if len(total) else 0
        if not len(total) or total[first] == UNFIT:
            return Filling(_NOTHING, _NOTHING, False)
        wait = not self.fits_now[first]
        if count == 1 or not self.by_order:
            return Filling(self.rows[first : first + 1], _ONE, wait)
        alike = (base == base[first]) & (self.fits_now != wait)
        among, others = alike.nonzero()[0], np.where(alike, UNFIT, total)
        next_other = int(others.argmax())
        if others[next_other] != UNFIT:
            ahead = total[among] - others[next_other]
            among = among[(ahead > 0) | ((ahead == 0) & (among < next_other))]
        rows = self.rows[among[(-total[among]).argsort(kind="stable")[:count]]]
        apart = base[first] - np.where(alike, UNFIT, base).max()
        return self._filled(rows, count, wait, several=self.span is not None and apart > self.span)

    def _filled(self, rows: Rows, count: int, wait: bool, several: bool) -> Filling:
        """Fill nodes in this order; behind one that could take more in another way nothing is said."""
        at_all = self.copies(rows, True)
        copies = at_all if wait else np.minimum(at_all, self.copies(rows, False))
        if not several:
            end = max(_first(at_all > 1), 1)
            return Filling(rows[:end], np.ones(len(rows[:end]), dtype=np.int64), wait)
        end = _first(copies < at_all) + 1
        taken = np.diff(np.minimum(copies[:end].cumsum(), count).astype(np.int64), prepend=0)
        return Filling(rows[:end][taken > 0], taken[taken > 0], wait)


def _first(mask: Mask) -> int:
    """The first position that is set; behind the last where none is."""
    return int(mask.argmax()) if mask.any() else len(mask)
