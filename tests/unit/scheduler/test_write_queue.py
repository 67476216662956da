"""The write queue writes the latest, not too often, and tries again what failed. Time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

import pytest

from pykai.kube.errors import Conflict, Forbidden, NotFound
from pykai.kube.workqueue import Pace, ReconcileLoop
from pykai.scheduler.status_updater import Spacing, WriteQueue
from tests.virtual_time import advance, set_jitter

pytestmark = pytest.mark.virtual_time

Write = Callable[[], Awaitable[None]]


@pytest.fixture
async def write_queue() -> AsyncIterator[WriteQueue]:
    pace = Pace(workers=2, first_seconds=0.1)
    set_jitter(0.0)
    made = WriteQueue(ReconcileLoop[Hashable]("test", pace), Spacing(first=1.0, longest=3.0, quiet=60.0))
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def says(what: str, to: list[str], error: Exception | None = None) -> Write:
    async def write() -> None:
        to.append(what)
        if error is not None and to.count(what) == 1:
            raise error

    return write


async def test_the_latest_wins_and_an_object_rests_ever_longer(write_queue: WriteQueue) -> None:
    said: list[str] = []
    write_queue.post("a", says("1", said))
    await advance(0.1)
    for text in ("2", "3"):
        write_queue.post("a", says(text, said))
    write_queue.post("b", says("other", said))
    await advance(0.8)
    assert said == ["1", "other"]
    await advance(0.2)
    assert said == ["1", "other", "3"]
    write_queue.post("a", says("4", said))
    await advance(1.8)
    assert said[-1] == "3"
    await advance(0.2)
    assert said[-1] == "4"
    await advance(100)
    write_queue.post("a", says("5", said))
    await advance(0.0)
    assert said[-1] == "5"


async def test_what_may_wait_is_replaced_or_cancelled_meanwhile(write_queue: WriteQueue) -> None:
    said: list[str] = []
    write_queue.post("a", says("1", said), after=2.0)
    write_queue.post("b", says("other", said), after=2.0)
    await advance(1.5)
    write_queue.post("a", says("2", said), after=2.0)
    write_queue.cancel("b")
    assert said == []
    await advance(0.5)
    assert said == ["2"]
    await advance(10)
    assert said == ["2"]


async def test_what_was_cancelled_is_not_written(write_queue: WriteQueue) -> None:
    said: list[str] = []
    write_queue.post("a", says("1", said))
    write_queue.cancel("a")
    await advance(10)
    assert said == []


@pytest.mark.parametrize(("error", "times"), [(Conflict("changed"), 2), (NotFound("gone"), 1), (Forbidden("never"), 1)])
async def test_only_what_can_succeed_is_tried_again(write_queue: WriteQueue, error: Exception, times: int) -> None:
    said: list[str] = []
    write_queue.post("a", says("1", said, error))
    await advance(10)
    assert said == ["1"] * times


async def test_what_failed_gives_way_to_what_came_later(write_queue: WriteQueue) -> None:
    said: list[str] = []

    async def fails() -> None:
        said.append("old")
        write_queue.post("a", says("new", said))
        raise Conflict("changed")

    write_queue.post("a", fails)
    await advance(10)
    assert said == ["old", "new"]
