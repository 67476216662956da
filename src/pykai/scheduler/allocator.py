"""The C library's allocator in a process that decides cycle after cycle.

A cycle on a large cluster makes and drops some hundred columns of a few hundred kilobytes. By default glibc gives such
memory back to the system each time, and the system hands out the same pages again one fault after the other: half of
the CPU of opening a cycle with 40,000 pods. Some of it is kept instead. Other C libraries stay as they are.
"""

from __future__ import annotations

import ctypes
import sys

KEPT_BYTES = 32 * 1024 * 1024
"""Freed memory that is kept for the next cycle, at most."""
LARGEST_BYTES = 8 * 1024 * 1024
"""Blocks from this size on are still given back at once."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of mallopt(3)."""


def keep_freed_memory() -> None:
    """Let this process keep some of the memory that it freed."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)
