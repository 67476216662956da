"""A ring of candidates from all over the cluster: each search takes the next few.

The order has nothing to do with what the candidates are or where they run, so no node or queue is favoured; nor has it
to do with the order of input, so the same cluster gives the same ring. It is cut into pieces, each with everybody on
some nodes, and a piece is put in order when its turn comes: most cycles ask for a few hundred of many thousands.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.order import runs
from pykai.engine.pool import VictimPool
from pykai.model.resources import Rows

PIECE = 1024


class Ring:
    """The gangs of a pool that could be asked to move."""

    def __init__(self, cycle: Cycle, pool: VictimPool) -> None:
        self._gangs = cycle.snapshot.gangs
        rows = pool.rows()
        self._size = len(rows)
        self._pieces = pieces(rows, pool.members.leftmost(rows))
        self._known: list[int] = []
        self._at = 0

    def take(self, count: int, without: Container[int]) -> list[int]:
        """The next gangs but for some; fewer only where there are no more."""
        chosen: list[int] = []
        for _ in range(self._size):
            if len(chosen) == count:
                break
            gang = self._next()
            if gang not in without:
                chosen.append(gang)
        return chosen

    def _next(self) -> int:
        while self._at == len(self._known):
            piece = next(self._pieces, None)
            if piece is None:
                self._at = 0
            else:
                self._known.extend(self._scattered(piece))
        self._at += 1
        return self._known[self._at - 1]

    def _scattered(self, rows: Rows) -> list[int]:
        """Gangs by a hash of when they were made, then by name."""
        gangs = self._gangs
        mixed = _mixed(np.array([int(gangs.created(row)) for row in rows.tolist()]))
        order = np.argsort(mixed, kind="stable")
        result: list[int] = rows[order].tolist()
        ranked = mixed[order]
        for start, end in runs(np.flatnonzero(ranked[1:] == ranked[:-1]).tolist()):
            result[start:end] = sorted(result[start:end], key=gangs.title)
        return result


def pieces(rows: Rows, nodes: Rows) -> Iterator[Rows]:
    """Rows cut into pieces of about the same size: those at some nodes, taken from everywhere, go together."""
    count = -(-len(rows) // PIECE)
    piece = _mixed(nodes) % np.uint64(count) if count > 1 else np.zeros(len(rows), dtype=np.uint64)
    for number in range(count):
        yield rows[piece == number]


def _mixed(numbers: Rows) -> np.ndarray:
    """Numbers that are as far apart as one likes for numbers that are close."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(mixed ^ (mixed >> np.uint64(29)))
