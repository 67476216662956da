"""Order of gangs within a queue, pods within a podset, sub-groups within a gang (docs/concepts/order-of-service.md).

Each plugin turns one rule into a sort key, smaller first. If keys are equal the next plugin decides, and finally age
and name, which the engine adds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column, Rows
from pykai.model.snapshot import Snapshot
from pykai.model.status import IS_ACTIVE_ALLOCATED, Status
from pykai.objects import names

if TYPE_CHECKING:
    from pykai.engine.trial import Trial

BELOW, EXACT, ABOVE = 0, 1, 2
_LEADING_ROLES = frozenset({"master", "launcher"})
_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class Priority:
    """Gangs of higher priority first."""

    def gang_key(self, trial: Trial, gang: int) -> int:
        return -trial.snapshot.gangs.priority[gang]

    def gang_column(self, trial: Trial, gangs: Rows) -> Column:
        return -trial.snapshot.gangs.columns.priority[gangs]


@dataclass(frozen=True)
class GpuJobOrder:
    """Of gangs of equal priority the one that requests more GPUs first, or the one that requests fewer."""

    smaller_first: bool = False

    def gang_key(self, trial: Trial, gang: int) -> float:
        return float(self.gang_column(trial, np.array([gang]))[0])

    def gang_column(self, trial: Trial, gangs: Rows) -> Column:
        gpus = trial.snapshot.derived(requested_gpus)[gangs]
        size = gpus if self.smaller_first else -gpus
        return np.asarray(size - trial.snapshot.derived(priority_ranks)[gangs] * MORE_THAN_GPUS)


MORE_THAN_GPUS = 2.0**24
"""No gang requests so many GPUs."""


def priority_ranks(snapshot: Snapshot) -> Rows:
    """By gang: how many different priorities are lower than its own."""
    return np.asarray(np.unique(snapshot.gangs.columns.priority, return_inverse=True)[1].reshape(-1))


def requested_gpus(snapshot: Snapshot) -> Column:
    """By gang: the GPUs of its pods that have not ended and do not leave."""
    pods = snapshot.pods
    alive = np.isin(pods.status, [Status.PENDING, Status.GATED]) | np.array(IS_ACTIVE_ALLOCATED)[pods.status]
    rows = np.flatnonzero(alive & (pods.gang >= 0))
    each = np.array([_gpus(snapshot, c) for c in pods.classes])
    return np.bincount(pods.gang[rows], weights=each[pods.klass[rows]], minlength=len(snapshot.gangs)).astype(float)


def _gpus(snapshot: Snapshot, c: PodClass) -> float:
    """The GPUs that a pod requests: devices or shares of them, parts of devices by memory, MIG instances by size."""
    mig = sum(float(c.request[row]) * each for row, each in snapshot.space.mig_rows().items())
    memory = snapshot.max_gpu_memory
    return float(c.request[GPU]) + mig + (c.devices * c.memory_mib / memory if c.memory_mib and memory else 0.0)


@dataclass(frozen=True)
class Elastic:
    """Gangs below their minimum before gangs at their minimum, before gangs above it."""

    def gang_key(self, trial: Trial, gang: int) -> int:
        gangs, active = trial.snapshot.gangs, trial.active_allocated
        return standing([active[row] - gangs.podset_min[row] for row in gangs.podsets(gang)])

    def gang_column(self, trial: Trial, gangs: Rows) -> Column:
        """The keys of many gangs at once: the worst podset decides, one with a surplus lifts the rest."""
        table = trial.snapshot.gangs
        surplus = np.array(trial.active_allocated, dtype=np.int64) - table.columns.podset_min
        below, above = (
            np.bincount(table.podset_gang, weights=mask, minlength=len(table))[gangs] > 0
            for mask in (surplus < 0, surplus > 0)
        )
        return np.where(below, BELOW, np.where(above, ABOVE, EXACT)).astype(np.float64)


def standing(surpluses: Iterable[int]) -> int:
    """Return BELOW if some podset is below its minimum, EXACT if all are at theirs, else ABOVE."""
    result = EXACT
    for surplus in surpluses:
        if surplus < 0:
            return BELOW
        if surplus:
            result = ABOVE
    return result


@dataclass(frozen=True)
class Kubeflow:
    """The pod that leads a Kubeflow job first."""

    pod_label: ClassVar[str] = names.KUBEFLOW_ROLE_LABEL

    def pod_key(self, value: str | None) -> bool:
        return value not in _LEADING_ROLES


@dataclass(frozen=True)
class Ray:
    """The head of a Ray cluster first."""

    pod_label: ClassVar[str] = names.RAY_NODE_TYPE_LABEL

    def pod_key(self, value: str | None) -> bool:
        return value != "head"


@dataclass(frozen=True)
class TaskPriority:
    """Pods by the number in their priority label, larger first; then those with an unreadable one, then the rest."""

    pod_label: ClassVar[str] = names.TASK_PRIORITY_LABEL

    def pod_key(self, value: str | None) -> tuple[int, int]:
        if value is None:
            return 2, 0
        return (0, -int(value)) if _INTEGER.fullmatch(value) else (1, 0)


@dataclass(frozen=True)
class SubGroupOrder:
    """Sub-groups below their threshold first, then the relatively worst served; those that need nothing last."""

    def member_key(self, members: int, threshold: int) -> tuple[int, float]:
        if members < threshold:
            return 0, 0.0
        return (1, members / threshold) if threshold > 0 else (2, members)
