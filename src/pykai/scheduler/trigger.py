"""The cycle trigger: a cycle runs at once after a change that can help, within the period after others.

Changes come in bursts: a cycle waits until they pause for a moment, but not longer than `burst` after the first.
After a cycle there is a pause that grows with how long it took, so that a busy cluster does not cost a whole processor.
Times are seconds of one steady clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pykai.scheduler.queueing_hints import Hint, When

NEVER = float("inf")


@dataclass(frozen=True)
class Debounce:
    """Seconds. `period` is the longest time between a change that matters and a cycle."""

    period: float = 1.0
    pause: float = 0.02
    burst: float = 0.05
    rest: float = 0.5
    """Pause after a cycle, as a part of its own duration."""
    refresh: float = 60.0
    """While pods wait there is a cycle at least this often."""

    def __post_init__(self) -> None:
        if not 0 <= self.pause <= self.burst or self.period <= 0:
            raise ValueError("0 <= pause <= burst and 0 < period must hold")


class CycleTrigger:
    """Knows when the next cycle is due. `pods_wait` is kept up to date by the scheduler."""

    def __init__(self, debounce: Debounce, clock: Callable[[], float]) -> None:
        self.pods_wait = False
        self._debounce = debounce
        self._clock = clock
        self._first_request: float | None = None
        self._last_request = 0.0
        self._latest = NEVER
        self._not_before = 0.0
        self._changed = asyncio.Event()

    def hint(self, hint: Hint) -> None:
        """Something changed."""
        when = hint.when(self.pods_wait)
        if when is When.NOW:
            self.request()
        elif when is When.IN_TIME:
            self.request_by(self._clock() + self._debounce.period)

    def request(self) -> None:
        """A cycle is wanted now, or as soon as the burst is over."""
        self._last_request = self._clock()
        if self._first_request is None:
            self._first_request = self._last_request
        self._changed.set()

    def request_by(self, instant: float) -> None:
        """A cycle is wanted by then."""
        if instant < self._latest:
            self._latest = instant
            self._changed.set()

    def begin(self) -> None:
        """A cycle begins: it sees everything that came before."""
        self._first_request = None
        self._latest = NEVER

    def end(self, took: float) -> None:
        """The cycle has ended after so many seconds."""
        self._not_before = self._clock() + min(took * self._debounce.rest, self._debounce.period)
        if self.pods_wait:
            self.request_by(self._clock() + self._debounce.refresh)

    def due(self) -> float:
        """When the next cycle runs, as far as is known now."""
        requested = NEVER
        if self._first_request is not None:
            requested = min(self._last_request + self._debounce.pause, self._first_request + self._debounce.burst)
        return max(min(requested, self._latest), self._not_before)

    async def wait(self) -> None:
        """Return when a cycle is due."""
        while (left := self.due() - self._clock()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if left == NEVER else left):
                    await self._changed.wait()
            except TimeoutError:
                pass
