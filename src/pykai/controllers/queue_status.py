"""The queue controller: keeps the status of every Queue up to date, and exposes the metrics of queues.

A queue sums the statuses of its direct children and of its own PodGroups. A changed status enqueues the parent, so sums
propagate to the root. Events are batched for two seconds, so no queue is written more often than that.

Metrics have one row each and are computed from the watched queues at every scrape: a deleted queue, or one whose labels
changed, leaves no series behind. Names and units are those that dashboards and time-based fair share expect: cores,
bytes, devices; -1 is unlimited and stays -1.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from decimal import Decimal

import structlog

from pykai.controllers.ttl_cache import MutationCache
from pykai.controllers.unstructured import merge_patch_between, to_unstructured
from pykai.kube.api import Api, EventType, Object, Patch
from pykai.kube.api_resources import POD_GROUP, QUEUE
from pykai.kube.errors import NotFound
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import WatchChange
from pykai.kube.workqueue import Meters, Pace, ReconcileLoop, unmetered
from pykai.objects import kinds, units
from pykai.objects.kinds import PodGroup
from pykai.objects.units import sum_resources
from pykai.observe.metrics import Metric, MetricKind, Metrics

Lists = tuple[tuple[tuple[str, str | int | float], ...], ...]

_LISTS = ("requested", "allocated", "allocatedNonPreemptible")
_OF_OTHERS = ("conditions", "fairShare")
"""Fields of the status that other components write."""
_NUMBER = re.compile(r"[+-]?[0-9.]+")
log = structlog.get_logger("queue-controller")


def desired_status(
    queue: Object, queues: Sequence[Object], groups: Sequence[Object], ancestors: Collection[str] = ()
) -> Object:
    """Return the status fields of the queue that this controller owns; empty lists are absent.

    Of `queues` and `groups` only the queue's children and its own groups count. `ancestors` are the names of the queues
    above it: a child among them is part of a cycle, and its sum would grow without end.
    """
    name = queue["metadata"]["name"]
    children = [each for each in queues if each["spec"].get("parentQueue") == name]
    members = [each for each in groups if each["spec"].get("queue") == name]
    parts = [each.get("status") or {} for each in children if each["metadata"]["name"] not in ancestors]
    parts += [(each.get("status") or {}).get("resourcesStatus") or {} for each in members]
    status: Object = {key: sum_resources(part.get(key) for part in parts) for key in _LISTS}
    status["childQueues"] = sorted(each["metadata"]["name"] for each in children)
    return {key: value for key, value in status.items() if value}


class GroupTally:
    """Counts of equal PodGroup statuses by queue, to sum a queue without iterating over every group.

    Groups of one kind of workload have equal statuses, so ten thousand groups have a few dozen different ones; each
    enters the sum once, multiplied.
    """

    def __init__(self) -> None:
        self._counts: dict[str, Counter[Lists]] = {}

    def change(self, old: PodGroup | None, new: PodGroup | None) -> set[str]:
        """Count a group that was created (`old` None), changed or deleted (`new` None); returns the affected queues."""
        before, after = _entry(old), _entry(new)
        if before == after:
            return set()
        for entry, by in ((before, -1), (after, 1)):
            if entry is None:
                continue
            queue, lists = entry
            counts = self._counts.setdefault(queue, Counter())
            counts[lists] += by
            if not counts[lists]:
                del counts[lists]
            if not counts:
                del self._counts[queue]
        return {entry[0] for entry in (before, after) if entry is not None}

    def groups(self, queue: str) -> list[Object]:
        """Return one PodGroup per distinct status, whose sum is the sum over all groups of the queue."""
        found = []
        for lists, count in self._counts.get(queue, Counter()).items():
            sums = {
                name: {resource: times(amount, count) for resource, amount in each}
                for name, each in zip(_LISTS, lists, strict=True)
            }
            found.append({"spec": {"queue": queue}, "status": {"resourcesStatus": sums}})
        return found


def _entry(group: PodGroup | None) -> tuple[str, Lists] | None:
    """Queue and status of a group; None if it adds nothing to any queue."""
    if group is None or not group.spec.queue or group.status.resources_status is None:
        return None
    status = group.status.resources_status
    lists = (status.requested, status.allocated, status.allocated_non_preemptible)
    return group.spec.queue, tuple(tuple(sorted((each or {}).items())) for each in lists)


def times(quantity: str | int | float, count: int) -> str:
    """Return a quantity `count` times, in the same unit: 3 × 500m is 1500m, 2 × 1.5Gi is 3.0Gi."""
    text = str(quantity)
    number = _NUMBER.match(text)
    if number is None:
        raise ValueError(f"{text!r} is not a quantity")
    return f"{Decimal(number[0]) * count:f}{text[number.end() :]}"


WORKERS = 4
"""The maximum number of queues that are reconciled at once."""


@dataclass(frozen=True)
class QueueStatusSettings:
    """For how many seconds events are batched before a write, and the meters of the loop."""

    gather_seconds: float = 2.0
    meters: Meters = unmetered


class Children:
    """The names of the children of every queue."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def change(self, change: WatchChange[kinds.Queue]) -> set[str]:
        """Handle a change of a queue; return its old and its new parent."""
        before = change.old.spec.parent_queue if change.old else ""
        after = "" if change.type is EventType.DELETED else change.object.spec.parent_queue
        if before != after:
            self._names.get(before, set()).discard(change.key[1])
        if after:
            self._names.setdefault(after, set()).add(change.key[1])
        return {parent for parent in (before, after) if parent}

    def of(self, queue: str) -> Iterable[str]:
        """Yield the names of a queue's children."""
        return self._names.get(queue, ())


class QueueController:
    """The controller; `run` works until cancelled."""

    def __init__(self, api: Api, watches: InformerFactory, settings: QueueStatusSettings) -> None:
        self._api = api
        self._gather_seconds = settings.gather_seconds
        self._queues = watches.of(QUEUE, kinds.Queue)
        self._groups = watches.of(POD_GROUP, kinds.PodGroup)
        self._children = Children()
        self._tally = GroupTally()
        self._mutations = MutationCache()
        meter = settings.meters("queue")
        self._loop: ReconcileLoop[str] = ReconcileLoop("queue-controller", Pace(WORKERS), meter)

    async def run(self, ready: asyncio.Event) -> None:
        """Reconcile statuses until cancelled."""
        await self._queues.synced()
        await self._groups.synced()
        with ExitStack() as subscriptions:
            subscriptions.callback(self._queues.subscribe(self._queue_changed))
            subscriptions.callback(self._groups.subscribe(self._group_changed))
            ready.set()
            await self._loop.run(self._reconcile)

    def _queue_changed(self, change: WatchChange[kinds.Queue]) -> None:
        self._mutations.observe(change)
        old, new = change.old, change.object
        parents = self._children.change(change)
        if old is not None and change.type is EventType.MODIFIED and (old.spec, old.status) == (new.spec, new.status):
            return
        moved = change.type is not EventType.MODIFIED or old is None or old.spec.parent_queue != new.spec.parent_queue
        further = {name for parent in parents for name in self._ancestors(parent)} if moved else set()
        for name in sorted({change.key[1], *parents, *further}):
            self._loop.add_after(name, self._gather_seconds)

    def _group_changed(self, change: WatchChange[kinds.PodGroup]) -> None:
        now = None if change.type is EventType.DELETED else change.object
        for queue in sorted(self._tally.change(change.old, now)):
            self._loop.add_after(queue, self._gather_seconds)

    async def _reconcile(self, name: str) -> None:
        queue = self._queues.get(name)
        if queue is None:
            return
        children = [
            to_unstructured(child) for child in map(self._queues.get, self._children.of(name)) if child is not None
        ]
        wanted = desired_status(to_unstructured(queue), children, self._tally.groups(name), self._ancestors(name))
        # Of the queue's status, only the fields that this controller owns, our last write included.
        written = self._mutations.get(("", name), queue.metadata)
        status = to_unstructured(queue)["status"] if written is None else written.get("status") or {}
        patch = merge_patch_between({key: value for key, value in status.items() if key not in _OF_OTHERS}, wanted)
        if not patch:
            return
        try:
            result = await self._api.patch(QUEUE.ref(name).sub("status"), Patch.merge({"status": patch}))
        except NotFound:
            return
        self._mutations.put(("", name), result)
        log.info("queue status written", queue=name, allocated=wanted.get("allocated"), children=len(children))

    def _ancestors(self, name: str) -> set[str]:
        """Return the ancestors of a queue; in a cycle of parents the queue is among them itself."""
        found: set[str] = set()
        while (queue := self._queues.get(name)) is not None and queue.spec.parent_queue not in ("", *found):
            name = queue.spec.parent_queue
            found.add(name)
        return found


async def run(api: Api, watches: InformerFactory, settings: QueueStatusSettings, ready: asyncio.Event) -> None:
    """Reconcile the status of queues until cancelled."""
    await QueueController(api, watches, settings).run(ready)


Value = Callable[[kinds.Queue], float]
LABELS = ("queue_name", "queue_metadata_name", "queue_display_name")
UNLIMITED = -1.0
_MILLI, _MEGA = 1000.0, 1_000_000.0


def _bound(queue: kinds.Queue, resource: str, which: str, times: float = 1.0, per: float = 1.0) -> float:
    resources = queue.spec.resources
    bound: float = getattr(getattr(resources, resource), which) if resources else 0.0
    return bound if bound == UNLIMITED else bound * times / per


def _sum(amounts: Mapping[str, str | int | float] | None, counts: Callable[[str], bool]) -> float:
    return round(sum(units.amount(text) for name, text in (amounts or {}).items() if counts(name)), 4)


_GPUS, _CPU, _MEMORY = (lambda name: name.endswith("/gpu")), "cpu".__eq__, "memory".__eq__

TABLE: tuple[tuple[str, str, Value], ...] = (
    ("queue_info", "Queues info", lambda queue: 1.0),
    ("queue_deserved_gpus", "Queue deserved GPUs", lambda q: _bound(q, "gpu", "quota")),
    ("queue_quota_cpu_cores", "Queue quota CPU", lambda q: _bound(q, "cpu", "quota", per=_MILLI)),
    ("queue_quota_memory_bytes", "Queue quota memory", lambda q: _bound(q, "memory", "quota", times=_MEGA)),
    ("queue_allocated_gpus", "Queue allocated GPUs", lambda q: _sum(q.status.allocated, _GPUS)),
    ("queue_allocated_cpu_cores", "Queue allocated CPUs", lambda q: _sum(q.status.allocated, _CPU)),
    ("queue_allocated_memory_bytes", "Queue allocated memory", lambda q: _sum(q.status.allocated, _MEMORY)),
    ("queue_limit_gpus", "Queue limit of GPUs", lambda q: _bound(q, "gpu", "limit")),
    ("queue_limit_cpu_cores", "Queue limit of CPU", lambda q: _bound(q, "cpu", "limit", per=_MILLI)),
    ("queue_limit_memory_bytes", "Queue limit of memory", lambda q: _bound(q, "memory", "limit", times=_MEGA)),
    ("queue_requested_gpus", "Queue requested GPUs", lambda q: _sum(q.status.requested, _GPUS)),
    ("queue_requested_cpu_cores", "Queue requested CPUs", lambda q: _sum(q.status.requested, _CPU)),
    ("queue_requested_memory_bytes", "Queue requested memory", lambda q: _sum(q.status.requested, _MEMORY)),
    (
        "queue_allocated_non_preemptible_gpus",
        "Queue GPUs allocated to non-preemptible work",
        lambda q: _sum(q.status.allocated_non_preemptible, _GPUS),
    ),
    (
        "queue_allocated_non_preemptible_cpu_cores",
        "Queue CPUs allocated to non-preemptible work",
        lambda q: _sum(q.status.allocated_non_preemptible, _CPU),
    ),
    (
        "queue_allocated_non_preemptible_memory_bytes",
        "Queue memory allocated to non-preemptible work",
        lambda q: _sum(q.status.allocated_non_preemptible, _MEMORY),
    ),
)
ROWS = tuple(Metric(name, MetricKind.GAUGE, text, LABELS) for name, text, _ in TABLE)


@dataclass(frozen=True)
class QueueLabels:
    """Additional labels of the metrics: metric labels by queue label, and the defaults for missing ones."""

    names: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)

    def values(self, queue: kinds.Queue) -> dict[str, str]:
        """Return the labels of a queue's series, by the metric's label; ordered by the queue's label."""
        own = queue.metadata.labels or {}
        return {self.names[key]: own.get(key, self.defaults.get(key, "")) for key in sorted(self.names)}


class QueueMetrics:
    """The metrics of the queues that `queues()` returns."""

    def __init__(
        self, queues: Callable[[], Iterable[kinds.Queue]], labels: QueueLabels | None = None, namespace: str = "kai"
    ) -> None:
        self._queues = queues
        self._labels = labels or QueueLabels()
        shown = (*LABELS, *(self._labels.names[key] for key in sorted(self._labels.names)))
        self._metrics = Metrics([replace(row, labels=shown) for row in ROWS], namespace)

    def text(self) -> bytes:
        """Return all series in the text format of Prometheus."""
        self._metrics.reset(*(name for name, _, _ in TABLE))
        for queue in self._queues():
            name = queue.metadata.name
            labels = dict(zip(LABELS, (name, name, queue.spec.display_name), strict=True)) | self._labels.values(queue)
            for metric, _, value in TABLE:
                self._metrics.put(metric, value(queue), labels)
        return self._metrics.text()
