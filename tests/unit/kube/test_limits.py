"""The rate limit, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from pykai.kube.clock import steady
from pykai.kube.transport import LINGER_SECONDS, RateLimit, YieldingLimit


async def times(qps: float, burst: int, count: int) -> list[float]:
    limit, began, taken = RateLimit(qps, burst), steady(), []
    for _ in range(count):
        await limit.take()
        taken.append(round(steady() - began, 6))
    return taken


@pytest.mark.virtual_time
async def test_a_burst_and_then_the_rate() -> None:
    assert await times(2, 3, 6) == [0, 0, 0, 0.5, 1.0, 1.5]
    assert await times(10, 1, 3) == [0, 0.1, 0.2]


@pytest.mark.virtual_time
async def test_no_limit() -> None:
    assert await times(0, 1, 1000) == [0] * 1000


@pytest.mark.virtual_time
async def test_rest_refills_the_burst_and_no_more() -> None:
    limit = RateLimit(1, 2)
    for _ in range(4):
        await limit.take()
    await asyncio.sleep(100)
    began = steady()
    for _ in range(3):
        await limit.take()
    assert steady() - began == pytest.approx(1)


@pytest.mark.parametrize(("qps", "burst"), [(-1, 1), (5, 0)])
def test_nonsense_is_refused(qps: float, burst: int) -> None:
    with pytest.raises(ValueError, match="rate limit"):
        RateLimit(qps, burst)


@pytest.mark.virtual_time
async def test_who_gives_way_goes_on_in_order_when_nothing_urgent_is_left() -> None:
    way, through, done = YieldingLimit(least=1, most=3), [], asyncio.Event()

    async def go(number: int) -> None:
        async with way.turn():
            through.append(number)
            await done.wait()

    async def settled() -> list[int]:
        for _ in range(5):
            await asyncio.sleep(0)
        return through

    with way.urgent():
        tasks = [asyncio.create_task(go(number)) for number in range(6)]
        assert await settled() == [0]
        tasks[1].cancel()
    await asyncio.sleep(LINGER_SECONDS)
    assert await settled() == [0, 2, 3]
    done.set()
    assert await settled() == [0, 2, 3, 4, 5]
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.virtual_time
async def test_the_next_urgent_thing_is_waited_for() -> None:
    way, through, done = YieldingLimit(least=1, most=3), [], asyncio.Event()

    async def go(number: int) -> None:
        async with way.turn():
            through.append(number)
            await done.wait()

    with way.urgent():
        tasks = [asyncio.create_task(go(number)) for number in range(3)]
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert through == [0]
    while len(through) < 3:
        await asyncio.sleep(0.01)
    done.set()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize(("least", "most"), [(0, 1), (2, 1)])
def test_bad_bounds_are_refused(least: int, most: int) -> None:
    with pytest.raises(ValueError, match="least"):
        YieldingLimit(least, most)
