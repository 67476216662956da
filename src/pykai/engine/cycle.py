"""Cycle: one call of `decide`: the trial, the policy and what was derived from the snapshot once."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from pykai.engine import points
from pykai.engine.amounts import BY_MEMORY
from pykai.engine.budgets import Clock, standing
from pykai.engine.gang import GangOrders
from pykai.engine.node_facts import NodeFacts
from pykai.engine.plugin_times import PluginTimes, TimedDetails
from pykai.engine.policy import Policy
from pykai.engine.queues import QueueBook, Triple
from pykai.engine.ranking import Rankings
from pykai.engine.reasons import Reasons
from pykai.engine.trial import Trial
from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, QUEUE_RESOURCES, Column
from pykai.model.snapshot import Snapshot
from pykai.model.statistics import SearchStatistics
from pykai.model.status import Status


@dataclass(frozen=True)
class ClassRules:
    """Who has something to say about the pods of a class beyond masks and scores."""

    live_filters: tuple[points.LiveFilter, ...]
    live_masks: tuple[points.LiveMask, ...]
    wait_rules: tuple[points.WaitRule, ...]
    observers: tuple[points.PlacementObserver, ...]
    pod_scores: tuple[points.PodScore, ...]

    @cached_property
    def none(self) -> bool:
        """Whether its pods are judged by nothing but masks and scores."""
        return not (self.live_filters or self.live_masks or self.wait_rules or self.observers)


class Cycle:
    """Everything an action needs. Plugins get it as their first argument and change only what they own.

    `clock`: what bounds searches by time and measures plugins; nothing else may depend on it.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, now: float, clock: Clock = standing) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.now = now
        self.clock = clock
        self.opening, self.closing = PluginTimes(policy, clock), PluginTimes(policy, clock)
        self.trial = Trial(snapshot)
        self.reasons = Reasons()
        self.quota = policy.first(points.QuotaPolicy)  # type: ignore[type-abstract]
        self.cluster = cluster_resources(self.trial)
        self.book = self._queue_book()
        pod_order = policy.of(points.PodOrder)  # type: ignore[type-abstract]
        member_order = policy.of(points.MemberOrder)  # type: ignore[type-abstract]
        self.orders = GangOrders(pod_order, member_order)
        self.node_facts = NodeFacts(self.trial, policy)
        self.rankings = Rankings(self.node_facts)
        self._rules: dict[int, ClassRules] = {}
        self._rules_by_concern: dict[tuple[bool, ...], ClassRules] = {}
        self.gang_order = policy.of(points.GangOrder)  # type: ignore[type-abstract]
        self.gates = policy.of(points.PodGate)  # type: ignore[type-abstract]
        self.live_filters = policy.of(points.LiveFilter)  # type: ignore[type-abstract]
        self.live_masks = policy.of(points.LiveMask)  # type: ignore[type-abstract]
        self.wait_rules = policy.of(points.WaitRule)  # type: ignore[type-abstract]
        self.pod_scores = policy.of(points.PodScore)  # type: ignore[type-abstract]
        self.device_scores = policy.of(points.DeviceScore)  # type: ignore[type-abstract]
        self.subset_plugins = policy.of(points.NodeSubsets)  # type: ignore[type-abstract]
        self.observers = policy.of(points.PlacementObserver)  # type: ignore[type-abstract]
        self.victim_filters = policy.of(points.VictimFilter)  # type: ignore[type-abstract]
        self.victim_choices = policy.of(points.VictimChoice)  # type: ignore[type-abstract]
        self.validators = policy.of(points.ScenarioValidator)  # type: ignore[type-abstract]
        details = policy.of(points.BindDetails)  # type: ignore[type-abstract]
        self.bind_details = tuple(TimedDetails(plugin, self.closing) for plugin in details)
        self.keep_rules = policy.of(points.KeepRule)  # type: ignore[type-abstract]
        self.started: dict[int, float] = {}
        """Gangs that got their resources in this cycle -> when."""
        self.stale_since: dict[int, float | None] = {}
        self.memo: dict[Any, Any] = {}
        """What plugins derived from the snapshot in this cycle, by plugin name."""
        self.tried: Counter[str] = Counter()
        """Action -> gangs it tried to place."""
        self.out_of_time: set[str] = set()
        """Actions whose budget of time was spent before their searches were done."""
        self.searches: list[SearchStatistics] = []
        for plugin in policy.of(points.CycleStart):  # type: ignore[type-abstract]
            self.opening.of(plugin, partial(plugin.start, self))
        reliefs = [
            partial(plugin.spared, weakref.proxy(self))  # what a cycle holds does not hold the cycle
            for plugin in policy.of(points.NeedRelief)  # type: ignore[type-abstract]
            if self.opening.of(plugin, partial(plugin.relieves, self))
        ]
        self.node_facts.reliefs = tuple(reliefs)

    @cached_property
    def counts_alike(self) -> bool:
        """Whether a pod counts the same against its queue wherever it is: a request for GPU memory counts as the part
        of a device that it takes there."""
        memory = self.snapshot.nodes.gpu_memory
        alike = not len(memory) or bool(memory.min() == memory.max())
        return alike or not any(c.memory_mib for c in self.snapshot.pods.classes)

    @cached_property
    def waiting_at_start(self) -> list[int]:
        """Gangs of leaf queues with a pending pod when the cycle began: in a cycle nobody else comes to wait."""
        pods, children = self.snapshot.pods, self.snapshot.queues.children
        waiting = np.flatnonzero((pods.status == Status.PENDING) & (pods.podset >= 0))
        rows = np.flatnonzero(np.bincount(pods.gang[waiting]))
        leaf = np.array([*(not below for below in children), False])
        return rows[leaf[self.snapshot.gangs.columns.queue[rows]]].tolist()  # type: ignore[no-any-return]

    def rules(self, pod_class: PodClass) -> ClassRules:
        """The plugins that are concerned with a class; asked once per class."""
        found = self._rules.get(pod_class.row)
        if found is None:
            concerned = tuple([plugin.concerns(self, pod_class) for plugin in self._choosy])
            found = self._rules_by_concern.get(concerned)
            if found is None:
                found = self._rules_by_concern[concerned] = self._class_rules(concerned)
            self._rules[pod_class.row] = found
        return found

    @cached_property
    def _choosy(self) -> list[Any]:
        """The plugins that are concerned with some classes only, each once."""
        points_of = (self.live_filters, self.live_masks, self.wait_rules, self.observers, self.pod_scores)
        return list({id(plugin): plugin for plugins in points_of for plugin in plugins}.values())

    def _class_rules(self, concerned: tuple[bool, ...]) -> ClassRules:
        chosen = {id(plugin) for plugin, is_concerned in zip(self._choosy, concerned, strict=True) if is_concerned}
        return ClassRules(
            tuple(plugin for plugin in self.live_filters if id(plugin) in chosen),
            tuple(plugin for plugin in self.live_masks if id(plugin) in chosen),
            tuple(plugin for plugin in self.wait_rules if id(plugin) in chosen),
            tuple(plugin for plugin in self.observers if id(plugin) in chosen),
            tuple(plugin for plugin in self.pod_scores if id(plugin) in chosen),
        )

    def tell_placed(self, pod: int) -> None:
        """Let everybody concerned know that a pod has its node, or has it in another way than before."""
        for observer in self.rules(self.trial.of_class(pod)).observers:
            observer.placed(self, pod, self.trial.node[pod])

    def tell_evicted(self, pod: int) -> None:
        """Let everybody concerned know that a pod is supposed to go."""
        for observer in self.rules(self.trial.of_class(pod)).observers:
            observer.evicted(self, pod)

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
        )

    def gang_key(self, gang: int) -> tuple[Any, ...]:
        """Sort key within a queue: policies first, then age, then name."""
        gangs = self.snapshot.gangs
        own, meta = [plugin.gang_key(self.trial, gang) for plugin in self.gang_order], gangs.objects[gang].metadata
        return (*own, gangs.created(gang), meta.name, meta.namespace)

    def queue_request(self, pods: Sequence[int], memory_of_device: float) -> Triple:
        """What pods would count against their queue; gpu-memory requests in devices of the given memory (MiB)."""
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


def cluster_resources(trial: Trial) -> Column:
    """cpu, memory and GPUs of ready nodes, less what other schedulers' pods use of them."""
    snapshot = trial.snapshot
    nodes, params = snapshot.nodes, snapshot.params
    ready = nodes.ready
    block = nodes.allocatable[:QUEUE_RESOURCES].copy()
    for row, each in snapshot.space.mig_rows().items():
        block[GPU] += nodes.allocatable[row] * each
    if params.restrict_nodes:
        block[GPU] *= np.array([params.gpu_worker_key in labels for labels in nodes.labels], dtype=bool)
    everything = block[:, ready].sum(axis=1)
    return np.asarray(everything - _foreign_use(trial))


def _foreign_use(trial: Trial) -> Column:
    """cpu, memory and GPUs that other schedulers' pods use of ready nodes. There may be many, as every node has its
    daemons: those of one class use the same on devices of one size."""
    pods, nodes, used = trial.snapshot.pods, trial.snapshot.nodes, np.zeros(QUEUE_RESOURCES)
    rows = np.array(sorted(pods.foreign), dtype=np.int64)
    at = pods.node[rows]
    rows = rows[(at >= 0) & nodes.ready[at]] if len(nodes) else rows[:0]
    sizes = nodes.gpu_memory[pods.node[rows]].tolist()
    alike: dict[tuple[int, float], list[int]] = {}
    for row, klass, size in zip(rows.tolist(), pods.klass[rows].tolist(), sizes, strict=True):
        alike.setdefault((klass, size), []).append(row)
    for some in alike.values():
        used += len(some) * np.array(trial.quota_amounts(trial.of_class(some[0]), trial.node[some[0]]))
    return used


def _triples(block: Column) -> list[Triple]:
    return [(cpu, memory, gpu) for cpu, memory, gpu in block.T.tolist()]


Group = SubGroupSet | PodSet
