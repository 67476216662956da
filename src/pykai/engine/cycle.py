"""Cycle: the state of one call of `decide`: the trial, the policy and everything derived from the snapshot once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from pykai.engine.amounts import BY_MEMORY
from pykai.engine.budgets import Clock, standing
from pykai.engine.gang import GangOrders, core_pods
from pykai.engine.node_facts import NodeFacts
from pykai.engine.node_resources import ClassResources, NodeResources
from pykai.engine.plugin_api import (
    BackgroundPolicy,
    DeviceScore,
    GangOrder,
    MemberOrder,
    NodeResource,
    PodGate,
    PodOrder,
    PodScore,
    QuotaPolicy,
)
from pykai.engine.plugin_times import PluginTimes
from pykai.engine.pod_locations import PodLocations
from pykai.engine.policy import Policy
from pykai.engine.queues import QueueBook, Triple
from pykai.engine.ranking import Rankings
from pykai.engine.reasons import Reasons
from pykai.engine.trial import Trial
from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.plan import Key, SearchStatistics
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, QUEUE_RESOURCES, Column
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status

State = TypeVar("State")
_MISSING = object()


class ClassRules(NamedTuple):
    """The rules that apply to single pods of a class, in addition to the masks and scores of the class."""

    resources: ClassResources
    pod_scores: tuple[PodScore, ...]
    gates: tuple[PodGate, ...]
    """The gates that may refuse its pods."""
    none: bool
    """Whether no node resource concerns its pods."""

    @property
    def alike(self) -> bool:
        """Whether no rule distinguishes two of its pods in gangs without a tree."""
        scored = any(not getattr(plugin, "trees_only", False) for plugin in self.pod_scores)
        return self.none and not scored and all(getattr(gate, "by_class", False) for gate in self.gates)


class DeviceScores(dict[float, float]):
    """Used portion of a device -> its score, computed on first access."""

    def __init__(self, plugins: Sequence[DeviceScore]) -> None:
        self._plugins = plugins

    def __missing__(self, used_portion: float) -> float:
        score = self[used_portion] = sum([plugin.device_score(used_portion) for plugin in self._plugins], 0.0)
        return score


class Cycle:
    """Everything an action needs. Plugins get it as their first argument and change only their own state.

    `clock`: bounds searches and measures plugins; nothing else may depend on it. `only`: the one gang that gets a
    turn; None: every pending gang does.
    """

    def __init__(
        self, snapshot: Snapshot, policy: Policy, now: float, clock: Clock = standing, only: Key | None = None
    ) -> None:
        self.snapshot = snapshot
        self.only = None if only is None else snapshot.gangs.rows_of([only]).get(only, -1)
        """The row of the one gang that gets a turn; None: every pending gang does."""
        self.policy = policy
        self.now = now
        self.clock = clock
        self.opening, self.closing = PluginTimes(policy, clock), PluginTimes(policy, clock)
        self.trial = Trial(snapshot)
        self.orders = GangOrders(policy.of(PodOrder), policy.of(MemberOrder))
        self.trial.open_core(
            {g: frozenset(core_pods(self.trial, self.orders, g)) for g in snapshot.gangs.semi_preemptible}
        )
        background = policy.first(BackgroundPolicy)
        self.background = self.trial.open_background(background.background_pods(snapshot) if background else ())
        """Background pods that may be evicted -> the status of each when the cycle began."""
        self.pod_locations = PodLocations(self.trial)
        self.reasons = Reasons()
        self.quota = policy.first(QuotaPolicy)
        self.cluster = cluster_resources(self.trial)
        self.book = self._queue_book()
        self._gang_order = policy.of(GangOrder)
        self.node_facts = NodeFacts(self.trial, policy)
        self.rankings = Rankings(self.node_facts)
        self.device_scores = DeviceScores(policy.of(DeviceScore))
        self._rules: dict[int, ClassRules] = {}
        self.admitted: dict[int, bool] = {}
        """Class row -> whether `place.place_one` may place its pods; filled on first use."""
        self._states: dict[Callable[[Cycle], object], object] = {}
        self.attempt = 0
        """Number of the current attempt to place a gang."""
        self.started: dict[int, float] = {}
        """Gangs that started in this cycle -> when (seconds since the epoch)."""
        self.stale_since: dict[int, float | None] = {}
        self.tried: Counter[str] = Counter()
        """Action -> gangs it tried to place."""
        self.out_of_time: set[str] = set()
        """Actions whose time budget was spent before their searches were done."""
        self.searches: list[SearchStatistics] = []
        self.resources = NodeResources(self.trial, self.closing)
        for plugin in policy.of(NodeResource):
            self.resources.add(plugin, self.opening.of(plugin, partial(plugin.open, self)))
        self.node_facts.reliefs = self.resources.reliefs()

    def state(self, opens: Callable[[Cycle], State]) -> State:
        """Return what a plugin, or a part of the engine, keeps for this cycle. `opens`, a function or class of its own,
        is the key and creates the state on first use. The state must not hold a reference to the cycle."""
        known = self._states.get(opens, _MISSING)
        if known is _MISSING:
            known = self._states[opens] = opens(self)
        return cast(State, known)

    @cached_property
    def counts_alike(self) -> bool:
        """Whether a pod counts the same against its queue on every node. A request for GPU memory does not where
        devices differ in size: it counts as the portion of the device that it takes."""
        memory = self.snapshot.nodes.gpu_memory
        alike = not len(memory) or bool(memory.min() == memory.max())
        return alike or not any(c.memory_mib for c in self.snapshot.pods.classes)

    @cached_property
    def waiting_at_start(self) -> list[int]:
        """Gangs of leaf queues that get a turn and had a pending pod when the cycle began; none is added later."""
        pods, children = self.snapshot.pods, self.snapshot.queues.children
        waiting = np.flatnonzero((pods.status == Status.PENDING) & (pods.podset >= 0))
        rows = np.flatnonzero(np.bincount(pods.gang[waiting]))
        if self.only is not None:
            rows = rows[rows == self.only]
        leaf = np.array([*(not below for below in children), False])
        return rows[leaf[self.snapshot.gangs.columns.queue[rows]]].tolist()  # type: ignore[no-any-return]

    def rules(self, pod_class: PodClass) -> ClassRules:
        """Return the rules that apply to the pods of a class; computed once per class."""
        found = self._rules.get(pod_class.row)
        if found is None:
            scores = [plugin for plugin in self.policy.of(PodScore) if plugin.concerns(self, pod_class)]
            gates = [gate for gate in self.policy.of(PodGate) if _concerned(gate, pod_class)]
            resources = self.resources.of_class(pod_class)
            found = ClassRules(resources, tuple(scores), tuple(gates), not resources.all)
            self._rules[pod_class.row] = found
        return found

    def _queue_book(self) -> QueueBook:
        queues, trial = self.snapshot.queues, self.trial
        fair = np.full((QUEUE_RESOURCES, len(queues)), -1.0)
        if self.quota is not None:
            fair = self.opening.of(self.quota, partial(self.quota.fair_shares, self))
        return QueueBook(
            names=queues.names,
            titles=queues.titles,
            paths=queues.paths,
            priority=queues.priority,
            creation=queues.creation,
            deserved=_triples(queues.deserved),
            limit=_triples(queues.limit),
            fair=_triples(fair),
            allocated=trial.queue_allocated,
            allocated_non_preemptible=trial.queue_held,
            total=_triples(self.cluster[:, None])[0],
            priority_in_quota=getattr(self.quota, "priority_in_quota", False),
        )

    def gang_key(self, gang: int) -> tuple[Any, ...]:
        """Return the sort key of a gang within its queue: plugins first, then age, then name."""
        gangs = self.snapshot.gangs
        own, meta = [plugin.gang_key(self.trial, gang) for plugin in self._gang_order], gangs.objects[gang].metadata
        return (*own, gangs.created(gang), meta.name, meta.namespace)

    def queue_request(self, pods: Sequence[int], memory_of_device: float) -> Triple:
        """Return what pods would count against their queue, with gpu-memory requests converted to GPUs by
        `memory_of_device` (MiB)."""
        amounts, klass, classes = self.trial.amounts, self.trial.klass, self.snapshot.pods.classes
        if len(pods) == 1 and (c := classes[klass[pods[0]]]).gpu_kind is not BY_MEMORY:
            return amounts.of_queue(c, -1)
        cpu = memory = gpus = 0.0
        row = -1
        for pod in pods:
            if klass[pod] != row:
                row = klass[pod]
                c = classes[row]
                more_cpu, more_memory, more_gpus = amounts.of_queue(c, -1)
                if c.gpu_kind is BY_MEMORY and memory_of_device:
                    more_gpus += c.devices * c.memory_mib / memory_of_device
            cpu, memory, gpus = cpu + more_cpu, memory + more_memory, gpus + more_gpus
        return cpu, memory, round(gpus, 6)


def _concerned(gate: PodGate, pod_class: PodClass) -> bool:
    concerns = getattr(gate, "concerns", None)
    return concerns is None or bool(concerns(pod_class))


def cluster_resources(trial: Trial) -> Column:
    """Return the cpu, memory and GPUs of ready nodes, less what pods of other schedulers use there."""
    snapshot = trial.snapshot
    nodes, params = snapshot.nodes, snapshot.params
    ready = nodes.ready
    block = nodes.allocatable[:QUEUE_RESOURCES].copy()
    for row, gpus in snapshot.space.mig_rows().items():
        block[GPU] += nodes.allocatable[row] * gpus
    if params.restrict_nodes:
        block[GPU] *= np.array([params.gpu_worker_key in labels for labels in nodes.labels], dtype=bool)
    capacity = block[:, ready].sum(axis=1)
    return np.asarray(capacity - _foreign_use(trial))


def _foreign_use(trial: Trial) -> Column:
    """Return the cpu, memory and GPUs that pods of other schedulers use on ready nodes.

    Daemon sets make them many, so they are counted by class and device size: pods equal in both use the same."""
    pods, nodes, used = trial.snapshot.pods, trial.snapshot.nodes, np.zeros(QUEUE_RESOURCES)
    rows = np.array(sorted(pods.foreign), dtype=np.int64)
    at = pods.node[rows]
    rows = rows[(at >= 0) & nodes.ready[at]] if len(nodes) else rows[:0]
    sizes = nodes.gpu_memory[pods.node[rows]].tolist()
    alike: dict[tuple[int, float], list[int]] = {}
    for row, klass, size in zip(rows.tolist(), pods.klass[rows].tolist(), sizes, strict=True):
        alike.setdefault((klass, size), []).append(row)
    for same in alike.values():
        used += len(same) * np.array(trial.quota_amounts(trial.of_class(same[0]), trial.node[same[0]]))
    return used


def _triples(block: Column) -> list[Triple]:
    return [(cpu, memory, gpu) for cpu, memory, gpu in block.T.tolist()]


Group = SubGroupSet | PodSet
