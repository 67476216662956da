"""Nodes where a pod would have to wait for something that no column counts (spec/scheduling.md §4, §11).

A node gains by being free at once. Where a port, a neighbour, storage, a device or a zone is still to be given up the
pod cannot start at once, whatever the columns say: there it takes back what the node gained, and nothing from nodes
that gained nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.points import Lateness
from pykai.model.pods import PodClass
from pykai.model.resources import Column
from pykai.model.status import Status
from pykai.plugins.scoring import AVAILABLE_NOW


@dataclass(frozen=True)
class LateStart:
    """Takes back what nodes gained by being free, once, however many rules bid a pod wait there."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return any(rule.concerns(cycle, pod_class) for rule in _rules(cycle))

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None:
        if cycle.trial.status[pod] != Status.PENDING:
            return None
        c = cycle.trial.of_class(pod)
        masks = [rule.late(cycle, pod) for rule in _rules(cycle) if rule.concerns(cycle, c)]
        late = [mask for mask in masks if mask is not None]
        if not late:
            return None
        return np.where(np.logical_or.reduce(late) & cycle.rankings.of(c).fits_now, -AVAILABLE_NOW, 0.0)


def _rules(cycle: Cycle) -> tuple[Lateness, ...]:
    return cycle.policy.of(Lateness)  # type: ignore[type-abstract]
