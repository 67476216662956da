"""Event recorder: writes Event objects without blocking the caller.

Equal events (object, type, reason, message) are one Event with a count. The first occurrence is written at once,
repetitions at most once a minute with the current count. Each object has a token bucket, and the buffer of pending
events is bounded; `dropped` counts the events over either limit. Failed writes are retried for some minutes, because
most events occur once and are reported nowhere else. A series ends after an hour without repetition.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar
from zlib import crc32

import structlog

from pykai.kube.api import Api, Object, Patch, Resource
from pykai.kube.api_resources import EVENT
from pykai.kube.backoff import Backoff
from pykai.kube.clock import wall
from pykai.kube.errors import AlreadyExists, ApiError, NotFound, TooManyRequests
from pykai.objects.kinds import ObjectMeta
from pykai.objects.units import rfc3339

REPEAT_SECONDS = 60.0
WRITERS = 4
WAITING_LIMIT = 10_000
REMEMBERED = 20_000
REMEMBERED_SECONDS = 3600.0
"""The server's default TTL of events: a later repetition is a new Event anyway."""
OBJECT_BURST = 25
OBJECT_REFILL_SECONDS = 300.0
MESSAGE_BYTES = 1024
TRIES = 6
BACKOFF = Backoff(10.0, 3600.0)

K = TypeVar("K")
V = TypeVar("V")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object an event is about; `namespace` is empty for cluster-scoped kinds."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def of(cls, resource: Resource, meta: ObjectMeta) -> Regarding:
        """Return an object of a kind as the object of an event."""
        return cls(resource.api_version, resource.kind, meta.name, meta.namespace, meta.uid)


@dataclass(frozen=True, slots=True)
class EventRecord:
    """The identity of an event: `type` is Normal or Warning, `reason` is CamelCase, `message` a sentence."""

    regarding: Regarding
    type: str
    reason: str
    message: str
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Series:
    """The occurrences of an event, and the state of its Event object."""

    first: float
    last: float
    count: int = 0
    name: str = ""
    tried_name: str = ""
    tries: int = 0
    due: float = 0.0
    waiting: bool = False


@dataclass(slots=True)
class _TokenBucket:
    """The token bucket of one object: `left` tokens at the time `at`."""

    left: float = OBJECT_BURST
    at: float = 0.0

    def spend(self, now: float) -> bool:
        self.left = min(OBJECT_BURST, self.left + (now - self.at) / OBJECT_REFILL_SECONDS)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class EventRecorder:
    """Records events as `component`; `run` writes them."""

    def __init__(self, api: Api, component: str) -> None:
        self.dropped = 0
        self._api = api
        self._component = component
        self._suffix = f"{crc32(component.encode()) & 0xFFFF:04x}"
        """Keeps the names of events apart that two components record in the same microsecond."""
        self._series: OrderedDict[EventRecord, _Series] = OrderedDict()
        self._buckets: OrderedDict[Regarding, _TokenBucket] = OrderedDict()
        self._queue: list[tuple[float, int, EventRecord]] = []
        self._number = 0
        self._wake = asyncio.Event()

    def record(
        self,
        regarding: Regarding,
        reason: str,
        message: str,
        type: str = "Normal",  # noqa: A002 - the field's name
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record an event without waiting; the message becomes one line, as `kubectl get events` shows only one."""
        line = " ".join(part.strip() for part in message.splitlines() if part.strip())
        now, text = wall(), line.encode()[:MESSAGE_BYTES].decode(errors="ignore")
        what = EventRecord(regarding, type, reason, text, tuple(sorted((annotations or {}).items())))
        series = _get_or_add(self._series, what, _Series(now, now))
        series.count += 1
        series.last = now
        if series.waiting:
            return
        bucket = _get_or_add(self._buckets, regarding, _TokenBucket(at=now))
        if len(self._queue) >= WAITING_LIMIT or not bucket.spend(now):
            self.dropped += 1
            return
        self._enqueue(what, series, max(now, series.due))

    def _enqueue(self, what: EventRecord, series: _Series, when: float) -> None:
        series.waiting = True
        self._number += 1
        heapq.heappush(self._queue, (when, self._number, what))
        self._wake.set()

    async def run(self) -> NoReturn:
        """Write events as they become due, until cancelled."""
        while True:
            due: list[EventRecord] = []
            now = wall()
            while self._queue and self._queue[0][0] <= now and len(due) < WRITERS:
                due.append(heapq.heappop(self._queue)[2])
            if due:
                await asyncio.gather(*(self._write(what) for what in due))
                continue
            self._wake.clear()
            try:
                async with asyncio.timeout(self._next_wait()):
                    await self._wake.wait()
            except TimeoutError:
                self._expire()

    def _next_wait(self) -> float | None:
        """Return the seconds until an event is due or expires; None without events."""
        now, waits = wall(), []
        if self._queue:
            waits.append(self._queue[0][0] - now)
        if self._series:
            oldest = next(iter(self._series.values()))
            waits.append(max(oldest.last + REMEMBERED_SECONDS - now, REPEAT_SECONDS))
        return min(waits, default=None)

    def _expire(self) -> None:
        """Drop expired events and token buckets (ordered oldest first), so that a burst does not hold memory."""
        since = wall() - REMEMBERED_SECONDS
        while self._series:
            what, series = next(iter(self._series.items()))
            if series.last > since or series.waiting:
                break
            del self._series[what]
        while self._buckets:
            regarding, bucket = next(iter(self._buckets.items()))
            if bucket.at > since:
                break
            del self._buckets[regarding]

    async def _write(self, what: EventRecord) -> None:
        """Update the Event of this series, or create it if there is none yet or it has expired."""
        series = self._series.get(what)
        if series is None:
            return
        series.waiting = False
        series.due = wall() + REPEAT_SECONDS
        namespace = what.regarding.namespace or "default"
        try:
            if series.name:
                again = {"count": series.count, "lastTimestamp": rfc3339(series.last)}
                await self._api.patch(EVENT.ref(series.name, namespace), Patch.merge(again))
                series.tries = 0
                return
        except NotFound:
            series.name = ""
        except ApiError as error:
            self._failed(what, series, error)
            return
        self._number += 1
        fresh = f"{what.regarding.name[:230]}.{int(wall() * 1e6) + self._number:x}{self._suffix}"
        series.tried_name = name = series.tried_name or fresh
        try:
            with contextlib.suppress(AlreadyExists):  # created by an earlier attempt whose response was lost
                await self._api.create(EVENT, self._body(what, series, name), namespace)
            series.name, series.tried_name, series.tries = name, "", 0
        except ApiError as error:
            self._failed(what, series, error)

    def _failed(self, what: EventRecord, series: _Series, error: ApiError) -> None:
        """Requeue with backoff; drop the event if the error is permanent or all tries failed."""
        series.tries += 1
        transient = error.status == TooManyRequests.status or error.status >= ApiError.status
        if transient and series.tries < TRIES and len(self._queue) < WAITING_LIMIT:
            if not series.waiting:  # a new occurrence may have queued it in the meantime
                self._enqueue(what, series, wall() + BACKOFF.after(series.tries))
            return
        series.tries, series.tried_name = 0, ""
        self.dropped += 1
        log.debug("event not written", reason=what.reason, object=what.regarding.name, error=error.message)

    def _body(self, what: EventRecord, series: _Series, name: str) -> Object:
        about = what.regarding
        involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name}
        involved |= {key: value for key, value in (("namespace", about.namespace), ("uid", about.uid)) if value}
        return {
            "metadata": {"name": name, "annotations": dict(what.annotations)},
            "involvedObject": involved,
            "type": what.type,
            "reason": what.reason,
            "message": what.message,
            "count": series.count,
            "firstTimestamp": rfc3339(series.first),
            "lastTimestamp": rfc3339(series.last),
            "source": {"component": self._component},
            "reportingComponent": self._component,
        }


def _get_or_add(entries: OrderedDict[K, V], key: K, fresh: V) -> V:
    """Return the value of a key, storing `fresh` if there is none; evict the least recently used key at the limit."""
    value = entries.setdefault(key, fresh)
    entries.move_to_end(key)
    if len(entries) > REMEMBERED:
        entries.popitem(last=False)
    return value
