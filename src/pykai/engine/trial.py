"""Trial: the one mutable object of a cycle: idle and releasing capacity of nodes, status and node of every pod.

Every mutation goes through the journal, so that a gang that does not fit is undone by `undo_to(mark)`, without inverse
operations. Node figures are columns `[resource, node]`. Pod and podset figures are read one at a time (`cells`): they
are lists in a cycle with many pending pods, else the columns themselves. The trial has no access to plugins,
configuration, loggers or clocks.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import cache
from math import floor
from typing import Any, NamedTuple

import numpy as np

from pykai.engine.amounts import PodAmounts
from pykai.engine.devices import DeviceLedger
from pykai.engine.initial_state import node_columns, podset_counts, queue_ledgers
from pykai.engine.journal import Journal
from pykai.engine.pod_states import EFFECTS, Effect, Transition, target_of
from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.pods import PodClass
from pykai.model.resources import Cells, Column, Rows, cells
from pykai.model.snapshot import Snapshot
from pykai.model.status import IS_ACTIVE_USED, IS_ALLOCATED, Status

PENDING, ALLOCATED, PIPELINED, RELEASING = map(
    int, (Status.PENDING, Status.ALLOCATED, Status.PIPELINED, Status.RELEASING)
)
"""Status numbers as plain integers: enum lookups are slow in loops."""
_EFFECTS = [EFFECTS[status] for status in Status]
_MOVES = (Transition.MOVE, Transition.MOVE_LATER)
"""After these the resources at the pod's former place stay releasing."""
MANY = 50
"""Reading so many entries of a log one by one costs as much as an operation on columns that are not long."""
Place = tuple[int, tuple[str, ...]]
"""A node, and the shared devices used there."""

Triple = tuple[float, float, float]
Ledgered = tuple[list[Triple], int, Triple]
"""A ledger of the queues, a queue, and its amounts before a change: an entry of the journal."""


class _Before(NamedTuple):
    """The state before a pending pod was given a node."""

    pod: int
    was_on: int
    node: int
    wait: bool
    column: Column
    """The node's idle column, or releasing column if the pod waits."""
    queues: list[Ledgered]


class _BeforeAlike(NamedTuple):
    """The state before pending pods of a class were given nodes."""

    pods: Sequence[int]
    were_on: Sequence[int]
    nodes: Rows
    wait: bool
    columns: Column
    """The idle columns of the nodes, or releasing columns if the pods wait."""
    queues: list[Ledgered]


class Trial:
    """The state of the cluster after the decisions of this cycle so far."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        pods = snapshot.pods
        self.journal = Journal()
        often = pods.many_wait
        self.status = cells(pods.status.copy(), often)
        self.node = cells(pods.node.copy(), often)
        self.klass, self.gang, self.podset = (cells(column, often) for column in (pods.klass, pods.gang, pods.podset))
        self.gpu_groups: dict[int, tuple[str, ...]] = dict(pods.gpu_groups)
        self.virtual: dict[int, int] = {}
        """Pods evicted tentatively, by a scenario that is not decided -> their status before."""
        self.left: dict[int, Place] = {}
        """Pods placed in this cycle that a scenario moved -> their former place, which still counts as releasing."""
        self.touched: list[int] = []
        """Node rows in order of change; each reader remembers how far it has read."""
        self._touched_last: Rows = np.zeros(len(snapshot.nodes), dtype=np.int64)
        """By node the last place in `touched`, of the first `_indexed` entries."""
        self._indexed = 0
        self.moved: list[int] = []
        """Pod rows in order of change of status or node; each reader remembers how far it has read."""
        self.evicted: dict[int, Any] = {}
        self.placed: dict[int, bool] = {}
        """Pods placed in this cycle, in order of decision -> whether they wait for a release (pipelined)."""
        self._semi_preemptible = snapshot.gangs.semi_preemptible
        self.core: dict[int, bool] = {}
        """Pods of semi-preemptible gangs -> whether they belong to the minimum, which cannot be evicted."""
        self.amounts = PodAmounts(snapshot)
        self._fresh_groups = [0]
        """Number of device groups named in this cycle."""
        self._open_podsets()
        self._open_nodes()
        self._open_queues()

    def _open_podsets(self) -> None:
        counts = podset_counts(self.snapshot)
        self.active_allocated, self.active_used = counts.active_allocated, counts.active_used
        self.pipelined, self.pending = counts.pipelined, counts.pending
        self.gated, self.succeeded = counts.gated, counts.succeeded

    def _open_nodes(self) -> None:
        """Set up the node columns, then add shared devices pod by pod."""
        pods = self.snapshot.pods
        self.idle, self.releasing = node_columns(self.snapshot, self.amounts.requests)
        self.devices = DeviceLedger(self.journal, (self.idle, self.releasing), pods)
        self.shares = self.devices.shares
        for row in sorted(pods.gpu_groups, key=lambda r: ((m := pods.objects[r].metadata).name, m.namespace)):
            if IS_ACTIVE_USED[self.status[row]] and self.node[row] >= 0 and self.amounts.shared[self.klass[row]]:
                self._share_devices(row, self.status[row], 1, (self.node[row], pods.gpu_groups[row]))
        places = [(self.node[row], group) for row, group in pods.reservation.items()]
        self.devices.settle(place for place in places if place[0] >= 0)  # a node may be gone before its pods are

    def _open_queues(self) -> None:
        ledgers = queue_ledgers(self.snapshot, self.amounts)
        self.queue_allocated, self.queue_held = ledgers.allocated, ledgers.held
        self.queue_requested = ledgers.requested

    def open_background(self, pods: Collection[int]) -> dict[int, int]:
        """Evict background pods tentatively, and count them neither as use nor as request of their queues.

        Return those that have a node with the status each had, ordered by name.
        """
        held = [pod for pod in pods if IS_ALLOCATED[self.status[pod]] and self.node[pod] >= 0 and self.gang[pod] >= 0]
        for pod in sorted(held, key=self.snapshot.pods.title):
            queue = self.snapshot.gangs.queue[self.gang[pod]]
            cpu, memory, gpus = self.quota_amounts(self.of_class(pod), self.node[pod])
            requested = [(self.queue_requested, q, self.queue_requested[q]) for q in self._path(queue)]
            self._charge(requested, (-cpu, -memory, -gpus))
            self.suppose_evicted(pod)
        before = dict(self.virtual)
        self.virtual.clear()
        self.settle()
        return before

    def _path(self, queue: int) -> Sequence[int]:
        return self.snapshot.queues.paths[queue] if queue >= 0 else ()

    def open_core(self, core: Mapping[int, Container[int]]) -> None:
        """Set the core pods of semi-preemptible gangs; their other pods count as preemptible."""
        for gang, pods in core.items():
            for pod in self.snapshot.gangs.pods(gang):
                self.core[pod] = True
                if pod not in pods and IS_ALLOCATED[self.status[pod]]:
                    held = [entry for entry in self._queues_of(pod) if entry[0] is self.queue_held]
                    cpu, memory, gpus = self.quota_amounts(self.of_class(pod), self.node[pod])
                    self._charge(held, (-cpu, -memory, -gpus))
                self.core[pod] = pod in pods

    # ----------------------------------------------------------------------------------------------------- questions
    def touched_since(self, read: int, among: Rows) -> Iterable[int]:
        """Return the nodes in `touched` after the first `read` entries: all of those that are `among` these, and maybe
        others. The cost does not grow with the number of entries where it is that of many."""
        touched = self.touched
        if len(touched) - read <= MANY + len(among) // MANY:
            return set(touched[read:])
        self._touched_last[touched[self._indexed :]] = np.arange(self._indexed, len(touched))
        self._indexed = len(touched)
        found: list[int] = among[self._touched_last[among] >= read].tolist()
        return found

    def has_minimum(self, gang: int) -> bool:
        """Whether the gang has its minimum of pods or sub-groups."""
        gangs = self.snapshot.gangs
        if gang in gangs.trees:
            return self._is_satisfied(gangs.trees[gang])
        row = gangs.first_podset[gang]
        return bool(self.active_allocated[row] >= gangs.podset_min[row])

    def _is_satisfied(self, member: PodSet | SubGroupSet) -> bool:
        if isinstance(member, PodSet):
            return bool(self.active_allocated[member.row] >= member.min_available)
        return sum(map(self._is_satisfied, member.children)) >= member.threshold

    def adds_preemptible(self, gang: int) -> bool:
        """Whether the pods that the gang places next are preemptible: always for a preemptible gang, above the minimum
        for a semi-preemptible one."""
        return self.snapshot.gangs.preemptible[gang] or (gang in self._semi_preemptible and self.has_minimum(gang))

    def _note_core(self, pods: Sequence[int]) -> None:
        """Mark pods about to be placed as core if their gang is semi-preemptible and below its minimum."""
        gang = self.gang[pods[0]]
        if gang in self._semi_preemptible:
            self.journal.put_each_new(self.core, pods, not self.has_minimum(gang))

    def of_class(self, pod: int) -> PodClass:
        return self.snapshot.pods.classes[self.klass[pod]]

    def share_memory(self, c: PodClass, node: int) -> float:
        """Return the MiB per device that a shared request takes on a node."""
        return self.amounts.share_memory(c, node)

    def share_portion(self, c: PodClass, node: int) -> float:
        """Return the portion of each device that a shared request takes on a node."""
        return self.amounts.share_portion(c, node)

    def accepted_gpus(self, pod: int) -> float:
        """Return the GPUs granted to a pod that has a node."""
        return self.amounts.accepted_gpus(self.of_class(pod), self.node[pod])

    def quota_amounts(self, c: PodClass, node: int) -> tuple[float, float, float]:
        """Return what a pod counts against its queue; without a node (-1) a gpu-memory request counts no GPU."""
        return self.amounts.of_queue(c, node)

    # ------------------------------------------------------------------------------------------------------ changes
    def mark(self) -> int:
        return self.journal.mark()

    def undo_to(self, mark: int) -> None:
        """Undo everything since the mark; nodes that change are reported as touched."""
        entries = self.journal.entries
        if len(entries) == mark:
            return
        seen: set[int] = set()
        for block, key, _ in entries[mark:]:  # entries of `note` report their nodes and pods themselves
            if block is self.idle or block is self.releasing:
                seen.add(key[1])
            elif block is self.node:
                seen.add(self.node[key])
            elif block is self.status:
                self.moved.append(key)
        self.journal.undo_to(mark)
        self.touched.extend(sorted(n for n in seen if n >= 0))

    def place(self, pod: int, node: int, groups: tuple[str, ...] = (), wait: bool = False) -> None:
        """Give a pod a node; `wait`: it needs resources that are still being released (pipelined).

        A tentatively evicted pod moves: its resources at the former place stay releasing.
        """
        if self.status[pod] == PENDING:
            self._place_pending(pod, node, wait)
            if self.amounts.shared[self.klass[pod]]:
                self.journal.put_new(self.gpu_groups, pod, groups)
                self._share_devices(pod, self.status[pod], 1, (node, groups))
            return
        if pod in self.placed:
            self.journal.put_new(self.left, pod, (self.node[pod], self.gpu_groups.get(pod, ())))
        if self.amounts.shared[self.klass[pod]]:
            self.journal.put_new(self.gpu_groups, pod, groups)
        self.journal.drop(self.virtual, pod)
        self._change(pod, Transition.MOVE_LATER if wait else Transition.MOVE, to=node)
        self.journal.put_new(self.placed, pod, wait)

    def _place_pending(self, pod: int, node: int, wait: bool) -> None:
        """Place a pending pod, without its shared devices, as one journal entry: this is the most frequent change."""
        if self._semi_preemptible:
            self._note_core((pod,))
        block, podset = self.releasing if wait else self.idle, self.podset[pod]
        column, queues = block[:, node], self._queues_of(pod)
        self.journal.note(self._unplace, _Before(pod, self.node[pod], node, wait, column.copy(), queues))
        column -= self.amounts.of_node(self.klass[pod], node)
        self.node[pod], self.placed[pod] = node, wait
        self.status[pod] = PIPELINED if wait else ALLOCATED
        self.moved.append(pod)
        self.touched.append(node)
        if podset >= 0:
            self._count_placed(podset, wait, 1)
        self._charge(queues, self.amounts.of_queue(self.of_class(pod), node))

    def _unplace(self, before: _Before) -> None:
        pod, node, wait = before.pod, before.node, before.wait
        (self.releasing if wait else self.idle)[:, node] = before.column
        self.node[pod], self.status[pod] = before.was_on, PENDING
        del self.placed[pod]
        self.moved.append(pod)
        self.touched.append(node)
        if self.podset[pod] >= 0:
            self._count_placed(self.podset[pod], wait, -1)
        for ledger, queue, amounts in before.queues:
            ledger[queue] = amounts

    def _count_placed(self, podset: int, wait: bool, by: int) -> None:
        self.pending[podset] -= by
        self.active_used[podset] += by
        self.active_allocated[podset] += by
        if wait:
            self.pipelined[podset] += by

    def place_alike(self, pods: Sequence[int], where: tuple[Rows, Rows | None], wait: bool) -> None:
        """Place pending pods of one podset and one class without shared devices. `where`: nodes on which they fit, and
        the number of pods for each (None: one). The effect is that of `place` for each pod, at the cost of one."""
        if self._semi_preemptible:
            self._note_core(pods)
        (nodes, copies), podset, klass = where, self.podset[pods[0]], self.klass[pods[0]]
        block, queues = self.releasing if wait else self.idle, self._queues_of(pods[0])
        columns = block.take(nodes, axis=1)
        were_on = [self.node[pod] for pod in pods]
        self.journal.note(self._unplace_alike, _BeforeAlike(pods, were_on, nodes, wait, columns, queues))
        rows = (nodes if copies is None else nodes.repeat(copies)).tolist()
        status = PIPELINED if wait else ALLOCATED
        for pod, node in zip(pods, rows, strict=True):
            self.node[pod], self.placed[pod], self.status[pod] = node, wait, status
        self.moved.extend(pods)
        self.touched.extend(rows if copies is None else nodes.tolist())
        request = self.amounts.where_it_fits(klass)[:, None]
        block[:, nodes] = columns - (request if copies is None else request * copies)
        if podset >= 0:
            self._count_placed(podset, wait, len(pods))
        cpu, memory, gpus = self.amounts.of_queue(self.of_class(pods[0]), rows[0])
        self._charge(queues, (len(pods) * cpu, len(pods) * memory, len(pods) * gpus))

    def _unplace_alike(self, before: _BeforeAlike) -> None:
        pods, nodes, wait = before.pods, before.nodes, before.wait
        (self.releasing if wait else self.idle)[:, nodes] = before.columns
        for pod, node in zip(pods, before.were_on, strict=True):
            self.node[pod], self.status[pod] = node, PENDING
            del self.placed[pod]
        self.moved.extend(pods)
        self.touched.extend(nodes.tolist())
        podset = self.podset[pods[0]]
        if podset >= 0:
            self._count_placed(podset, wait, -len(pods))
        for ledger, queue, amounts in before.queues:
            ledger[queue] = amounts

    def wait_instead(self, pod: int) -> None:
        """Turn a placement of this cycle into a pipelined one."""
        self._change(pod, Transition.HOLD_BACK)
        self.journal.put_new(self.placed, pod, True)

    def start_instead(self, pods: Sequence[int]) -> None:
        """Turn pipelined placements into immediate ones."""
        for pod in pods:
            self._change(pod, Transition.START)
            self.journal.put_new(self.placed, pod, False)

    def suppose_evicted(self, pod: int) -> None:
        """Evict a pod tentatively: its resources count as releasing, and other pods can be pipelined onto them."""
        self.journal.put_new(self.virtual, pod, self.status[pod])
        self._change(pod, Transition.EVICT)

    def decide(self, evicted: dict[int, Any]) -> None:
        """Make tentative evictions final: `evicted` pods -> why. Nothing before this call can be undone.

        A pod that was placed in this cycle is not evicted but becomes pending again, as it never ran there.
        """
        for pod, place in self.left.items():
            self._charge_node(pod, RELEASING, -1, place)
        self.left.clear()
        for pod, why in evicted.items():
            if self._ran(pod):
                self.evicted[pod] = why
            if self.status[pod] == RELEASING and pod in self.placed:
                self._take_back(pod)
        self.virtual.clear()
        self.settle()

    def settle(self) -> None:
        """Make everything so far final: nothing before this call can be undone."""
        self.journal.entries.clear()

    def _take_back(self, pod: int) -> None:
        """Give up a placement of this cycle: the pod is pending again, or releasing on the node where it runs."""
        origin = int(self.snapshot.pods.node[pod]) if self._ran(pod) else -1
        self.placed.pop(pod)
        # to no node: its origin is charged already
        self._change(pod, Transition.LEAVE_ORIGIN if origin >= 0 else Transition.WITHDRAW, to=-1)
        self.node[pod] = origin
        if pod in self.snapshot.pods.gpu_groups:
            self.gpu_groups[pod] = self.snapshot.pods.gpu_groups[pod]

    def _ran(self, pod: int) -> bool:
        """Whether the pod had a node when the cycle began."""
        return IS_ACTIVE_USED[int(self.snapshot.pods.status[pod])]

    def keep(self, pod: int) -> None:
        """Take back the tentative eviction of a pod: it stays where it is."""
        self._change(pod, Transition.KEEP)
        self.journal.drop(self.virtual, pod)

    def fresh_group(self) -> str:
        """Return a name for a device that no pod shares yet, unique within the cycle."""
        name, number = self.devices.fresh_name(self._fresh_groups[0])
        self.journal.put(self._fresh_groups, 0, number)
        return name

    def _change(self, pod: int, transition: Transition, to: int | None = None) -> None:
        """Apply a transition to a pod. `to`: its new node, -1 for none; None: it keeps its node."""
        status = self.status[pod]
        target = target_of(transition, status, self.virtual.get(pod))
        moves, queue = transition in _MOVES, transition.value.queue
        if queue < 0:
            self._charge_queue(pod, -1.0)
        stays = to is None and self.node[pod] >= 0 and pod not in self.gpu_groups
        if stays:
            self._recharge_node(pod, status, target)
        elif not moves and self.node[pod] >= 0:
            self._charge_node(pod, status, -1)
        if to is not None:
            self.journal.put(self.node, pod, to)
        self.journal.put(self.status, pod, target)
        self.moved.append(pod)
        self._recount(pod, status, target)
        if not stays and self.node[pod] >= 0:
            self._charge_node(pod, target, 1)
        if queue > 0:
            self._charge_queue(pod, 1.0)

    def _recount(self, pod: int, status: int, target: int) -> None:
        """Count a pod in its podset by its new status."""
        podset, put = self.podset[pod], self.journal.put
        if podset >= 0:
            for figure, by in _recounts(status, target):
                counts: Cells = getattr(self, figure)
                put(counts, podset, counts[podset] + by)

    def _charge_queue(self, pod: int, sign: float) -> None:
        queues = self._queues_of(pod)
        if queues:
            cpu, memory, gpus = self.quota_amounts(self.of_class(pod), self.node[pod])
            self.journal.entries.extend(queues)
            self._charge(queues, (sign * cpu, sign * memory, sign * gpus))

    def _queues_of(self, pod: int) -> list[Ledgered]:
        """Return the ledger entries that a pod is charged to, with their present amounts."""
        gang, gangs = self.gang[pod], self.snapshot.gangs
        queue = gangs.queue[gang] if gang >= 0 else -1
        if queue < 0:
            return []
        path, ledger = self.snapshot.queues.paths[queue], self.queue_allocated
        found = [(ledger, q, ledger[q]) for q in path]
        if not gangs.preemptible[gang] and self.core.get(pod, True):
            found += [(self.queue_held, q, self.queue_held[q]) for q in path]
        return found

    def _charge(self, queues: Sequence[Ledgered], more: Triple) -> None:
        cpu, memory, gpus = more
        for ledger, queue, (c, m, g) in queues:
            ledger[queue] = (c + cpu, m + memory, floor((g + gpus) * 1e4 + 0.5) / 1e4)

    def _recharge_node(self, pod: int, status: int, target: int) -> None:
        """Charge a pod without shared devices to its node by its new status."""
        node, before, after = self.node[pod], _EFFECTS[status], _EFFECTS[target]
        self.touched.append(node)
        amount = self.amounts.of_node(self.klass[pod], node)
        for block, by in (
            (self.idle, after.idle - before.idle),
            (self.releasing, after.releasing - before.releasing),
        ):
            if by:
                self.journal.column(block, node)
                block[:, node] += by * amount

    def _charge_node(self, pod: int, status: int, sign: int, place: Place | None = None) -> None:
        """Add a pod's request, times `sign`, to the columns of its node or of `place`, by the effect of the status."""
        node, groups = place or (self.node[pod], self.gpu_groups.get(pod, ()))
        self.touched.append(node)
        amount = self.amounts.of_node(self.klass[pod], node)
        effect = _EFFECTS[status]
        for block, change in ((self.idle, effect.idle * sign), (self.releasing, effect.releasing * sign)):
            if change:
                self.journal.column(block, node)
                block[:, node] += amount if change > 0 else -amount
        if groups and self.amounts.shared[self.klass[pod]]:
            self._share_devices(pod, status, sign, (node, groups))

    def _share_devices(self, pod: int, status: int, sign: int, place: Place) -> None:
        node, groups = place
        c = self.of_class(pod)
        self.devices.change(node, groups, (self.share_memory(c, node), c.compute_mode), (status, sign))


@cache
def _recounts(status: int, target: int) -> list[tuple[str, int]]:
    """The podset counts that a change from one status to another changes, and by how much."""
    before, after = _EFFECTS[status], _EFFECTS[target]
    by = {name: getattr(after, name) - getattr(before, name) for name in Effect._fields}
    return [(name, more) for name, more in by.items() if more and name not in ("idle", "releasing")]
