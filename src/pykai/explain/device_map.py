"""Nodes and their GPUs: which pods use or share them, and what is free, in whole devices and fractions.

The kubelet assigns devices and no object records which, so devices have no index here: wholly used ones come first,
then shared ones, then free ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from pykai.engine.amounts import PodAmounts, amounts_of_classes
from pykai.engine.initial_state import node_columns
from pykai.explain.views import CORE
from pykai.model.pods import GpuKind
from pykai.model.resources import CPU, GPU, MEMORY
from pykai.model.snapshot import Snapshot
from pykai.model.status import IS_ACTIVE_USED, Status

_LEAVING = (int(Status.RELEASING), int(Status.STUCK_IN_RELEASING))


class Holder(msgspec.Struct, frozen=True, rename="camel"):
    """A pod on a device. `share`: its fraction; `queue` empty: a pod of another scheduler."""

    namespace: str
    pod: str
    workload: str
    queue: str
    share: float = 1.0
    leaving: bool = False


class DeviceView(msgspec.Struct, frozen=True, rename="camel"):
    """A GPU. `group`: the GPU group if it is shared; `free`: its unallocated fraction."""

    holders: tuple[Holder, ...] = ()
    free: float = 1.0
    group: str = ""


FREE_DEVICE = DeviceView()


class MigCount(msgspec.Struct, frozen=True, rename="camel"):
    """Instances of a MIG profile on a node."""

    profile: str
    used: int
    total: int


class NodeView(msgspec.Struct, frozen=True, rename="camel"):
    """A node. `free`: whole devices; `segments`: free fractions of shared devices, largest first.

    `domain`: the topology domains of the node, widest level first.
    """

    name: str
    gpus: int
    allocated: float
    free: int
    segments: tuple[float, ...]
    devices: tuple[DeviceView, ...]
    idle_cpu: float
    idle_memory: float
    conditions: tuple[str, ...] = ()
    domain: tuple[str, ...] = ()
    mig: tuple[MigCount, ...] = ()


class DeviceTotals(msgspec.Struct, frozen=True, rename="camel"):
    """The devices of all schedulable nodes.

    `fits`: how many pods of this many GPUs on one node fit, by GPUs alone; `fragmentation`: the part of the free GPUs
    that pods as large as the largest node cannot use.
    """

    nodes: int
    gpus: int
    allocated: float
    free: int
    shared: int
    free_parts: float
    largest_part: float
    unavailable: int
    """GPUs on unschedulable nodes."""
    fits: dict[int, int]
    fragmentation: float


class DeviceMap(msgspec.Struct, frozen=True, rename="camel"):
    """Totals, and the nodes by name."""

    totals: DeviceTotals
    nodes: tuple[NodeView, ...]


class _Use:
    """The allocations of pods on one node."""

    __slots__ = ("mig", "shared", "whole")

    def __init__(self) -> None:
        self.whole: list[DeviceView] = []
        self.shared: dict[str, list[Holder]] = {}
        self.mig: dict[int, float] = {}


def device_map(snapshot: Snapshot) -> DeviceMap:
    """Return the devices of a snapshot, before its plan is carried out."""
    nodes, uses = snapshot.nodes, _uses(snapshot)
    idle = node_columns(snapshot, amounts_of_classes(snapshot).requests)[0]
    levels = next(iter(snapshot.topologies.values()), ())
    mig_rows = list(snapshot.space.mig_rows())
    views = []
    for row, name in enumerate(nodes.names):
        use = uses.get(row) or _Use()
        offered = int(nodes.allocatable[GPU, row])  # none with MIG instances: then the node's label says how many
        devices = _devices(use, offered if offered or not nodes.mig[row] else int(nodes.gpu_count[row]))
        segments = sorted((device.free for device in devices if device.group and device.free > 0), reverse=True)
        labels = nodes.labels[row]
        views.append(
            NodeView(
                name=name,
                gpus=len(devices),
                allocated=round(sum(1 - device.free for device in devices), 4),
                free=sum(device is FREE_DEVICE for device in devices),
                segments=tuple(segments),
                devices=devices,
                idle_cpu=float(idle[CPU, row]) / CORE,
                idle_memory=float(idle[MEMORY, row]),
                conditions=nodes.conditions[row],
                domain=tuple(labels[level] for level in levels if level in labels),
                mig=tuple(_mig_counts(snapshot, use.mig, row, mig_rows)),
            )
        )
    return DeviceMap(_totals(views), tuple(views))


def _uses(snapshot: Snapshot) -> dict[int, _Use]:
    pods, gangs, amounts = snapshot.pods, snapshot.gangs, PodAmounts(snapshot)
    wants = np.array([c.wants_gpu for c in pods.classes], dtype=bool)
    if not len(wants):
        return {}
    chosen = np.flatnonzero((pods.node >= 0) & np.array(IS_ACTIVE_USED)[pods.status] & wants[pods.klass])
    mig_rows, found = list(snapshot.space.mig_rows()), dict[int, _Use]()
    for pod in chosen.tolist():
        if pod in pods.reservation:
            continue
        node, gang, c = int(pods.node[pod]), int(pods.gang[pod]), pods.of_class(pod)
        use = found.get(node)
        if use is None:
            use = found[node] = _Use()
        meta = pods.objects[pod].metadata
        share = amounts.share_portion(c, node) if c.shared else 1.0
        workload, queue = ("", "") if gang < 0 else (gangs.names[gang], gangs.queue_name(gang))
        holder = Holder(meta.namespace, meta.name, workload, queue, share, int(pods.status[pod]) in _LEAVING)
        for group in pods.gpu_groups.get(pod, ()) if c.shared else ():
            use.shared.setdefault(group, []).append(holder)
        if not c.shared:
            use.whole += [DeviceView((holder,), 0.0)] * int(c.request[GPU])
        if c.gpu_kind is GpuKind.MIG:
            for row in mig_rows:
                use.mig[row] = use.mig.get(row, 0.0) + float(c.request[row])
    return found


def _devices(use: _Use, count: int) -> tuple[DeviceView, ...]:
    shared = [
        DeviceView(tuple(holders), round(max(1.0 - sum(holder.share for holder in holders), 0.0), 4), group)
        for group, holders in sorted(use.shared.items())
    ]
    taken = use.whole + shared
    return (*taken, *[FREE_DEVICE] * (count - len(taken)))


def _mig_counts(snapshot: Snapshot, used: Mapping[int, float], node: int, rows: Iterable[int]) -> Iterable[MigCount]:
    for row in rows:
        total = int(snapshot.nodes.allocatable[row, node])
        if total:
            yield MigCount(snapshot.space.names[row].rpartition("mig-")[2], int(used.get(row, 0.0)), total)


def _totals(nodes: Sequence[NodeView]) -> DeviceTotals:
    usable = [node for node in nodes if not node.conditions]
    free = np.array([node.free for node in usable], dtype=np.int64)
    largest = max((node.gpus for node in usable), default=0)
    sizes = [2**power for power in range(largest.bit_length()) if 2**power < largest] + ([largest] if largest else [])
    fits = {size: int((free // size).sum()) for size in sizes}
    parts = [part for node in usable for part in node.segments]
    whole = int(free.sum())
    return DeviceTotals(
        nodes=len(nodes),
        gpus=sum(node.gpus for node in usable),
        allocated=round(sum(node.allocated for node in usable), 4),
        free=whole,
        shared=sum(bool(device.group) for node in usable for device in node.devices),
        free_parts=round(sum(parts), 4),
        largest_part=max(parts, default=0.0),
        unavailable=sum(node.gpus for node in nodes if node.conditions),
        fits=fits,
        fragmentation=round(1 - largest * fits[largest] / whole, 4) if whole else 0.0,
    )
