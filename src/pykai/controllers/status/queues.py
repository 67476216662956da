"""The queue controller: keeps the status of every Queue up to date, its children and the resources below it.

A queue sums the statuses of its direct children and of its own PodGroups. Sums climb the tree through the statuses
themselves: a changed status enqueues the parent. Events are collected for two seconds, so no queue is written more
often, however busy it is.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import structlog

from pykai.controllers.ttl_cache import MutationCache
from pykai.controllers.unstructured import Object, merge_patch, to_unstructured
from pykai.kube.api import Api, EventType, Patch
from pykai.kube.errors import NotFound
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import Change
from pykai.kube.resources import POD_GROUP, QUEUE
from pykai.kube.workqueue import Meters, Pace, ReconcileLoop, unmetered
from pykai.objects import kinds
from pykai.objects.kinds import PodGroup
from pykai.objects.units import ResourceList, sum_resources

Lists = tuple[tuple[tuple[str, str | int | float], ...], ...]

_LISTS = ("requested", "allocated", "allocatedNonPreemptible")
_OF_OTHERS = ("conditions", "fairShare")
"""Fields of the status that other components write."""
_NUMBER = re.compile(r"[+-]?[0-9.]+")
log = structlog.get_logger("queue-controller")


def desired_status(
    queue: Object, queues: Sequence[Object], groups: Sequence[Object], ancestors: Collection[str] = ()
) -> dict[str, Any]:
    """The status fields of the queue that this controller owns; empty lists are absent.

    Of `queues` and `groups` only the queue's children and its own groups count. `ancestors` are the names of the queues
    above it: a child among them is part of a cycle, and its sum would grow without end.
    """
    name = queue["metadata"]["name"]
    children = [each for each in queues if each["spec"].get("parentQueue") == name]
    members = [each for each in groups if each["spec"].get("queue") == name]
    parts = [each.get("status") or {} for each in children if each["metadata"]["name"] not in ancestors]
    parts += [(each.get("status") or {}).get("resourcesStatus") or {} for each in members]
    status: dict[str, Any] = {key: sum_resources(part.get(key) for part in parts) for key in _LISTS}
    status["childQueues"] = sorted(each["metadata"]["name"] for each in children)
    return {key: value for key, value in status.items() if value}


class GroupTally:
    """Counts of equal PodGroup statuses by queue: the sum of a queue without a visit to every group.

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
            if entry is not None:
                self._add(*entry, by)
        return {entry[0] for entry in (before, after) if entry is not None}

    def _add(self, queue: str, lists: Lists, by: int) -> None:
        counts = self._counts.setdefault(queue, Counter())
        counts[lists] += by
        if not counts[lists]:
            del counts[lists]
        if not counts:
            del self._counts[queue]

    def groups(self, queue: str) -> list[dict[str, Any]]:
        """One PodGroup per distinct status, whose sum is the sum over all groups of the queue."""
        counted = self._counts.get(queue, Counter())
        return [
            {"spec": {"queue": queue}, "status": {"resourcesStatus": _times(lists, count)}}
            for lists, count in counted.items()
        ]


def _entry(group: PodGroup | None) -> tuple[str, Lists] | None:
    """Queue and status of a group; None if it adds nothing to any queue."""
    if group is None or not group.spec.queue or group.status.resources_status is None:
        return None
    status = group.status.resources_status
    lists = (status.requested, status.allocated, status.allocated_non_preemptible)
    return group.spec.queue, tuple(tuple(sorted((each or {}).items())) for each in lists)


def _times(lists: Lists, count: int) -> Mapping[str, ResourceList]:
    return {
        name: {resource: times(amount, count) for resource, amount in each}
        for name, each in zip(_LISTS, lists, strict=True)
    }


def times(quantity: str | int | float, count: int) -> str:
    """A quantity `count` times, in the same unit: 3 × 500m is 1500m, 2 × 1.5Gi is 3.0Gi."""
    text = str(quantity)
    number = _NUMBER.match(text)
    if number is None:
        raise ValueError(f"{text!r} is not a quantity")
    return f"{Decimal(number[0]) * count:f}{text[number.end() :]}"


@dataclass(frozen=True)
class QueueStatusSettings:
    """How many queues are reconciled at once, and for how many seconds events are collected before a write."""

    workers: int = 4
    gather_seconds: float = 2.0
    meters: Meters = unmetered


class Children:
    """The names of the children of every queue."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def change(self, change: Change[kinds.Queue]) -> set[str]:
        """Handle a change of a queue; returns its former and its present parent."""
        before = change.old.spec.parent_queue if change.old else ""
        after = "" if change.type is EventType.DELETED else change.object.spec.parent_queue
        if before != after:
            self._names.get(before, set()).discard(change.key[1])
        if after:
            self._names.setdefault(after, set()).add(change.key[1])
        return {parent for parent in (before, after) if parent}

    def of(self, queue: str) -> Iterable[str]:
        """The names of a queue's children."""
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
        self._loop: ReconcileLoop[str] = ReconcileLoop("queue-controller", Pace(settings.workers), meter)

    async def run(self, ready: asyncio.Event) -> None:
        """Reconcile statuses until cancelled."""
        await self._queues.synced()
        await self._groups.synced()
        leave = [self._queues.subscribe(self._queue_changed), self._groups.subscribe(self._group_changed)]
        ready.set()
        try:
            await self._loop.run(self._reconcile)
        finally:
            for unsubscribe in leave:
                unsubscribe()

    def _queue_changed(self, change: Change[kinds.Queue]) -> None:
        self._mutations.observe(change)
        old, new = change.old, change.object
        parents = self._children.change(change)
        if old is not None and change.type is EventType.MODIFIED and (old.spec, old.status) == (new.spec, new.status):
            return
        moved = change.type is not EventType.MODIFIED or old is None or old.spec.parent_queue != new.spec.parent_queue
        further = {name for parent in parents for name in self._ancestors(parent)} if moved else set()
        for name in sorted({change.key[1], *parents, *further}):
            self._loop.add_after(name, self._gather_seconds)

    def _group_changed(self, change: Change[kinds.PodGroup]) -> None:
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
        patch = merge_patch(self._status(queue), wanted)
        if not patch:
            return
        try:
            written = await self._api.patch(QUEUE.ref(name).sub("status"), Patch.merge({"status": patch}))
        except NotFound:
            return
        self._mutations.put(("", name), written)
        log.info("queue status written", queue=name, allocated=wanted.get("allocated"), children=len(children))

    def _ancestors(self, name: str) -> set[str]:
        """The ancestors of a queue; in a cycle of parents the queue is among them itself."""
        found: set[str] = set()
        while (queue := self._queues.get(name)) is not None and queue.spec.parent_queue not in ("", *found):
            name = queue.spec.parent_queue
            found.add(name)
        return found

    def _status(self, queue: kinds.Queue) -> Object:
        """The fields of the status that this controller owns, our last write included."""
        written = self._mutations.get(("", queue.metadata.name))
        status = to_unstructured(queue)["status"] if written is None else dict(written.get("status") or {})
        return {key: value for key, value in status.items() if key not in _OF_OTHERS}


async def run(api: Api, watches: InformerFactory, settings: QueueStatusSettings, ready: asyncio.Event) -> None:
    """Reconcile the status of queues until cancelled."""
    await QueueController(api, watches, settings).run(ready)
