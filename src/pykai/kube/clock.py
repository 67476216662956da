"""Time as components see it: that of the event loop they run on.

asyncio's loop already is the clock of every timer. A loop that carries a `Clock` of its own (the virtual-time loop of
`kai simulate`) also supplies the wall clock and the jitter of back-offs, so that a component on it reads nothing of the
outside world and the same seed gives the same run. On any other loop, and in threads, time is real.

Pass these functions where a component takes a clock; they ask for the loop at every call.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`wall`: seconds since 1970. `steady`: seconds that never go back. `jitter`: a number in [0, 1)."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random


REAL = Clock()


def current() -> Clock:
    """The clock of the running loop; the real one where none runs."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return REAL
    found: Clock = getattr(loop, "clock", REAL)
    return found


def wall() -> float:
    """Seconds since 1970."""
    return current().wall()


def steady() -> float:
    """Seconds that never go back, for durations and deadlines."""
    return current().steady()


def jitter() -> float:
    """A number in [0, 1) that spreads retries."""
    return current().jitter()
