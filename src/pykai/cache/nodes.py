"""Node objects -> NodeTable (spec/scheduling.md §2.3, §6.2.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import json

from pykai.cache.requests import row_amount
from pykai.model.nodes import NodeTable
from pykai.model.params import SchedulerParams
from pykai.model.resources import GPU, MIG_PREFIX, ResourceSpace, counted
from pykai.objects import names
from pykai.objects.kinds import ABSENT, Node
from pykai.objects.pod_template import Amount

UNKNOWN_GPU_MEMORY = 100.0
_MEBIBYTE = 1024 * 1024
_PRESSURE = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_AMOUNTS = json.Decoder(dict[str, Amount])
_NO_LABELS: dict[str, str] = {}


class HardwareMemo(dict[bytes, dict[str, float]]):
    """Allocatable as written -> amounts in row units: a cluster has few kinds of machine."""

    def __missing__(self, raw: bytes) -> dict[str, float]:
        texts = _AMOUNTS.decode(raw) if raw and raw != b"null" else {}
        amounts = {name: row_amount(name, text) for name, text in texts.items() if counted(name)}
        self[raw] = amounts
        return amounts


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
        if condition.type == "Ready" and condition.status != "True":
            found.append("node has NotReady condition")
        elif condition.type in _PRESSURE and condition.status != "False":
            found.append(f"node has {condition.type} condition")
    return tuple(found)


def _mig(labels: Mapping[str, str], amounts: Mapping[str, float], key: str) -> bool:
    label = labels.get(key)
    if label is not None and label.lower() in ("true", "false", "1", "0", "t", "f"):
        return label.lower() in ("true", "1", "t")
    return any(name.startswith(MIG_PREFIX) and value > 0 for name, value in amounts.items())


def _count(label: str | None, fallback: float) -> float:
    return float(label) if label is not None and label.isdigit() else fallback


def node_table(
    nodes: Sequence[Node],
    space: ResourceSpace,
    memo: HardwareMemo,
    dra_gpus: Mapping[str, int],
    params: SchedulerParams,
) -> NodeTable:
    """The table with rows in name order. Every resource name of a node gets its row in `space`."""
    nodes = sorted(nodes, key=lambda node: node.metadata.name)
    node_names = [node.metadata.name for node in nodes]
    labels = [node.metadata.labels or _NO_LABELS for node in nodes]
    hardware = [memo[b"" if (raw := node.status.allocatable) is ABSENT else bytes(raw)] for node in nodes]
    allocatable = _allocatable(hardware, space)
    dra = np.array([float(dra_gpus.get(name, 0)) for name in node_names])
    plain_gpus = allocatable[GPU].copy()
    allocatable[GPU] += dra
    memory = [gpu_memory(label.get(names.GPU_MEMORY_LABEL)) for label in labels]
    mig = np.array(
        [_mig(label, amounts, params.mig_worker_key) for label, amounts in zip(labels, hardware, strict=True)]
    )
    conditions = [reasons_not_ready(node) for node in nodes]
    return NodeTable(
        names=node_names,
        rows={name: row for row, name in enumerate(node_names)},
        allocatable=allocatable,
        gpu_memory=np.array([UNKNOWN_GPU_MEMORY if m is None else m for m in memory]),
        gpu_memory_known=np.array([m is not None for m in memory], dtype=bool),
        gpu_count=np.array(
            [_count(label.get(names.GPU_COUNT_LABEL), gpus) for label, gpus in zip(labels, plain_gpus, strict=True)]
        ),
        dra_gpus=dra,
        mig=mig.astype(bool),
        mig_strategy=[
            label.get(names.MIG_STRATEGY_LABEL, "") if m else "" for label, m in zip(labels, mig, strict=True)
        ],
        cpu_only=~mig.astype(bool) & (allocatable[GPU] <= 0),
        ready=np.array([not reasons for reasons in conditions], dtype=bool),
        conditions=conditions,
        labels=labels,
        objects=list(nodes),
    )


def _allocatable(hardware: Sequence[Mapping[str, float]], space: ResourceSpace) -> np.ndarray:
    """[resource, node]; one vector per distinct kind of machine, then spread over the nodes."""
    kinds = {id(amounts): amounts for amounts in hardware}
    for amounts in kinds.values():
        for name in amounts:
            space.row(name)
    row_of = {key: row for row, key in enumerate(kinds)}
    vectors = np.zeros((space.size, max(len(kinds), 1)))
    for key, amounts in kinds.items():
        for name, value in amounts.items():
            vectors[space.rows[name], row_of[key]] += value
    return np.ascontiguousarray(vectors[:, [row_of[id(amounts)] for amounts in hardware]])


def widen(column: np.ndarray, size: int) -> np.ndarray:
    """The block with rows of zeros added up to `size` resources (names that only pods ask for)."""
    missing = size - column.shape[0]
    return np.vstack([column, np.zeros((missing, column.shape[1]))]) if missing > 0 else column
