"""Trial: the one mutable object of a cycle. What is idle, what is being released, where every pod is.

Every mutation goes through the journal, so a gang that does not fit is undone by `undo_to(mark)`: all or nothing
without inverse operations. Node figures are columns `[resource, node]`; pod and podset figures are plain lists,
because they are read one at a time. There is no plugin, configuration, logger or clock on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pykai.engine.devices import EMPTY, Share, Shares
from pykai.engine.journal import Journal
from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import GPU, PODS, QUEUE_RESOURCES, Column, Rows, whole_gpus
from pykai.model.snapshot import Snapshot
from pykai.model.status import IS_ACTIVE_ALLOCATED, IS_ACTIVE_USED, IS_ALLOCATED, Status

Counts = list[int]


class Trial:
    """The cluster as this cycle would leave it so far."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        pods = snapshot.pods
        self.journal = Journal()
        self.status: list[int] = pods.status.tolist()
        self.node: list[int] = pods.node.tolist()
        self.klass: list[int] = pods.klass.tolist()
        self.gang: list[int] = pods.gang.tolist()
        self.podset: list[int] = pods.podset.tolist()
        self.gpu_groups: dict[int, tuple[str, ...]] = dict(pods.gpu_groups)
        self.zones: dict[int, Any] = {}
        self.virtual: dict[int, int] = {}
        """Pods whose release is only supposed by a scenario (not yet decided) -> the status they had."""
        self.touched: list[int] = []
        """Node rows in order of change; readers remember how far they have read."""
        self.moved: list[int] = []
        """Pod rows whose status or node changed, likewise."""
        self.idle: Column
        self.releasing: Column
        self.used_gpus: list[float]
        self.shares: dict[int, Shares] = {}
        self._mig_rows = snapshot.space.mig_rows()
        self.evicted: dict[int, Any] = {}
        self.placed: dict[int, bool] = {}
        """Pods this cycle gave a node, in order of decision; True where it must wait for a release."""
        self._fresh_groups = 0
        self._quotas: dict[int, tuple[float, float, float]] = {}
        self._named_groups = {group for groups in pods.gpu_groups.values() for group in groups}
        """Devices that were shared before: their reservation pods are pods of the snapshot."""
        self._count_podsets()
        self._fill_nodes()
        self._fill_queues()

    # ------------------------------------------------------------------------------------------------ initial state
    def _count_podsets(self) -> None:
        pods = self.snapshot.pods
        size = len(self.snapshot.gangs.podset_min)
        inside = pods.podset >= 0
        podset, status = pods.podset[inside], pods.status[inside]

        def count(members: tuple[bool, ...]) -> Counts:
            return np.bincount(podset[np.array(members)[status]], minlength=size).tolist()  # type: ignore[no-any-return]

        def single(wanted: Status) -> Counts:
            return np.bincount(podset[status == wanted], minlength=size).tolist()  # type: ignore[no-any-return]

        self.active_allocated = count(IS_ACTIVE_ALLOCATED)
        self.active_used = count(IS_ACTIVE_USED)
        self.pipelined = single(Status.PIPELINED)
        self.pending = single(Status.PENDING)
        self.gated = single(Status.GATED)
        self.succeeded = single(Status.SUCCEEDED)

    def _fill_nodes(self) -> None:
        """Charge every pod that sits on a node: whole columns at once, shared devices one by one."""
        snapshot = self.snapshot
        pods, nodes = snapshot.pods, snapshot.nodes
        shape = nodes.allocatable.shape
        active = np.array(IS_ACTIVE_USED)[pods.status] & (pods.node >= 0)
        requests = self._accepted_table()
        used = _sum_by_node(pods.node[active], pods.klass[active], requests, shape)
        gone = active & (pods.status == Status.RELEASING)
        releasing = _sum_by_node(pods.node[gone], pods.klass[gone], requests, shape)
        for row in pods.reservation:
            if active[row]:
                used[GPU, pods.node[row]] -= requests[GPU, pods.klass[row]]
                if gone[row]:
                    releasing[GPU, pods.node[row]] -= requests[GPU, pods.klass[row]]
        offered = self._offered = nodes.allocatable > 0
        self.idle = nodes.allocatable - used * offered
        self.releasing = releasing * offered
        pipelined = active & (pods.status == Status.PIPELINED)
        if pipelined.any():
            waiting = _sum_by_node(pods.node[pipelined], pods.klass[pipelined], requests, shape) * offered
            self.idle += waiting
            self.releasing -= waiting
        self.used_gpus = (used * offered)[GPU].tolist()
        shared = sorted(row for row in pods.gpu_groups if active[row] and pods.of_class(row).shared)
        for row in sorted(shared, key=lambda r: (pods.names[r], pods.namespaces[r])):
            self._share_devices(row, self.node[row], Status(self.status[row]), 1)

    def _accepted_table(self) -> Column:
        """[resource, class]: what a pod of each class takes from a node's columns; shared GPUs are kept apart."""
        classes = self.snapshot.pods.classes
        table = np.array([c.request for c in classes]).reshape(len(classes), self.snapshot.space.size).T.copy()
        for row, c in enumerate(classes):
            if c.shared:
                table[GPU, row] = 0.0
        self._requests = table
        self._request_columns = list(table.T.copy())
        return table

    def _fill_queues(self) -> None:
        """Queue use by what is allocated now, summed up the tree; in cpu milli, memory bytes, GPUs."""
        snapshot = self.snapshot
        pods, gangs = snapshot.pods, snapshot.gangs
        size = len(snapshot.queues)
        gang_queue = np.array([*gangs.queue, -1], dtype=np.int64)
        queue = gang_queue[pods.gang]
        counted = np.array(IS_ALLOCATED)[pods.status] & (queue >= 0)
        fixed = np.array([not gangs.preemptible[g] for g in range(len(gangs))] + [False])[pods.gang]
        amounts = np.array([self.quota_amounts(c, -1) for c in pods.classes]).reshape(-1, QUEUE_RESOURCES).T
        pending = (pods.status == Status.PENDING) & (queue >= 0)

        def leaf_sums(rows: np.ndarray) -> Column:
            return np.array(
                [np.bincount(queue[rows], weights=amounts[r][pods.klass[rows]], minlength=size) for r in range(3)]
            ).reshape(QUEUE_RESOURCES, size)

        allocated, held = leaf_sums(counted), leaf_sums(counted & fixed)
        waiting = leaf_sums(pending)
        for row in np.flatnonzero((counted | pending) & np.isin(pods.klass, _memory_classes(pods.classes))).tolist():
            portion = self._memory_portion(pods.of_class(row), self.node[row])
            if counted[row]:
                allocated[GPU, queue[row]] += portion
                held[GPU, queue[row]] += portion if fixed[row] else 0.0
            elif snapshot.min_gpu_memory:
                c = pods.of_class(row)
                waiting[GPU, queue[row]] += c.devices * c.memory_mib / snapshot.min_gpu_memory
        self.queue_allocated = _up_the_tree(allocated, snapshot.queues.paths)
        self.queue_held = _up_the_tree(held, snapshot.queues.paths)
        self.queue_requested = _up_the_tree(allocated + waiting, snapshot.queues.paths)

    # ----------------------------------------------------------------------------------------------------- questions
    def of_class(self, pod: int) -> PodClass:
        return self.snapshot.pods.classes[self.klass[pod]]

    def share_memory(self, c: PodClass, node: int) -> float:
        """MiB per device a shared request takes on a node."""
        if c.gpu_kind is GpuKind.MEMORY:
            return float(c.memory_mib)
        return float(int(c.portion * self.snapshot.nodes.gpu_memory[node]))

    def share_portion(self, c: PodClass, node: int) -> float:
        """Portion per device a shared request takes on a node, rounded up to hundredths for memory requests."""
        if c.gpu_kind is not GpuKind.MEMORY:
            return c.portion
        capacity = float(self.snapshot.nodes.gpu_memory[node])
        return float(np.ceil(100 * c.memory_mib / capacity)) / 100

    def accepted_gpus(self, pod: int) -> float:
        """GPUs granted to a pod that has a node."""
        c = self.of_class(pod)
        if c.shared and self.node[pod] >= 0:
            return whole_gpus(self.share_portion(c, self.node[pod]), c.devices)
        return float(c.request[GPU])

    def quota_amounts(self, c: PodClass, node: int) -> tuple[float, float, float]:
        """What a pod counts against its queue; without a node a gpu-memory request counts no GPU."""
        if c.gpu_kind is GpuKind.MEMORY and node >= 0:
            return self._quota_amounts(c, node)
        known = self._quotas.get(c.row)
        if known is None:
            known = self._quotas[c.row] = self._quota_amounts(c, -1)
        return known

    def _quota_amounts(self, c: PodClass, node: int) -> tuple[float, float, float]:
        gpus = float(c.request[GPU])
        if c.gpu_kind is GpuKind.MEMORY:
            gpus = self._memory_portion(c, node) if node >= 0 else 0.0
        elif c.gpu_kind is GpuKind.MIG:
            gpus += sum(c.request[row] * gpus_each for row, gpus_each in self._mig_rows.items())
        return float(c.request[0]), float(c.request[1]), gpus

    def _memory_portion(self, c: PodClass, node: int) -> float:
        return whole_gpus(self.share_portion(c, node), c.devices) if node >= 0 else 0.0

    # ------------------------------------------------------------------------------------------------------ changes
    def mark(self) -> int:
        return self.journal.mark()

    def undo_to(self, mark: int) -> None:
        """Back to how things were at the mark; nodes that change are reported as touched."""
        entries = self.journal.entries
        if len(entries) == mark:
            return
        seen: set[int] = set()
        for block, key, _ in entries[mark:]:
            if block is self.idle or block is self.releasing:
                seen.update((key[1],) if isinstance(key[1], int) else key[1].tolist())
            elif block is self.node:
                seen.add(self.node[key])
            elif block is self.status:
                self.moved.append(key)
        self.journal.undo_to(mark)
        self.touched.extend(sorted(n for n in seen if n >= 0))

    def place(self, pod: int, node: int, groups: tuple[str, ...] = (), wait: bool = False) -> None:
        """Give a pod a node; `wait`: it needs something that is still being released.

        A pod that is being evicted keeps its releasing resources where it was: it moves.
        """
        if pod in self.virtual:
            self._count(pod, Status.RELEASING, -1)
            self.journal.drop(self.virtual, pod)
        else:
            self._leave(pod)
        if self.of_class(pod).shared:
            self.journal.put_new(self.gpu_groups, pod, groups)
        self.journal.put(self.node, pod, node)
        self._enter(pod, Status.PIPELINED if wait else Status.ALLOCATED)
        self._charge_queue(pod, 1.0)
        self.journal.put_new(self.placed, pod, wait)

    def place_alike(self, pods: Sequence[int], nodes: Rows, wait: bool) -> None:
        """Give pending pods of one gang and class a node of their own each: `place` for many, at the price of one."""
        journal, status = self.journal, Status.PIPELINED if wait else Status.ALLOCATED
        put = journal.put
        for pod, node in zip(pods, nodes.tolist(), strict=True):
            put(self.node, pod, node)
            put(self.status, pod, int(status))
            journal.put_new(self.placed, pod, wait)
            self._count(pod, Status.PENDING, -1)
            self._count(pod, status, 1)
        self.moved.extend(pods)
        self.touched.extend(nodes.tolist())
        amounts = self._requests[:, [self.klass[pods[0]]]] * self._offered[:, nodes]
        block = self.releasing if wait else self.idle
        journal.columns(block, nodes)
        block[:, nodes] -= amounts
        for node, gpus in zip(nodes.tolist(), amounts[GPU].tolist(), strict=True):
            if gpus:
                put(self.used_gpus, node, self.used_gpus[node] + gpus)
        self._charge_queue(pods[0], float(len(pods)))

    def wait_instead(self, pod: int) -> None:
        """Turn a placement of this cycle into one that waits."""
        self._leave(pod)
        self._enter(pod, Status.PIPELINED)
        self.journal.put_new(self.placed, pod, True)

    def suppose_evicted(self, pod: int) -> None:
        """Release a pod's resources for the sake of argument; they can be waited for."""
        self.journal.put_new(self.virtual, pod, self.status[pod])
        self._charge_queue(pod, -1.0)
        self._leave(pod)
        self._enter(pod, Status.RELEASING)

    def decide(self, evicted: dict[int, Any]) -> None:
        """What was supposed so far holds: these pods go, for these reasons. There is no way back behind this.

        A pod that only got its place in this cycle is not evicted but waits again.
        """
        for pod, why in evicted.items():
            if IS_ACTIVE_USED[self.snapshot.pods.status[pod]]:
                self.evicted[pod] = why
            elif self.status[pod] == Status.RELEASING:
                self._leave(pod)
                self.placed.pop(pod, None)
                self.node[pod] = -1
                self._enter(pod, Status.PENDING)
        self.virtual.clear()
        self.journal.entries.clear()

    def keep(self, pod: int) -> None:
        """The pod is not evicted after all: it stays where it is."""
        before = self.virtual[pod]
        self._leave(pod)
        self._enter(pod, Status(before))
        self._charge_queue(pod, 1.0)
        self.journal.drop(self.virtual, pod)

    def fresh_group(self) -> str:
        """A name for a device nobody shares yet, unique within the cycle."""
        number = self._fresh_groups + 1
        while f"new-{number}" in self._named_groups:
            number += 1
        self.journal.put(self.__dict__, "_fresh_groups", number)
        return f"new-{number}"

    def _leave(self, pod: int) -> None:
        """Take a pod out of the figures of its present status."""
        status = self.status[pod]
        self._count(pod, status, -1)
        if IS_ACTIVE_USED[status] and self.node[pod] >= 0:
            self._charge_node(pod, status, -1)

    def _enter(self, pod: int, status: Status) -> None:
        self.journal.put(self.status, pod, int(status))
        self.moved.append(pod)
        self._count(pod, status, 1)
        if IS_ACTIVE_USED[status] and self.node[pod] >= 0:
            self._charge_node(pod, status, 1)

    def _count(self, pod: int, status: int, by: int) -> None:
        podset = self.podset[pod]
        if podset < 0:
            return
        put = self.journal.put
        if IS_ACTIVE_USED[status]:
            put(self.active_used, podset, self.active_used[podset] + by)
            if IS_ACTIVE_ALLOCATED[status]:
                put(self.active_allocated, podset, self.active_allocated[podset] + by)
                if status == Status.PIPELINED:
                    put(self.pipelined, podset, self.pipelined[podset] + by)
        elif status == Status.PENDING:
            put(self.pending, podset, self.pending[podset] + by)

    def _charge_queue(self, pod: int, sign: float) -> None:
        gang = self.gang[pod]
        queue = self.snapshot.gangs.queue[gang] if gang >= 0 else -1
        if queue < 0:
            return
        cpu, memory, gpus = self.quota_amounts(self.of_class(pod), self.node[pod])
        ledgers = [self.queue_allocated]
        if not self.snapshot.gangs.preemptible[gang]:
            ledgers.append(self.queue_held)
        put = self.journal.put
        for ledger in ledgers:
            for q in self.snapshot.queues.paths[queue]:
                c, m, g = ledger[q]
                put(ledger, q, (c + sign * cpu, m + sign * memory, round(g + sign * gpus, 4)))

    def _charge_node(self, pod: int, status: int, sign: int) -> None:
        node = self.node[pod]
        self.touched.append(node)
        request = self._request_columns[self.klass[pod]]
        if pod in self.snapshot.pods.reservation:
            request = request.copy()
            request[GPU] = 0.0
        amount = sign * request * self._offered[:, node]
        journal = self.journal
        if status != Status.PIPELINED:
            journal.column(self.idle, node)
            self.idle[:, node] -= amount
        if status in (Status.RELEASING, Status.PIPELINED):
            journal.column(self.releasing, node)
            self.releasing[:, node] += amount if status == Status.RELEASING else -amount
        if amount[GPU]:
            journal.put(self.used_gpus, node, self.used_gpus[node] + float(amount[GPU]))
        if self.of_class(pod).shared:
            self._share_devices(pod, node, Status(status), sign)

    # ------------------------------------------------------------------------------------------------ shared devices
    def _share_devices(self, pod: int, node: int, status: Status, sign: int) -> None:
        """Charge (+1) or return (-1) a pod's share on each of its devices, whole devices following suit."""
        memory = self.share_memory(self.of_class(pod), node)
        change = {1: self._add_share, -1: self._remove_share}[sign]
        for group in self.gpu_groups.get(pod, ()):
            change(node, group, memory, status)

    def _put_share(self, node: int, group: str, share: Share) -> None:
        if node not in self.shares:
            self.journal.put_new(self.shares, node, {})
        if group not in self._named_groups:
            self._reserve(node, self.shares[node].get(group, EMPTY), share)
        self.journal.put_new(self.shares[node], group, share)

    def _reserve(self, node: int, before: Share, after: Share) -> None:
        """A device that nobody shared before this cycle needs a pod that reserves it, from when it is needed."""
        for share, by in ((before, 1.0), (after, -1.0)):
            if share.used > 0 and share.used != share.releasing:
                block = self.idle if share.allocated > 0 else self.releasing
                self.journal.column(block, node)
                block[PODS, node] += by

    def _gpus(self, block: Column, node: int, by: float) -> None:
        self.journal.column(block, node)
        block[GPU, node] += by

    def _surplus(self, node: int) -> bool:
        """Whether idle and used devices add up to more than the node has."""
        held = sum(1 for share in self.shares.get(node, {}).values() if share.used > 0)
        used = int(self.used_gpus[node]) + held
        return bool(self.snapshot.nodes.gpu_count[node] < int(self.idle[GPU, node]) + used)

    def _add_share(self, node: int, group: str, m: float, status: Status) -> None:
        s = self.shares.get(node, {}).get(group, EMPTY)
        used = s.used + m
        if status is Status.RELEASING:
            new = Share(used, s.allocated + m, s.releasing + m, s.marked)
            whole = new.used == new.releasing
            self._put_share(node, group, new._replace(marked=new.marked or whole))
            if whole:
                if not s.marked:
                    self._gpus(self.releasing, node, 1)
                if self._surplus(node):
                    self._gpus(self.idle, node, -1)
        elif status is Status.PIPELINED:
            self._put_share(node, group, Share(used, s.allocated, s.releasing - m, s.marked))
            if s.used == s.releasing:
                self._gpus(self.releasing, node, -1)
        else:
            self._put_share(node, group, Share(used, s.allocated + m, s.releasing, False))
            if used <= m and self._surplus(node):
                self._gpus(self.idle, node, -1)
            if s.marked:
                self._gpus(self.releasing, node, -1)

    def _remove_share(self, node: int, group: str, m: float, status: Status) -> None:
        s = self.shares.get(node, {}).get(group, EMPTY)
        used = s.used - m
        if status is Status.RELEASING:
            freed = used <= 0
            marked = s.marked and not freed
            self._put_share(node, group, Share(used, s.allocated - m, s.releasing - m, marked))
            if freed:
                if not self._surplus(node):
                    self._gpus(self.idle, node, 1)
                if s.marked:
                    self._gpus(self.releasing, node, -1)
        elif status is Status.PIPELINED:
            self._put_share(node, group, Share(used, s.allocated, s.releasing + m, s.marked))
            if s.used == s.releasing or (used == 0 and s.releasing + m == 0):
                self._gpus(self.releasing, node, 1)
        else:
            leaving = used != 0 and s.releasing == used
            self._put_share(node, group, Share(used, s.allocated - m, s.releasing, s.marked or leaving))
            if used <= 0 and not self._surplus(node):
                self._gpus(self.idle, node, 1)
            if leaving and not s.marked:
                self._gpus(self.releasing, node, 1)


def _sum_by_node(node: np.ndarray, klass: np.ndarray, requests: Column, shape: tuple[int, ...]) -> Column:
    sums = [np.bincount(node, weights=row[klass], minlength=shape[1]) for row in requests]
    return np.array(sums, dtype=np.float64).reshape(shape)


def _memory_classes(classes: list[PodClass]) -> list[int]:
    return [c.row for c in classes if c.gpu_kind is GpuKind.MEMORY]


Amounts = list[tuple[float, float, float]]


def _up_the_tree(leaves: Column, paths: list[tuple[int, ...]]) -> Amounts:
    """Each queue's own figures added to all its ancestors; GPUs kept to 1/10000 so that order cannot matter."""
    total = np.zeros_like(leaves)
    for queue, path in enumerate(paths):
        if leaves[:, queue].any():
            for ancestor in path:
                total[:, ancestor] += leaves[:, queue]
    total[GPU] = np.round(total[GPU], 4)
    return [(cpu, memory, gpu) for cpu, memory, gpu in total.T.tolist()]
