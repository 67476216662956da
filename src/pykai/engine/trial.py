"""Trial: the one mutable object of a cycle. What is idle, what is being released, where every pod is.

Every mutation goes through the journal, so a gang that does not fit is undone by `undo_to(mark)`: all or nothing
without inverse operations. Node figures are columns `[resource, node]`; pod and podset figures are read one at a time
(`cells`): lists in a cycle with much to place, the columns themselves where few wait. There is no plugin,
configuration, logger or clock on it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from math import floor
from typing import Any, NamedTuple

from pykai.engine.amounts import PodAmounts
from pykai.engine.devices import DeviceLedger
from pykai.engine.initial_state import node_columns, podset_counts, queue_ledgers
from pykai.engine.journal import Journal
from pykai.engine.pod_states import EFFECTS, Effect, Transition, target_of
from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column, Rows, cells
from pykai.model.snapshot import Snapshot
from pykai.model.status import IS_ACTIVE_USED, IS_ALLOCATED, Status

PENDING, ALLOCATED, PIPELINED, RELEASING = map(
    int, (Status.PENDING, Status.ALLOCATED, Status.PIPELINED, Status.RELEASING)
)
"""Numbers looked up once: asking an enum for a member takes long in a loop."""
_EFFECTS = [EFFECTS[status] for status in Status]
_MOVES = (Transition.MOVE, Transition.MOVE_LATER)
"""What a pod held before stays releasing."""
Place = tuple[int, tuple[str, ...]]
"""A node, and the devices that are shared there."""

Triple = tuple[float, float, float]
Ledgered = tuple[list[Triple], int, Triple]
"""A ledger of the queues, a queue, and its amounts before a change: an entry of the journal."""


class _Before(NamedTuple):
    """How things stood before a pending pod was given a node."""

    pod: int
    was_on: int
    node: int
    wait: bool
    column: Column
    """Of what it takes its place from."""
    queues: list[Ledgered]


class Trial:
    """The cluster as this cycle would leave it so far."""

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
        """Pods whose release is only supposed by a scenario (not yet decided) -> the status they had."""
        self.left: dict[int, Place] = {}
        """Pods with a promise of this cycle that a scenario has moved -> where it was: it still counts as releasing."""
        self.touched: list[int] = []
        """Node rows in order of change; readers remember how far they have read."""
        self.moved: list[int] = []
        """Pod rows whose status or node changed, likewise."""
        self.evicted: dict[int, Any] = {}
        self.placed: dict[int, bool] = {}
        """Pods this cycle gave a node, in order of decision; True where it must wait for a release."""
        self._semi_preemptible = snapshot.gangs.semi_preemptible
        self.core: dict[int, bool] = {}
        """Pods of semi-preemptible gangs -> whether they are of its minimum, which cannot be evicted."""
        self.amounts = PodAmounts(snapshot)
        self._fresh_groups = [0]
        """How many devices got a name in this cycle."""
        self._open_podsets()
        self._open_nodes()
        self._open_queues()

    def _open_podsets(self) -> None:
        counts = podset_counts(self.snapshot)
        self.active_allocated, self.active_used = counts.active_allocated, counts.active_used
        self.pipelined, self.pending = counts.pipelined, counts.pending
        self.gated, self.succeeded = counts.gated, counts.succeeded
        cells = {name: getattr(self, name) for name in Effect._fields if name not in ("idle", "releasing")}
        self._counts = [[cells[name] for name in cells if getattr(effect, name)] for effect in _EFFECTS]
        """By status number: the counts of its podset that a pod adds to."""

    def _open_nodes(self) -> None:
        """Whole columns at once, shared devices pod by pod."""
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
        """Let background pods that have a node count as leaving, and neither as use nor as request of their queues.

        Returns them with the status each had, in order of name.
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
        """Of semi-preemptible gangs these pods are the core; what the others hold can be evicted."""
        for gang, pods in core.items():
            for pod in self.snapshot.gangs.pods(gang):
                self.core[pod] = True
                if pod not in pods and IS_ALLOCATED[self.status[pod]]:
                    held = [entry for entry in self._queues_of(pod) if entry[0] is self.queue_held]
                    cpu, memory, gpus = self.quota_amounts(self.of_class(pod), self.node[pod])
                    self._charge(held, (-cpu, -memory, -gpus))
                self.core[pod] = pod in pods

    # ----------------------------------------------------------------------------------------------------- questions
    def has_minimum(self, gang: int) -> bool:
        """Whether the gang has as many pods, or sub-groups, as it needs."""
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
        """Whether what the gang places next could be evicted again: all, or what a semi-preemptible one has above its
        minimum."""
        return self.snapshot.gangs.preemptible[gang] or (gang in self._semi_preemptible and self.has_minimum(gang))

    def _note_core(self, pods: Sequence[int]) -> None:
        """Pods that are about to be placed belong to the core of a semi-preemptible gang until it has its minimum."""
        gang = self.gang[pods[0]]
        if gang in self._semi_preemptible:
            self.journal.put_each_new(self.core, pods, not self.has_minimum(gang))

    def of_class(self, pod: int) -> PodClass:
        return self.snapshot.pods.classes[self.klass[pod]]

    def share_memory(self, c: PodClass, node: int) -> float:
        """MiB per device a shared request takes on a node."""
        return self.amounts.share_memory(c, node)

    def share_portion(self, c: PodClass, node: int) -> float:
        """Portion per device a shared request takes on a node."""
        return self.amounts.share_portion(c, node)

    def accepted_gpus(self, pod: int) -> float:
        """GPUs granted to a pod that has a node."""
        return self.amounts.accepted_gpus(self.of_class(pod), self.node[pod])

    def quota_amounts(self, c: PodClass, node: int) -> tuple[float, float, float]:
        """What a pod counts against its queue; without a node a gpu-memory request counts no GPU."""
        return self.amounts.of_queue(c, node)

    # ------------------------------------------------------------------------------------------------------ changes
    def mark(self) -> int:
        return self.journal.mark()

    def undo_to(self, mark: int) -> None:
        """Back to how things were at the mark; nodes that change are reported as touched."""
        entries = self.journal.entries
        if len(entries) == mark:
            return
        seen: set[int] = set()
        for block, key, _ in entries[mark:]:  # steps noted as one report their own
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

        A pod that is supposed to leave keeps its releasing resources where it was: it moves.
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
        """The most frequent change of all as one step: a pending pod gets a node; shares of devices come on top."""
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
        """Give pending pods of one podset and class, which takes no shares, nodes on which they fit, each as many as
        it takes (None: one): `place` for many, at the price of one."""
        if self._semi_preemptible:
            self._note_core(pods)
        (nodes, copies), journal, status = where, self.journal, PIPELINED if wait else ALLOCATED
        rows = (nodes if copies is None else nodes.repeat(copies)).tolist()
        journal.put_each(self.node, pods, rows)
        journal.put_each(self.status, pods, [status] * len(pods))
        journal.put_each_new(self.placed, pods, wait)
        self._count(pods[0], PENDING, -len(pods))
        self._count(pods[0], status, len(pods))
        self.moved.extend(pods)
        self.touched.extend(rows if copies is None else nodes.tolist())
        request = self.amounts.where_it_fits(self.klass[pods[0]])[:, None]
        amounts = request if copies is None else request * copies
        journal.take_from(self.releasing if wait else self.idle, nodes, amounts)
        self._charge_queue(pods[0], float(len(pods)))

    def wait_instead(self, pod: int) -> None:
        """Turn a placement of this cycle into one that waits."""
        self._change(pod, Transition.HOLD_BACK)
        self.journal.put_new(self.placed, pod, True)

    def start_instead(self, pods: Sequence[int]) -> None:
        """Turn placements that wait into ones that do not."""
        for pod in pods:
            self._change(pod, Transition.START)
            self.journal.put_new(self.placed, pod, False)

    def suppose_evicted(self, pod: int) -> None:
        """Release a pod's resources for the sake of argument; they can be waited for."""
        self.journal.put_new(self.virtual, pod, self.status[pod])
        self._change(pod, Transition.EVICT)

    def decide(self, evicted: dict[int, Any]) -> None:
        """What was supposed so far holds: these pods go, for these reasons. There is no way back behind this.

        A pod that only got its place in this cycle is not evicted but waits again: it has left no node.
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
        """What was placed so far holds: there is no way back behind this."""
        self.journal.entries.clear()

    def _take_back(self, pod: int) -> None:
        """A place of this cycle is given up: the pod waits again, or leaves the node on which it runs, as before."""
        origin = int(self.snapshot.pods.node[pod]) if self._ran(pod) else -1
        self.placed.pop(pod)
        # without a node: what it leaves is charged already
        self._change(pod, Transition.LEAVE_ORIGIN if origin >= 0 else Transition.WITHDRAW, to=-1)
        self.node[pod] = origin
        if pod in self.snapshot.pods.gpu_groups:
            self.gpu_groups[pod] = self.snapshot.pods.gpu_groups[pod]

    def _ran(self, pod: int) -> bool:
        """Whether the pod had a node when the cycle began."""
        return IS_ACTIVE_USED[int(self.snapshot.pods.status[pod])]

    def keep(self, pod: int) -> None:
        """The pod is not evicted after all: it stays where it is."""
        self._change(pod, Transition.KEEP)
        self.journal.drop(self.virtual, pod)

    def fresh_group(self) -> str:
        """A name for a device that no pod shares yet, unique within the cycle."""
        name, number = self.devices.fresh_name(self._fresh_groups[0])
        self.journal.put(self._fresh_groups, 0, number)
        return name

    def _change(self, pod: int, transition: Transition, to: int | None = None) -> None:
        """Let a pod make a transition, at its node or on the way `to` another; -1: to none."""
        status = self.status[pod]
        target = target_of(transition, status, self.virtual.get(pod))
        moves, queue = transition in _MOVES, transition.value.queue
        if queue < 0:
            self._charge_queue(pod, -1.0)
        self._count(pod, status, -1)
        if not moves and self.node[pod] >= 0:
            self._charge_node(pod, status, -1)
        if to is not None:
            self.journal.put(self.node, pod, to)
        self.journal.put(self.status, pod, target)
        self.moved.append(pod)
        self._count(pod, target, 1)
        if self.node[pod] >= 0:
            self._charge_node(pod, target, 1)
        if queue > 0:
            self._charge_queue(pod, 1.0)

    def _count(self, pod: int, status: int, by: int) -> None:
        podset = self.podset[pod]
        if podset >= 0:
            put = self.journal.put
            for cells in self._counts[status]:
                put(cells, podset, cells[podset] + by)

    def _charge_queue(self, pod: int, sign: float) -> None:
        queues = self._queues_of(pod)
        if queues:
            cpu, memory, gpus = self.quota_amounts(self.of_class(pod), self.node[pod])
            self.journal.entries.extend(queues)
            self._charge(queues, (sign * cpu, sign * memory, sign * gpus))

    def _queues_of(self, pod: int) -> list[Ledgered]:
        """What a pod is charged to, as it is: ledger, queue, amounts."""
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

    def _charge_node(self, pod: int, status: int, sign: int, place: Place | None = None) -> None:
        """`place`: where, if not where the pod is."""
        node, groups = place or (self.node[pod], self.gpu_groups.get(pod, ()))
        self.touched.append(node)
        amount = self.amounts.of_node(self.klass[pod], node)
        if pod in self.snapshot.pods.reservation:
            amount = amount.copy()
            amount[GPU] = 0.0
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
