"""From what a kubelet gave a pod to the annotation that says where it lies.

Only what lies on exactly one NUMA node counts. Amounts are summed over containers; zones are named as the node's
NodeResourceTopology names them and come in order, so equal placements are equal texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec import json

_PLAIN_MEMORY = frozenset({"", "memory"})


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices of one resource, with the NUMA nodes they are attached to."""

    resource: str
    count: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """A block of memory in bytes; `type` is `memory` or the name of a kind of huge pages."""

    type: str
    size: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PodResources:
    """What a kubelet gave a pod, all containers together; `cpus` are the ids of CPUs it has for itself."""

    namespace: str
    name: str
    devices: tuple[Devices, ...] = ()
    cpus: tuple[int, ...] = ()
    memory: tuple[Memory, ...] = ()


def placement(pod: PodResources, numa_of_cpu: Mapping[int, int]) -> str:
    """The annotation's value; empty for a pod that has nothing pinned."""
    zones: dict[int, Counter[str]] = {}
    for node, resource, amount in _parts(pod, numa_of_cpu):
        zones.setdefault(node, Counter())[resource] += amount
    shown = sorted((f"node-{node}", amounts) for node, amounts in zones.items())
    entries = [
        {"zone": zone, "amount": {name: str(amounts[name]) for name in sorted(amounts)}} for zone, amounts in shown
    ]
    return json.encode(entries).decode() if entries else ""


def _parts(pod: PodResources, numa_of_cpu: Mapping[int, int]) -> Iterable[tuple[int, str, int]]:
    """(NUMA node, resource, amount) of everything that lies on one node."""
    for devices in pod.devices:
        if len(devices.nodes) == 1:
            yield devices.nodes[0], devices.resource, devices.count
    for block in pod.memory:
        if len(block.nodes) == 1:
            yield block.nodes[0], "memory" if block.type in _PLAIN_MEMORY else block.type, block.size
    for cpu in pod.cpus:
        if cpu in numa_of_cpu:
            yield numa_of_cpu[cpu], "cpu", 1
