"""What Prometheus is asked: the use of a metric over a window of the past, decayed if that is wished."""

from __future__ import annotations

import math

from pykai.config.usage import UsageConfig, window_seconds
from pykai.objects import units


def use_over_time(metric: str, config: UsageConfig, now: float) -> str | None:
    """The query for the sum of a metric over the window; None where the window is empty."""
    seconds = math.floor(window_seconds(config.window, now))
    if seconds <= 0:
        return None
    resolution = units.render_duration(config.queries.resolution)
    return f"sum_over_time(({decayed(metric, config.half_life, now)})[{seconds}s:{resolution}])"


def decayed(metric: str, half_life: float | None, now: float) -> str:
    """The metric, worth half for every half-life that it lies back."""
    if half_life is None:
        return metric
    return f"(({metric}) * (0.5^(({math.floor(now)} - time()) / {half_life:.6f})))"
