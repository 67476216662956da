"""Pods on hollow nodes and the API server in memory, and waiting for what becomes of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pykai.kube.api import Object
from pykai.kube.api_resources import POD
from pykai.kube.errors import NotFound
from pykai.kube.memory.memory_api import MemoryApi
from tests.timeouts import TIMEOUT_SECONDS


async def eventually(check: Callable[[], Awaitable[Any]], seconds: float = TIMEOUT_SECONDS) -> Any:
    """The first true value of `check`; the test fails with its last value if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (value := await check()):
        assert time.monotonic() < deadline, f"still {value!r}"
        await asyncio.sleep(0.01)
    return value


def pod(name: str, gpus: int = 0, node: str = "gpu", **more: Any) -> Object:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "main", "image": "ubuntu", "resources": {"limits": limits, "requests": limits}}
    spec = {"containers": [container], "nodeName": node, **more.pop("spec", {})}
    metadata = {"name": name, "namespace": "default", **more}
    return {"metadata": metadata, "spec": {key: value for key, value in spec.items() if value}}


async def status_of(api: MemoryApi, name: str) -> Object:
    found = await api.get(POD.ref(name, "default"), Object)
    return dict(found.get("status") or {})


async def await_phase(api: MemoryApi, name: str, phase: str) -> Object:
    async def check() -> Object | None:
        status = await status_of(api, name)
        return status if status.get("phase") == phase else None

    return dict(await eventually(check))


async def await_gone(api: MemoryApi, name: str) -> None:
    async def check() -> bool:
        try:
            await api.get(POD.ref(name, "default"), Object)
        except NotFound:
            return True
        return False

    await eventually(check)
