"""When the next cycle runs: at once after a change that can help, in time after other news, else not at all.

Changes come in bursts: a cycle waits until they pause for a moment, but not longer than `burst` after the first.
After a cycle there is a pause that grows with how long it took, so that a busy cluster does not cost a whole processor.
Times are seconds of one steady clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pykai.scheduler.urgency import Urgency, When

NEVER = float("inf")


@dataclass(frozen=True)
class Rhythm:
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


class Agenda:
    """Knows when the next cycle is due. `somebody_waits` is kept up to date by who runs the cycles."""

    def __init__(self, rhythm: Rhythm, clock: Callable[[], float]) -> None:
        self.somebody_waits = False
        self._rhythm = rhythm
        self._clock = clock
        self._first_call: float | None = None
        self._last_call = 0.0
        self._latest = NEVER
        self._not_before = 0.0
        self._changed = asyncio.Event()

    def heed(self, matters: Urgency) -> None:
        """Something changed."""
        when = matters.when(self.somebody_waits)
        if when is When.NOW:
            self.call()
        elif when is When.IN_TIME:
            self.at_latest(self._clock() + self._rhythm.period)

    def call(self) -> None:
        """A cycle is wanted now, or as soon as the burst is over."""
        self._last_call = self._clock()
        if self._first_call is None:
            self._first_call = self._last_call
        self._changed.set()

    def at_latest(self, instant: float) -> None:
        """A cycle is wanted by then."""
        if instant < self._latest:
            self._latest = instant
            self._changed.set()

    def begin(self) -> None:
        """A cycle begins: it sees everything that came before."""
        self._first_call = None
        self._latest = NEVER

    def end(self, took: float) -> None:
        """The cycle has ended after so many seconds."""
        self._not_before = self._clock() + min(took * self._rhythm.rest, self._rhythm.period)
        if self.somebody_waits:
            self.at_latest(self._clock() + self._rhythm.refresh)

    def due(self) -> float:
        """When the next cycle runs, as far as is known now."""
        called = NEVER
        if self._first_call is not None:
            called = min(self._last_call + self._rhythm.pause, self._first_call + self._rhythm.burst)
        return max(min(called, self._latest), self._not_before)

    async def wait(self) -> None:
        """Return when a cycle is due."""
        while (left := self.due() - self._clock()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if left == NEVER else left):
                    await self._changed.wait()
            except TimeoutError:
                pass
