"""A read-only snapshot of the cluster: the input of `decide`.

Node rows are in name order, so that the first maximum of a score column breaks ties by name. Successive snapshots share
one node table as long as the nodes are unchanged. Queues are a forest, parents by row, with resources cpu (milli),
memory (bytes), gpu (devices).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pykai.model.gangs import GangTable
from pykai.model.params import SchedulerParams
from pykai.model.pods import PodTable
from pykai.model.resources import Column, Mask, ResourceSpace, freeze

Fact = TypeVar("Fact")


CORDONED = "node is unschedulable"
"""The only reason in `NodeTable.conditions` that a pod may tolerate."""


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
    """By node why it takes no pods (unschedulable, NotReady, pressure); empty where it does."""
    fractions: Sequence[str]
    """By node why it takes no shared GPU requests, empty where it does; no entries if all nodes do."""
    labels: Sequence[Mapping[str, str]]
    taints: Sequence[Sequence[Any]]
    """objects.kinds.Taint of each."""
    images: Sequence[Any] = ()
    """By node its images as JSON (`status.images`); no entries if no plugin reads them."""
    _facts: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        freeze(self)

    def __len__(self) -> int:
        return len(self.names)

    def derived(self, function: Callable[..., Fact], *about: Any) -> Fact:
        """Return `function(table, *about)`, cached. The function must be pure, and must not read rows of resources that
        no node has: snapshots that differ in those share the cache."""
        key = (function, *about)
        if key not in self._facts:
            self._facts[key] = function(self, *about)
        fact: Fact = self._facts[key]
        return fact


@dataclass(frozen=True, eq=False)
class QueueTable:
    """-1 in `deserved` or `limit` is unlimited; -1 in `parent` is a root."""

    names: Sequence[str]
    titles: Sequence[str]
    """Display name, or name."""
    rows: Mapping[str, int]
    parent: Sequence[int]
    children: Sequence[Sequence[int]]
    deserved: Column
    limit: Column
    weight: Column
    usage: Column
    priority: Sequence[int]
    creation: Sequence[float]
    preempt_min_runtime: Sequence[float | None]
    reclaim_min_runtime: Sequence[float | None]
    paths: Sequence[tuple[int, ...]]
    """The queue itself, its parent, ... up to the root."""
    left_out: Mapping[str, str]
    """Queues without a row -> their ancestor that does not exist; empty: their parents form a cycle."""

    def __post_init__(self) -> None:
        freeze(self)

    def __len__(self) -> int:
        return len(self.names)


Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, eq=False)
class ClusterObjects:
    """Objects that only some plugins read, by (namespace, name) or by name."""

    namespaces: Mapping[str, Any] = field(default_factory=dict)
    disruption_budgets: Mapping[Key, Any] = field(default_factory=dict)
    config_maps: frozenset[Key] = frozenset()
    volume_claims: Mapping[Key, Any] = field(default_factory=dict)
    volumes: Mapping[str, Any] = field(default_factory=dict)
    storage_classes: Mapping[str, Any] = field(default_factory=dict)
    storage_capacities: tuple[Any, ...] = ()
    csi_drivers: Mapping[str, Any] = field(default_factory=dict)
    csi_nodes: Mapping[str, Any] = field(default_factory=dict)
    resource_claims: Mapping[Key, Any] = field(default_factory=dict)
    resource_slices: tuple[Any, ...] = ()
    device_classes: Mapping[str, Any] = field(default_factory=dict)
    device_taint_rules: tuple[Any, ...] = ()
    numa_topologies: Mapping[str, Any] = field(default_factory=dict)
    bind_requests: Mapping[Key, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        freeze(self)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Tables, parameters and the time it was taken (seconds since the epoch), all read-only."""

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
    search_backoff: Mapping[tuple[Key, str], float] = field(default_factory=dict)
    """Gang and action -> until when the action does not search for victims for the gang."""
    _facts: dict[Any, Any] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        freeze(self)

    def derived(self, function: Callable[[Snapshot], Fact]) -> Fact:
        """Return `function(snapshot)`, cached; the function must be pure."""
        if function not in self._facts:
            self._facts[function] = function(self)
        fact: Fact = self._facts[function]
        return fact
