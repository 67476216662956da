"""When cycles run, on a clock that stands still until it is moved."""

from __future__ import annotations

import asyncio

import pytest

from pykai.scheduler.queueing_hints import NEVER, CycleTrigger, Debounce, Hint
from tests.timeouts import TIMEOUT_SECONDS


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trigger(clock: Clock) -> CycleTrigger:
    return CycleTrigger(Debounce(period=1.0, pause=0.02, burst=0.05, rest=0.5, refresh=60.0), clock)


def test_nothing_is_due_by_itself(trigger: CycleTrigger) -> None:
    assert trigger.due() == NEVER


def test_a_burst_is_one_cycle(trigger: CycleTrigger, clock: Clock) -> None:
    trigger.hint(Hint.QUEUE)
    assert trigger.due() == pytest.approx(100.02)
    for later, due in ((100.01, 100.03), (100.03, 100.05), (100.045, 100.05)):
        clock.now = later
        trigger.hint(Hint.QUEUE)
        assert trigger.due() == pytest.approx(due)
    trigger.begin()
    assert trigger.due() == NEVER


@pytest.mark.parametrize(
    ("waits", "hint", "after"),
    [
        (False, Hint.CAPACITY, NEVER),
        (True, Hint.CAPACITY, 0.02),
        (False, Hint.REASONS, NEVER),
        (True, Hint.REASONS, 1.0),
        (False, Hint.WRITE, 1.0),
        (False, Hint.LOSS, 1.0),
        (True, Hint.LOSS, 0.02),
        (False, Hint.QUEUE, 0.02),
        (True, Hint.SKIP, NEVER),
    ],
)
def test_how_soon_a_cycle_follows(trigger: CycleTrigger, clock: Clock, waits: bool, hint: Hint, after: float) -> None:
    trigger.pods_wait = waits
    trigger.hint(hint)
    assert trigger.due() == pytest.approx(clock.now + after)


def test_a_long_cycle_is_followed_by_a_rest(trigger: CycleTrigger, clock: Clock) -> None:
    trigger.end(took=0.4)
    trigger.hint(Hint.QUEUE)
    assert trigger.due() == pytest.approx(clock.now + 0.2)
    trigger.end(took=30.0)
    assert trigger.due() == pytest.approx(clock.now + 1.0)


def test_who_waits_is_looked_at_now_and_then(trigger: CycleTrigger, clock: Clock) -> None:
    trigger.pods_wait = True
    trigger.end(took=0.0)
    assert trigger.due() == clock.now + 60.0
    trigger.request_by(clock.now + 5.0)
    trigger.request_by(clock.now + 7.0)
    assert trigger.due() == clock.now + 5.0


async def test_waiting_ends_when_something_comes_up() -> None:
    trigger = CycleTrigger(Debounce(pause=0.0, burst=0.0), asyncio.get_running_loop().time)
    task = asyncio.create_task(trigger.wait())
    await asyncio.sleep(0.01)
    assert not task.done()
    trigger.request()
    await asyncio.wait_for(task, TIMEOUT_SECONDS)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="pause <= burst"):
        Debounce(pause=0.1, burst=0.05)
