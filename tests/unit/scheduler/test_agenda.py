"""When cycles run, on a clock that stands still until it is moved."""

from __future__ import annotations

import asyncio

import pytest

from pykai.scheduler.agenda import NEVER, Agenda, Rhythm
from pykai.scheduler.urgency import Urgency
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
def agenda(clock: Clock) -> Agenda:
    return Agenda(Rhythm(period=1.0, pause=0.02, burst=0.05, rest=0.5, refresh=60.0), clock)


def test_nothing_is_due_by_itself(agenda: Agenda) -> None:
    assert agenda.due() == NEVER


def test_a_burst_is_one_cycle(agenda: Agenda, clock: Clock) -> None:
    agenda.heed(Urgency.WORK)
    assert agenda.due() == pytest.approx(100.02)
    for later, due in ((100.01, 100.03), (100.03, 100.05), (100.045, 100.05)):
        clock.now = later
        agenda.heed(Urgency.WORK)
        assert agenda.due() == pytest.approx(due)
    agenda.begin()
    assert agenda.due() == NEVER


@pytest.mark.parametrize(
    ("waits", "matters", "after"),
    [
        (False, Urgency.ROOM, NEVER),
        (True, Urgency.ROOM, 0.02),
        (False, Urgency.NEWS, NEVER),
        (True, Urgency.NEWS, 1.0),
        (False, Urgency.CHORE, 1.0),
        (False, Urgency.LOSS, 1.0),
        (True, Urgency.LOSS, 0.02),
        (False, Urgency.WORK, 0.02),
        (True, Urgency.NOTHING, NEVER),
    ],
)
def test_how_soon_a_cycle_follows(agenda: Agenda, clock: Clock, waits: bool, matters: Urgency, after: float) -> None:
    agenda.somebody_waits = waits
    agenda.heed(matters)
    assert agenda.due() == pytest.approx(clock.now + after)


def test_a_long_cycle_is_followed_by_a_rest(agenda: Agenda, clock: Clock) -> None:
    agenda.end(took=0.4)
    agenda.heed(Urgency.WORK)
    assert agenda.due() == pytest.approx(clock.now + 0.2)
    agenda.end(took=30.0)
    assert agenda.due() == pytest.approx(clock.now + 1.0)


def test_who_waits_is_looked_at_now_and_then(agenda: Agenda, clock: Clock) -> None:
    agenda.somebody_waits = True
    agenda.end(took=0.0)
    assert agenda.due() == clock.now + 60.0
    agenda.at_latest(clock.now + 5.0)
    agenda.at_latest(clock.now + 7.0)
    assert agenda.due() == clock.now + 5.0


async def test_waiting_ends_when_something_comes_up() -> None:
    agenda = Agenda(Rhythm(pause=0.0, burst=0.0), asyncio.get_running_loop().time)
    task = asyncio.create_task(agenda.wait())
    await asyncio.sleep(0.01)
    assert not task.done()
    agenda.call()
    await asyncio.wait_for(task, TIMEOUT_SECONDS)


def test_a_rhythm_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="pause <= burst"):
        Rhythm(pause=0.1, burst=0.05)
