"""§2-§4: where every pod is, what that takes of nodes and queues. The only thing of the twin that changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from pykai.model.gangs import SubGroupSet
from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import CPU, GPU, MEMORY, MIG_PREFIX, Column
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.objects import names
from tests.properties.twin.devices import NodeFigures
from tests.properties.twin.predicates import allowed
from tests.properties.twin.rules import Gifts, Rule
from tests.properties.twin.shares import QueueBook, Sharer, set_fair_share

ALLOCATED = {Status.ALLOCATED, Status.BOUND, Status.BINDING, Status.RUNNING}
ACTIVE_ALLOCATED = ALLOCATED | {Status.PIPELINED}
ACTIVE_USED = ACTIVE_ALLOCATED | {Status.RELEASING, Status.STUCK_IN_RELEASING}

Amount = tuple[float, float, float]
"""cpu (milli), memory (bytes), GPUs."""
NOTHING: Amount = (0.0, 0.0, 0.0)


def plus(a: Sequence[float], b: Sequence[float], sign: int = 1) -> Amount:
    return a[0] + sign * b[0], a[1] + sign * b[1], round(a[2] + sign * b[2], 4)


def total(amounts: Iterable[Amount]) -> Amount:
    result = NOTHING
    for amount in amounts:
        result = plus(result, amount)
    return result


class Place(NamedTuple):
    """Where and as what a pod is charged; `groups`: the devices it shares there."""

    node: int
    status: Status
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Whereabouts:
    """A pod at this moment."""

    status: Status
    node: int
    groups: tuple[str, ...]
    before: Status | None = None
    """What it was before a scenario supposed that it is evicted ("virtual status")."""
    leaves: tuple[Place, ...] = ()
    """The places it moves away from; only in the first one it has ever been."""
    given: Gifts = ()
    """What rules gave it with the place it got in this cycle."""

    def places(self) -> list[Place]:
        here = [Place(self.node, self.status, self.groups)] if self.status in ACTIVE_USED and self.node >= 0 else []
        return here + list(self.leaves)


Saved = tuple[list[Whereabouts], list[NodeFigures], int]


class World:
    """A cluster in the middle of a cycle."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        pods, nodes = self.snapshot.pods, self.snapshot.nodes
        self.gangs, self.queues = self.snapshot.gangs, self.snapshot.queues
        self.gang: list[int] = pods.gang.tolist()
        self.podset: list[int] = pods.podset.tolist()
        self.gpu_memory: list[float] = nodes.gpu_memory.tolist()
        rows = range(len(nodes))
        self.allowed = [[allowed(snapshot, pod, node) for node in rows] for pod in range(len(pods.objects))]
        self.start = [
            Whereabouts(Status(status), node, pods.gpu_groups.get(row, ()))
            for row, (status, node) in enumerate(zip(pods.status.tolist(), pods.node.tolist(), strict=True))
        ]
        self.pods = list(self.start)
        self.nodes = [NodeFigures(column[:], [0.0] * len(column)) for column in nodes.allocatable.T.tolist()]
        self.new_devices = 0
        self._use: dict[tuple[bool, ...], list[Amount]] = {}
        """Use of queues as long as no pod moves."""
        self.rules: Sequence[Rule] = ()
        self.evicted: set[int] = set()
        """Pods whose eviction is decided."""
        self.notes: dict[int, set[str]] = {}
        """Why the topology plugin found no nodes for a gang."""
        for row in sorted(range(len(self.pods)), key=lambda r: (self.of_class(r).shared, pods.names[r])):
            for place in self.pods[row].places():
                self._charge(row, place, 1)
        self.book = self._book()

    # --------------------------------------------------------------------------------------------------------- changes
    def save(self) -> Saved:
        return list(self.pods), [node.copy() for node in self.nodes], self.new_devices

    def restore(self, saved: Saved) -> None:
        pods, nodes, self.new_devices = saved
        self._use.clear()
        self.pods, self.nodes = list(pods), [node.copy() for node in nodes]

    def put(self, pod: int, after: Whereabouts) -> None:
        """The pod is somewhere else from now on, or something else."""
        old, new = self.pods[pod].places(), after.places()
        for place in old:
            if place not in new:
                self._charge(pod, place, -1)
        for place in new:
            if place not in old:
                self._charge(pod, place, 1)
        self.pods[pod] = after
        self._use.clear()

    def become(self, pod: int, status: Status) -> None:
        self.put(pod, replace(self.pods[pod], status=status))

    def _charge(self, pod: int, place: Place, sign: int) -> None:
        c, figures = self.of_class(pod), self.nodes[place.node]
        amounts = [float(x) for x in c.request]
        if c.shared or pod in self.snapshot.pods.reservation:
            amounts[GPU] = 0.0
        offered = self.snapshot.nodes.allocatable[:, place.node]
        figures.charge([a if o > 0 else 0.0 for a, o in zip(amounts, offered, strict=True)], place.status, sign)
        for group in place.groups if c.shared else ():
            figures.share(group, (self.memory_on(c, place.node), c.compute_mode), place.status, sign)

    def note(self, gang: int, why: Iterable[str]) -> None:
        self.notes.setdefault(gang, set()).update(why)

    def new_device(self) -> str:
        self.new_devices += 1
        return f"new {self.new_devices}"

    # -------------------------------------------------------------------------------------------------------- requests
    def of_class(self, pod: int) -> PodClass:
        return self.snapshot.pods.of_class(pod)

    def memory_on(self, c: PodClass, node: int) -> float:
        """memoryOnNode"""
        if c.gpu_kind is GpuKind.MEMORY:
            return float(c.memory_mib)
        return float(max(1, int(c.portion * self.gpu_memory[node])))

    def mig_gpus(self, c: PodClass) -> float:
        """Σ gpus-in-profile*count: an instance of nvidia.com/mig-2g.10gb is worth two."""
        profiles = [(row, name) for row, name in enumerate(self.snapshot.space.names) if name.startswith(MIG_PREFIX)]
        return sum(float(c.request[row]) * int(name.removeprefix(MIG_PREFIX).split("g")[0]) for row, name in profiles)

    def accepted(self, pod: int, node: int) -> Amount:
        """What the pod counts against its queue on a node."""
        c = self.of_class(pod)
        gpus = float(c.request[GPU]) + self.mig_gpus(c)
        if c.gpu_kind is GpuKind.MEMORY:
            portion = math.ceil(c.memory_mib / self.gpu_memory[node] * 100) / 100
            gpus = round(portion * 100) * c.devices / 100
        return float(c.request[CPU]), float(c.request[MEMORY]), gpus

    def request(self, pods: Iterable[int], memory_of_device: float) -> Amount:
        """jobRequest: what pods ask for; those that ask for memory in devices of this size."""
        cpu = memory = gpus = 0.0
        for pod in pods:
            c = self.of_class(pod)
            cpu, memory, gpus = (
                cpu + float(c.request[CPU]),
                memory + float(c.request[MEMORY]),
                gpus + float(c.request[GPU]) + self.mig_gpus(c),
            )
            if c.gpu_kind is GpuKind.MEMORY and memory_of_device:
                gpus += c.devices * c.memory_mib / memory_of_device
        return cpu, memory, round(gpus, 6)

    # ------------------------------------------------------------------------------------------------------- questions
    @cached_property
    def members(self) -> dict[int, list[int]]:
        """The pods of each gang in task order (§5.2)."""
        found: dict[int, list[int]] = {}
        for pod in sorted(range(len(self.pods)), key=self._task_key):
            if self.gang[pod] >= 0 and self.podset[pod] >= 0:
                found.setdefault(self.gang[pod], []).append(pod)
        return found

    def _task_key(self, pod: int) -> tuple[bool, int, str]:
        meta = self.snapshot.pods.objects[pod].metadata
        text = (meta.labels or {}).get(names.TASK_PRIORITY_LABEL)
        return text is None, -int(text or 0), meta.uid

    def tree(self, gang: int) -> SubGroupSet:
        return self.gangs.tree(gang)

    def status(self, pod: int) -> Status:
        return self.pods[pod].status

    def had_place(self, pod: int) -> bool:
        """Whether it had a place before this cycle."""
        return self.start[pod].status in ACTIVE_USED

    def having(self, gang: int, statuses: set[Status]) -> list[int]:
        """Pods of a gang in task order."""
        return [pod for pod in self.members[gang] if self.status(pod) in statuses]

    def in_podset(self, gang: int, row: int, statuses: set[Status]) -> int:
        return sum(self.podset[pod] == row for pod in self.having(gang, statuses))

    def queue_use(self, preemptible: tuple[bool, ...] = (True, False)) -> list[Amount]:
        """Allocated by queue: pods in 'allocated' statuses, and those that were promised a place in this cycle."""
        if preemptible not in self._use:
            self._use[preemptible] = self._queue_use(preemptible)
        return self._use[preemptible]

    def _queue_use(self, preemptible: tuple[bool, ...]) -> list[Amount]:
        use = [NOTHING for _ in range(len(self.queues))]
        for gang, pods in self.members.items():
            queue = self.gangs.queue[gang]
            if queue < 0 or self.gangs.preemptible[gang] not in preemptible:
                continue
            held = total(self.accepted(p, self.pods[p].node) for p in pods if self.status(p) in ACTIVE_ALLOCATED)
            for ancestor in self.queues.paths[queue]:
                use[ancestor] = plus(use[ancestor], held)
        return use

    def held_use(self) -> list[Amount]:
        """AllocatedNonPreemptible by queue."""
        return self.queue_use((False,))

    # ---------------------------------------------------------------------------------------------------- fair shares
    def _book(self) -> QueueBook:
        queues, cluster = self.queues, self._cluster_total()
        by_resource = [self._fair_shares(r, cluster[r]) for r in range(3)]
        return QueueBook(
            paths=queues.paths,
            priority=queues.priority,
            creation=queues.creation,
            deserved=_columns(queues.deserved),
            limit=_columns(queues.limit),
            fair=list(zip(*by_resource, strict=True)),
            total=cluster,
        )

    def _fair_shares(self, r: int, cluster: float) -> list[float]:
        queues, requests = self.queues, self._queue_requests()
        sharers = [
            Sharer(
                row=row,
                deserved=Fraction(queues.deserved[r, row]),
                limit=Fraction(queues.limit[r, row]),
                weight=Fraction(queues.weight[r, row]),
                request=Fraction(requests[row][r]),
                usage=Fraction(queues.usage[r, row]),
                priority=queues.priority[row],
                creation=queues.creation[row],
            )
            for row in range(len(queues))
        ]
        set_fair_share(Fraction(cluster), -1, queues.parent, sharers)
        return [round(float(sharer.fair), 4) if r == GPU else float(sharer.fair) for sharer in sharers]

    def _queue_requests(self) -> list[Amount]:
        """Request: what allocated pods count, and what pending ones ask for; in all queues above them, too."""
        found = [NOTHING for _ in range(len(self.queues))]
        for gang, pods in self.members.items():
            queue = self.gangs.queue[gang]
            running = [pod for pod in pods if self.status(pod) in ALLOCATED]
            pending = [pod for pod in pods if self.status(pod) is Status.PENDING]
            amounts = [*(self.accepted(pod, self.pods[pod].node) for pod in running)]
            amounts += [self.request([pod], self.snapshot.min_gpu_memory) for pod in pending]
            for ancestor in self.queues.paths[queue] if queue >= 0 else ():
                found[ancestor] = plus(found[ancestor], total(amounts))
        return found

    def _cluster_total(self) -> Amount:
        """What nodes offer that take pods, less what pods of other schedulers use there."""
        snapshot = self.snapshot
        ready = [node for node in range(len(snapshot.nodes)) if not snapshot.nodes.conditions[node]]
        offers = [self._offer(node) for node in ready]
        foreign = [pod for pod in snapshot.pods.foreign if self.pods[pod].node in ready]
        return plus(total(offers), total(self.accepted(pod, self.pods[pod].node) for pod in foreign), -1)

    def _offer(self, node: int) -> Amount:
        """cpu, memory and GPUs of a node; MIG instances count as the GPUs they are made of."""
        params, offered = self.snapshot.params, self.snapshot.nodes.allocatable[:, node].tolist()
        gpus = offered[GPU] + sum(
            offered[row] * int(name.removeprefix(MIG_PREFIX).split("g")[0])
            for row, name in enumerate(self.snapshot.space.names)
            if name.startswith(MIG_PREFIX)
        )
        worker = not params.restrict_nodes or params.gpu_worker_key in self.snapshot.nodes.labels[node]
        return offered[CPU], offered[MEMORY], gpus if worker else 0.0


def _columns(table: Column) -> list[Amount]:
    return [(cpu, memory, gpus) for cpu, memory, gpus in table.T.tolist()]
