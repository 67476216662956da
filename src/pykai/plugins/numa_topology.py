"""NodeResourceTopology objects as blocks of zones, the zones that pods use, and what pods request of zones.

Amounts are in the units of the resource rows. Resources that no zone reports are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pykai.cache.requests import row_amount
from pykai.model.resources import CPU, MEMORY, PODS, Column, Mask, ResourceSpace
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from pykai.objects.kinds import NodeResourceTopology, NumaZone, Pod
from pykai.objects.pod_template import Container, PodTemplate

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE)
_LEGACY = {"BestEffort": BEST_EFFORT, "Restricted": RESTRICTED, "SingleNUMANode": SINGLE, "None": NONE}
_NUMBER = re.compile(r"(\d+)$")
_RECORDS = msgspec.json.Decoder(list[NumaZone])
_WHOLE_CPU = 1000.0


@dataclass(frozen=True, eq=False)
class Zones:
    """The zones of all nodes that report them. Blocks are [zone, resource, node], nodes by position."""

    rows: tuple[int, ...]
    """Resource row of each block resource."""
    nodes: tuple[int, ...]
    """Node row of each block node."""
    position: Mapping[int, int]
    names: tuple[tuple[str, ...], ...]
    """Zone names by node position."""
    reported: tuple[Mapping[int, str], ...]
    """By node position: index of a block resource -> the name its zones report."""
    policy: tuple[str, ...]
    pod_scope: Mask
    aware: Mask
    """[resource, node]: whether the node's zones report the resource."""
    allocatable: Column
    available: Column

    def amounts(self, at: int, record: Sequence[tuple[str, Mapping[str, Any]]]) -> Column | None:
        """A record of (zone name, amounts) as [zone, resource]; None where it names a zone the node does not have."""
        found = np.zeros(self.allocatable.shape[:2])
        index = {name: i for i, name in self.reported[at].items()}
        for zone, amounts in record:
            if zone not in self.names[at]:
                return None
            for name, text in amounts.items():
                if name in index:
                    found[self.names[at].index(zone), index[name]] += row_amount(name, text)
        return found


class _Report(NamedTuple):
    """One node's zones in order: (name, resource -> (allocatable, available))."""

    policy: str
    pod_scope: bool
    zones: list[tuple[str, dict[str, tuple[float, float]]]]


def zones_of(snapshot: Snapshot, ignored: frozenset[str]) -> Zones | None:
    """The zones of the snapshot's nodes; None where no node reports any."""
    reports = {
        row: report
        for name, topology in snapshot.objects.numa_topologies.items()
        if (row := snapshot.nodes.rows.get(name)) is not None and (report := _report(topology)).zones
    }
    rows = _aware_rows(reports.values(), snapshot.space, ignored)
    if not reports or not rows:
        return None
    nodes = tuple(sorted(reports))
    shape = (max(len(r.zones) for r in reports.values()), len(rows), len(nodes))
    allocatable, available = np.zeros(shape), np.zeros(shape)
    reported: list[dict[int, str]] = [{} for _ in nodes]
    for at, node in enumerate(nodes):
        for zone, (_, resources) in enumerate(reports[node].zones):
            for name, (full, free) in resources.items():
                index = rows.get(snapshot.space.rows.get(name, -1)) if name not in ignored else None
                if index is not None:
                    reported[at][index] = name
                    allocatable[zone, index, at] += full
                    available[zone, index, at] += free
    return Zones(
        rows=tuple(rows),
        nodes=nodes,
        position={node: at for at, node in enumerate(nodes)},
        names=tuple(tuple(name for name, _ in reports[node].zones) for node in nodes),
        reported=tuple(reported),
        policy=tuple(reports[node].policy for node in nodes),
        pod_scope=np.array([reports[node].pod_scope for node in nodes]),
        aware=np.array([[index in known for known in reported] for index in range(len(rows))]),
        allocatable=allocatable,
        available=available,
    )


def _aware_rows(reports: Any, space: ResourceSpace, ignored: frozenset[str]) -> dict[int, int]:
    """Resource rows that some zone reports -> index in the blocks."""
    seen = {name for report in reports for _, resources in report.zones for name in resources}
    rows = sorted({space.rows[name] for name in seen if name in space.rows and name not in ignored} - {PODS})
    return {row: index for index, row in enumerate(rows)}


def _report(topology: NodeResourceTopology) -> _Report:
    stated = {item.get("name"): item.get("value") for item in topology.attributes or ()}
    legacy = (topology.topology_policies or [""])[0]
    policy = str(stated.get("topologyManagerPolicy") or _LEGACY.get(re.sub("(Pod|Container)Level$", "", legacy), NONE))
    scope = stated.get("topologyManagerScope") or ("pod" if legacy.endswith("PodLevel") else "container")
    zones = [zone for zone in topology.zones or () if zone.get("type") == "Node"]
    zones.sort(key=lambda zone: _order(str(zone.get("name", ""))))
    return _Report(
        policy if policy in POLICIES else NONE,
        scope == "pod",
        [(str(zone.get("name", "")), dict(_resources(zone))) for zone in zones],
    )


def _order(name: str) -> tuple[float, str]:
    """Zones go by the number their name ends with."""
    number = _NUMBER.search(name)
    return (float(number[1]) if number else float("inf"), name)


def _resources(zone: Mapping[str, Any]) -> Iterator[tuple[str, tuple[float, float]]]:
    for resource in zone.get("resources") or ():
        name = str(resource.get("name", ""))
        full, free = (row_amount(name, resource.get(key) or "0") for key in ("allocatable", "available"))
        yield name, (full, free)


# ------------------------------------------------------------------------------------------------- where pods sit
def record_of(pod: Pod, predicted: Sequence[NumaZone] | None) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return the zones of a pod: as observed, else as its bind request predicts, else as predicted at binding."""
    annotations = pod.metadata.annotations or {}
    observed = _parsed(annotations.get(names.NUMA_OBSERVED, ""))
    if observed or predicted:
        return observed or tuple((zone.zone, zone.amount or {}) for zone in predicted or ())
    return _parsed(annotations.get(names.NUMA_PREDICTED, ""))


@lru_cache(maxsize=65536)
def _parsed(text: str) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """A record as pods carry it; empty where there is none or it cannot be read."""
    try:
        return tuple((zone.zone, zone.amount or {}) for zone in _RECORDS.decode(text)) if text else ()
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ()


# --------------------------------------------------------------------------------------------------- what pods ask
@dataclass(frozen=True)
class ZoneDemand:
    """What the containers of a pod ask of zones, [resource] each: those that run together, and those that run alone."""

    together: tuple[Column, ...]
    alone: tuple[Column, ...]
    whole: Column
    """What the pod asks for where it is aligned as one."""


def zone_demand(template: PodTemplate, space: ResourceSpace, rows: Sequence[int], guaranteed: bool) -> ZoneDemand:
    """CPUs count where a container of a Guaranteed pod has whole ones; other pods ask for devices only."""
    beside = np.zeros(len(rows))
    together, alone, peaks = [], [], []
    for container in template.init_containers:
        asked = _asked(container, space, rows, guaranteed)
        if container.restart_policy == "Always":
            together.append(asked)
            beside = beside + asked
        else:
            alone.append(asked)
            peaks.append(asked + beside)
    together.extend(_asked(container, space, rows, guaranteed) for container in template.containers)
    whole = np.max([sum(together, np.zeros(len(rows))), *peaks], axis=0)
    return ZoneDemand(tuple(together), tuple(alone), whole)


def is_device(row: int, space: ResourceSpace) -> bool:
    """Whether a resource row stands for devices, not for CPU, memory or storage."""
    name = space.names[row]
    return row not in (CPU, MEMORY, PODS) and not name.startswith("hugepages-") and "storage" not in name


def _asked(container: Container, space: ResourceSpace, rows: Sequence[int], guaranteed: bool) -> Column:
    texts = {**(container.resources.limits or {}), **(container.resources.requests or {})}
    amounts = dict.fromkeys(rows, 0.0)
    for name, text in texts.items():
        row = space.rows.get(name, -1)
        if row in amounts and (guaranteed or is_device(row, space)):
            amounts[row] += row_amount(name, text)
    if amounts.get(CPU, 0.0) % _WHOLE_CPU:
        amounts[CPU] = 0.0
    return np.array([amounts[row] for row in rows])
