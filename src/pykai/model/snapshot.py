"""One read-only picture of the cluster: what `decide` is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pykai.model.gangs import GangTable
from pykai.model.nodes import NodeTable
from pykai.model.params import SchedulerParams
from pykai.model.pods import PodTable
from pykai.model.queues import QueueTable
from pykai.model.resources import ResourceSpace, freeze

Key = tuple[str, str]
"""Namespace and name."""
Fact = TypeVar("Fact")


@dataclass(frozen=True, eq=False)
class ClusterObjects:
    """Objects that only some plugins read, by (namespace, name) or by name."""

    config_maps: frozenset[Key] = frozenset()
    volume_claims: Mapping[Key, Any] = field(default_factory=dict)
    volumes: Mapping[str, Any] = field(default_factory=dict)
    storage_classes: Mapping[str, Any] = field(default_factory=dict)
    storage_capacities: tuple[Any, ...] = ()
    csi_drivers: Mapping[str, Any] = field(default_factory=dict)
    resource_claims: Mapping[Key, Any] = field(default_factory=dict)
    resource_slices: tuple[Any, ...] = ()
    device_classes: Mapping[str, Any] = field(default_factory=dict)
    numa_topologies: Mapping[str, Any] = field(default_factory=dict)
    bind_requests: Mapping[Key, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        freeze(self)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Tables, parameters and the moment it was taken (seconds since the epoch). Nothing in it can be written to."""

    space: ResourceSpace
    nodes: NodeTable
    pods: PodTable
    gangs: GangTable
    queues: QueueTable
    topologies: Mapping[str, tuple[str, ...]]
    """Topology name -> node label keys, widest first."""
    objects: ClusterObjects
    params: SchedulerParams
    min_gpu_memory: float
    """Smallest known MiB per device in the cluster; 0 where none is known."""
    max_gpu_memory: float
    observed_at: float
    revision: int = 0
    _facts: dict[Any, Any] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        freeze(self)

    def derived(self, function: Callable[[Snapshot], Fact]) -> Fact:
        """What a pure function makes of this snapshot, computed when first asked for."""
        if function not in self._facts:
            self._facts[function] = function(self)
        fact: Fact = self._facts[function]
        return fact
