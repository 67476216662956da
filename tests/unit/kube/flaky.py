"""An API server in memory that fails on command."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from pykai.kube.api import ALL_AT_ONCE, EVERYTHING, Object, Page, Paging, Resource, Selection, WatchEvent
from pykai.kube.errors import ApiError
from pykai.kube.memory import MemoryApi
from pykai.objects.crds import manifests
from tests.timeouts import TIMEOUT_SECONDS

T = TypeVar("T")


class FlakyApi(MemoryApi):
    """Raises what is queued, one per list, per watch before it opens, or per watch after; counts lists and watches."""

    def __init__(self, **options: Any) -> None:
        super().__init__(time.time, manifests(), **options)
        self.list_failures: list[ApiError] = []
        self.watch_failures: list[ApiError] = []
        self.stream_failures: list[ApiError] = []
        self.lists = 0
        self.watches = 0

    async def list(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, paging: Paging = ALL_AT_ONCE
    ) -> Page[T]:
        self.lists += 1
        if self.list_failures:
            raise self.list_failures.pop(0)
        return await super().list(resource, into, where, paging)

    async def watch(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, version: str = ""
    ) -> AsyncGenerator[WatchEvent[T], None]:
        self.watches += 1
        if self.watch_failures:
            raise self.watch_failures.pop(0)
        async with contextlib.aclosing(super().watch(resource, into, where, version)) as events:
            async for event in events:
                yield event
                if self.stream_failures:
                    raise self.stream_failures.pop(0)


async def until(test: Callable[[], bool]) -> None:
    """Return when the test holds; fails if it does not in time."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not test():
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """Run something in the background for a while."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ApiError):
            await task


def config_map(name: str, **data: str) -> Object:
    """A small object."""
    return {"metadata": {"name": name}, "data": data}
