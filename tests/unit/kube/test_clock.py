"""Components read the clock of the loop they run on, the real one elsewhere."""

from __future__ import annotations

import asyncio
import time

from pykai.kube import clock
from pykai.kube.clock import Clock


async def _readings() -> tuple[float, float, float]:
    return clock.wall(), clock.steady(), clock.jitter()


def test_a_loop_with_a_clock_supplies_the_time() -> None:
    loop = asyncio.new_event_loop()
    loop.clock = Clock(lambda: 1000.0, lambda: 7.0, lambda: 0.5)  # type: ignore[attr-defined]
    try:
        assert loop.run_until_complete(_readings()) == (1000.0, 7.0, 0.5)
    finally:
        loop.close()


def test_elsewhere_time_is_real() -> None:
    before = time.time(), time.monotonic()
    for wall, steady, jitter in (asyncio.run(_readings()), (clock.wall(), clock.steady(), clock.jitter())):
        assert wall >= before[0]
        assert steady >= before[1]
        assert 0 <= jitter < 1
