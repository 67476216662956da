"""Node objects -> NodeTable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
from msgspec import json

from pykai.cache.readings import Edit, Numbers, Readings, by_first
from pykai.cache.requests import row_amount
from pykai.cache.store import Layers, Moment, Store
from pykai.model.resources import GPU, MIG_PREFIX, Column, ResourceSpace, Rows, counted
from pykai.model.snapshot import CORDONED, NodeTable
from pykai.objects import names
from pykai.objects.kinds import Condition, Node
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
_NAME = attrgetter("metadata.name")
_SAID = attrgetter("metadata.name", "metadata.labels", "spec.taints")
"""The fields of a node in the table that its machine does not cover."""


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
    """Why the node takes no pods, as users see it; empty when it does."""
    found = [CORDONED] if node.spec.unschedulable else []
    for condition in node.status.conditions or ():
        kind, status = condition.type, condition.status
        if _WHEN_READY.get(kind, status) != status:
            found.append(f"node has {'NotReady' if kind == 'Ready' else kind} condition")
    return tuple(found)


def fractions_not_ready(node: Node) -> str:
    """Why the node takes no shares of GPUs in the mode NvFractions; empty where it reports that it is ready.

    The condition has two names, an older one and that of today: either does.
    """
    held = {condition.type: condition for condition in node.status.conditions or ()}
    found = [held[name] for name in names.FRACTIONS_READY if name in held]
    if any(condition.status == "True" for condition in found):
        return ""
    said = found[0] if found else Condition(type=names.FRACTIONS_READY[0], status="Unknown", reason="ConditionNotFound")
    return (
        f"node is not ready for fractional GPU scheduling. Condition {said.type} is {said.status}. "
        f"Reason: {said.reason}. Message: {said.message}"
    )


def _mig(label: str | None, amounts: Mapping[str, float]) -> bool:
    if label is not None and label.lower() in ("true", "false", "1", "0", "t", "f"):
        return label.lower() in ("true", "1", "t")
    return any(name.startswith(MIG_PREFIX) and value > 0 for name, value in amounts.items())


def _count(label: str | None, fallback: float) -> float:
    return float(label) if label is not None and label.isdigit() else fallback


@dataclass(frozen=True)
class Machine:
    """What nodes with equal allocatable, GPU labels and conditions have in common."""

    amounts: Mapping[str, float]
    """Allocatable, in row units."""
    gpu_memory: float | None
    gpu_count: str | None
    mig: bool
    mig_strategy: str
    conditions: tuple[str, ...]
    fractions: str
    """Why it takes no shares of GPUs; empty where it does or that is not asked for."""


class MachineMemo:
    """Machines by number; few of a cluster differ."""

    def __init__(self, mig_key: str, nvfractions: bool) -> None:
        self.nvfractions = nvfractions
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
        """Neighbours are mostly alike: a node that reports the same as the one before is the same machine."""
        found: list[int] = []
        last: object = None
        for node in nodes:
            status, spec, labels = node.status, node.spec, node.metadata.labels or _NO_LABELS
            said = (status.conditions, status.allocatable, spec.unschedulable, *map(labels.get, self._labels))
            if said != last:
                number, last = self.number(node), said
            found.append(number)
        return np.array([found], dtype=np.int64)

    def number(self, node: Node) -> int:
        """The machine of a node."""
        written, conditions = bytes(node.status.allocatable), reasons_not_ready(node)
        fractions = fractions_not_ready(node) if self.nvfractions else ""
        labels = node.metadata.labels or _NO_LABELS
        memory, count, strategy, mig = said = tuple(map(labels.get, self._labels))
        number = self._numbers[written, said, conditions, fractions]
        if number == len(self.machines):
            amounts = _amounts(written)
            has_mig = _mig(mig, amounts)
            strategy = (strategy or "") if has_mig else ""
            size = gpu_memory(memory)
            self.machines.append(Machine(amounts, size, count, has_mig, strategy, conditions, fractions))
        return number


def _amounts(written: bytes) -> dict[str, float]:
    texts = _AMOUNTS.decode(written) if written and written != b"null" else {}
    return {name: row_amount(name, text) for name, text in texts.items() if counted(name)}


class NodeMemo:
    """The node table of the last snapshot. Kubelet heartbeats replace node objects without a relevant change: then the
    same table is returned, with everything derived from it."""

    def __init__(self, mig_key: str, nvfractions: bool = False, images: bool = False) -> None:
        self._machines = MachineMemo(mig_key, nvfractions)
        self._images = images
        self._nodes: list[Node] = []
        self._read: tuple[Rows, Column] | None = None
        self._made: tuple[NodeTable, ResourceSpace]
        self._seen: tuple[Moment, Layers, Mapping[str, int]] | None = None

    def __len__(self) -> int:
        return len(self._machines)

    def table(self, store: Store, dra_gpus: Mapping[str, int]) -> tuple[NodeTable, ResourceSpace]:
        """The table with rows in name order, and the space with a row for every resource name of a node.

        `dra_gpus`: how many devices of GPU drivers there are, by node name.
        """
        if not self._only_heartbeats(store, dra_gpus):
            self._look(store.objects(), dra_gpus)
        self._seen = (store.moment, store.by_key.copy(), dra_gpus) if store.keyed else None
        return self._made

    def _look(self, nodes: Sequence[Node], dra_gpus: Mapping[str, int]) -> None:
        nodes = sorted(nodes, key=_NAME)
        machine, dra = self._machines.of(nodes), _dra_column(nodes, dra_gpus)
        if not self._as_before(nodes, machine, dra):
            table, space = node_table(nodes, self._machines.machines, machine, dra)
            self._made = replace(table, images=[node.status.images for node in nodes]) if self._images else table, space
        self._nodes, self._read = nodes, (machine, dra)

    def _only_heartbeats(self, store: Store, dra_gpus: Mapping[str, int]) -> bool:
        """Whether nodes were only replaced by equal ones since the last table."""
        keys = None if self._seen is None else store.since(self._seen[0])
        if self._seen is None or keys is None or dra_gpus != self._seen[2]:
            return False
        edit = Edit.between(self._seen[1], store.by_key, keys)
        return not edit.removed and not edit.added and all(self._alike(*pair) for pair in edit.replaced)

    def _alike(self, old: Node, new: Node) -> bool:
        return self._said(old) == self._said(new) and self._machines.number(old) == self._machines.number(new)

    def _said(self, node: Node) -> object:
        return (_SAID(node), bytes(node.status.images)) if self._images else _SAID(node)

    def _as_before(self, nodes: list[Node], machine: Rows, dra: Column) -> bool:
        """Whether nothing has changed of what the table is made of."""
        if self._read is None or not all(map(np.array_equal, self._read, (machine, dra))):
            return False
        replaced = [pair for pair in zip(self._nodes, nodes, strict=True) if pair[0] is not pair[1]]
        return all(self._said(old) == self._said(new) for old, new in replaced)


def _dra_column(nodes: Sequence[Node], dra_gpus: Mapping[str, int]) -> Column:
    if not dra_gpus:
        return np.zeros(len(nodes))
    return np.array([float(dra_gpus.get(node.metadata.name, 0)) for node in nodes])


def node_table(
    nodes: Sequence[Node], known: Sequence[Machine], machine: Rows, dra: Column
) -> tuple[NodeTable, ResourceSpace]:
    """The table of nodes in name order, by the number of each one's machine, and the space of its rows."""
    node_names = list(map(_NAME, nodes))
    kind, first = by_first(machine)
    machines = [known[machine[row]] for row in first.tolist()]
    each = [machines[row] for row in kind.tolist()]
    space = ResourceSpace().with_names(name for machine in machines for name in machine.amounts)
    offered = _allocatable(machines, space)
    allocatable = offered.take(kind, axis=1)
    allocatable[GPU] += dra
    memory = [machine.gpu_memory for machine in machines]
    mig = np.array([machine.mig for machine in machines], dtype=bool)[kind]
    counts = [_count(m.gpu_count, gpus) for m, gpus in zip(machines, offered[GPU].tolist(), strict=True)]
    table = NodeTable(
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
        fractions=[machine.fractions for machine in each] if any(m.fractions for m in machines) else (),
        labels=[node.metadata.labels or _NO_LABELS for node in nodes],
        taints=[node.spec.taints or () for node in nodes],
    )
    return table, space


def _allocatable(machines: Sequence[Machine], space: ResourceSpace) -> Column:
    """[resource, machine]."""
    block = np.zeros((space.size, len(machines)))
    for column, machine in enumerate(machines):
        for name, value in machine.amounts.items():
            block[space.rows[name], column] += value
    return block


def widened(table: NodeTable, size: int) -> NodeTable:
    """The table with rows of zeros for resources that only pods ask for, up to `size`; itself where there are none."""
    missing = size - len(table.allocatable)
    if missing == 0:
        return table
    return replace(table, allocatable=np.vstack([table.allocatable, np.zeros((missing, len(table)))]))
