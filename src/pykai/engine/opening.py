"""How things stand when a cycle begins: the figures of a snapshot, summed up column-wise once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykai.engine.amounts import PodAmounts
from pykai.model.resources import GPU, QUEUE_RESOURCES, Column, Mask
from pykai.model.snapshot import Snapshot
from pykai.model.status import IS_ACTIVE_ALLOCATED, IS_ACTIVE_USED, IS_ALLOCATED, Status

Counts = list[int]
Ledger = list[tuple[float, float, float]]
"""Per queue cpu (milli), memory (bytes), GPUs."""


@dataclass
class PodsetCounts:
    """How many pods of each podset are in a set of statuses."""

    active_allocated: Counts
    active_used: Counts
    pipelined: Counts
    pending: Counts
    gated: Counts
    succeeded: Counts


def podset_counts(snapshot: Snapshot) -> PodsetCounts:
    pods, size = snapshot.pods, len(snapshot.gangs.podset_min)
    inside = pods.podset >= 0
    podset, status = pods.podset[inside], pods.status[inside]

    def count(mask: Mask) -> Counts:
        return np.bincount(podset[mask], minlength=size).tolist()  # type: ignore[no-any-return]

    return PodsetCounts(
        active_allocated=count(np.array(IS_ACTIVE_ALLOCATED)[status]),
        active_used=count(np.array(IS_ACTIVE_USED)[status]),
        pipelined=count(status == Status.PIPELINED),
        pending=count(status == Status.PENDING),
        gated=count(status == Status.GATED),
        succeeded=count(status == Status.SUCCEEDED),
    )


def node_columns(snapshot: Snapshot, requests: Column) -> tuple[Column, Column]:
    """Idle and releasing [resource, node]; shared devices are charged later."""
    pods, nodes = snapshot.pods, snapshot.nodes
    active = np.array(IS_ACTIVE_USED)[pods.status] & (pods.node >= 0)
    offered = nodes.allocatable > 0

    def held(mask: Mask) -> Column:
        sums = [np.bincount(pods.node[mask], weights=r[pods.klass[mask]], minlength=len(nodes)) for r in requests]
        block = np.array(sums, dtype=np.float64).reshape(nodes.allocatable.shape)
        for row in pods.reservation:
            if mask[row]:
                block[GPU, pods.node[row]] -= requests[GPU, pods.klass[row]]
        return block * offered

    used, waiting = held(active), held(active & (pods.status == Status.PIPELINED))
    idle = nodes.allocatable - used + waiting
    releasing = held(active & (pods.status == Status.RELEASING)) - waiting
    return idle, releasing


@dataclass
class QueueLedgers:
    """What queues use (`allocated`), of that by non-preemptible work (`held`), and use or ask for (`requested`)."""

    allocated: Ledger
    held: Ledger
    requested: Ledger


def queue_ledgers(snapshot: Snapshot, amounts: PodAmounts) -> QueueLedgers:
    """By what is allocated now, summed up the tree."""
    pods, gangs, paths = snapshot.pods, snapshot.gangs, snapshot.queues.paths
    queue = np.append(gangs.columns.queue, -1)[pods.gang]
    counted = np.array(IS_ALLOCATED)[pods.status] & (queue >= 0)
    pending = (pods.status == Status.PENDING) & (queue >= 0)
    fixed = ~np.append(gangs.columns.preemptible, True)[pods.gang]
    table = np.array([amounts.of_queue(c, -1) for c in pods.classes]).reshape(-1, QUEUE_RESOURCES).T

    def leaf_sums(rows: Mask) -> Column:
        sums = [np.bincount(queue[rows], weights=row[pods.klass[rows]], minlength=len(paths)) for row in table]
        return np.array(sums, dtype=np.float64).reshape(QUEUE_RESOURCES, len(paths))

    allocated, held, waiting = leaf_sums(counted), leaf_sums(counted & fixed), leaf_sums(pending)
    by_memory = np.isin(pods.klass, [c.row for c in pods.classes if c.memory_mib])
    for row in np.flatnonzero((counted | pending) & by_memory).tolist():
        c, leaf = pods.of_class(row), queue[row]
        if counted[row]:
            gpus = amounts.of_queue(c, int(pods.node[row]))[GPU]
            allocated[GPU, leaf] += gpus
            held[GPU, leaf] += gpus if fixed[row] else 0.0
        elif snapshot.min_gpu_memory:
            waiting[GPU, leaf] += c.devices * c.memory_mib / snapshot.min_gpu_memory
    return QueueLedgers(*(_up_the_tree(block, paths) for block in (allocated, held, allocated + waiting)))


def _up_the_tree(leaves: Column, paths: list[tuple[int, ...]]) -> Ledger:
    """Each queue's own figures added to all its ancestors; GPUs kept to 1/10000 so that order cannot matter."""
    total = np.zeros_like(leaves)
    for queue, path in enumerate(paths):
        if leaves[:, queue].any():
            for ancestor in path:
                total[:, ancestor] += leaves[:, queue]
    total[GPU] = np.round(total[GPU], 4)
    return [(cpu, memory, gpu) for cpu, memory, gpu in total.T.tolist()]
