"""What Prometheus is asked: the use of a metric over a window of the past, decayed if that is wished."""

from __future__ import annotations

import math

from pykai.controllers.usage.config import UsageConfig, Window, WindowType
from pykai.objects import duration


def window_seconds(window: Window, now: float) -> float:
    """How far back use counts at `now`, in seconds; 0 where the window has just begun."""
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


def use_over_time(metric: str, config: UsageConfig, now: float) -> str | None:
    """The query for the sum of a metric over the window; None where the window is empty."""
    seconds = math.floor(window_seconds(config.window, now))
    if seconds <= 0:
        return None
    resolution = duration.render(config.queries.resolution)
    return f"sum_over_time(({decayed(metric, config.half_life, now)})[{seconds}s:{resolution}])"


def decayed(metric: str, half_life: float | None, now: float) -> str:
    """The metric, worth half for every half-life that it lies back."""
    if half_life is None:
        return metric
    return f"(({metric}) * (0.5^(({math.floor(now)} - time()) / {half_life:.6f})))"
