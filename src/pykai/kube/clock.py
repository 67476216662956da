"""Clock of the running event loop: wall clock, monotonic clock and the jitter of backoffs.

A loop with a `Clock` of its own, such as the virtual-time loop of `kai simulate`, supplies all three, so that the same
seed gives the same run. On any other loop, and in threads, time is real. Pass these functions where a component takes
a clock: each call looks up the loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`wall`: seconds since 1970. `steady`: monotonic seconds. `jitter`: a number in [0, 1)."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random


REAL = Clock()


def current() -> Clock:
    """Return the clock of the running loop; the real one without a loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return REAL
    found: Clock = getattr(loop, "clock", REAL)
    return found


def wall() -> float:
    """Return the seconds since 1970."""
    return current().wall()


def steady() -> float:
    """Return monotonic seconds, for durations and deadlines."""
    return current().steady()


def jitter() -> float:
    """Return a number in [0, 1) that spreads retries."""
    return current().jitter()
