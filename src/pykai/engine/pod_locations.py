"""The current nodes of pods as arrays, and counts of selected pods per domain of nodes.

For rules that count pods: host ports, pod affinity, storage. Nothing here is journaled: the trial logs every pod that
moved, also by undo, and the arrays are updated from that log on each read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pykai.engine.trial import Trial
from pykai.model.resources import Mask, Rows
from pykai.model.status import ACTIVE_ALLOCATED, IS_ACTIVE_USED, Status, table

_STAYS = table(ACTIVE_ALLOCATED | {Status.STUCK_IN_RELEASING})
NOWHERE = -1


class Move(NamedTuple):
    """A pod's node before and after: where it is present, and which it is leaving."""

    pod: int
    present: tuple[int, int]
    leaving: tuple[int, int]


class PodLocations:
    """By pod the node row where it runs or is placed (`present`), and the one it is leaving (`leaving`); else -1."""

    present: Rows
    leaving: Rows

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.moves: list[Move] = []
        """All changes since the start, in order: the number of them is the version of the arrays."""
        self.opened = False
        """Whether there are arrays: made when something is first counted."""
        self._read = 0

    def _open(self) -> None:
        trial, pods = self.trial, self.trial.snapshot.pods
        self.opened, self._read = True, len(trial.moved)
        status, node = np.array(trial.status, dtype=np.int64), np.array(trial.node, dtype=np.int64)
        self._origin: Rows = np.where(np.array(IS_ACTIVE_USED)[pods.status], pods.node, NOWHERE)
        self.present = np.where(np.array(_STAYS)[status], node, NOWHERE)
        self.leaving = np.where(status == Status.RELEASING, node, NOWHERE)
        for pod in trial.placed:
            self.leaving[pod] = self._left_by(pod, trial.status[pod], trial.node[pod])
        self._leavers = int(np.count_nonzero(self.leaving != NOWHERE))

    def refresh(self) -> int:
        """Bring the arrays up to date; their version."""
        trial = self.trial
        if not self.opened:
            self._open()
        elif self._read != len(trial.moved):
            for pod in set(trial.moved[self._read :]):
                self._follow(pod, trial.status[pod], trial.node[pod])
            self._read = len(trial.moved)
        return len(self.moves)

    def any_leaves(self) -> bool:
        """Whether some pod is about to give up its place."""
        self.refresh()
        return self._leavers > 0

    def _follow(self, pod: int, status: int, node: int) -> None:
        stays = node if _STAYS[status] else NOWHERE
        leaves = self._left_by(pod, status, node)
        move = Move(pod, (int(self.present[pod]), stays), (int(self.leaving[pod]), leaves))
        self.present[pod], self.leaving[pod] = stays, leaves
        self._leavers += (leaves != NOWHERE) - (move.leaving[0] != NOWHERE)
        self.moves.append(move)

    def _left_by(self, pod: int, status: int, node: int) -> int:
        """The node that a pod is about to leave: where it runs, also when it has another place in the meantime."""
        origin = int(self._origin[pod])
        if status == Status.RELEASING:
            return node if origin == NOWHERE else origin
        return origin if pod in self.trial.placed else NOWHERE


class PodCounts:
    """How many of some pods are in each domain.

    `pods`: their rows, ascending. `domains`: a number below `size` for each node, 0 where it is in no domain; the
    counts of domain 0 are always 0.
    """

    def __init__(self, where: PodLocations, pods: Rows, domains: Rows, size: int) -> None:
        self.where = where
        self.pods = pods
        self.domains = domains
        self._size = size
        self._count_all(where.refresh())

    def includes(self, pods: Rows | Sequence[int]) -> Mask:
        """Which of some pods are among those that are counted."""
        if not len(self.pods):
            return np.zeros(len(pods), dtype=bool)
        wanted = np.asarray(pods, dtype=np.int64)
        found: Mask = self.pods.take(self.pods.searchsorted(wanted), mode="clip") == wanted
        return found

    @property
    def present(self) -> Rows:
        """Pods per domain that have or await a place there."""
        self._refresh()
        return self._present

    @property
    def leaving(self) -> Rows:
        """Pods per domain that are still there but on their way out."""
        self._refresh()
        return self._leaving

    @property
    def nodes_present(self) -> Mask:
        """Nodes in whose domain some are present."""
        return (self.present > 0)[self.domains]

    def _count_all(self, version: int) -> None:
        self._version = version
        self._present = self._count(self.where.present[self.pods])
        self._leaving = self._count(self.where.leaving[self.pods])

    def _count(self, nodes: Rows) -> Rows:
        counts = np.bincount(self.domains[nodes[nodes != NOWHERE]], minlength=self._size)
        counts[0] = 0
        return counts

    def _refresh(self) -> None:
        version = self.where.refresh()
        if version == self._version:
            return
        if version - self._version > len(self.pods):
            self._count_all(version)  # counting few pods is faster than reading many moves
            return
        moves = self.where.moves[self._version : version]
        for at in np.flatnonzero(self.includes([move.pod for move in moves])).tolist():
            self._shift(self._present, *moves[at].present)
            self._shift(self._leaving, *moves[at].leaving)
        self._version = version

    def _shift(self, counts: Rows, before: int, after: int) -> None:
        if before != NOWHERE:
            counts[self.domains[before]] -= 1
        if after != NOWHERE:
            counts[self.domains[after]] += 1
        counts[0] = 0
