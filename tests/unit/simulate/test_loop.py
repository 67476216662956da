"""The event loop in virtual time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pykai.kube import clock
from pykai.simulate import loop


async def _sleeps() -> list[tuple[float, float]]:
    seen = []
    for seconds in (10.0, 3600.0):
        await asyncio.sleep(seconds)
        seen.append((asyncio.get_running_loop().time(), clock.wall()))
    return seen


def test_time_jumps_and_the_wall_clock_follows() -> None:
    assert loop.run(_sleeps(), start=1000.0) == [(10.0, 1010.0), (3610.0, 4610.0)]


async def _threaded() -> tuple[threading.Thread, float]:
    worker = await asyncio.to_thread(threading.current_thread)
    return worker, clock.steady()


def test_work_for_threads_runs_inline_and_takes_no_time() -> None:
    assert loop.run(_threaded()) == (threading.main_thread(), 0.0)


async def _failing() -> None:
    await asyncio.to_thread(lambda: 1 / 0)


def test_an_error_of_such_work_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        loop.run(_failing())


class _Formatted:
    times = 0

    def __repr__(self) -> str:
        self.times += 1
        return ""


async def _unseen() -> _Formatted:
    return _Formatted()


def test_the_result_of_a_run_is_not_formatted() -> None:
    assert loop.run(_unseen()).times == 0, "for the history of a day that takes minutes"


async def _jitter() -> list[float]:
    return [clock.jitter() for _ in range(5)]


def test_jitter_depends_on_the_seed_alone() -> None:
    first, again, other = (loop.run(_jitter(), seed=seed) for seed in (1, 1, 2))
    assert first == again != other


async def _stalled() -> None:
    await asyncio.Event().wait()


def test_a_run_that_waits_for_nothing_is_an_error() -> None:
    with pytest.raises(loop.StalledError):
        loop.run(_stalled())


async def _until(deadline: float) -> int:
    """Wait for a time of the loop, again and again for what is left of it, as components do."""
    this, woken = asyncio.get_running_loop(), 0
    while (left := deadline - this.time()) > 0.0:
        await asyncio.sleep(left)
        woken += 1
    return woken


@pytest.mark.parametrize("early", [0.0, 7e-8, 9e-7])
def test_tasks_that_are_woken_early_see_time_pass(early: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MOST_STEPS", 100)

    async def late(deadline: float) -> int:
        await asyncio.sleep(0)
        return await _until(deadline)

    async def waiting() -> tuple[int, int, int]:
        await asyncio.sleep(59.117 - early)
        return await asyncio.gather(_until(59.117), late(59.117), late(59.117))

    assert max(loop.run(waiting())) <= 2


def test_a_rest_too_short_for_the_clock_ends() -> None:
    async def waiting() -> float:
        """Wait for ten seconds as a component does that subtracts twice: what is left is below the clock's floats."""
        this, begun = asyncio.get_running_loop(), 21.325
        await asyncio.sleep(31.325)
        while (left := 10.0 - (this.time() - begun) + 1e-15) > 0.0:
            await asyncio.sleep(left)
        return this.time()

    assert loop.run(waiting()) == pytest.approx(31.325, abs=1e-6)


async def _busy() -> None:
    while True:
        await asyncio.sleep(0)


def test_a_run_in_which_time_stands_still_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MOST_STEPS", 100)
    with pytest.raises(loop.StalledError, match="time stands still at 0 s"):
        loop.run(_busy())
