"""Exact list+watch of one kind, shared by everybody in the process who reads that kind.

A list in pages, then a watch from the list's version; a watch that ends goes on from the last version seen, bookmarks
included; a version the server has forgotten (Gone) means a new list, whose difference to the local copy is told as
changes. So subscribers see every object's life once and in order, whatever happens to connections.

A watch is alive while the server is answering it. It gives up, by raising, only when the server keeps refusing the
credentials: then the process must end and come back with new ones.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NoReturn, TypeVar

import structlog
from msgspec import Raw

from pykai.kube.api import EVERYTHING, Api, EventType, Paging, Resource, Selection, WatchEvent
from pykai.kube.codec import identity_of
from pykai.kube.errors import ApiError, Gone, NotFound, Timeout, Unauthorized, Unavailable
from pykai.kube.replica import Change, Held, Key, Replica

T = TypeVar("T")
Handler = Callable[[Change[T]], None]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pace:
    """How a watch behaves in trouble; seconds, and how many refused credentials in a row are final."""

    first_seconds: float = 0.2
    longest_seconds: float = 30.0
    absent_seconds: float = 300.0
    short_seconds: float = 1.0
    refusals: int = 3
    page: int = 1000
    jitter: Callable[[], float] = random.random


class State(Enum):
    """Where a watch stands: ABSENT means that the kind is not installed."""

    STARTING = "starting"
    LIVE = "live"
    LOST = "lost"
    ABSENT = "absent"


class SharedWatch(Generic[T]):
    """One kind, followed for ever by `run`. An `optional` kind may be absent without making the process unready."""

    def __init__(
        self, api: Api, resource: Resource, into: type[T], where: Selection = EVERYTHING, *, optional: bool = False
    ) -> None:
        self.resource = resource
        self.into = into
        self.where = where
        self.optional = optional
        self.state = State.STARTING
        self.problem = ""
        self.pace = Pace()
        self._api = api
        self._replica: Replica[T] = Replica(resource, into)
        self._handlers: list[Handler[T]] = []
        self._version = ""
        self._open = False
        self._trouble = 0
        self._refused = 0
        self._synced = asyncio.Event()
        self._poked = asyncio.Event()

    # ------------------------------------------------------------------------------------------------- reading
    @property
    def alive(self) -> bool:
        """Whether the local copy follows the server, or an optional kind is known to be absent."""
        return self.state is State.LIVE or (self.optional and self.state is State.ABSENT)

    def __len__(self) -> int:
        return len(self._replica)

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object in the local copy, or None."""
        return self._replica.get((namespace, name))

    def items(self) -> Iterator[tuple[Key, T]]:
        """All objects in the local copy by (namespace, name)."""
        return self._replica.items()

    async def synced(self) -> None:
        """Return when the local copy is complete for the first time."""
        await self._synced.wait()

    def subscribe(self, handler: Handler[T]) -> Callable[[], None]:
        """Call `handler` with every present object as ADDED, now, and with every change from now on.

        Handlers run in order of subscription and must not raise: an exception ends the watch. Returns the way out.
        """
        for key, value in list(self._replica.items()):
            handler(Change(EventType.ADDED, key, value, None))
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    def poke(self) -> None:
        """Try again now if the watch is waiting to."""
        self._poked.set()

    # ----------------------------------------------------------------------------------------------- following
    async def run(self) -> NoReturn:
        """Follow the server; raises Unauthorized if it keeps refusing the credentials."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                if not self._version:
                    await self._list()
                await self._follow()
            except ApiError as error:
                if not self._was_open(error):
                    await self._recover(error)
                    continue
            if loop.time() - began < self.pace.short_seconds:
                await self._wait(self._backoff())
            else:
                self._trouble = 0

    def _was_open(self, error: ApiError) -> bool:
        """Whether a stream broke that the server had accepted: to go on at once is right, and nothing is lost yet."""
        opened, self._open = self._open, False
        return opened and isinstance(error, Timeout | Unavailable)

    async def _list(self) -> None:
        listed: dict[Key, Held] = {}
        page = await self._api.list(self.resource, Raw, self.where, Paging(self.pace.page))
        while True:
            listed |= self._replica.page(page.items)
            if not page.token:
                break
            page = await self._api.list(self.resource, Raw, self.where, Paging(self.pace.page, page.token))
        self._version = page.version
        self._tell(self._replica.replace(listed))
        self._live()

    async def _follow(self) -> None:
        self._open = False
        async with aclosing(self._api.watch(self.resource, Raw, self.where, self._version)) as events:
            async for event in events:
                self._take(event)

    def _take(self, event: WatchEvent[Raw]) -> None:
        if event.type is not EventType.BOOKMARK:
            self._tell(self._replica.event(event.type, event.object))
        self._version = identity_of(event.object).resource_version
        self._open = True
        self._live()

    def _tell(self, changes: list[Change[T]]) -> None:
        for change in changes:
            for handler in tuple(self._handlers):
                handler(change)

    def _live(self) -> None:
        if self.state is State.LIVE:
            return
        self.state, self.problem = State.LIVE, ""
        self._trouble = self._refused = 0
        self._synced.set()

    # ------------------------------------------------------------------------------------------------- trouble
    async def _recover(self, error: ApiError) -> None:
        """Decide what an error means, and wait as long as it asks for."""
        if isinstance(error, Gone | NotFound) and self.state is State.LIVE:
            self._version, self.state = "", State.LOST
            return
        self.problem = f"{self.resource.qualified}: {error.message}"
        if isinstance(error, NotFound):
            await self._absent()
            return
        if isinstance(error, Unauthorized):
            self._refused += 1
            if self._refused >= self.pace.refusals:
                raise error
        if isinstance(error, Gone):
            self._version = ""
        if self.state is not State.LOST:
            log.warning("watch lost", kind=self.resource.qualified, error=error.message)
        self.state = State.LOST
        await self._wait(max(self._backoff(), float(error.details.get("retryAfterSeconds") or 0)))

    async def _absent(self) -> None:
        """The kind is not installed, or not any more: nothing of it exists; look again when poked or much later."""
        self._version = ""
        self._tell(self._replica.replace({}))
        self.state = State.ABSENT
        if self.optional:
            self._synced.set()
            await self._wait(self.pace.absent_seconds * (1 + self.pace.jitter()))
        else:
            await self._wait(self._backoff())

    def _backoff(self) -> float:
        """Seconds to wait: doubling from one trouble to the next, with jitter."""
        pace = self.pace
        longest = min(pace.longest_seconds, pace.first_seconds * 2.0 ** min(self._trouble, 30))
        self._trouble += 1
        return longest * (0.5 + pace.jitter() / 2)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        except TimeoutError:
            pass
        self._poked.clear()
