"""What the containers of hollow pods have said, for `kubectl logs`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

_KEPT_LINES = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """One line, the moment it was said (seconds since the epoch) and its number."""

    at: float
    text: str
    number: int

    def render(self, *, timestamps: bool) -> str:
        """The line as `kubectl logs` prints it."""
        stamp = datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ") if timestamps else ""
        return f"{stamp}{self.text}\n"


@dataclass(frozen=True, slots=True)
class Wish:
    """Which lines: the last `tail` (None: all), not older than `since` (seconds since the epoch), and those to come."""

    tail: int | None = None
    since: float = 0.0
    follow: bool = False
    timestamps: bool = False


@dataclass(slots=True)
class PodLog:
    """The newest lines of one run of a container."""

    _lines: deque[Line] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    _count: int = 0
    _closed: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, text: str) -> None:
        """Add a line (or several, if the text has line breaks)."""
        for part in text.splitlines() or [""]:
            self._lines.append(Line(time.time(), part, self._count))
            self._count += 1
        self._wake()

    def close(self) -> None:
        """Nothing will be added: those who follow have seen all."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def chosen(self, wish: Wish) -> list[Line]:
        """The present lines that are wished for."""
        lines = [line for line in self._lines if line.at >= wish.since]
        return lines if wish.tail is None else lines[max(0, len(lines) - wish.tail) :]

    async def read(self, wish: Wish) -> AsyncIterator[str]:
        """The wished lines as text; with `follow` it ends when the log is closed."""
        lines = self.chosen(wish)
        seen = self._count
        while True:
            for line in lines:
                yield line.render(timestamps=wish.timestamps)
            if not wish.follow or (self._closed and seen == self._count):
                return
            if seen == self._count:
                await self._news.wait()
            lines = [line for line in self._lines if line.number >= seen]
            seen = self._count


@dataclass(slots=True)
class ContainerLog:
    """What a container says in its present run (`current`), and said in the one before (`previous`), if there was one.

    The containers of a pod that only pretends share one.
    """

    current: PodLog = field(default_factory=PodLog)
    previous: PodLog | None = None

    def begin(self) -> None:
        """Another run begins."""
        self.current, self.previous = PodLog(), self.current
