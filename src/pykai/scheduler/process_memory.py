"""Memory settings of a process that runs cycles: no garbage collection inside a cycle, some freed pages are kept.

Imports nothing else of the package, so that `kai replay` starts fast.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

KEPT_BYTES = 32 * 1024 * 1024
"""Maximum freed memory that is kept for the next cycle."""
RELEASE_SECONDS = 60.0
LARGEST_BYTES = 8 * 1024 * 1024
"""Blocks of at least this size are still returned at once."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3)."""


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable the garbage collector inside the block.

    Reference counting frees what a cycle allocates; traversing the whole cache for reference cycles would cost up to
    a fifth of a cycle that places many pods.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def keep_freed_memory() -> None:
    """Let glibc keep some freed memory in this process; no effect with other C libraries.

    A cycle on a large cluster allocates and frees hundreds of columns of a few hundred kilobytes. By default glibc
    returns such memory each time and the kernel maps the same pages again, fault by fault: half of the CPU of opening
    a cycle with 40,000 pods.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)


class Mallinfo(ctypes.Structure):
    """struct mallinfo2 of mallinfo(3); `fordblks` are the bytes that glibc keeps free."""

    _fields_ = (("before", ctypes.c_size_t * 8), ("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t))


async def release_freed_memory() -> None:
    """Regularly return freed memory above `KEPT_BYTES` to the system; no effect with other C libraries.

    glibc returns only what is free at the end of the heap: a burst of pods would leave its peak behind.
    """
    import asyncio  # which `kai replay` does without

    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    mallinfo, trim = getattr(library, "mallinfo2", None), getattr(library, "malloc_trim", None)
    if mallinfo is not None:
        mallinfo.restype = Mallinfo
    while True:
        await asyncio.sleep(RELEASE_SECONDS)
        if mallinfo is not None and trim is not None and mallinfo().fordblks > KEPT_BYTES:
            trim(KEPT_BYTES)
