"""What a pod takes from a node, a device and its queue. The amounts of shared requests depend on the node."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import GPU, Column, whole_gpus
from pykai.model.snapshot import Snapshot

BY_MEMORY, BY_PROFILE = GpuKind.MEMORY, GpuKind.MIG
"""Module constants: enum lookups are slow in loops."""


class PodAmounts:
    """Amounts by class and node; those that do not depend on the node are computed once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.gpu_memory: list[float] = snapshot.nodes.gpu_memory.tolist()
        """MiB per device, by node."""
        classes = snapshot.pods.classes
        self.shared: list[bool] = [c.shared for c in classes]
        """By class row: whether its pods take shares of devices."""
        self.compute_modes = 1 + max([c.compute_mode for c in classes], default=0)
        """Number of compute modes in use: 1 if all pods have the default mode."""
        self.resource_types: list[str] = ["Fraction" if c.gpu_kind is BY_MEMORY else c.gpu_kind.value for c in classes]
        """By class row: the `receivedResourceType` of binds."""
        self.requests = class_requests(snapshot)
        self._columns: list[Column] = list(self.requests.T.copy())
        self._offered = snapshot.nodes.allocatable > 0
        self._offers_all: list[bool] = np.logical_and.reduce(self._offered[self.requests.any(axis=1)]).tolist()
        """By node: whether it offers every resource that any class requests."""
        self._mig_rows = snapshot.space.mig_rows()
        self._of_queue = self._queue_amounts(classes)
        """By class row; a gpu-memory request counts no GPU."""

    def of_node(self, klass: int, node: int) -> Column:
        """Return, by resource, what a pod of a class takes from the columns of a node: resources that the node does
        not offer are left out. Read only."""
        return self._columns[klass] if self._offers_all[node] else self._columns[klass] * self._offered[:, node]

    def where_it_fits(self, klass: int) -> Column:
        """Return `of_node` for any node on which the class fits, and which therefore offers all it requests."""
        return self._columns[klass]

    def share_memory(self, c: PodClass, node: int) -> float:
        """Return the MiB per device that a shared request takes on a node; at least 1, so that the device counts as
        used."""
        if c.gpu_kind is BY_MEMORY:
            return float(c.memory_mib)
        return float(max(1, int(c.portion * self.gpu_memory[node])))

    def share_memories(self, c: PodClass) -> Column:
        """Return the MiB per device that a shared request takes, by node."""
        if c.gpu_kind is BY_MEMORY:
            return np.full(len(self.gpu_memory), float(c.memory_mib))
        return np.maximum(np.trunc(c.portion * np.array(self.gpu_memory)), 1.0)

    def share_portion(self, c: PodClass, node: int) -> float:
        """Return the portion of each device that a shared request takes on a node; memory requests are rounded up to
        hundredths."""
        if c.gpu_kind is not BY_MEMORY:
            return c.portion
        return ceil(c.memory_mib / self.gpu_memory[node] * 100) / 100

    def accepted_gpus(self, c: PodClass, node: int) -> float:
        """Return the GPUs granted to a pod on a node; without a node (-1) its request."""
        if c.shared and node >= 0:
            return whole_gpus(self.share_portion(c, node), c.devices)
        return float(c.request[GPU])

    def of_queue(self, c: PodClass, node: int) -> tuple[float, float, float]:
        """Return what a pod counts against its queue; without a node (-1) a gpu-memory request counts no GPU."""
        if c.gpu_kind is BY_MEMORY and node >= 0:
            return float(c.request[0]), float(c.request[1]), self.accepted_gpus(c, node)
        return self._of_queue[c.row]

    def _queue_amounts(self, classes: Sequence[PodClass]) -> list[tuple[float, float, float]]:
        cpu, memory = self.requests[:2].tolist()
        gpus = [0.0 if c.gpu_kind is BY_MEMORY else float(c.request[GPU]) for c in classes]
        mig = [(row, c) for row, c in enumerate(classes) if c.gpu_kind is BY_PROFILE]
        for row, c in mig:
            gpus[row] += sum(float(c.request[profile]) * each for profile, each in self._mig_rows.items())
        return [(x, y, round(z, 6)) for x, y, z in zip(cpu, memory, gpus, strict=True)]


def class_requests(snapshot: Snapshot) -> Column:
    """Return what a pod of each class takes from a node's columns, [resource, class]; 0 GPUs for shared requests."""
    classes = snapshot.pods.classes
    table = np.array([c.request for c in classes]).reshape(len(classes), snapshot.space.size).T.copy()
    table[GPU, [c.row for c in classes if c.shared]] = 0.0
    return table
