"""Objects of a real cluster, followed change by change while a block runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

from pykai.kube.api import Api, Object, Resource
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import WatchChange

Handler = Callable[[WatchChange[Object]], None]


@contextlib.asynccontextmanager
async def followed(api: Api, handlers: Mapping[Resource, Handler]) -> AsyncIterator[None]:
    """Every change of these kinds is handed on, from what there is at the beginning on."""
    watches = InformerFactory(api)
    for resource, handler in handlers.items():
        watches.of(resource, Object).subscribe(handler)
    following = asyncio.create_task(watches.run())
    try:
        await watches.synced()
        yield
        assert not following.done(), following.exception()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
