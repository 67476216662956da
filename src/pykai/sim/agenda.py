"""Virtual time: what is to happen, and when. Time jumps from one entry to the next; nothing ever waits.

Entries of one instant happen in the order in which they were made, so a run has exactly one history.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

NEVER = float("inf")


class Agenda:
    """`now`: seconds since the epoch."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.now = start
        self._entries: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0

    def after(self, seconds: float, happening: Callable[[], None]) -> None:
        """Let something happen so many seconds from now; not in the past."""
        self._made += 1
        heapq.heappush(self._entries, (self.now + max(seconds, 0.0), self._made, happening))

    def next(self) -> float:
        """When the next entry is due; NEVER where there is none."""
        return self._entries[0][0] if self._entries else NEVER

    def advance(self, instant: float) -> None:
        """Go to an instant, letting everything happen that is due by then."""
        while self.next() <= instant:
            due, _, happening = heapq.heappop(self._entries)
            self.now = max(self.now, due)
            happening()
        self.now = max(self.now, instant)
