"""A client-side rate limit: first come, first served, with a burst, without a queue of its own.

Each caller books the next free slot on a schedule that runs at `qps` and may run `burst` ahead; who is ahead of it
sleeps until the slot comes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class RateLimit:
    """At most `qps` requests a second over time and `burst` at once; `qps` 0 is no limit."""

    def __init__(
        self,
        qps: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if qps < 0 or (qps > 0 and burst < 1):
            raise ValueError(f"rate limit: qps must not be negative and burst at least 1, got {qps} and {burst}")
        self._interval = 1.0 / qps if qps else 0.0
        self._ahead = self._interval * burst
        self._clock = clock
        self._sleep = sleep
        self._booked = clock()

    async def take(self) -> None:
        """Return when the next request may be sent."""
        if not self._interval:
            return
        now = self._clock()
        self._booked = max(self._booked, now) + self._interval
        wait = self._booked - self._ahead - now
        if wait > 0:
            await self._sleep(wait)
