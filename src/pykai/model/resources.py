"""The space of resources: which row of a column block means what, and in which unit.

Rows 0-3 are fixed: cpu (millicores), memory (bytes), gpu (devices), pods (count). Every other resource name seen
in the cluster gets a row of its own. Any name that ends in `gpu` is the GPU row, whoever the vendor is.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]
Cells = MutableSequence[int]
"""A column of whole numbers to be read and written one at a time; it does not grow."""


def cells(column: Rows, often: bool) -> Cells:
    """The column itself, one number at a time, or a list of it where that is done `often`: a list is read faster, but
    has to be made of all of them first."""
    return cast(Cells, column.tolist() if often else memoryview(cast(Any, column)))


def flags(column: Mask, often: bool) -> Sequence[bool]:
    """The same for truths, only to be read."""
    return cast(Sequence[bool], column.tolist() if often else memoryview(cast(Any, column)))


CPU, MEMORY, GPU, PODS = 0, 1, 2, 3
FIXED = ("cpu", "memory", "gpu", "pods")
UNLIMITED = -1.0
QUEUE_RESOURCES = 3
"""Queues account for cpu, memory and gpu only: the first three rows."""

MIG_PREFIX = "nvidia.com/mig-"
_PLAIN = ("ephemeral-storage", "storage")


@dataclass
class ResourceSpace:
    """Names of the rows; grows while a snapshot is built and is only read afterwards."""

    names: list[str] = field(default_factory=lambda: list(FIXED))
    rows: dict[str, int] = field(default_factory=lambda: {name: row for row, name in enumerate(FIXED)})

    def row(self, name: str) -> int:
        """The row of a resource name, added if it is new."""
        known = self.rows.get(name)
        if known is None:
            known = GPU if name.endswith("gpu") else len(self.names)
            if known != GPU:
                self.names.append(name)
            self.rows[name] = known
        return known

    @property
    def size(self) -> int:
        return len(self.names)

    def copy(self) -> ResourceSpace:
        """One that can be grown by itself."""
        return ResourceSpace(list(self.names), dict(self.rows))

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
