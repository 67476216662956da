"""The queue controller: keeps the status of every Queue true, its children and the resources below it.

Sums climb the tree by the statuses themselves: when a queue's status changes, its parent is looked at. News are
gathered for two seconds, so no queue is written more often however busy it is. What a status should be is
`pykai.controllers.status.queue`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from pykai.controllers.loop import Meters, Pace, ReconcileLoop, unmetered
from pykai.controllers.plain import Object, difference, plain
from pykai.controllers.status.queue import desired
from pykai.controllers.status.tally import GroupTally
from pykai.controllers.unseen import Unseen
from pykai.kube.api import Api, EventType, Patch
from pykai.kube.errors import NotFound
from pykai.kube.replica import Change
from pykai.kube.resources import POD_GROUP, QUEUE
from pykai.kube.watches import Watches
from pykai.objects import kinds

log = structlog.get_logger("queue-controller")


@dataclass(frozen=True)
class QueueStatusSettings:
    """How many queues are worked on at once, and for how many seconds news are gathered before one is written."""

    workers: int = 4
    gather_seconds: float = 2.0
    meters: Meters = unmetered


class Children:
    """The names of the queues below every queue."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def change(self, change: Change[kinds.Queue]) -> set[str]:
        """Take in a change of a queue; the parents it had and has."""
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


class QueueStatus:
    """The controller on one API server; `run` works until it is cancelled."""

    def __init__(self, api: Api, watches: Watches, settings: QueueStatusSettings) -> None:
        self._api = api
        self._gather_seconds = settings.gather_seconds
        self._queues = watches.of(QUEUE, kinds.Queue)
        self._groups = watches.of(POD_GROUP, kinds.PodGroup)
        self._children = Children()
        self._tally = GroupTally()
        self._unseen = Unseen()
        meter = settings.meters("queue")
        self._loop: ReconcileLoop[str] = ReconcileLoop("queue-controller", Pace(settings.workers), meter)

    async def run(self, ready: asyncio.Event) -> None:
        """Keep statuses true until cancelled."""
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
        self._unseen.seen(change)
        old, new = change.old, change.object
        parents = self._children.change(change)
        if old is not None and change.type is EventType.MODIFIED and (old.spec, old.status) == (new.spec, new.status):
            return
        moved = change.type is not EventType.MODIFIED or old is None or old.spec.parent_queue != new.spec.parent_queue
        further = {name for parent in parents for name in self._above(parent)} if moved else set()
        for name in {change.key[1], *parents, *further}:
            self._loop.add_after(name, self._gather_seconds)

    def _group_changed(self, change: Change[kinds.PodGroup]) -> None:
        now = None if change.type is EventType.DELETED else change.object
        for queue in self._tally.change(change.old, now):
            self._loop.add_after(queue, self._gather_seconds)

    async def _reconcile(self, name: str) -> None:
        queue = self._queues.get(name)
        if queue is None:
            return
        children = [plain(child) for child in map(self._queues.get, self._children.of(name)) if child is not None]
        wanted = desired(plain(queue), children, self._tally.groups(name), self._above(name))
        patch = difference(self._status(queue), wanted)
        if not patch:
            return
        try:
            written = await self._api.patch(QUEUE.ref(name).sub("status"), Patch.merge({"status": patch}))
        except NotFound:
            return
        self._unseen.put(("", name), written)
        log.info("queue status written", queue=name, allocated=wanted.get("allocated"), children=len(children))

    def _above(self, name: str) -> set[str]:
        """The queues above one, up to the top; in a circle of parents it is among them itself."""
        found: set[str] = set()
        while (queue := self._queues.get(name)) is not None and queue.spec.parent_queue not in ("", *found):
            name = queue.spec.parent_queue
            found.add(name)
        return found

    def _status(self, queue: kinds.Queue) -> Object:
        """The status as the server has it, without what is not ours."""
        written = self._unseen.get(("", queue.metadata.name))
        status = plain(queue)["status"] if written is None else dict(written.get("status") or {})
        status.pop("conditions", None)
        return status


async def run(api: Api, watches: Watches, settings: QueueStatusSettings, ready: asyncio.Event) -> None:
    """Keep the status of queues true until cancelled."""
    await QueueStatus(api, watches, settings).run(ready)
