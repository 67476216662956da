"""The initial state of a cycle: sums over the columns of a snapshot, per node, podset and queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pykai.engine.amounts import PodAmounts
from pykai.engine.pod_states import EFFECTS, counted
from pykai.model.resources import GPU, QUEUE_RESOURCES, Cells, Column, Mask, Rows, cells
from pykai.model.snapshot import Snapshot
from pykai.model.status import (
    IS_ALLOCATED,
    Status,
    table,
)

Ledger = list[tuple[float, float, float]]
"""Per queue cpu (milli), memory (bytes), GPUs."""
FEW = 4
"""Most cells of a table of counts per counted pod; with more, adding up pods is faster than counting."""


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
    by_status = np.bincount(pods.status, minlength=len(Status))

    def count(statuses: Sequence[bool]) -> Rows:
        if not by_status[list(statuses)].any():
            return np.zeros(size, dtype=np.int64)
        podset = pods.podset[np.flatnonzero(np.array(statuses)[pods.status])]
        return np.bincount(podset + 1, minlength=size + 1)[1:]

    by_effect = [count(counted(name)) for name in ("active_allocated", "active_used", "pipelined", "pending")]
    rest = [count(table(frozenset({each}))) for each in (Status.GATED, Status.SUCCEEDED)]
    return PodsetCounts(*(cells(column, pods.many_wait) for column in (*by_effect, *rest)))


def sums(by: Rows, size: int, klass: Rows, each: Column) -> Column:
    """[amount, number below `size`]: what pods of these classes add up to by a number each has; `each` [amount, class].

    Where there are few classes and numbers, pods are counted instead of added up.
    """
    kinds = each.shape[1]
    if size * kinds <= FEW * len(by):
        counts = np.bincount(by * kinds + klass, minlength=size * kinds).reshape(size, kinds)
        return np.asarray(each @ counts.T)
    found = [np.bincount(by, weights=row[klass], minlength=size) for row in each]
    return np.array(found, dtype=np.float64).reshape(len(each), size)


def node_columns(snapshot: Snapshot, requests: Column) -> tuple[Column, Column]:
    """Idle and releasing [resource, node]; shared devices are charged later."""
    pods, nodes = snapshot.pods, snapshot.nodes
    on_node = pods.node >= 0
    offered = nodes.allocatable > 0

    def held(mask: Mask) -> Column:
        rows = np.flatnonzero(mask)
        block = np.zeros(nodes.allocatable.shape)
        if not len(rows):
            return block
        asked = requests.any(axis=1)
        block[asked] = sums(pods.node[rows], len(nodes), pods.klass[rows], requests[asked])
        for row in pods.reservation:
            if mask[row]:
                block[GPU, pods.node[row]] -= requests[GPU, pods.klass[row]]
        return block * offered

    def changed(figure: str) -> Column:
        """What pods add to a column, status by status."""
        effects = np.array([getattr(EFFECTS[status], figure) for status in Status])[pods.status]
        return held(on_node & (effects > 0)) - held(on_node & (effects < 0))

    return nodes.allocatable + changed("idle"), changed("releasing")


@dataclass
class QueueLedgers:
    """What queues use (`allocated`), what non-preemptible pods use of that (`held`), and use plus pending requests
    (`requested`)."""

    allocated: Ledger
    held: Ledger
    requested: Ledger


def queue_ledgers(snapshot: Snapshot, amounts: PodAmounts) -> QueueLedgers:
    """By what is allocated now, summed up the tree."""
    pods, gangs, paths = snapshot.pods, snapshot.gangs, snapshot.queues.paths
    queue = np.append(gangs.columns.queue, -1)[pods.gang]
    charged = np.array(IS_ALLOCATED)[pods.status] & (queue >= 0)
    pending = (pods.status == Status.PENDING) & (queue >= 0)
    fixed = np.append(~gangs.columns.preemptible, False)[pods.gang]
    counts = np.array(amounts.of_classes.of_queue).reshape(-1, QUEUE_RESOURCES).T

    def leaf_sums(mask: Mask) -> Column:
        rows = np.flatnonzero(mask)
        return sums(queue[rows], len(paths), pods.klass[rows], counts)

    allocated, held, waiting = leaf_sums(charged), leaf_sums(charged & fixed), leaf_sums(pending)
    by_memory = amounts.of_classes.by_memory[pods.klass]
    for row in np.flatnonzero((charged | pending) & by_memory).tolist():
        c, leaf = pods.of_class(row), queue[row]
        if charged[row]:
            gpus = amounts.of_queue(c, int(pods.node[row]))[GPU]
            allocated[GPU, leaf] += gpus
            held[GPU, leaf] += gpus if fixed[row] else 0.0
        elif snapshot.min_gpu_memory:
            waiting[GPU, leaf] += c.devices * c.memory_mib / snapshot.min_gpu_memory
    return QueueLedgers(*(_up_the_tree(block, paths) for block in (allocated, held, allocated + waiting)))


def _up_the_tree(leaves: Column, paths: Sequence[tuple[int, ...]]) -> Ledger:
    """Each queue's own figures added to all its ancestors; GPUs kept to 1/10000 so that order cannot matter."""
    total = np.zeros_like(leaves)
    for queue in np.flatnonzero(leaves.any(axis=0)).tolist():
        for ancestor in paths[queue]:
            total[:, ancestor] += leaves[:, queue]
    total[GPU] = np.round(total[GPU], 4)
    return [(cpu, memory, gpu) for cpu, memory, gpu in total.T.tolist()]
