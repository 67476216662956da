"""When cycles run. Time is virtual."""

from __future__ import annotations

import asyncio

import pytest

from pykai.kube.clock import steady
from pykai.scheduler.queueing_hints import NEVER, CycleTrigger, Debounce, Hint
from tests.timeouts import TIMEOUT_SECONDS

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def trigger() -> CycleTrigger:
    return CycleTrigger(Debounce(period=1.0, pause=0.02, burst=0.05, rest=0.5, refresh=60.0))


async def test_nothing_is_due_by_itself(trigger: CycleTrigger) -> None:
    assert trigger.due() == NEVER


async def test_a_burst_is_one_cycle(trigger: CycleTrigger) -> None:
    began = steady()
    trigger.hint(Hint.QUEUE)
    assert trigger.due() == pytest.approx(began + 0.02)
    for later, due in ((0.01, 0.03), (0.03, 0.05), (0.045, 0.05)):
        await asyncio.sleep(began + later - steady())
        trigger.hint(Hint.QUEUE)
        assert trigger.due() == pytest.approx(began + due)
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
async def test_how_soon_a_cycle_follows(trigger: CycleTrigger, waits: bool, hint: Hint, after: float) -> None:
    trigger.pods_wait = waits
    trigger.hint(hint)
    assert trigger.due() == pytest.approx(steady() + after)


async def test_a_long_cycle_is_followed_by_a_rest(trigger: CycleTrigger) -> None:
    trigger.end(took=0.4)
    trigger.hint(Hint.QUEUE)
    assert trigger.due() == pytest.approx(steady() + 0.2)
    trigger.end(took=30.0)
    assert trigger.due() == pytest.approx(steady() + 1.0)


async def test_who_waits_is_looked_at_now_and_then(trigger: CycleTrigger) -> None:
    trigger.pods_wait = True
    trigger.end(took=0.0)
    assert trigger.due() == steady() + 60.0
    trigger.request_by(steady() + 5.0)
    trigger.request_by(steady() + 7.0)
    assert trigger.due() == steady() + 5.0


async def test_waiting_ends_when_something_comes_up() -> None:
    trigger = CycleTrigger(Debounce(pause=0.0, burst=0.0))
    task = asyncio.create_task(trigger.wait())
    await asyncio.sleep(0.01)
    assert not task.done()
    trigger.request()
    await asyncio.wait_for(task, TIMEOUT_SECONDS)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="pause <= burst"):
        Debounce(pause=0.1, burst=0.05)
