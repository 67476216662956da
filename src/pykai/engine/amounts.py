"""What a pod takes from a node, a device and its queue. The amounts of shared requests depend on the node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import GPU, MIG_PREFIX, Column, Mask, frozen, mig_gpus, whole_gpus
from pykai.model.snapshot import NodeTable, Snapshot

BY_FRACTION, BY_MEMORY, BY_PROFILE = GpuKind.FRACTION, GpuKind.MEMORY, GpuKind.MIG
"""Module constants: enum lookups are slow in loops."""
Triple = tuple[float, float, float]
"""CPU (milli), memory (bytes), GPUs."""


@dataclass(frozen=True, eq=False)
class ClassAmounts:
    """What pods of each class take, as far as it does not depend on the node. Lists are by class row."""

    shared: list[bool]
    """Whether pods take shares of devices."""
    compute_modes: int
    """Number of compute modes in use: 1 if all pods have the default mode."""
    resource_types: list[str]
    """The `receivedResourceType` of binds."""
    requests: Column
    """[resource, class]: what a pod takes from a node's columns; 0 GPUs for shared requests."""
    columns: list[Column]
    """The same by class."""
    of_queue: list[Triple]
    """What a pod counts against its queue; a gpu-memory request counts no GPU."""
    by_memory: Mask
    """Which classes request GPU memory."""


def amounts_of_classes(snapshot: Snapshot) -> ClassAmounts:
    """Return the amounts of a snapshot's classes, computed once as long as these stay."""
    return snapshot.pods.derived(_class_amounts, snapshot.space.names)


def _class_amounts(classes: Sequence[PodClass], resources: Sequence[str]) -> ClassAmounts:
    kinds = [c.gpu_kind for c in classes]
    shared = [kind is BY_FRACTION or kind is BY_MEMORY for kind in kinds]
    types = {kind: "Fraction" if kind is BY_MEMORY else kind.value for kind in set(kinds)}
    asked = np.array([c.request for c in classes]).reshape(len(classes), len(resources)).T.copy()
    gpus = np.where([kind is BY_MEMORY for kind in kinds], 0.0, asked[GPU])
    by_profile = np.array([kind is BY_PROFILE for kind in kinds], dtype=bool)
    for row, name in enumerate(resources):
        if name.startswith(MIG_PREFIX):
            gpus += np.where(by_profile, asked[row] * mig_gpus(name), 0.0)
    cpu, memory = asked[:2].tolist()
    asked[GPU, shared] = 0.0
    return ClassAmounts(
        shared=shared,
        compute_modes=1 + max([c.compute_mode for c in classes], default=0),
        resource_types=[types[kind] for kind in kinds],
        requests=frozen(asked),
        columns=list(frozen(asked.T.copy())),
        of_queue=list(zip(cpu, memory, [round(each, 6) for each in gpus.tolist()], strict=True)),
        by_memory=frozen(np.array([c.memory_mib > 0 for c in classes], dtype=bool)),
    )


def _gpu_memory(nodes: NodeTable) -> Sequence[float]:
    return nodes.gpu_memory.tolist()  # type: ignore[no-any-return]


class PodAmounts:
    """Amounts by class and node."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.gpu_memory = snapshot.nodes.derived(_gpu_memory)
        """MiB per device, by node."""
        known = self.of_classes = amounts_of_classes(snapshot)
        self.shared, self.compute_modes, self.resource_types = known.shared, known.compute_modes, known.resource_types
        self.requests, self._columns, self._of_queue = known.requests, known.columns, known.of_queue
        self._offered = snapshot.nodes.allocatable > 0
        self._offers_all: list[bool] = np.logical_and.reduce(self._offered[self.requests.any(axis=1)]).tolist()
        """By node: whether it offers every resource that any class requests."""

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

    def of_queue(self, c: PodClass, node: int) -> Triple:
        """Return what a pod counts against its queue; without a node (-1) a gpu-memory request counts no GPU."""
        if c.gpu_kind is BY_MEMORY and node >= 0:
            return float(c.request[0]), float(c.request[1]), self.accepted_gpus(c, node)
        return self._of_queue[c.row]
