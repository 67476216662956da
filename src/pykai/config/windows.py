"""Which part of the past counts as use at an instant. Instants are seconds since 1970, lengths are seconds.

A window never begins earlier than it did before: what it has left behind can be forgotten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from pykai.config.cron import Cron


class WindowType(StrEnum):
    """How the part of the past that counts moves on."""

    SLIDING = "sliding"
    TUMBLING = "tumbling"
    CRON = "cron"


@dataclass(frozen=True)
class Window:
    """Which past counts. `start` for tumbling, `cron` for cron windows."""

    type: WindowType = WindowType.SLIDING
    size: float = 7 * 86400.0
    start: float | None = None
    cron: Cron | None = None


def window_seconds(window: Window, now: float) -> float:
    """How far back use counts at `now`; 0 where the window has just begun."""
    if window.type is WindowType.SLIDING:
        return window.size
    return max(0.0, now - last_reset(window, now))


def last_reset(window: Window, now: float) -> float:
    """When a tumbling or cron window last began, strictly before `now`; `now` where none has begun yet."""
    if window.type is WindowType.CRON:
        fired = window.cron.last_before(now) if window.cron else None
        return now if fired is None else fired
    start = now if window.start is None else window.start
    if start >= now:
        return now
    return start + (math.ceil((now - start) / window.size) - 1) * window.size
