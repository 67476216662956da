"""What pods that go together ask for, and what nodes have for them. Not a plugin: a part of the topology plugin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pykai.engine.devices import with_room
from pykai.kernels.domains import pods_per_node
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, MEMORY, PODS, Column, Rows

if TYPE_CHECKING:
    from pykai.engine.trial import Trial


Kind = tuple[tuple[int, ...], int]
"""Rows of classes, and how many pods where that matters."""


@dataclass(frozen=True, eq=False)
class Ask:
    """What pods that go together ask for. Vectors are [resource]; a request in GPU memory has no GPU figure."""

    classes: tuple[int, ...]
    """Rows of the distinct classes, ascending."""
    count: int
    asked: Rows
    """Resources that are asked for."""
    need: Column
    """[asked]: the largest single request."""
    uniform: bool
    """Whether the pods want the same kinds of resources, so that room can be counted in pods."""
    dims: Rows
    """Resources by which domains are compared: all that are asked for but the pod slot."""
    wants: Column
    """[dims]: all requests together."""
    portions: bool
    """Whether what is left of shared devices counts: a pod that wants most of a GPU takes a share of a device."""
    sharers: tuple[PodClass, ...]
    """The classes, where all of them take shares of devices."""

    @cached_property
    def limited(self) -> bool:
        """Whether pods want anything but a slot."""
        return len(self.dims) > 0 or self.portions

    @cached_property
    def kind(self) -> Kind:
        """What the figures of nodes depend on: not on how many pods there are, unless all nodes have room for all."""
        return self.classes, 0 if self.limited else self.count


def ask_for(trial: Trial, pods: Sequence[int]) -> Ask:
    """What the pods ask for together."""
    rows, counts = np.unique([trial.klass[pod] for pod in pods], return_counts=True)
    classes = [trial.snapshot.pods.classes[row] for row in rows.tolist()]
    requests = np.array([c.request for c in classes], dtype=np.float64).T
    kinds = np.array([_kinds(c) for c in classes])
    total: Column = requests @ counts.astype(np.float64)
    dims = np.array([row for row in np.flatnonzero(total > 0).tolist() if row != PODS], dtype=np.int64)
    most = requests[GPU].max()
    return Ask(
        classes=tuple(rows.tolist()),
        count=len(pods),
        asked=np.flatnonzero(total > 0),
        need=requests.max(axis=1)[total > 0],
        uniform=bool((kinds == kinds[0]).all()),
        dims=dims,
        wants=total[dims],
        portions=any(c.shared and c.request[GPU] == most for c in classes),
        sharers=tuple(classes) if all(c.shared for c in classes) else (),
    )


def _kinds(c: PodClass) -> list[bool]:
    """Which resources beyond cpu and memory a pod of the class uses."""
    uses = (c.request > 0).tolist()
    uses[GPU] = uses[GPU] or c.shared
    return list(uses[MEMORY + 1 :])


def figures_of(trial: Trial, ask: Ask, rows: Rows) -> Column:
    """[figure, row]: how many of the pods each node could take, judged by the largest of them; then for each of
    `ask.dims` what is free, counting what is being released."""
    if not ask.limited:
        slots = trial.idle[PODS, rows] + trial.releasing[PODS, rows]
        return np.where(slots >= 1, float(ask.count), 0.0)[None]
    free = trial.idle.take(rows, axis=1) + trial.releasing.take(rows, axis=1)
    figures = np.empty((1 + len(ask.dims), len(rows)))
    figures[0], figures[1:] = _room(trial, ask, rows, free), free.take(ask.dims, axis=0)
    return figures


def _room(trial: Trial, ask: Ask, rows: Rows, free: Column) -> Column:
    if not ask.portions:
        return pods_per_node(free.take(ask.asked, axis=0), ask.need)
    free, whole = free.copy(), np.floor(free[GPU])
    able = np.array([whole >= c.devices for c in ask.sharers])
    for at, row in enumerate(rows.tolist()):
        if row in trial.shares:
            capacity = float(trial.snapshot.nodes.gpu_memory[row])
            free[GPU, at] += _free_portions(trial, row, capacity)
            for of_class, c in zip(able, ask.sharers, strict=True):
                of_class[at] = whole[at] + _sharable(trial, c, row, capacity) >= c.devices
    counted = pods_per_node(free[ask.asked], ask.need)
    return np.where(able.any(axis=0), counted, 0.0) if ask.sharers else counted


def _free_portions(trial: Trial, node: int, capacity: float) -> float:
    """What is left of the shared devices of a node, in devices."""
    shares = with_room(trial.shares[node], 0.0, capacity)
    return sum(capacity - share.allocated + share.releasing for _, share in shares) / capacity


def _sharable(trial: Trial, c: PodClass, node: int, capacity: float) -> int:
    """How many shared devices of a node still hold a pod of the class."""
    return len(with_room(trial.shares[node], trial.share_memory(c, node), capacity))
