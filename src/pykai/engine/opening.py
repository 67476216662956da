"""How things stand when a cycle begins: the figures of a snapshot, summed up column-wise once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykai.engine.amounts import PodAmounts
from pykai.model.resources import GPU, QUEUE_RESOURCES, Cells, Column, Mask, Rows, cells
from pykai.model.snapshot import Snapshot
from pykai.model.status import IS_ACTIVE_ALLOCATED, IS_ACTIVE_USED, IS_ALLOCATED, Status

Ledger = list[tuple[float, float, float]]
"""Per queue cpu (milli), memory (bytes), GPUs."""


@dataclass
class PodsetCounts:
    """How many pods of each podset are in a set of statuses."""

    active_allocated: Cells
    active_used: Cells
    pipelined: Cells
    pending: Cells
    gated: Cells
    succeeded: Cells


def podset_counts(snapshot: Snapshot) -> PodsetCounts:
    pods, size = snapshot.pods, len(snapshot.gangs.podset_min)
    inside, status = pods.podset >= 0, pods.status

    def count(mask: Mask) -> Rows:
        return np.bincount(pods.podset[np.flatnonzero(mask & inside)], minlength=size)

    allocated = np.array(IS_ACTIVE_ALLOCATED)[status]
    held = count(allocated)
    leaving = count(np.array(IS_ACTIVE_USED)[status] & ~allocated)
    rest = [count(status == each) for each in (Status.PIPELINED, Status.PENDING, Status.GATED, Status.SUCCEEDED)]
    return PodsetCounts(*(cells(column, pods.many_wait) for column in (held, held + leaving, *rest)))


def node_columns(snapshot: Snapshot, requests: Column) -> tuple[Column, Column]:
    """Idle and releasing [resource, node]; shared devices are charged later."""
    pods, nodes = snapshot.pods, snapshot.nodes
    active = np.array(IS_ACTIVE_USED)[pods.status] & (pods.node >= 0)
    offered = nodes.allocatable > 0

    def held(mask: Mask) -> Column:
        rows = np.flatnonzero(mask)
        block = np.zeros(nodes.allocatable.shape)
        if not len(rows):
            return block
        node, klass = pods.node[rows], pods.klass[rows]
        for resource in np.flatnonzero(requests.any(axis=1)).tolist():
            block[resource] = np.bincount(node, weights=requests[resource][klass], minlength=len(nodes))
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
    fixed = np.append(~gangs.columns.preemptible, False)[pods.gang]
    table = np.array([amounts.of_queue(c, -1) for c in pods.classes]).reshape(-1, QUEUE_RESOURCES).T

    def leaf_sums(mask: Mask) -> Column:
        rows = np.flatnonzero(mask)
        leaf, klass = queue[rows], pods.klass[rows]
        sums = [np.bincount(leaf, weights=row[klass], minlength=len(paths)) for row in table]
        return np.array(sums, dtype=np.float64).reshape(QUEUE_RESOURCES, len(paths))

    allocated, held, waiting = leaf_sums(counted), leaf_sums(counted & fixed), leaf_sums(pending)
    by_memory = np.array([c.memory_mib > 0 for c in pods.classes], dtype=bool)[pods.klass]
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
