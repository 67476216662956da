"""Exact list+watch of one kind, shared by everybody in the process who reads that kind.

A list in pages, then a watch from the list's version; a watch that ends goes on from the last version seen, bookmarks
included; a version the server has forgotten (Gone) means a new list, whose difference to the local copy is told as
changes. So subscribers see every object's life once and in order, whatever happens to connections. A server whose
versions go back (it was restored from a backup) has another past than the one that was told: that is Gone, too.

A watch is alive while the server is answering it. It gives up, by raising, only when the server keeps refusing the
credentials: then the process must end and come back with new ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, NoReturn, TypeVar

import structlog
from msgspec import Raw

from pykai.kube.api import ALL_AT_ONCE, EVERYTHING, Api, EventType, Paging, Resource, Selection, WatchEvent
from pykai.kube.backoff import Backoff
from pykai.kube.codec import identity_of, version_number
from pykai.kube.errors import ApiError, Gone, NotFound, Timeout, Unauthorized, Unavailable
from pykai.kube.replica import Change, Held, Key, Replica

T = TypeVar("T")
Handler = Callable[[Change[T]], None]

_TOO_LARGE = "ResourceVersionTooLarge"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pace:
    """How a watch behaves in trouble; seconds, and how many refused credentials in a row are final."""

    backoff: Backoff = Backoff(0.2, 30.0, jitter=0.5)
    absent_seconds: float = 300.0
    short_seconds: float = 1.0
    refusals: int = 3
    page: int = 1000


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
        self._opened: float | None = None
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
        while True:
            failure: ApiError | None = None
            try:
                if not self._version:
                    await self._list()
                await self._follow()
            except ApiError as error:
                failure = error
            open_seconds, self._opened = self._open_seconds(), None
            short = open_seconds is None or open_seconds < self.pace.short_seconds
            if not short:
                self._trouble = 0
            if failure and not (_is_interruption(failure) and open_seconds is not None):
                await self._recover(failure)
            elif short:
                await self._wait(self._backoff())

    def _open_seconds(self) -> float | None:
        """How long the stream has been open; None if the server did not accept it."""
        return None if self._opened is None else asyncio.get_running_loop().time() - self._opened

    async def _list(self) -> None:
        try:
            version, listed = await self._pages(Paging(self.pace.page))
        except Gone:  # The pages took longer than the server remembers.
            version, listed = await self._pages(ALL_AT_ONCE)
        if not version:
            raise Unavailable(f"the answer to a list of {self.resource.qualified} has no resourceVersion")
        self._version = version
        self._tell(self._replica.replace(listed))
        self._live()

    async def _pages(self, paging: Paging) -> tuple[str, dict[Key, Held]]:
        listed: dict[Key, Held] = {}
        while True:
            page = await self._api.list(self.resource, Raw, self.where, paging)
            listed |= self._replica.page(page.items)
            if not page.token:
                return page.version, listed
            paging = replace(paging, token=page.token)

    async def _follow(self) -> None:
        async with aclosing(self._api.watch(self.resource, Raw, self.where, self._version)) as events:
            async for event in events:
                self._take(event)

    def _take(self, event: WatchEvent[Raw]) -> None:
        if self._opened is None:
            self._opened = asyncio.get_running_loop().time()
        version = identity_of(event.object).resource_version
        if version_number(version) < version_number(self._version):
            raise Gone(f"the server's versions went back from {self._version} to {version or 'none'}")
        if event.type is not EventType.BOOKMARK:
            self._tell(self._replica.event(event.type, event.object))
        self._version = version
        self._live()

    def _tell(self, changes: list[Change[T]]) -> None:
        for change in changes:
            for handler in tuple(self._handlers):
                handler(change)

    def _live(self) -> None:
        if self.state is State.LIVE:
            return
        self.state, self.problem = State.LIVE, ""
        self._refused = 0
        self._synced.set()

    # ------------------------------------------------------------------------------------------------- trouble
    async def _recover(self, error: ApiError) -> None:
        """Decide what an error means, and wait as long as it asks for."""
        if isinstance(error, Gone | NotFound) and self.state is State.LIVE:
            self._version, self.state = "", State.LOST
            await self._list_again()
            return
        self.problem = f"{self.resource.qualified}: {error.message}"
        if isinstance(error, NotFound):
            await self._absent()
            return
        if isinstance(error, Unauthorized):
            self._refused += 1
            if self._refused >= self.pace.refusals:
                raise error
        if isinstance(error, Gone) or _is_ahead(error):
            self._version = ""
        if self.state is not State.LOST:
            log.warning("watch lost", kind=self.resource.qualified, error=error.message)
        self.state = State.LOST
        await self._wait(max(self._backoff(), float(error.details.get("retryAfterSeconds") or 0)))

    async def _list_again(self) -> None:
        """Wait before a new list, unless it is the first since a watch went well: lists are dear."""
        first, wait = not self._trouble, self._backoff()
        if not first:
            await self._wait(wait)

    async def _absent(self) -> None:
        """The kind is not installed, or not any more: nothing of it exists; look again when poked or much later."""
        self._version = ""
        self._tell(self._replica.replace({}))
        self.state = State.ABSENT
        if self.optional:
            self._synced.set()
            await self._wait(self.pace.absent_seconds * (1 + self.pace.backoff.random()))
        else:
            await self._wait(self._backoff())

    def _backoff(self) -> float:
        """Count a failure; seconds to wait before the next attempt."""
        self._trouble += 1
        return self.pace.backoff.after(self._trouble)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        except TimeoutError:
            pass
        self._poked.clear()


def _is_interruption(error: ApiError) -> bool:
    """Whether an open stream merely broke: to go on at once is right, and nothing is lost yet."""
    return isinstance(error, Timeout | Unavailable)


def _is_ahead(error: ApiError) -> bool:
    """Whether the server says that it has not come as far as the version we have seen."""
    causes = error.details.get("causes")
    return any(isinstance(cause, dict) and cause.get("reason") == _TOO_LARGE for cause in causes or ())
