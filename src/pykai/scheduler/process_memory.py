"""Memory of a process that runs cycles: no garbage collection inside one, freed pages kept for the next.

Imports nothing else of the package: `kai replay` uses it and starts fast.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

KEPT_BYTES = 32 * 1024 * 1024
"""Freed memory that is kept for the next cycle, at most."""
LARGEST_BYTES = 8 * 1024 * 1024
"""Blocks from this size on are still given back at once."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of mallopt(3)."""


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable the garbage collector inside.

    What a cycle makes is free as soon as nothing refers to it; a search for reference cycles through all that is known
    of the cluster costs up to a fifth of a cycle that places many pods.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def keep_freed_memory() -> None:
    """Let this process keep some of the memory that it freed.

    A cycle on a large cluster makes and drops some hundred columns of a few hundred kilobytes. By default glibc gives
    such memory back each time, and the system maps the same pages again, one fault after the other: half of the CPU
    of opening a cycle with 40,000 pods. Other C libraries stay as they are.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)
