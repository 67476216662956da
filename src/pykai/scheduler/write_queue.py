"""Low-priority writes: one pending write per object, the latest wins, and none delays a bind.

A write is a function that reads the newest state when it runs, and does nothing if that is up to date.
An object is written at most once a second, and ever more rarely while it keeps changing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

import structlog

from pykai.kube.errors import BadRequest, Forbidden, Invalid, NotFound

Write = Callable[[], Awaitable[object]]
_POINTLESS = (BadRequest, Forbidden, Invalid)
_REMEMBERED = 10_000

log = structlog.get_logger(component="scheduler")


class Loop(Protocol):
    """A workqueue with rate-limited requeue (`kube.workqueue`)."""

    def add_after(self, key: Hashable, seconds: float) -> None:
        """Work on the key after so many seconds, or earlier if it is scheduled earlier."""
        ...

    async def run(self, reconcile: Callable[[Hashable], Awaitable[float | None]]) -> None:
        """Work on keys; a number returned is the seconds after which to look at the key again."""
        ...


@dataclass(frozen=True)
class Spacing:
    """Seconds between two writes of an object: at first, at most, and after which quiet time it starts anew."""

    first: float = 1.0
    longest: float = 10.0
    quiet: float = 60.0


class WriteQueue:
    """Pending writes by key; `clock` is a steady one."""

    def __init__(self, loop: Loop, clock: Callable[[], float], spacing: Spacing | None = None) -> None:
        self._loop = loop
        self._clock = clock
        self._spacing = spacing or Spacing()
        self._writes: dict[Hashable, Write] = {}
        self._sent: dict[Hashable, tuple[float, float]] = {}
        """Key -> when it was written last, and how long it must rest then."""

    def post(self, key: Hashable, write: Write, after: float = 0.0) -> None:
        """Write as soon as possible, or after so many seconds, instead of what waits under this key."""
        self._writes[key] = write
        self._loop.add_after(key, after)

    def cancel(self, key: Hashable) -> None:
        """Do not write what waits under this key."""
        self._writes.pop(key, None)

    def __len__(self) -> int:
        return len(self._writes)

    async def run(self) -> None:
        """Write for ever."""
        await self._loop.run(self._send)

    async def _send(self, key: Hashable) -> float | None:
        write = self._writes.get(key)
        if write is None:
            return None
        last, rest = self._sent.get(key, (float("-inf"), 0.0))
        wait = last + rest - self._clock()
        if wait > 0:
            return wait
        del self._writes[key]
        try:
            await write()
        except NotFound:
            return None
        except _POINTLESS as error:
            log.warning("write rejected", object=key, error=error.message)
            return None
        except Exception:
            self._writes.setdefault(key, write)
            raise
        self._note(key, last, rest)
        return None

    def _note(self, key: Hashable, last: float, rest: float) -> None:
        now, spacing = self._clock(), self._spacing
        longer = min(rest * 2, spacing.longest) if now - last < spacing.quiet else spacing.first
        self._sent[key] = (now, longer)
        if len(self._sent) > _REMEMBERED:
            self._sent = {known: entry for known, entry in self._sent.items() if now - entry[0] < spacing.quiet}
