"""Views of a decided state: workloads, queues, the order of service and evictions.

Terminal and dashboard show the same structs. Everything is computed from a snapshot and its plan; amounts are those of
the engine and of the metrics `queue_*`: cores, bytes and devices, -1 if unlimited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np

from pykai.engine.amounts import PodAmounts
from pykai.engine.decide import queue_book
from pykai.engine.initial_state import QueueLedgers, queue_ledgers
from pykai.engine.queues import Claim, QueueBook, can_reclaim, less, may_lose, minus, reclaimable
from pykai.explain.source import Decided
from pykai.explain.why import NOMINATED
from pykai.model.plan import Evict, Key, QueueFigures, Triple
from pykai.model.resources import CPU, GPU, MEMORY, UNLIMITED, Column
from pykai.model.status import IS_ACTIVE_USED, IS_ALLOCATED, Status
from pykai.objects.kinds import PodGroup
from pykai.observe.wording import eviction_reason, reason_line

CORE = 1000.0
"""Millicores per core."""


class Amount(msgspec.Struct, frozen=True):
    """Cores, bytes and GPUs; -1 is unlimited."""

    cpu: float = 0.0
    memory: float = 0.0
    gpu: float = 0.0


def amount(values: Sequence[float]) -> Amount:
    """Return the amount of engine values, whose CPU is in millicores."""
    cpu = values[CPU]
    return Amount(cpu if cpu == UNLIMITED else cpu / CORE, values[MEMORY], round(values[GPU], 4))


class QueueView(msgspec.Struct, frozen=True, rename="camel"):
    """A queue, including the queues below it.

    `requested`: allocated and pending; `usage`: the normalised past usage that counts for its fair share.
    """

    name: str
    title: str
    parent: str
    depth: int
    leaf: bool
    priority: int
    quota: Amount
    fair_share: Amount
    limit: Amount
    over_quota_weight: float
    allocated: Amount
    allocated_non_preemptible: Amount
    requested: Amount
    usage: Amount
    running: int
    """Workloads with allocated pods."""
    waiting: int
    """Workloads with pending pods."""
    waiting_pods: int
    may_reclaim_from: tuple[str, ...] = ()
    """Queues from which it can reclaim a GPU now; an inner queue stands for all queues below it."""
    may_lose_to: tuple[str, ...] = ()

    @property
    def borrowed(self) -> float:
        """Return the GPUs above quota, which other queues can reclaim."""
        return 0.0 if self.quota.gpu == UNLIMITED else round(max(self.allocated.gpu - self.quota.gpu, 0.0), 4)


class WorkloadView(msgspec.Struct, frozen=True, rename="camel"):
    """A PodGroup with pods. `state`: Running, Starting, Waiting or Pipelined (terminating pods hold its capacity)."""

    namespace: str
    name: str
    workload: str
    """Kind and name of the workload it was created for."""
    queue: str
    priority: int
    preemptible: bool
    state: str
    pods: int
    running: int
    waiting: int
    min_member: int
    allocated: Amount
    requested: Amount
    created: float
    last_start: float | None
    position: int | None = None
    """Position in its queue's order of service, from 1; None if it gets no turn."""
    overall: int | None = None
    """Position in the order of service of all queues."""
    reason: str = ""
    """The token of the dominant reason why it is pending."""
    category: str = ""
    message: str = ""
    nodes: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return self.namespace, self.name


class EvictionView(msgspec.Struct, frozen=True, rename="camel"):
    """An evicted pod. `at`: seconds since the epoch; `ran`: seconds since it started, None if unknown."""

    at: float
    namespace: str
    pod: str
    workload: str
    queue: str
    action: str
    message: str
    evictor_namespace: str = ""
    evictor: str = ""
    evictor_queue: str = ""
    node: str = ""
    moves_to: str = ""
    gpus: float = 0.0
    ran: float | None = None

    @property
    def gist(self) -> str:
        """Return the message without the facts in other fields; for a reclaim, the state of the victim's queue."""
        return eviction_reason(self.message, f"{self.namespace}/{self.pod}")

    @property
    def lost_gpu_hours(self) -> float | None:
        """Return the GPU hours since the last start, an upper bound if the workload writes checkpoints."""
        return None if self.ran is None else self.gpus * self.ran / 3600


class Overview:
    """Views of a decided state, each computed on first access."""

    def __init__(self, decided: Decided) -> None:
        self.decided = decided
        self.snapshot, self.plan, self.now = decided.snapshot, decided.plan, decided.now

    # ---------------------------------------------------------------------------------------------------------- queues
    @cached_property
    def queues(self) -> tuple[QueueView, ...]:
        """Return all queues in preorder of the tree, siblings by name."""
        queues, reclaims = self.snapshot.queues, self._reclaims
        loses: dict[int, list[str]] = {}
        for row, victims in reclaims.items():
            for victim in victims:
                loses.setdefault(victim, []).append(queues.names[row])

        def tree(rows: Iterable[int], depth: int) -> Iterator[tuple[int, int]]:
            for row in sorted(rows, key=queues.names.__getitem__):
                yield row, depth
                yield from tree(queues.children[row], depth + 1)

        roots = [row for row, parent in enumerate(queues.parent) if parent < 0]
        return tuple(self._queue(row, depth, reclaims, loses) for row, depth in tree(roots, 0))

    def _queue(
        self, row: int, depth: int, reclaims: Mapping[int, Sequence[int]], loses: Mapping[int, list[str]]
    ) -> QueueView:
        queues, ledgers, figures = self.snapshot.queues, self.ledgers, self._figures
        parent, counts = queues.parent[row], self._workload_counts
        return QueueView(
            name=queues.names[row],
            title=queues.titles[row],
            parent=queues.names[parent] if parent >= 0 else "",
            depth=depth,
            leaf=not queues.children[row],
            priority=queues.priority[row],
            quota=amount(queues.deserved[:, row].tolist()),
            fair_share=amount(figures[row].fair_share),
            limit=amount(queues.limit[:, row].tolist()),
            over_quota_weight=float(queues.weight[GPU, row]),
            allocated=amount(ledgers.allocated[row]),
            allocated_non_preemptible=amount(ledgers.held[row]),
            requested=amount(ledgers.requested[row]),
            usage=Amount(*figures[row].usage),
            running=int(counts[0, row]),
            waiting=int(counts[1, row]),
            waiting_pods=int(counts[2, row]),
            may_reclaim_from=tuple(sorted(queues.names[victim] for victim in reclaims.get(row, ()))),
            may_lose_to=tuple(sorted(loses.get(row, ()))),
        )

    @cached_property
    def ledgers(self) -> QueueLedgers:
        """Return the allocations and requests of queues before the plan is carried out."""
        return queue_ledgers(self.snapshot, self._amounts)

    @cached_property
    def _amounts(self) -> PodAmounts:
        return PodAmounts(self.snapshot)

    @cached_property
    def _figures(self) -> Sequence[QueueFigures]:
        if len(self.plan.queues) != len(self.snapshot.queues):
            raise ValueError("the plan was made for another snapshot")
        return self.plan.queues

    @cached_property
    def _workload_counts(self) -> Column:
        """Return [running, waiting, waiting pods; queue], summed up the tree."""
        gangs, paths = self.snapshot.gangs, self.snapshot.queues.paths
        allocated, _, waiting = self._pod_counts
        leaves = np.zeros((3, len(paths)))
        queue = gangs.columns.queue
        known = queue >= 0
        for line, each in enumerate((allocated > 0, waiting > 0, waiting)):
            leaves[line] = np.bincount(queue[known], weights=each[known], minlength=len(paths))
        total = np.zeros_like(leaves)
        for row in np.flatnonzero(leaves.any(axis=0)).tolist():
            for above in paths[row]:
                total[:, above] += leaves[:, row]
        return total

    @cached_property
    def _pod_counts(self) -> tuple[Column, Column, Column]:
        """Return by gang the number of placed pods, of placed or terminating pods, and of pending pods."""
        pods, size = self.snapshot.pods, len(self.snapshot.gangs)
        ours = pods.gang >= 0

        def count(statuses: Sequence[bool]) -> Column:
            chosen = pods.gang[ours & np.array(statuses)[pods.status]]
            return np.bincount(chosen, minlength=size).astype(np.float64)

        waits = [status in (Status.PENDING, Status.GATED) for status in Status]
        return count(IS_ALLOCATED), count(IS_ACTIVE_USED), count(waits)

    # --------------------------------------------------------------------------------------------------------- reclaim
    @cached_property
    def book(self) -> QueueBook:
        """Return the queues as the rules of the engine see them."""
        return queue_book(self.snapshot, self.decided.policy, self.now)

    @cached_property
    def _reclaims(self) -> dict[int, list[int]]:
        """Return, by leaf queue, the queues from which the engine would now reclaim one GPU (without GPUs: one core).

        Reclaim compares queues at the level where their paths diverge, so siblings of ancestors are checked.
        """
        queues, book = self.snapshot.queues, self.book
        unit: Triple = (0.0, 0.0, 1.0) if book.total[GPU] > 0 else (CORE, 0.0, 0.0)
        roots = [row for row, parent in enumerate(queues.parent) if parent < 0]
        can_lose = [self._has_victims(row, unit) for row in range(len(queues))]
        found: dict[int, list[int]] = {}
        for row in (row for row in range(len(queues)) if not queues.children[row]):
            claim = Claim(row, unit)
            if not can_reclaim(book, claim):
                continue
            for ours in queues.paths[row]:
                siblings = queues.children[queues.parent[ours]] if queues.parent[ours] >= 0 else roots
                for theirs in (each for each in siblings if each != ours and can_lose[each]):
                    if may_lose(book, claim, theirs) and reclaimable(book, claim, {theirs: [unit]}):
                        found.setdefault(row, []).append(theirs)
        return found

    def _has_victims(self, row: int, unit: Triple) -> bool:
        """Whether preemptible workloads hold some of the resource.

        If a queue can lose only what exceeds its quota or fair share, they must hold more than that.
        """
        book = self.book
        evictable = minus(book.allocated[row], book.allocated_non_preemptible[row])
        if not any(take > 0 and held > 0 for take, held in zip(unit, evictable, strict=True)):
            return False
        if book.priority_in_quota:
            return True
        bounds = zip(book.deserved[row], book.allocatable[row], book.allocated[row], strict=True)
        return any(less(quota, held) or less(share, held) for quota, share, held in bounds)

    # ------------------------------------------------------------------------------------------------------- workloads
    @cached_property
    def positions(self) -> Mapping[Key, tuple[int, int]]:
        """Return each gang's position in its queue and in all queues, from 1."""
        gangs, by_queue = self.snapshot.gangs, dict[int, int]()
        rows, found = gangs.rows_of(self.decided.order), dict[Key, tuple[int, int]]()
        for overall, key in enumerate(self.decided.order, 1):
            queue = gangs.queue[rows[key]]
            by_queue[queue] = by_queue.get(queue, 0) + 1
            found[key] = by_queue[queue], overall
        return found

    @cached_property
    def waiting(self) -> tuple[WorkloadView, ...]:
        """Return workloads with pending pods: those that get a turn, in order of service, then the others by age."""
        _, _, waiting = self._pod_counts
        rows = np.flatnonzero(waiting).tolist()
        views = [self._workload(row) for row in rows]
        last = len(self.decided.order) + 1
        return tuple(sorted(views, key=lambda view: (view.overall or last, view.created, view.key)))

    def queue_order(self, name: str) -> list[WorkloadView]:
        """Return the pending workloads of a queue in its order of service; KeyError if there is no such queue."""
        queues = self.snapshot.queues
        below = {queues.names[row] for row, path in enumerate(queues.paths) if queues.rows[name] in path}
        return [view for view in self.waiting if view.queue in below]

    def running(self, name: str) -> list[WorkloadView]:
        """Return the running workloads of a queue and those below it, the youngest first."""
        gangs, queues = self.snapshot.gangs, self.snapshot.queues
        below = np.array([queues.rows[name] in path for path in queues.paths] + [False])
        rows = np.flatnonzero((self._pod_counts[0] > 0) & below[gangs.columns.queue])
        return sorted(map(self._workload, rows.tolist()), key=lambda view: (-view.created, view.key))

    def workload(self, key: Key) -> WorkloadView | None:
        """Return a workload by namespace and name of its PodGroup; None if there is none."""
        row = self.snapshot.gangs.rows_of([key]).get(key)
        return None if row is None else self._workload(row)

    def _workload(self, row: int) -> WorkloadView:
        gangs, pods = self.snapshot.gangs, self.snapshot.pods
        meta = gangs.objects[row].metadata
        key = meta.key
        members = gangs.pods(row)
        running, waiting = int(self._pod_counts[0][row]), int(self._pod_counts[2][row])
        in_queue, overall = self.positions.get(key, (None, None)) if waiting else (None, None)
        state = self._state(row)
        verdict = self.decided.waiting.get(key) if waiting else None
        reason = verdict.dominant if verdict is not None else None
        if reason is None and waiting and state == "Pipelined":
            reason = NOMINATED
        nodes = {self.snapshot.nodes.names[pods.node[pod]] for pod in members if pods.node[pod] >= 0}
        return WorkloadView(
            namespace=meta.namespace,
            name=meta.name,
            workload=workload_title(gangs.objects[row]),
            queue=gangs.queue_name(row),
            priority=gangs.priority[row],
            preemptible=bool(gangs.preemptible[row]),
            state=state,
            pods=len(members),
            running=running,
            waiting=waiting,
            min_member=sum(gangs.podset_min[podset] for podset in gangs.podsets(row)),
            allocated=self._sum(pod for pod in members if IS_ALLOCATED[pods.status[pod]]),
            requested=self._sum(members),
            created=gangs.created(row),
            last_start=gangs.last_start(row),
            position=in_queue,
            overall=overall,
            reason=reason.token if reason else "",
            category=str(reason.category) if reason else "",
            message=reason_line(reason.message) if reason else "",
            nodes=tuple(sorted(nodes)),
        )

    def _sum(self, pods: Iterable[int]) -> Amount:
        table = self.snapshot.pods
        parts = [self._amounts.of_queue(table.of_class(pod), int(table.node[pod])) for pod in pods]
        return amount([sum(column) for column in zip(*parts, strict=True)] or (0.0, 0.0, 0.0))

    def _state(self, row: int) -> str:
        if not self._pod_counts[2][row]:
            return "Running" if self._pod_counts[0][row] else "Ended"
        if row in self._placed_by_plan[0]:
            return "Starting"
        return "Pipelined" if row in self._placed_by_plan[1] else "Waiting"

    @cached_property
    def _placed_by_plan(self) -> tuple[set[int], set[int]]:
        """Return the gangs whose pods the plan binds, and those whose pods it nominates."""
        rows, gang = self.snapshot.pods.rows_of, self.snapshot.pods.gang
        bound = rows([bind.pod for bind in self.plan.binds]).values()
        promised = rows([nomination.pod for nomination in self.plan.nominations]).values()
        return {int(gang[pod]) for pod in bound}, {int(gang[pod]) for pod in promised}

    # ------------------------------------------------------------------------------------------------------- evictions
    @cached_property
    def evictions(self) -> tuple[EvictionView, ...]:
        """Return the plan's evictions in the order of its decisions."""
        gangs = self.snapshot.gangs
        rows = self.snapshot.pods.rows_of(evict.pod for evict in self.plan.evictions)
        keys = {key for evict in self.plan.evictions for key in (evict.gang, evict.evictor) if key}
        return tuple(self._eviction(evict, rows[evict.pod], gangs.rows_of(keys)) for evict in self.plan.evictions)

    def _eviction(self, evict: Evict, pod: int, groups: Mapping[Key, int]) -> EvictionView:
        snapshot, gang = self.snapshot, groups[evict.gang]
        gangs, evictor = snapshot.gangs, evict.evictor
        node, began = int(snapshot.pods.node[pod]), snapshot.pods.objects[pod].status.start_time
        started = gangs.last_start(gang) if began is None else began.timestamp()
        return EvictionView(
            at=self.now,
            namespace=evict.pod[0],
            pod=evict.pod[1],
            workload=evict.gang[1],
            queue=gangs.queue_name(gang),
            action=evict.action,
            message=" ".join(evict.message.split()),
            evictor_namespace=evictor[0] if evictor else "",
            evictor=evictor[1] if evictor else "",
            evictor_queue=gangs.queue_name(groups[evictor]) if evictor else "",
            node=snapshot.nodes.names[node] if node >= 0 else "",
            moves_to=evict.moves_to,
            gpus=self._sum([pod]).gpu,
            ran=None if started is None else max(self.now - started, 0.0),
        )


def workload_title(group: PodGroup) -> str:
    """Return kind and name of the workload a PodGroup was created for; without one, the PodGroup's own."""
    meta = group.metadata
    for owner in meta.owner_references or ():
        return f"{owner.kind} {owner.name}"
    return f"PodGroup {meta.name}"
