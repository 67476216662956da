"""Node objects -> NodeTable (spec/scheduling.md §2.3, §6.2.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import json

from pykai.cache.numbering import Numbers, Readings, by_first
from pykai.cache.requests import row_amount
from pykai.model.nodes import NodeTable
from pykai.model.resources import GPU, MIG_PREFIX, Column, ResourceSpace, Rows, counted
from pykai.objects import names
from pykai.objects.kinds import Node
from pykai.objects.pod_template import Amount

UNKNOWN_GPU_MEMORY = 100.0
_MEBIBYTE = 1024 * 1024
_WHEN_READY = {
    "Ready": "True",
    "MemoryPressure": "False",
    "DiskPressure": "False",
    "PIDPressure": "False",
    "NetworkUnavailable": "False",
}
_AMOUNTS = json.Decoder(dict[str, Amount])
_NO_LABELS: dict[str, str] = {}


def gpu_memory(label: str | None) -> float | None:
    """MiB per device from the node label, floored to a multiple of 100; None where that leaves nothing."""
    try:
        value = int(label or "")
    except ValueError:
        return None
    if value >= _MEBIBYTE:
        value //= _MEBIBYTE
    return float(value - value % 100) or None


def reasons_not_ready(node: Node) -> tuple[str, ...]:
    """Why the node takes no pods, in the words users see; empty when it does."""
    found = ["node is unschedulable"] if node.spec.unschedulable else []
    for condition in node.status.conditions or ():
        kind, status = condition.type, condition.status
        if _WHEN_READY.get(kind, status) != status:
            found.append(f"node has {'NotReady' if kind == 'Ready' else kind} condition")
    return tuple(found)


def _mig(label: str | None, amounts: Mapping[str, float]) -> bool:
    if label is not None and label.lower() in ("true", "false", "1", "0", "t", "f"):
        return label.lower() in ("true", "1", "t")
    return any(name.startswith(MIG_PREFIX) and value > 0 for name, value in amounts.items())


def _count(label: str | None, fallback: float) -> float:
    return float(label) if label is not None and label.isdigit() else fallback


@dataclass(frozen=True)
class Machine:
    """What nodes of one make and condition have in common."""

    amounts: Mapping[str, float]
    """Allocatable, in row units."""
    gpu_memory: float | None
    gpu_count: str | None
    mig: bool
    mig_strategy: str
    conditions: tuple[str, ...]


class MachineMemo:
    """Machines by number: a cluster has few that differ."""

    def __init__(self, mig_key: str) -> None:
        self.machines: list[Machine] = []
        self._numbers: Numbers[object] = Numbers()
        self._readings = Readings()
        self._labels = (names.GPU_MEMORY_LABEL, names.GPU_COUNT_LABEL, names.MIG_STRATEGY_LABEL, mig_key)

    def __len__(self) -> int:
        return len(self.machines)

    def of(self, nodes: Sequence[Node]) -> Rows:
        """The machine of each node."""
        return np.asarray(self._readings.block(nodes, self._read)[0])

    def _read(self, nodes: Sequence[Node]) -> Rows:
        return np.array([[self._number(node) for node in nodes]], dtype=np.int64)

    def _number(self, node: Node) -> int:
        written, conditions = bytes(node.status.allocatable), reasons_not_ready(node)
        labels = node.metadata.labels or _NO_LABELS
        memory, count, strategy, mig = said = tuple([labels.get(key) for key in self._labels])
        number = self._numbers[written, said, conditions]
        if number == len(self.machines):
            amounts = _amounts(written)
            has_mig = _mig(mig, amounts)
            strategy = (strategy or "") if has_mig else ""
            self.machines.append(Machine(amounts, gpu_memory(memory), count, has_mig, strategy, conditions))
        return number


def _amounts(written: bytes) -> dict[str, float]:
    texts = _AMOUNTS.decode(written) if written and written != b"null" else {}
    return {name: row_amount(name, text) for name, text in texts.items() if counted(name)}


def node_table(
    nodes: Sequence[Node], space: ResourceSpace, memo: MachineMemo, dra_gpus: Mapping[str, int]
) -> NodeTable:
    """The table with rows in name order. Every resource name of a node gets its row in `space`."""
    nodes = sorted(nodes, key=lambda node: node.metadata.name)
    node_names = [node.metadata.name for node in nodes]
    number = memo.of(nodes)
    kind, first = by_first(number)
    machines = [memo.machines[number[row]] for row in first.tolist()]
    each = [machines[row] for row in kind.tolist()]
    offered = _allocatable(machines, space)
    allocatable = offered.take(kind, axis=1)
    dra = np.array([float(dra_gpus.get(name, 0)) for name in node_names])
    allocatable[GPU] += dra
    memory = [machine.gpu_memory for machine in machines]
    mig = np.array([machine.mig for machine in machines], dtype=bool)[kind]
    counts = [_count(m.gpu_count, gpus) for m, gpus in zip(machines, offered[GPU].tolist(), strict=True)]
    return NodeTable(
        names=node_names,
        rows={name: row for row, name in enumerate(node_names)},
        allocatable=allocatable,
        gpu_memory=np.array([UNKNOWN_GPU_MEMORY if m is None else m for m in memory])[kind],
        gpu_memory_known=np.array([m is not None for m in memory], dtype=bool)[kind],
        gpu_count=np.array(counts)[kind],
        dra_gpus=dra,
        mig=mig,
        mig_strategy=[machine.mig_strategy for machine in each],
        cpu_only=~mig & (allocatable[GPU] <= 0),
        ready=np.array([not machine.conditions for machine in machines], dtype=bool)[kind],
        conditions=[machine.conditions for machine in each],
        labels=[node.metadata.labels or _NO_LABELS for node in nodes],
        objects=nodes,
    )


def _allocatable(machines: Sequence[Machine], space: ResourceSpace) -> Column:
    """[resource, machine]."""
    rows = [[(space.row(name), value) for name, value in machine.amounts.items()] for machine in machines]
    block = np.zeros((space.size, len(machines)))
    for column, amounts in enumerate(rows):
        for row, value in amounts:
            block[row, column] += value
    return block


def widen(column: np.ndarray, size: int) -> np.ndarray:
    """The block with rows of zeros added up to `size` resources (names that only pods ask for)."""
    missing = size - column.shape[0]
    return np.vstack([column, np.zeros((missing, column.shape[1]))]) if missing > 0 else column
