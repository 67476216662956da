"""The space of resources: which row of a column block means what, and in which unit.

Rows 0-3 are fixed: cpu (millicores), memory (bytes), gpu (devices), pods (count). Every other resource name seen
in the cluster gets a row of its own. Any name that ends in `gpu` is the GPU row, whatever the vendor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]
Cells = MutableSequence[int]
"""A column of integers that is read and written one at a time and has a fixed length."""


def cells(column: Rows, often: bool) -> Cells:
    """Return a view of the column or, if it is read `often`, a list: faster to read, but it must be built first."""
    return cast(Cells, column.tolist() if often else memoryview(cast(Any, column)))


Array = TypeVar("Array", bound=NDArray[Any])


def frozen(array: Array) -> Array:
    """Return the same array, made read-only."""
    array.flags.writeable = False
    return array


def fixed(column: NDArray[Any], often: bool) -> Sequence[Any]:
    """Return a read-only view of the column or, if it is read `often`, a tuple."""
    return tuple(column.tolist()) if often else cast(Sequence[Any], memoryview(cast(Any, frozen(column))))


def freeze(table: object) -> None:
    """Make the arrays, mappings and lists in the fields of a frozen dataclass read-only, also those within lists.

    Fields with a leading underscore, which cache derived values, stay mutable.
    """
    for name in _public_fields(cast(Any, type(table))):
        value = getattr(table, name)
        if isinstance(value, (np.ndarray, list, dict)):
            object.__setattr__(table, name, _read_only(value))


@cache
def _public_fields(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if not each.name.startswith("_"))


def _read_only(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return frozen(value)
    if isinstance(value, list):
        kinds = set(map(type, value))
        if kinds == {dict}:
            return tuple(map(MappingProxyType, value))
        nested = any(issubclass(kind, (list, dict)) for kind in kinds)
        return tuple(map(_read_only, value)) if nested else tuple(value)
    return MappingProxyType(value) if isinstance(value, dict) else value


CPU, MEMORY, GPU, PODS = 0, 1, 2, 3
FIXED = ("cpu", "memory", "gpu", "pods")
UNLIMITED = -1.0
QUEUE_RESOURCES = 3
"""Queues account for cpu, memory and gpu only: the first three rows."""

MIG_PREFIX = "nvidia.com/mig-"
_PLAIN = ("ephemeral-storage", "storage")


@dataclass(frozen=True)
class ResourceSpace:
    """Names of the rows, and the row of every name."""

    names: Sequence[str] = FIXED
    rows: Mapping[str, int] = field(default_factory=lambda: {name: row for row, name in enumerate(FIXED)})

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def size(self) -> int:
        return len(self.names)

    def with_names(self, names: Iterable[str]) -> ResourceSpace:
        """Return a space with rows for these resources as well; itself if it has them."""
        new = [name for name in dict.fromkeys(names) if name not in self.rows]
        if not new:
            return self
        added = [name for name in new if not name.endswith("gpu")]
        rows = dict.fromkeys(new, GPU) | {name: self.size + at for at, name in enumerate(added)}
        return ResourceSpace((*self.names, *added), {**self.rows, **rows})

    def mig_rows(self) -> dict[int, int]:
        """Row -> GPUs counted per instance, for every MIG profile."""
        return {row: mig_gpus(name) for row, name in enumerate(self.names) if name.startswith(MIG_PREFIX)}


def scale(name: str) -> float:
    """Base units of a quantity -> units of its row: extended resources are kept in thousandths."""
    if name == "cpu":
        return 1000.0
    if name in FIXED or name in _PLAIN or name.endswith("gpu") or name.startswith(MIG_PREFIX):
        return 1.0
    return 1000.0


def counted(name: str) -> bool:
    """Whether a resource name has a row at all: native names without a domain are ignored unless known."""
    return "/" in name or name in FIXED or name in _PLAIN or name.startswith(("hugepages-", "attachable-volumes-"))


def mig_gpus(name: str) -> int:
    """GPUs in a MIG profile: nvidia.com/mig-2g.10gb -> 2."""
    profile = name.removeprefix(MIG_PREFIX).split("g.", 1)[0]
    return int(profile) if profile.isdigit() else 0


def whole_gpus(portion: float, devices: int) -> float:
    """GPUs of `devices` shares of the given portion, in hundredths of a device."""
    return int(portion * 100 + 0.5) * devices / 100
