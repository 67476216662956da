"""The workqueue: how often, when and how many at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from pykai.kube.errors import Conflict, TooManyRequests
from pykai.kube.workqueue import Pace, ReconcileLoop
from tests.virtual_time import advance, set_jitter, settle

pytestmark = pytest.mark.virtual_time

Run = Callable[[str], Awaitable[float | None]]


class Recorded:
    """Runs as they happen; `answers` are given in turn, an exception is raised, after them None is returned."""

    def __init__(self, answers: list[float | Exception | None] | None = None) -> None:
        self.runs: list[tuple[float, str]] = []
        self._answers = answers or []

    async def __call__(self, key: str) -> float | None:
        self.runs.append((round(asyncio.get_running_loop().time(), 3), key))
        await asyncio.sleep(0)
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


def made(workers: int = 10) -> ReconcileLoop[str]:
    """A loop whose backoffs are as long as they can be."""
    set_jitter(1.0)
    return ReconcileLoop("test", Pace(workers, 1.0, 8.0))


@asynccontextmanager
async def running(loop: ReconcileLoop[str], reconcile: Run) -> AsyncIterator[None]:
    task = asyncio.create_task(loop.run(reconcile))
    await settle()
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_key_added_many_times_runs_once() -> None:
    loop, done = made(), Recorded()
    for key in ("a", "b", "a", "a"):
        loop.add(key)
    async with running(loop, done):
        assert done.runs == [(0, "a"), (0, "b")]


async def test_a_key_added_while_it_runs_runs_once_more() -> None:
    loop, runs = made(), []

    async def reconcile(key: str) -> None:
        runs.append(key)
        if len(runs) == 1:
            loop.add(key)
            loop.add(key)
            await asyncio.sleep(0)
            assert len(runs) == 1

    async with running(loop, reconcile):
        loop.add("a")
        await settle()
        assert runs == ["a", "a"]


async def test_the_earliest_booking_counts() -> None:
    loop, done = made(), Recorded()
    async with running(loop, done):
        loop.add_after("a", 5)
        loop.add_after("a", 2)
        loop.add_after("a", 4)
        await advance(10)
        assert done.runs == [(2, "a")]
        loop.add_after("a", 5)
        loop.add("a")
        await advance(10)
        assert done.runs == [(2, "a"), (10, "a")]


async def test_failures_wait_twice_as_long_each_time_up_to_a_limit() -> None:
    loop, done = made(), Recorded([ValueError("no")] * 6)
    async with running(loop, done):
        loop.add("a")
        await advance(100)
        assert [at for at, _ in done.runs] == [0, 1, 3, 7, 15, 23, 31]
        assert loop.failures("a") == 0


async def test_news_do_not_shorten_the_wait_of_a_failing_key_but_forget_does() -> None:
    loop, done = made(), Recorded([ValueError("no"), ValueError("no")])
    async with running(loop, done):
        loop.add("a")
        await advance(1.5)
        assert loop.failures("a") == 2
        loop.add("a")
        await advance(0.5)
        assert [at for at, _ in done.runs] == [0, 1]
        loop.forget("a")
        loop.add("a")
        await advance(5)
        assert [at for at, _ in done.runs] == [0, 1, 2]


async def test_news_during_a_failing_run_do_not_shorten_its_wait() -> None:
    loop, runs = made(), []

    async def reconcile(key: str) -> None:
        runs.append(asyncio.get_running_loop().time())
        if len(runs) < 3:
            loop.add(key)
            raise Conflict("changed")

    loop.add("a")
    async with running(loop, reconcile):
        await advance(10)
    assert runs == [0, 1, 3]


async def test_a_success_forgets_the_failures() -> None:
    no = ValueError("no")
    loop, done = made(), Recorded([no, no, None, no, None])
    async with running(loop, done):
        loop.add("a")
        await advance(3)
        loop.add("a")
        await advance(3)
        assert [at for at, _ in done.runs] == [0, 1, 3, 3, 4]


async def test_the_server_may_ask_for_a_longer_wait() -> None:
    busy = TooManyRequests("busy", details={"retryAfterSeconds": 5})
    loop, done = made(), Recorded([busy])
    async with running(loop, done):
        loop.add("a")
        await advance(10)
        assert [at for at, _ in done.runs] == [0, 5]


async def test_a_run_may_ask_to_come_back() -> None:
    loop, done = made(), Recorded([3.0, 0.5, None])
    async with running(loop, done):
        loop.add("a")
        await advance(10)
        assert [at for at, _ in done.runs] == [0, 3, 3.5]


async def test_no_more_runs_at_once_than_workers() -> None:
    loop, now, most = made(workers=3), 0, 0

    async def reconcile(key: str) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    for number in range(20):
        loop.add(str(number))
    async with running(loop, reconcile):
        await loop.quiet()
        assert (now, most) == (0, 3)


async def test_cancelling_the_loop_cancels_its_runs() -> None:
    loop, cancelled = made(), []

    async def reconcile(key: str) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(key)
            raise

    loop.add("a")
    task = asyncio.create_task(loop.run(reconcile))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == ["a"]


class Counted:
    """A meter that keeps what it is told."""

    def __init__(self) -> None:
        self.results: list[str] = []
        self.waits: list[float] = []
        self.deepest = 0

    def depth(self, ready: int, running: int) -> None:
        self.deepest = max(self.deepest, ready)

    def started(self, waited_seconds: float) -> None:
        self.waits.append(waited_seconds)

    def finished(self, took_seconds: float, result: str) -> None:
        self.results.append(result)


async def test_the_meter_sees_every_run() -> None:
    meter = Counted()
    loop: ReconcileLoop[str] = ReconcileLoop("test", Pace(1), meter)
    async with running(loop, Recorded([ValueError("no"), 2.0])):
        loop.add("a")
        loop.add("b")
        await advance(5)
    assert meter.results == ["error", "requeue_after", "success", "success"]
    assert meter.deepest == 1


@pytest.mark.parametrize(
    "wrong", [{"workers": 0}, {"first_seconds": 0.0}, {"first_seconds": 5.0, "longest_seconds": 1.0}]
)
def test_a_pace_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Pace(**wrong)  # type: ignore[arg-type]
