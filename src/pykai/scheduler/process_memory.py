"""Memory settings of a process that runs cycles: no garbage collection inside a cycle, freed pages are kept.

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
