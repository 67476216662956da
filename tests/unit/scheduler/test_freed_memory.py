"""The allocator is asked to keep freed memory where the C library can be asked, and left alone elsewhere."""

from __future__ import annotations

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
