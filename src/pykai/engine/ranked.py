"""Ranked: nodes with their scores for the pods of one class, from which places are taken.

The best node is the first maximum: rows are in name order, which is the tie rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pykai.model.resources import Column, Mask, Rows

UNFIT = -np.inf


@dataclass(frozen=True, eq=False)
class Ranked:
    """Columns over some nodes, good until something is placed or evicted; scores are -inf where the class does not
    fit. `local`: without scores that are relative to other nodes; `by_order`: those keep the order of one measure."""

    rows: Rows
    local: Column
    total: Column
    fits_now: Mask
    """Where the class fits without waiting for a release."""
    fits_twice: Mask
    by_order: bool

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

    def best_alike(self, count: int, extra: Column | None) -> tuple[Rows, bool]:
        """The nodes that `count` pods of the class would be given one after the other, as far as that can be said at
        once, and whether they must wait there; no rows: nothing fits.

        A pod that leaves no room for a second one on its node does not change the others' order: relative scores
        keep it, whatever their extremes. So all nodes that score like the best but for those are taken in order, up to
        the first other node: that one may take several pods, or changes its place in the order.
        """
        base, total = self.local, self.total
        if extra is not None:
            mine = extra[self.rows]
            base, total = base + mine, total + mine
        first = int(total.argmax()) if len(total) else 0
        if not len(total) or total[first] == UNFIT:
            return np.empty(0, dtype=np.int64), False
        wait = not self.fits_now[first]
        alike = (base == base[first]) & (self.fits_now != wait) & ~self.fits_twice
        if count == 1 or not alike[first] or not self.by_order:
            return self.rows[first : first + 1], wait
        among = alike.nonzero()[0]
        others = np.where(alike, UNFIT, total)
        next_other = int(others.argmax())
        if others[next_other] != UNFIT:
            ahead = total[among] - others[next_other]
            among = among[(ahead > 0) | ((ahead == 0) & (among < next_other))]
        order = among[(-total[among]).argsort(kind="stable")[:count]]
        return self.rows[order], wait
