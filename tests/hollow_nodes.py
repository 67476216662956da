"""Hollow nodes for the length of a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from pykai.hollow.hollow_node import NodeShape
from pykai.hollow.kubelet_settings import KubeletSettings, Runtime
from pykai.kube.api import Api
from pykai.kube.api_resources import NODE
from pykai.kube.errors import NotFound
from pykai.local.kubelet import HollowKubelets


@asynccontextmanager
async def hollow_nodes(
    api: Api, shapes: Iterable[NodeShape], settings: KubeletSettings | None = None, runtime: Runtime | None = None
) -> AsyncIterator[HollowKubelets]:
    """Kubelets that play while the block runs; the nodes are removed after it."""
    kubelets = HollowKubelets(api, shapes, settings, runtime)
    playing = asyncio.create_task(kubelets.run())
    try:
        ready = asyncio.create_task(kubelets.ready.wait())
        await asyncio.wait([ready, playing], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if playing.done():
            playing.result()
        yield kubelets
    finally:
        playing.cancel()
        (ended,) = await asyncio.gather(playing, return_exceptions=True)
        for node in kubelets.ledgers:
            with suppress(NotFound):
                await api.delete(NODE.ref(node))
        if isinstance(ended, Exception):
            raise ended
