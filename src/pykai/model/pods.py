"""Pods as columns, and pod classes: what all interchangeable pods share.

Two pods are of one class when no rule distinguishes them for placement: same requests, same constraints. Masks,
scores and verdicts are computed per class.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np

from pykai.model.resources import GPU, Column, Rows, freeze
from pykai.model.status import Status

MANY_WAIT = 32
"""A cycle has many pending pods if more than one in this many is pending."""


Key = tuple[str, str]
"""Namespace and name."""
Fact = TypeVar("Fact")


class Lookup(Protocol):
    """Finds rows by name."""

    def rows_of(self, keys: Iterable[Key]) -> dict[Key, int]:
        """Rows by namespace and name; missing keys are left out."""
        ...


class RowsByName:
    """Names collected from the objects of a table."""

    def __init__(self, objects: Sequence[Any]) -> None:
        metas = (obj.metadata for obj in objects)
        self._rows = {(meta.namespace, meta.name): row for row, meta in enumerate(metas)}

    def rows_of(self, keys: Iterable[Key]) -> dict[Key, int]:
        return {key: row for key in keys if (row := self._rows.get(key)) is not None}


class GpuKind(Enum):
    """How a pod asks for GPUs."""

    REGULAR = "Regular"
    FRACTION = "Fraction"
    MEMORY = "GpuMemory"
    MIG = "MigInstance"


@dataclass(frozen=True, eq=False)
class PodClass:
    """A row of the class table. `request` is the whole vector; its GPU entry is 0 for gpu-memory requests."""

    row: int
    request: Column
    gpu_kind: GpuKind
    devices: int
    portion: float
    memory_mib: int
    dra_gpus: float
    legacy_mig: bool
    template: Any
    """The decoded pod template (objects.pod_template.PodTemplate): read by filters, opaque to the engine."""
    namespace: str
    """Set only where a constraint is namespaced (claims, config maps, pod affinity)."""
    labels: Mapping[str, str]
    """The labels that some pod affinity term in the cluster selects on."""
    config_maps: frozenset[str]
    """The ConfigMaps that must exist before the pod is bound."""
    qos: str
    dims: Rows
    """Rows with a request above zero, the GPU row left out for shared GPUs."""
    overhead: Mapping[int, float] = field(default_factory=dict)
    claims: tuple[Hashable, ...] = ()
    """The identities of its claims for devices, in the order of the template."""
    compute_mode: int = 0
    """How it shares the processors of a device; pods of different modes never share a device."""
    demand: Sequence[tuple[int, float]] = field(init=False)
    """Resource rows and amounts that it must find free, without shared devices; GPUs first, as they are scarce."""

    def __post_init__(self) -> None:
        request, rows = self.request.tolist(), self.dims.tolist()
        if GPU in rows and rows[0] != GPU:
            rows = [GPU, *(row for row in rows if row != GPU)]
        object.__setattr__(self, "demand", tuple([(row, request[row]) for row in rows]))
        self.request.flags.writeable = self.dims.flags.writeable = False
        for name in ("labels", "overhead"):
            value = getattr(self, name)
            if type(value) is dict:
                object.__setattr__(self, name, MappingProxyType(value))

    def at(self, row: int) -> PodClass:
        """Return the same class in another row of a table."""
        if row == self.row:
            return self
        found = object.__new__(PodClass)
        found.__dict__.update(self.__dict__, row=row)
        return found

    @property
    def shared(self) -> bool:
        """Whether it takes a share of a device instead of whole ones."""
        return self.gpu_kind is GpuKind.FRACTION or self.gpu_kind is GpuKind.MEMORY

    @property
    def wants_gpu(self) -> bool:
        return self.devices > 0 or self.dra_gpus > 0 or self.gpu_kind is GpuKind.MIG


@dataclass(frozen=True, eq=False)
class PodTable:
    """One row per pod that is on a node or waits for one; parallel lists."""

    classes: Sequence[PodClass]
    klass: Rows
    gang: Rows
    """-1: not scheduled by this scheduler (it belongs to another one, or has no PodGroup)."""
    podset: Rows
    """-1: no gang, or its sub-group does not exist."""
    status: Rows
    node: Rows
    """-1: not on a node."""
    objects: Sequence[Any]
    """The objects.kinds.Pod behind each row, for order labels, reasons and writers."""
    gpu_groups: Mapping[int, tuple[str, ...]]
    reservation: Mapping[int, str]
    """Reservation pods whose device is shared -> the device."""
    foreign: frozenset[int]
    """Active pods of other schedulers, without KAI's own utility pods."""
    group_modes: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """Node and shared device -> its compute mode, where pods of several modes are known."""
    nominated: frozenset[int] = frozenset()
    """Pods with a nominated node."""
    background: frozenset[int] = frozenset()
    """Pods of gangs with the label of background pods."""
    lookup: Lookup | None = field(default=None, repr=False)
    """Rows by name, if the cache keeps them; None: collected on first use."""
    _class_facts: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What is derived from the classes: successive tables with the same classes share it."""

    def __post_init__(self) -> None:
        freeze(self)

    def derived(self, function: Callable[..., Fact], *about: Any) -> Fact:
        """Return `function(classes, *about)`, cached as long as snapshots have the same classes. The function must be
        pure."""
        key = (function, *about)
        if key not in self._class_facts:
            self._class_facts[key] = function(self.classes, *about)
        fact: Fact = self._class_facts[key]
        return fact

    def rows_of(self, keys: Iterable[Key]) -> dict[Key, int]:
        """Rows by namespace and name; missing keys are left out."""
        return (self.lookup or self._by_name).rows_of(keys)

    @cached_property
    def many_wait(self) -> bool:
        """Whether so many pods are pending that a cycle will read most entries one by one."""
        return MANY_WAIT * int((self.status == Status.PENDING).sum()) > len(self.objects)

    @cached_property
    def _by_name(self) -> Lookup:
        return RowsByName(self.objects)

    @cached_property
    def names(self) -> list[str]:
        return [pod.metadata.name for pod in self.objects]

    @cached_property
    def namespaces(self) -> list[str]:
        return [pod.metadata.namespace for pod in self.objects]

    @cached_property
    def uids(self) -> list[str]:
        return [pod.metadata.uid for pod in self.objects]

    def title(self, row: int) -> str:
        meta = self.objects[row].metadata
        return f"{meta.namespace}/{meta.name}"

    def of_class(self, row: int) -> PodClass:
        return self.classes[int(self.klass[row])]

    def of_classes(self, classes: Iterable[int]) -> Rows:
        """The rows of all pods of some classes, ascending."""
        order, ends = self._by_class
        found = [order[ends[row] : ends[row + 1]] for row in classes]
        return np.asarray(np.sort(np.concatenate([order[:0], *found])))

    @cached_property
    def _by_class(self) -> tuple[Rows, list[int]]:
        """All rows in order of their classes, and where each class begins and ends."""
        counts = np.bincount(self.klass, minlength=len(self.classes))
        return np.argsort(self.klass, kind="stable"), [0, *counts.cumsum().tolist()]

    def __len__(self) -> int:
        return len(self.objects)
