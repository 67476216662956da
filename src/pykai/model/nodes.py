"""Nodes as columns, rows in name order: the first maximum of a score row is the tie rule "name ascending"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykai.model.resources import Column, Mask


@dataclass(frozen=True, eq=False)
class NodeTable:
    """`allocatable[resource, node]`, device facts and the objects behind the rows."""

    names: list[str]
    rows: dict[str, int]
    allocatable: Column
    gpu_memory: Column
    """MiB per device, floored to a multiple of 100; 100 where it is not known."""
    gpu_memory_known: Mask
    gpu_count: Column
    dra_gpus: Column
    mig: Mask
    mig_strategy: list[str]
    cpu_only: Mask
    ready: Mask
    conditions: list[tuple[str, ...]]
    """Why a node takes no pods (unschedulable, NotReady, pressure), empty where it does."""
    labels: list[dict[str, str]]
    objects: list[Any]
    """The objects.kinds.Node behind each row."""

    def __len__(self) -> int:
        return len(self.names)
