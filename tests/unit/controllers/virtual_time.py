"""A clock that stands still until a test moves it; it has the two methods of an event loop that a loop's pace needs."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable


class Booking:
    """A call that was booked for later."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualTime:
    """Seconds that pass only in `advance`."""

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._booked: list[tuple[float, int, Booking]] = []
        self._number = 0

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], object]) -> Booking:
        booking = Booking(callback)
        self._number += 1
        heapq.heappush(self._booked, (when, self._number, booking))
        return booking

    async def advance(self, seconds: float) -> None:
        """Let time pass, calling what is due on the way, and let every task do what it then can."""
        end = self._now + seconds
        await settle()
        while self._booked and self._booked[0][0] <= end:
            when, _, booking = heapq.heappop(self._booked)
            self._now = max(self._now, when)
            if booking.callback is not None:
                booking.callback()
                await settle()
        self._now = end
        await settle()


async def settle(turns: int = 50) -> None:
    """Let every task run until it waits for something outside."""
    for _ in range(turns):
        await asyncio.sleep(0)
