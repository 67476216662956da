"""Shared informers: list and watch of one kind, shared by all components of the process that read it.

A reflector lists in pages, then watches from the list's resourceVersion. A watch that ends resumes from the last
version seen, including that of bookmarks. If the server has compacted that version (Gone), the reflector relists, and
handlers receive the difference to the store. Invariant: handlers see the history of every object once and in order,
even across lost connections. A version older than the last one seen (the server was restored from a backup) is handled
as Gone.

An informer is live while the server serves its watch. It raises only if the server keeps rejecting the credentials:
the process must then restart with new ones.

`InformerFactory` has one informer per kind and selection. Optional kinds share one metadata watch on
CustomResourceDefinitions: when a definition appears, the informer of its kind relists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from enum import Enum
from typing import Any, Generic, NoReturn, TypeVar

import structlog
from msgspec import Raw

from pykai.kube import api_resources as known
from pykai.kube.api import ALL_AT_ONCE, EVERYTHING, Api, EventType, Paging, Resource, Selection, WatchEvent
from pykai.kube.backoff import Backoff
from pykai.kube.clock import jitter
from pykai.kube.codec import identity_of, version_number
from pykai.kube.errors import ApiError, Gone, NotFound, Timeout, Unauthorized, Unavailable
from pykai.kube.informer_store import InformerStore, Key, StoredObject, WatchChange

T = TypeVar("T")
Handler = Callable[[WatchChange[T]], None]

BACKOFF = Backoff(0.2, 30.0, jitter=0.5)
ABSENT_SECONDS = 300.0
"""How long, at least, an optional kind that is not installed is not asked for."""
SHORT_SECONDS = 1.0
"""A watch that ended earlier is opened again after a backoff."""
REJECTIONS = 3
"""Rejections of the credentials after which an informer gives up."""
PAGE_SIZE = 1000
_VERSION_TOO_LARGE = "ResourceVersionTooLarge"
_NAMES_ONLY = Selection(metadata_only=True)

log = structlog.get_logger()


class InformerState(Enum):
    """The state of an informer; ABSENT: the kind is not installed."""

    STARTING = "starting"
    LIVE = "live"
    LOST = "lost"
    ABSENT = "absent"


class SharedInformer(Generic[T]):
    """The informer of one kind; `run` feeds it. An `optional` kind may be absent from a ready process."""

    def __init__(
        self, api: Api, resource: Resource, into: type[T], where: Selection = EVERYTHING, *, optional: bool = False
    ) -> None:
        self.resource = resource
        self.into = into
        self.where = where
        self.optional = optional
        self.state = InformerState.STARTING
        self.problem = ""
        self._api = api
        self._store: InformerStore[T] = InformerStore(resource, into)
        self._handlers: list[Handler[T]] = []
        self._version = ""
        self._opened_at: float | None = None  # None until the server has accepted the watch
        self._failures = 0
        self._rejections = 0
        self._synced = asyncio.Event()
        self._retry = asyncio.Event()

    # ------------------------------------------------------------------------------------------------- reading
    @property
    def alive(self) -> bool:
        """Whether the store follows the server, or an optional kind is known to be absent."""
        return self.state is InformerState.LIVE or (self.optional and self.state is InformerState.ABSENT)

    @property
    def version(self) -> int:
        """The latest resourceVersion, including that of the change handlers are receiving; 0 before the first list."""
        return version_number(self._version)

    def __len__(self) -> int:
        return len(self._store)

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return the object in the store, or None."""
        return self._store.get((namespace, name))

    def items(self) -> Iterator[tuple[Key, T]]:
        """Iterate over all objects in the store with their (namespace, name)."""
        return self._store.items()

    async def synced(self) -> None:
        """Return once the first list is complete."""
        await self._synced.wait()

    def subscribe(self, handler: Handler[T]) -> Callable[[], None]:
        """Call `handler` with every object in the store as ADDED, now, and with every change from now on.

        Handlers run in order of subscription and must not raise: an exception ends the watch. Return a function that
        unsubscribes the handler.
        """
        for key, value in list(self._store.items()):
            handler(WatchChange(EventType.ADDED, key, value, None))
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    def retry_now(self) -> None:
        """End the backoff, if the informer is backing off."""
        self._retry.set()

    # ------------------------------------------------------------------------------------------------ watching
    async def run(self) -> NoReturn:
        """List and watch until cancelled; raise Unauthorized if the server keeps rejecting the credentials.

        A watch whose connection broke (Timeout, Unavailable) resumes at once, unless it was open only briefly.
        """
        while True:
            failure: ApiError | None = None
            try:
                if not self._version:
                    await self._list()
                async with aclosing(self._api.watch(self.resource, Raw, self.where, self._version)) as events:
                    async for event in events:
                        self._handle(event)
            except ApiError as error:
                failure = error
            open_seconds = None if self._opened_at is None else asyncio.get_running_loop().time() - self._opened_at
            self._opened_at = None
            short = open_seconds is None or open_seconds < SHORT_SECONDS
            if not short:
                self._failures = 0
            interrupted = open_seconds is not None and isinstance(failure, Timeout | Unavailable)
            if failure and not interrupted:
                await self._recover(failure)
            elif short:
                await self._wait(self._backoff())

    async def _list(self) -> None:
        try:
            version, listed = await self._list_pages(Paging(PAGE_SIZE))
        except Gone:  # the continue token expired before the last page
            version, listed = await self._list_pages(ALL_AT_ONCE)
        if not version:
            raise Unavailable(f"the answer to a list of {self.resource.qualified} has no resourceVersion")
        self._version = version
        self._notify(self._store.replace(listed))
        self._mark_live()

    async def _list_pages(self, paging: Paging) -> tuple[str, dict[Key, StoredObject[T]]]:
        listed: dict[Key, StoredObject[T]] = {}
        while True:
            page = await self._api.list(self.resource, Raw, self.where, paging)
            listed |= self._store.page(page.items)
            if not page.token:
                return page.version, listed
            paging = replace(paging, token=page.token)

    def _handle(self, event: WatchEvent[Raw]) -> None:
        if self._opened_at is None:
            self._opened_at = asyncio.get_running_loop().time()
        version = identity_of(event.object).resource_version
        if version_number(version) < version_number(self._version):
            raise Gone(f"the server's versions went back from {self._version} to {version or 'none'}")
        self._version = version
        if event.type is not EventType.BOOKMARK:
            self._notify(self._store.event(event.type, event.object))
        self._mark_live()

    def _notify(self, changes: list[WatchChange[T]]) -> None:
        for change in changes:
            for handler in tuple(self._handlers):
                handler(change)

    def _mark_live(self) -> None:
        if self.state is InformerState.LIVE:
            return
        self.state, self.problem = InformerState.LIVE, ""
        self._rejections = 0
        self._synced.set()

    # ------------------------------------------------------------------------------------------------- failures
    async def _recover(self, error: ApiError) -> None:
        """Handle an error: relist, mark the kind absent, or raise; then back off."""
        if isinstance(error, Gone | NotFound) and self.state is InformerState.LIVE:
            self._version, self.state = "", InformerState.LOST
            after_healthy_watch, delay = not self._failures, self._backoff()
            if not after_healthy_watch:  # lists are expensive
                await self._wait(delay)
            return
        self.problem = f"{self.resource.qualified}: {error.message}"
        if isinstance(error, NotFound):
            await self._mark_absent()
            return
        if isinstance(error, Unauthorized):
            self._rejections += 1
            if self._rejections >= REJECTIONS:
                raise error
        if isinstance(error, Gone) or _is_version_too_large(error):
            self._version = ""
        if self.state is not InformerState.LOST:
            log.warning("watch lost", kind=self.resource.qualified, error=error.message)
        self.state = InformerState.LOST
        await self._wait(max(self._backoff(), error.retry_after))

    async def _mark_absent(self) -> None:
        """Handle a kind that is not installed: empty the store, then wait for `retry_now` or a long interval."""
        self._version = ""
        self._notify(self._store.replace({}))
        self.state = InformerState.ABSENT
        if self.optional:
            self._synced.set()
            await self._wait(ABSENT_SECONDS * (1 + jitter()))
        else:
            await self._wait(self._backoff())

    def _backoff(self) -> float:
        """Count a failure and return the seconds to wait before the next attempt."""
        self._failures += 1
        return BACKOFF.after(self._failures)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._retry.wait()
        except TimeoutError:
            pass
        self._retry.clear()


def _is_version_too_large(error: ApiError) -> bool:
    """Whether the server (a stale replica) has not reached the resourceVersion that was already seen."""
    causes = error.details.get("causes")
    return any(isinstance(cause, dict) and cause.get("reason") == _VERSION_TOO_LARGE for cause in causes or ())


class InformerFactory:
    """The shared informers of one process for one API server; they start together and are ready together."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._watches: dict[tuple[Resource, Selection], SharedInformer[Any]] = {}
        self._crds: SharedInformer[Raw] | None = None
        self._group: asyncio.TaskGroup | None = None

    def of(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, *, optional: bool = False
    ) -> SharedInformer[T]:
        """Return the informer of a kind. The first call sets the type; it is optional only if all callers say so."""
        watch = self._watches.get((resource, where))
        if watch is None:
            watch = self._started(SharedInformer(self._api, resource, into, where, optional=optional))
            self._watches[resource, where] = watch
        elif watch.into is not into:
            raise ValueError(f"{resource.qualified} is already watched as {watch.into}, not as {into}")
        watch.optional = watch.optional and optional
        if optional and self._crds is None:
            self._crds = self._started(SharedInformer(self._api, known.CRD, Raw, _NAMES_ONLY, optional=True))
            self._crds.subscribe(self._crd_changed)
        return watch

    async def run(self) -> NoReturn:
        """Run all informers, including those requested later; raise the first error that ends one."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for watch in (*self._watches.values(), *([] if self._crds is None else [self._crds])):
                    group.create_task(watch.run())
                await asyncio.Event().wait()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._group = None
        raise AssertionError("watches run until they are cancelled")

    async def synced(self) -> None:
        """Return once every informer requested so far has synced."""
        for watch in list(self._watches.values()):
            await watch.synced()

    def problems(self) -> list[str]:
        """Return why the process is not ready, one line per kind."""
        lost = [watch for watch in self._watches.values() if not watch.alive]
        return [watch.problem or f"{watch.resource.qualified}: not listed yet" for watch in lost]

    def _started(self, watch: SharedInformer[T]) -> SharedInformer[T]:
        if self._group is not None:
            self._group.create_task(watch.run())
        return watch

    def _crd_changed(self, change: WatchChange[Raw]) -> None:
        for watch in self._watches.values():
            if watch.resource.qualified == change.key[1]:
                watch.retry_now()
