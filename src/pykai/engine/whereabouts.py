"""Where pods are at this moment of a trial, as arrays, and how many of some pods are in each domain of nodes.

For rules that count neighbours: host ports, pod affinity, storage. Nothing here is undone, it is read again: the trial
logs every pod that moved, in either direction, so an answer is always that of the trial as it stands, and a reader
pays for what changed since it last looked.
"""

from __future__ import annotations

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.trial import Trial
from pykai.model.resources import Rows
from pykai.model.status import ACTIVE_ALLOCATED, Status, table

_STAYS = table(ACTIVE_ALLOCATED | {Status.STUCK_IN_RELEASING})
NOWHERE = -1


class Whereabouts:
    """Node row of every pod that has or awaits a place (`staying`), or is about to give one up (`leaving`); else -1."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.version = len(trial.moved)
        status, node = np.array(trial.status, dtype=np.int64), np.array(trial.node, dtype=np.int64)
        self.staying: Rows = np.where(np.array(_STAYS)[status], node, NOWHERE)
        self.leaving: Rows = np.where(status == Status.RELEASING, node, NOWHERE)

    def refresh(self) -> int:
        """Bring the arrays up to date; a version that differs whenever they may differ."""
        trial = self.trial
        if self.version != len(trial.moved):
            for pod in set(trial.moved[self.version :]):
                status, node = trial.status[pod], trial.node[pod]
                self.staying[pod] = node if _STAYS[status] else NOWHERE
                self.leaving[pod] = node if status == Status.RELEASING else NOWHERE
            self.version = len(trial.moved)
        return self.version


def whereabouts(cycle: Cycle) -> Whereabouts:
    """The cycle's own, made when somebody first counts."""
    found: Whereabouts | None = cycle.memo.get("whereabouts")
    if found is None:
        found = cycle.memo["whereabouts"] = Whereabouts(cycle.trial)
    return found


class Tally:
    """How many of the given pods are in each domain. `domains`: a number per node, 0 where it is in none."""

    def __init__(self, where: Whereabouts, pods: Rows, domains: Rows, size: int) -> None:
        self.where = where
        self.pods = pods
        self.domains = domains
        self.size = size
        self._version = -1
        self._staying: Rows = np.zeros(size, dtype=np.int64)
        self._leaving: Rows = np.zeros(size, dtype=np.int64)

    @property
    def staying(self) -> Rows:
        """Pods per domain that have or await a place there."""
        self._refresh()
        return self._staying

    @property
    def leaving(self) -> Rows:
        """Pods per domain that are still there but on their way out."""
        self._refresh()
        return self._leaving

    def count_at(self, node: int) -> int:
        """How many stay in the domain of a node."""
        return int(self.staying[self.domains[node]])

    def _refresh(self) -> None:
        version = self.where.refresh()
        if version != self._version:
            self._version = version
            self._staying = self._count(self.where.staying[self.pods])
            self._leaving = self._count(self.where.leaving[self.pods])

    def _count(self, nodes: Rows) -> Rows:
        counts = np.bincount(self.domains[nodes[nodes != NOWHERE]], minlength=self.size)
        counts[0] = 0
        return counts
