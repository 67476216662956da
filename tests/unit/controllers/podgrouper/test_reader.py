"""Owners that are read one by one."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from pykai.controllers.podgrouper.reader import ObjectCache, ObjectKey
from pykai.kube.api import Ref
from pykai.kube.clock import wall
from pykai.kube.errors import Unavailable
from pykai.kube.memory import MemoryApi

OWNER = ObjectKey("batch/v1", "Job", "default", "train")


class _FailingLater(MemoryApi):
    async def get(self, ref: Ref, into: type[Any]) -> Any:
        await asyncio.sleep(1.0)
        raise Unavailable("the connection is closed")


@pytest.mark.virtual_time
async def test_a_read_that_fails_after_its_reader_was_cancelled_is_no_unhandled_error() -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    cache = ObjectCache(_FailingLater(wall))
    reader = asyncio.create_task(cache.fetch(OWNER))
    await asyncio.sleep(0.5)
    reader.cancel()
    await asyncio.sleep(1.0)
    del reader
    gc.collect()
    assert unhandled == []
    with pytest.raises(Unavailable):
        await cache.fetch(OWNER)
