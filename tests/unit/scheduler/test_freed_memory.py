"""The allocator is asked to keep freed memory where the C library can be asked, and left alone elsewhere."""

from __future__ import annotations

import asyncio
import ctypes
import sys
from types import SimpleNamespace

import pytest

from pykai.scheduler import process_memory


@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize("can", [True, False])
def test_only_glibc_is_asked(monkeypatch: pytest.MonkeyPatch, platform: str, can: bool) -> None:
    asked: dict[int, int] = {}
    library = SimpleNamespace(mallopt=asked.__setitem__) if can else SimpleNamespace()
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    process_memory.keep_freed_memory()
    wanted = {-1: process_memory.KEPT_BYTES, -3: process_memory.LARGEST_BYTES}
    assert asked == (wanted if can and platform == "linux" else {})


@pytest.mark.parametrize(("free", "trimmed"), [(0, False), (process_memory.KEPT_BYTES + 1, True)])
@pytest.mark.virtual_time
async def test_what_a_burst_left_free_is_returned(monkeypatch: pytest.MonkeyPatch, free: int, trimmed: bool) -> None:
    trims: list[int] = []

    def mallinfo() -> SimpleNamespace:
        return SimpleNamespace(fordblks=free)

    library = SimpleNamespace(mallinfo2=mallinfo, malloc_trim=trims.append)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    task = asyncio.create_task(process_memory.release_freed_memory())
    await asyncio.sleep(process_memory.RELEASE_SECONDS * 1.5)
    task.cancel()
    assert trims == [process_memory.KEPT_BYTES] * trimmed


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux")
def test_the_c_library_tells_what_it_keeps_free() -> None:
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        pytest.skip("glibc before 2.33, or another C library")
    mallinfo.restype = process_memory.Mallinfo
    found = mallinfo()
    assert 0 < found.fordblks < found.before[0], "of the size of the heap"
