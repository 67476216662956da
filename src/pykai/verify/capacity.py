"""The judge's arithmetic: nodes, devices and queues hold what a plan puts into them (part of `verify/judge.py`).

Two moments count. Now: what is bound starts beside everything that is still there. Then: all who leave have left, and
those who waited have come. A node or queue that was overfull before is only held against a plan that adds to it.
GPUs given out by claims are not counted here: devices of claims can be shared, and have an allocator of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil

import numpy as np

from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import GPU, PODS, QUEUE_RESOURCES, UNLIMITED, Column, Mask, Rows, whole_gpus
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.verify.outcome import Outcome, Placement, Violation

_SLACK = 1e-6
_RELATIVE = 1e-9
"""Sums of the same amounts in another order may differ by as much."""
_UNITS = ("milli CPU", "bytes of memory", "GPUs")
_IMPLICIT_CLASS = "deviceclass.resource.kubernetes.io/"
Devices = dict[tuple[int, str], float]
"""(node, shared device) -> MiB in use."""


# --------------------------------------------------------------------------------------------------------------- nodes
def nodes_hold(out: Outcome) -> Iterator[Violation]:
    """No node above what it offers in any resource, no device above its memory."""
    if not out.placements:
        return
    existing = _devices(out, out.present, ())
    yield from _hold(out, out.present, [p for p in out.placements if not p.waits], ("now", existing))
    yield from _hold(out, out.staying, out.placements, ("then", existing))


def _hold(
    out: Outcome, there: Mask, placements: Sequence[Placement], moment: tuple[str, Devices]
) -> Iterator[Violation]:
    """`moment`: its name, and the devices that are shared before the plan: they have their reservation pods."""
    if not placements:
        return
    snapshot, (when, existing) = out.snapshot, moment
    before, after = _devices(out, there, ()), _devices(out, there, placements)
    rows = np.flatnonzero(there & out.near & ~_idle_reservations(snapshot, after))
    used = _taken(snapshot, rows, snapshot.pods.node[rows])
    added = _taken(snapshot, [p.pod for p in placements], [p.node for p in placements])
    for node, _ in before:
        used[GPU, node] += 1
    for node, _ in after.keys() - before.keys():
        added[GPU, node] += 1
    for node, _ in after.keys() - existing.keys():
        added[PODS, node] += 1
    offered = _offered(snapshot)
    for row, node in np.argwhere((added > 0) & (used + added > offered * (1 + _RELATIVE) + _SLACK)).tolist():
        figures = f"{used[row, node]:g} + {added[row, node]:g} of {offered[row, node]:g} {snapshot.space.names[row]}"
        yield Violation("a node holds its pods", snapshot.nodes.names[node], f"{figures} {when}")
    for node, group in dict.fromkeys((p.node, group) for p in placements for group in p.groups):
        memory, size = after.get((node, group), 0.0), float(snapshot.nodes.gpu_memory[node])
        if memory > size:
            about = f"{group} on {snapshot.nodes.names[node]}"
            yield Violation("a device holds its shares", about, f"{memory:g} of {size:g} MiB {when}")


def _taken(snapshot: Snapshot, pods: Sequence[int] | np.ndarray, nodes: Sequence[int] | np.ndarray) -> Column:
    """[resource, node]: what pods take from nodes; shared devices and GPUs of claims left out."""
    pods, nodes = np.asarray(pods, dtype=np.int64), np.asarray(nodes, dtype=np.int64)
    amounts = snapshot.derived(_of_nodes)[:, snapshot.pods.klass[pods]]
    if snapshot.pods.reservation:
        amounts[GPU, np.isin(pods, list(snapshot.pods.reservation))] = 0.0
    return np.array([np.bincount(nodes, weights=row, minlength=len(snapshot.nodes)) for row in amounts])


def _of_nodes(snapshot: Snapshot) -> Column:
    """[resource, class]: what a pod of each class takes from its node; shared devices and GPUs of claims left out."""
    table = np.array([c.request for c in snapshot.pods.classes]).reshape(-1, snapshot.space.size).T.copy()
    table[GPU] = [0.0 if c.shared else c.request[GPU] - c.dra_gpus for c in snapshot.pods.classes]
    return table


def _offered(snapshot: Snapshot) -> Column:
    """[resource, node]: what nodes offer; without bound where claims can stand in for it."""
    nodes = snapshot.nodes
    offered = nodes.allocatable.copy()
    offered[GPU] -= nodes.dra_gpus
    offered[GPU, (offered[GPU] <= 0) & (nodes.dra_gpus > 0)] = np.inf
    classes = snapshot.objects.device_classes
    named = {item.spec.get("extendedResourceName") or f"{_IMPLICIT_CLASS}{name}" for name, item in classes.items()}
    for row in (snapshot.space.rows[name] for name in named if name in snapshot.space.rows):
        offered[row, offered[row] <= 0] = np.inf
    return offered


def _idle_reservations(snapshot: Snapshot, shared: Devices) -> Mask:
    """Reservation pods of devices that are not shared: they go with the last who shared them."""
    pods, mask = snapshot.pods, np.zeros(len(snapshot.pods), dtype=bool)
    mask[[row for row, group in pods.reservation.items() if (int(pods.node[row]), group) not in shared]] = True
    return mask


def _devices(out: Outcome, there: Mask, placements: Iterable[Placement]) -> Devices:
    """Memory in use on shared devices of nodes that are given something."""
    snapshot, pods = out.snapshot, out.snapshot.pods
    concerned = {p.node for p in out.placements}
    sharing = [row for row in np.flatnonzero(there & out.near).tolist() if row in pods.gpu_groups]
    shares = [(row, int(pods.node[row]), pods.gpu_groups[row]) for row in sharing]
    found: Devices = {}
    for pod, node, groups in [*shares, *((p.pod, p.node, p.groups) for p in placements)]:
        if node in concerned and pods.of_class(pod).shared:
            for group in groups:
                found[node, group] = found.get((node, group), 0.0) + _share(snapshot, pods.of_class(pod), node)
    return found


def _share(snapshot: Snapshot, c: PodClass, node: int) -> float:
    """MiB of each of its devices that a shared request takes on a node."""
    return float(c.memory_mib if c.gpu_kind is GpuKind.MEMORY else int(c.portion * snapshot.nodes.gpu_memory[node]))


# -------------------------------------------------------------------------------------------------------------- queues
def queues_hold(out: Outcome) -> Iterator[Violation]:
    """No queue above its limit, and what cannot be evicted within quota, up to the root."""
    if not out.placements:
        return
    snapshot = out.snapshot
    everybody = np.ones(len(snapshot.gangs) + 1, dtype=bool)
    held = ~np.append(snapshot.gangs.columns.preemptible, True)
    yield from _within(out, everybody, ("a queue keeps its limit", snapshot.queues.limit))
    yield from _within(out, held, ("non-preemptible work keeps the quota", snapshot.queues.deserved))


def _within(out: Outcome, gangs: Mask, bound: tuple[str, Column]) -> Iterator[Violation]:
    snapshot, (rule, most) = out.snapshot, bound
    used, added = _queue_use(out, gangs)
    over = (added > _SLACK) & (most != UNLIMITED) & (np.round(used + added, 4) > most * (1 + _RELATIVE) + _SLACK)
    for resource, queue in np.argwhere(over).tolist():
        figures = f"{used[resource, queue]:g} + {added[resource, queue]:g} of {most[resource, queue]:g}"
        yield Violation(rule, snapshot.queues.names[queue], f"{figures} {_UNITS[resource]}")


def _queue_use(out: Outcome, gangs: Mask) -> tuple[Column, Column]:
    """[resource, queue]: what pods of the gangs that stay hold of each queue, and what the plan adds."""
    pods = out.snapshot.pods
    staying = np.flatnonzero(out.allocated & ~out.leaving & out.kin & gangs[pods.gang])
    placed = [p for p in out.placements if gangs[pods.gang[p.pod]]]
    used = _queue_sums(out.snapshot, staying, pods.node[staying])
    return used, _queue_sums(out.snapshot, _column(p.pod for p in placed), _column(p.node for p in placed))


def most_used(out: Outcome) -> Column:
    """[resource, queue]: what is held now, and would be if all that waits had a place: no cycle could see more."""
    pods = out.snapshot.pods
    rows = np.flatnonzero((out.allocated | (pods.status == Status.PENDING)) & out.kin)
    smallest = int(out.snapshot.nodes.gpu_memory.argmin())
    nodes = np.where(pods.node[rows] >= 0, pods.node[rows], smallest)
    return _queue_sums(out.snapshot, rows, nodes)


def _column(numbers: Iterable[int]) -> Rows:
    return np.fromiter(numbers, dtype=np.int64)


def _queue_sums(snapshot: Snapshot, rows: Rows, nodes: Rows) -> Column:
    """[resource, queue]: what pods on these nodes count against their queues, up to the root."""
    pods, queues, gangs = snapshot.pods, snapshot.queues, snapshot.gangs
    amounts = snapshot.derived(_of_queues)[:, pods.klass[rows]]
    by_memory = np.array([c.gpu_kind is GpuKind.MEMORY for c in pods.classes], dtype=bool)[pods.klass[rows]]
    for index in np.flatnonzero(by_memory).tolist():
        amounts[GPU, index] = _memory_gpus(snapshot, pods.of_class(int(rows[index])), int(nodes[index]))
    leaf = np.append(gangs.columns.queue, -1)[pods.gang[rows]]
    sums = np.zeros((QUEUE_RESOURCES, len(queues)))
    for queue in np.flatnonzero(np.bincount(leaf[leaf >= 0], minlength=len(queues))).tolist():
        sums[:, list(queues.paths[queue])] += amounts[:, leaf == queue].sum(axis=1)[:, None]
    return sums


def _of_queues(snapshot: Snapshot) -> Column:
    """[resource, class]: what a pod of each class counts against its queue wherever it is."""
    return np.array([_counts(snapshot, c) for c in snapshot.pods.classes]).reshape(-1, QUEUE_RESOURCES).T


def _counts(snapshot: Snapshot, c: PodClass) -> tuple[float, float, float]:
    """CPU, memory and GPUs a pod counts against its queue wherever it is; MIG instances by their size."""
    gpus = float(c.request[GPU])
    if c.gpu_kind is GpuKind.MIG:
        gpus += sum(float(c.request[row]) * each for row, each in snapshot.space.mig_rows().items())
    return float(c.request[0]), float(c.request[1]), gpus


def _memory_gpus(snapshot: Snapshot, c: PodClass, node: int) -> float:
    return whole_gpus(portion(snapshot, c, node), c.devices) if node >= 0 else 0.0


def portion(snapshot: Snapshot, c: PodClass, node: int) -> float:
    """The part of each of its devices a pod counts for on a node; requests for memory in hundredths, rounded up."""
    if c.gpu_kind is not GpuKind.MEMORY:
        return c.portion
    return ceil(100 * c.memory_mib / float(snapshot.nodes.gpu_memory[node])) / 100
