"""Backoff: the delays, their jitter, and failures counted per item."""

from __future__ import annotations

import asyncio
import time
import weakref

import pytest

from pykai.kube import clock
from pykai.kube.backoff import Backoff, ItemBackoff
from pykai.kube.clock import Clock
from tests.virtual_time import set_jitter


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0.0), (1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 10.0), (10_000, 10.0)]
)
def test_delays_double_up_to_the_maximum(failures: int, seconds: float) -> None:
    assert Backoff(0.5, 10.0).after(failures) == seconds


@pytest.mark.virtual_time
@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 3.0), (0.5, 3.5), (1.0, 4.0)])
async def test_jitter_is_the_part_left_to_chance(chance: float, seconds: float) -> None:
    set_jitter(chance)
    assert Backoff(1.0, 60.0, jitter=0.25).after(3) == seconds


@pytest.mark.parametrize("wrong", [{"initial": 0.0}, {"initial": 61.0}, {"jitter": 1.5}, {"jitter": -0.1}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must hold"):
        Backoff(**wrong)


def test_items_fail_independently() -> None:
    items = ItemBackoff(Backoff(1.0, 8.0))
    assert [items.failed("a", 0.0), items.failed("a", 0.0), items.failed("b", 0.0)] == [1.0, 2.0, 1.0]


def test_an_item_starts_anew_after_a_quiet_time() -> None:
    items = ItemBackoff(Backoff(1.0, 8.0))
    items.failed("a", 0.0)
    assert items.failed("a", 16.9) == 18.9, "the delay ended at 1.0: 16 s later it still counts"
    assert items.failed("a", 18.9 + 16.0) == 35.9, "after twice the maximum it does not"


def test_an_item_starts_anew_also_behind_one_that_waits_long() -> None:
    items = ItemBackoff(Backoff(1.0, 8.0))
    for _ in range(4):
        items.failed("long", 0.0)
    assert items.failed("a", 0.0) == 1.0
    assert items.failed("a", 17.5) == 18.5, "the delay of the other one ended at 8.0, its own at 1.0"


def test_items_whose_counts_are_reset_are_forgotten() -> None:
    items, key = ItemBackoff(Backoff(1.0, 8.0)), Key()
    kept = weakref.ref(key)
    items.failed(key, 0.0)
    del key
    items.expire(16.9)
    assert kept() is not None
    items.expire(17.0)
    assert kept() is None


class Key:
    """An item that can be observed."""


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
