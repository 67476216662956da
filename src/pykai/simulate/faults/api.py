"""Fault injection by seed: a fault plan, and the API server as one process of the product sees it.

A fault depends only on the seed and on the point where it may occur. A point is named by the operation and its
occurrence ("create pods default/job-1 #2"), so that leaving out one fault moves no other, and a failing history can be
shrunk fault by fault.

Injected are errors before a write, responses lost after it, slow requests, watches that break, stall or are compacted,
and crashes of the process before, during and after a write; a write in flight may still arrive after the crash.
Kubelets, users and checks use the server without faults.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import TypeVar

from pykai.kube.api import (
    ALL_AT_ONCE,
    EVERYTHING,
    SERVER_DEFAULTS,
    Api,
    Body,
    Deletion,
    Object,
    Page,
    Paging,
    Patch,
    Ref,
    Resource,
    Selection,
    WatchEvent,
)
from pykai.kube.api_resources import CONFIG_MAP
from pykai.kube.errors import ApiError, Conflict, Forbidden, Gone, Timeout, TooManyRequests, Unavailable

Rates = Sequence[tuple[str, float]]
"""Kinds of faults that may occur at a point, with their probabilities; at most one occurs."""
_SCALE = float(1 << 64)


@dataclass(frozen=True)
class Fault:
    """A fault that occurred `at` seconds after the start; `point` is unique in a history.

    `about`: what a user did to which object; empty where the point names the object.
    """

    at: float
    kind: str
    point: str
    about: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.about or self.point}"


class FaultPlan:
    """Draws faults while `active`. `happened`: the faults that occurred; `left_out`: points without faults."""

    def __init__(self, seed: int, time: Callable[[], float], left_out: Collection[str] = ()) -> None:
        self.active = True
        self.happened: list[Fault] = []
        self.outage_until = 0.0
        """The end of the outage: until then the API server serves no component."""
        self._seed = seed
        self._time = time
        self._left_out = frozenset(left_out)
        self._counts: Counter[str] = Counter()

    @property
    def is_down(self) -> bool:
        return self._time() < self.outage_until

    def draw(self, where: str, rates: Rates) -> tuple[str, Random] | None:
        """Return the kind of fault that occurs at this point and a generator for its details; None without a fault."""
        if not self.active:
            return None
        self._counts[where] += 1
        point = f"{where} #{self._counts[where]}"
        left = self._uniform(point)
        for kind, rate in rates:
            left -= rate
            if left < 0.0:
                if point in self._left_out:
                    return None
                self.note(Fault(self._time(), kind, point))
                return kind, Random(f"{self._seed}/{point}")
        return None

    def event(self, kind: str, point: str) -> Random | None:
        """Return the generator of a planned event, such as a user action; None if it is left out."""
        return None if not self.active or point in self._left_out else Random(f"{self._seed}/{point}")

    def note(self, fault: Fault) -> None:
        """Record a fault that occurred."""
        self.happened.append(fault)

    def counts(self) -> Counter[str]:
        """Return the number of faults by kind."""
        return Counter(fault.kind for fault in self.happened)

    def _uniform(self, point: str) -> float:
        digest = blake2b(f"{self._seed}/{point}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / _SCALE


T = TypeVar("T")
BEFORE: dict[str, Callable[[], ApiError]] = {
    "409 before the write": lambda: Conflict("the object has been modified; please apply your changes to the latest"),
    "403 before the write": lambda: Forbidden("a policy of the cluster denied the request"),
    "429 before the write": lambda: TooManyRequests("the server is overloaded"),
    "500 before the write": lambda: ApiError("internal error"),
    "503 before the write": lambda: Unavailable("the server is not available"),
    "504 before the write": lambda: Timeout("the request was not answered in time"),
}
RESPONSE_LOST, SLOW = "answer lost after the write", "slow write"
KILLED_BEFORE, KILLED_WITHIN, KILLED_AFTER = (
    "killed before a write",
    "killed with a write in flight",
    "killed after a write",
)
WRITES: Rates = (
    *((kind, 0.008) for kind in BEFORE if not kind.startswith(("403", "409"))),
    (RESPONSE_LOST, 0.03),
    (SLOW, 0.03),
    (KILLED_BEFORE, 0.0015),
    (KILLED_WITHIN, 0.0015),
    (KILLED_AFTER, 0.0015),
)
CHANGES: Rates = (("409 before the write", 0.008), *WRITES)
"""Faults of updates and patches, the only requests that can conflict."""
REFUSABLE: Rates = (("403 before the write", 0.05), *WRITES)
"""Faults of requests that a cluster policy may deny for good: binds, and creates of their ConfigMaps."""
READS: Rates = (("read failed", 0.02), ("slow read", 0.02))
LISTS: Rates = (("list expired", 0.01), *READS)
BROKEN, ENDED, COMPACTED, STALLED = "watch broken", "watch ended", "watch compacted", "watch stalled"
EVENTS: Rates = ((BROKEN, 0.005), (ENDED, 0.005), (COMPACTED, 0.004), (STALLED, 0.01))
LONGEST_SLOW, LONGEST_STALL, LONGEST_FLIGHT = 8.0, 25.0, 5.0
"""Upper bounds in seconds."""


class FaultyApi:
    """An `Api` with the faults of a plan. `process`: the name of the client process; `on_kill` kills it."""

    def __init__(self, api: Api, plan: FaultPlan, process: str, on_kill: Callable[[], None]) -> None:
        self.dead = False
        self.writes: Counter[str] = Counter()
        """Completed writes by resource."""
        self._api = api
        self._plan = plan
        self._process = process
        self._on_kill = on_kill
        self._in_flight: set[asyncio.Task[object]] = set()

    # -------------------------------------------------------------------------------------------------------- calls
    async def get(self, ref: Ref, into: type[T]) -> T:
        """See `Api.get`."""
        return await self._read(f"get {_named(ref)}", READS, lambda: self._api.get(ref, into))

    async def list(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, paging: Paging = ALL_AT_ONCE
    ) -> Page[T]:
        """See `Api.list`."""
        rates = LISTS if paging.token else READS
        return await self._read(f"list {resource.plural}", rates, lambda: self._api.list(resource, into, where, paging))

    async def create(self, resource: Resource, body: Body, namespace: str = "") -> Object:
        """See `Api.create`."""
        meta = body.get("metadata") or {} if isinstance(body, dict) else {}
        name = "/".join(
            filter(None, (namespace or meta.get("namespace"), meta.get("name") or meta.get("generateName")))
        )
        rates = REFUSABLE if resource == CONFIG_MAP else WRITES
        return await self._write(
            f"create {resource.plural} {name}", rates, lambda: self._api.create(resource, body, namespace)
        )

    async def update(self, ref: Ref, body: Body) -> Object:
        """See `Api.update`."""
        return await self._write(f"update {_named(ref)}", CHANGES, lambda: self._api.update(ref, body))

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        """See `Api.patch`."""
        return await self._write(f"patch {_named(ref)}", CHANGES, lambda: self._api.patch(ref, patch))

    async def delete(self, ref: Ref, how: Deletion = SERVER_DEFAULTS) -> None:
        """See `Api.delete`."""
        await self._write(f"delete {_named(ref)}", WRITES, lambda: self._api.delete(ref, how))

    async def post(self, ref: Ref, body: Body) -> Object:
        """See `Api.post`."""
        rates = REFUSABLE if ref.subresource == "binding" else WRITES
        return await self._write(f"post {_named(ref)}", rates, lambda: self._api.post(ref, body))

    async def watch(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, version: str = ""
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """See `Api.watch`."""
        self._check_alive()
        point = f"{self._process}: watch {resource.plural}"
        async with aclosing(self._api.watch(resource, into, where, version)) as events:
            async for event in events:
                drawn = self._plan.draw(point, EVENTS)
                kind = drawn[0] if drawn else ""
                if drawn and kind == STALLED:
                    await asyncio.sleep(drawn[1].uniform(0.5, LONGEST_STALL))
                self._check_alive()
                yield event
                if kind == BROKEN:
                    raise Unavailable("the connection broke")
                if drawn and kind == COMPACTED:  # Only a relist shows the changes of this time.
                    await asyncio.sleep(drawn[1].uniform(0.5, LONGEST_STALL))
                    raise Gone("too old resource version")
                if kind == ENDED:
                    return

    # ------------------------------------------------------------------------------------------------------- faults
    async def _read(self, what: str, rates: Rates, ask: Callable[[], Awaitable[T]]) -> T:
        self._check_alive()
        drawn = self._plan.draw(f"{self._process}: {what}", rates)
        if drawn is None:
            return await ask()
        kind, chance = drawn
        if kind == "list expired":
            raise Gone("the provided continue parameter is too old")
        if kind == "read failed":
            raise chance.choice((TooManyRequests, Unavailable, Timeout))("the server is overloaded")
        await asyncio.sleep(chance.uniform(0.05, LONGEST_SLOW))
        self._check_alive()
        return await ask()

    async def _write(self, what: str, rates: Rates, write: Callable[[], Awaitable[T]]) -> T:
        self._check_alive()
        drawn = self._plan.draw(f"{self._process}: {what}", rates)
        if drawn is None:
            return await self._send(what, write)
        kind, chance = drawn
        if kind in BEFORE:
            raise BEFORE[kind]()
        if kind == SLOW:
            return await self._slow(what, write, chance)
        if kind == KILLED_BEFORE:
            self._kill()
        if kind == KILLED_WITHIN:
            self._start(self._send_after(what, write, chance.uniform(0.01, LONGEST_FLIGHT)))
            self._kill()
        answer = await self._send(what, write)
        if kind == KILLED_AFTER:
            self._kill()
        if kind == RESPONSE_LOST:
            raise Timeout("the answer was lost")
        return answer

    async def _send(self, what: str, write: Callable[[], Awaitable[T]]) -> T:
        answer = await write()
        self.writes[what.split()[1]] += 1
        return answer

    async def _slow(self, what: str, write: Callable[[], Awaitable[T]], chance: Random) -> T:
        """Delay the write or its response; the write reaches the server even if the caller gives up."""
        before, after = chance.choice(((1.0, 0.0), (0.0, 1.0), (0.5, 0.5)))
        seconds = chance.uniform(0.05, LONGEST_SLOW)
        sent = self._start(self._send_after(what, write, seconds * before))
        answer = await asyncio.shield(sent)
        await asyncio.sleep(seconds * after)
        return answer

    async def _send_after(self, what: str, write: Callable[[], Awaitable[T]], seconds: float) -> T:
        await asyncio.sleep(seconds)
        return await self._send(what, write)

    def _start(self, sent: Awaitable[T]) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.ensure_future(sent)
        self._in_flight.add(task)
        task.add_done_callback(self._completed)
        return task

    def _completed(self, task: asyncio.Task[T]) -> None:
        self._in_flight.discard(task)
        if not task.cancelled():
            task.exception()

    def _kill(self) -> None:
        """Kill this process: none of its later requests reaches the server."""
        self.dead = True
        self._on_kill()
        self._check_alive()

    def _check_alive(self) -> None:
        if self.dead or self._plan.is_down:
            raise Unavailable("the connection is closed" if self.dead else "the server is down")


def _named(ref: Ref) -> str:
    kind = "/".join(filter(None, (ref.resource.plural, ref.subresource)))
    return f"{kind} {'/'.join(filter(None, (ref.namespace, ref.name)))}"
