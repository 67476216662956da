"""The outbox writes the latest, not too often, and tries again what failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

import pytest

from pykai.controllers.loop import Pace, ReconcileLoop
from pykai.kube.errors import Conflict, Forbidden, NotFound
from pykai.scheduler.outbox import Outbox, Spacing

Write = Callable[[], Awaitable[None]]


@pytest.fixture
async def outbox() -> AsyncIterator[Outbox]:
    loop = ReconcileLoop[Hashable]("test", Pace(workers=2, first_seconds=0.01, jitter=lambda: 0.0))
    made = Outbox(loop, asyncio.get_running_loop().time, Spacing(first=0.1, longest=0.3, quiet=0.4))
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


async def test_the_latest_wins_and_an_object_rests(outbox: Outbox) -> None:
    said: list[str] = []
    outbox.post("a", says("1", said))
    await asyncio.sleep(0.02)
    for text in ("2", "3"):
        outbox.post("a", says(text, said))
    outbox.post("b", says("other", said))
    await asyncio.sleep(0.03)
    assert said == ["1", "other"]
    await asyncio.sleep(0.1)
    assert said == ["1", "other", "3"]
    outbox.post("a", says("4", said))
    await asyncio.sleep(0.12)
    assert said[-1] == "3", "who keeps changing rests longer"
    await asyncio.sleep(0.15)
    assert said[-1] == "4"


async def test_what_was_cancelled_is_not_written(outbox: Outbox) -> None:
    said: list[str] = []
    outbox.post("a", says("1", said))
    outbox.cancel("a")
    await asyncio.sleep(0.02)
    assert (said, len(outbox)) == ([], 0)


@pytest.mark.parametrize(("error", "times"), [(Conflict("changed"), 2), (NotFound("gone"), 1), (Forbidden("never"), 1)])
async def test_only_what_can_succeed_is_tried_again(outbox: Outbox, error: Exception, times: int) -> None:
    said: list[str] = []
    outbox.post("a", says("1", said, error))
    await asyncio.sleep(0.05)
    assert said == ["1"] * times


async def test_what_failed_gives_way_to_what_came_later(outbox: Outbox) -> None:
    said: list[str] = []

    async def fails() -> None:
        said.append("old")
        outbox.post("a", says("new", said))
        raise Conflict("changed")

    outbox.post("a", fails)
    await asyncio.sleep(0.05)
    assert said == ["old", "new"]
