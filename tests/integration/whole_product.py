"""All components in this process on the real API server, and what they registered taken away afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from pykai.cli.local_cluster import LocalProduct
from pykai.hollow.hollow_node import NodeShape
from pykai.kube.api import Object
from pykai.kube.api_resources import MUTATING_WEBHOOK, VALIDATING_WEBHOOK
from pykai.kube.client import HttpApi
from pykai.local.cluster_session import connect
from pykai.local.control_plane import APISERVER, FLAGS, start_cluster
from tests.hollow_nodes import hollow_nodes
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


@contextmanager
def serving(binary: Path, directory: Path, flags: Mapping[str, str]) -> Iterator[Path]:
    """A control plane whose API server has these flags, too; yields its kubeconfig."""
    usual = FLAGS[APISERVER]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FLAGS, APISERVER, lambda site: {**usual(site), **flags})
        plane = start_cluster(directory, binary)
    yield Path(plane.files.kubeconfig)
    plane.stop()


@asynccontextmanager
async def product_on(kubeconfig: Path, node: str) -> AsyncIterator[HttpApi]:
    """All components and one node on a control plane."""
    async with (
        connect(kubeconfig) as api,
        at_work(LocalProduct(), api, kubeconfig),
        hollow_nodes(api, [NodeShape(node)]),
    ):
        yield api
