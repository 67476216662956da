"""All components in this process on the real API server, and what they registered taken away afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pykai.cli.local_cluster import LocalProduct
from pykai.kube.api import Object
from pykai.kube.client import HttpApi
from pykai.kube.resources import MUTATING_WEBHOOK, VALIDATING_WEBHOOK
from tests.timeouts import TIMEOUT_SECONDS


@asynccontextmanager
async def at_work(product: LocalProduct, api: HttpApi, kubeconfig: Path) -> AsyncIterator[None]:
    """The product, ready when the block begins and still working when it ends."""
    ready = asyncio.Event()
    work = asyncio.create_task(product.run(kubeconfig, ready))
    try:
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait([work, waiting], timeout=TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert ready.is_set(), work
        yield
        assert not work.done(), work.exception()
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        for resource in (MUTATING_WEBHOOK, VALIDATING_WEBHOOK):
            for item in (await api.list(resource, Object)).items:
                await api.delete(resource.ref(item["metadata"]["name"]))
