"""Low-priority writes: at most one pending write per object, the latest wins, and none delays a bind.

A write is a function that reads the current state when it runs, and does nothing if that is up to date.
An object is written at most once a second, and less often the longer it keeps changing.
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
        """Reconcile the key after this delay, or earlier if it is already scheduled earlier."""
        ...

    async def run(self, reconcile: Callable[[Hashable], Awaitable[float | None]]) -> None:
        """Reconcile keys; a returned number is the seconds until the key is requeued."""
        ...


@dataclass(frozen=True)
class Spacing:
    """Minimum seconds between two writes of an object: `first`, doubled up to `longest`, reset after `quiet`."""

    first: float = 1.0
    longest: float = 10.0
    quiet: float = 60.0


class WriteQueue:
    """Pending writes by key; `clock` is monotonic."""

    def __init__(self, loop: Loop, clock: Callable[[], float], spacing: Spacing | None = None) -> None:
        self._loop = loop
        self._clock = clock
        self._spacing = spacing or Spacing()
        self._writes: dict[Hashable, Write] = {}
        self._sent: dict[Hashable, tuple[float, float]] = {}
        """Key -> time of the last write, and minimum seconds until the next."""

    def post(self, key: Hashable, write: Write, after: float = 0.0) -> None:
        """Enqueue a write in place of the pending one of this key; it runs after `after` seconds or later."""
        self._writes[key] = write
        self._loop.add_after(key, after)

    def cancel(self, key: Hashable) -> None:
        """Drop the pending write of this key."""
        self._writes.pop(key, None)

    def __len__(self) -> int:
        return len(self._writes)

    async def run(self) -> None:
        """Run pending writes until cancelled."""
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
        now, spacing = self._clock(), self._spacing
        longer = min(rest * 2, spacing.longest) if now - last < spacing.quiet else spacing.first
        self._sent[key] = (now, longer)
        if len(self._sent) > _REMEMBERED:
            self._sent = {known: entry for known, entry in self._sent.items() if now - entry[0] < spacing.quiet}
        return None
