"""Nodes as columns, rows in name order: the first maximum of a score row is the tie rule "name ascending".

A table outlives its snapshot: as long as the nodes say the same it stays the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pykai.model.resources import Column, Mask, freeze

Fact = TypeVar("Fact")


@dataclass(frozen=True, eq=False)
class NodeTable:
    """`allocatable[resource, node]`, device facts, labels and taints."""

    names: Sequence[str]
    rows: Mapping[str, int]
    allocatable: Column
    gpu_memory: Column
    """MiB per device, floored to a multiple of 100; 100 where it is not known."""
    gpu_memory_known: Mask
    gpu_count: Column
    dra_gpus: Column
    mig: Mask
    mig_strategy: Sequence[str]
    cpu_only: Mask
    ready: Mask
    conditions: Sequence[tuple[str, ...]]
    """Why a node takes no pods (unschedulable, NotReady, pressure), empty where it does."""
    labels: Sequence[Mapping[str, str]]
    taints: Sequence[Sequence[Any]]
    """objects.kinds.Taint of each."""
    _facts: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        freeze(self)

    def __len__(self) -> int:
        return len(self.names)

    def derived(self, function: Callable[..., Fact], *about: Any) -> Fact:
        """What a pure function makes of this table, and of what else it is asked `about`; computed when first asked
        for. It must not look at resources that no node has: pods add rows for them."""
        key = (function, *about)
        if key not in self._facts:
            self._facts[key] = function(self, *about)
        fact: Fact = self._facts[key]
        return fact
