"""Which CPU belongs to which NUMA node, as Linux tells under /sys."""

from __future__ import annotations

import re
from pathlib import Path

_NODE = re.compile(r"node([0-9]+)")
_SPAN = re.compile(r"([0-9]+)(?:-([0-9]+))?")


class TopologyError(RuntimeError):
    """The NUMA nodes of this machine cannot be told."""


def parse_cpu_list(text: str) -> list[int]:
    """The ids in a list such as `0-3,8,12-13`; TopologyError for anything else."""
    found: list[int] = []
    for part in filter(None, (each.strip() for each in text.strip().split(","))):
        match = _SPAN.fullmatch(part)
        if match is None:
            raise TopologyError(f"{part!r} is not a range of CPUs")
        first = int(match[1])
        found += range(first, int(match[2] or first) + 1)
    return found


def numa_of_cpus(sysfs: Path) -> dict[int, int]:
    """The NUMA node of every CPU; TopologyError where there is none."""
    folder = sysfs / "devices/system/node"
    found: dict[int, int] = {}
    for path in folder.glob("node*/cpulist"):
        match = _NODE.fullmatch(path.parent.name)
        if match:
            found |= {cpu: int(match[1]) for cpu in parse_cpu_list(path.read_text())}
    if not found:
        raise TopologyError(f"no CPU of a NUMA node is listed below {folder}")
    return found
