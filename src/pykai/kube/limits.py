"""Client-side limits: of the rate, and of how many at once.

The rate limit is first come, first served, with a burst, without a queue of its own: each caller books the next free
slot on a schedule that runs at `qps` and may run `burst` ahead; who is ahead of it sleeps until the slot comes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager


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


class GiveWay:
    """Lets `most` through at once, in the order they come, but no more than `least` while anything urgent goes on.

    Urgent things come in bursts: for `linger` seconds after the last of them the next is waited for.
    """

    def __init__(self, least: int, most: int, linger: float = 0.0) -> None:
        if not 1 <= least <= most:
            raise ValueError(f"1 <= least <= most must hold, got {least} and {most}")
        self._least = least
        self._most = most
        self._linger = linger
        self._urgent = 0
        self._through = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextmanager
    def urgent(self) -> Iterator[None]:
        """Something urgent goes on while the block runs."""
        self._urgent += 1
        try:
            yield
        finally:
            if self._linger:
                asyncio.get_running_loop().call_later(self._linger, self._over)
            else:
                self._over()

    def _over(self) -> None:
        self._urgent -= 1
        self._call()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; it lasts as long as the block."""
        if self._waiting or self._room() <= 0:
            await self._called()
        else:
            self._through += 1
        try:
            yield
        finally:
            self._through -= 1
            self._call()

    async def _called(self) -> None:
        """Return when it is our turn, which counts from the call on."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._through -= 1
            self._call()
            raise

    def _room(self) -> int:
        return (self._least if self._urgent else self._most) - self._through

    def _call(self) -> None:
        """Call as many of those who wait as have room now."""
        while self._waiting and (self._waiting[0].done() or self._room() > 0):
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._through += 1
                waiter.set_result(None)
