"""Past use in a run: what is remembered, when the scheduler is told, and what it makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from pykai.config import scheduler_config
from pykai.config.usage_db import UsageConfig, Window, WindowType, read_usage_config
from pykai.model.plan import Triple
from pykai.plugins import registry
from pykai.simulate.history import QueueSample, Sample, SimulationResult, document
from pykai.simulate.result_tables import queues as queue_table
from pykai.simulate.simulation import PastUsage, Setting
from tests.unit.simulate.stories import job, node, play, queue

START = 1000.0
CONFIG = UsageConfig("fake-with-history", window=Window(size=100.0), fetch_interval=10.0)
FOREVER = "pykai.io/run-seconds: forever"
RIVALS = (
    node("n", 4),
    queue("a", 0),
    queue("b", 0),
    job("of-a", "a", gpus=4, notes=FOREVER),
    job("of-b", "b", gpus=4, notes=FOREVER),
)
TEN_MINUTES = {"clientType": "fake-with-history", "usageParams": {"windowSize": "10m", "fetchInterval": "10s"}}


def held(**gpus: float) -> Sample:
    nothing = (0.0, 0.0, 0.0)
    queues = {name: QueueSample(nothing, (0.0, 0.0, amount), nothing) for name, amount in gpus.items()}
    return Sample(0.0, queues, sum(gpus.values()), (0.0, 0.0, 8.0), 0)


def current(past: PastUsage, now: float) -> Mapping[str, Triple]:
    return asyncio.run(past.usage(now))


def test_the_answer_counts_what_was_held_and_for_how_long() -> None:
    past = PastUsage(CONFIG)
    assert current(past, START) == {}
    past.record(START, held(a=8))
    assert current(past, START + 10) == {"a": (0.0, 0.0, 1.0)}
    past.record(START + 10, held(b=4))
    late = current(past, START + 40)
    assert set(late) == {"a", "b"}
    assert late["a"] == pytest.approx((0.0, 0.0, 10 / 40))
    assert late["b"] == pytest.approx((0.0, 0.0, 0.5 * 30 / 40))


def test_what_lies_before_the_window_is_forgotten_but_what_reaches_into_it_is_not() -> None:
    past = PastUsage(CONFIG)
    for number in range(50):
        past.record(START + number, held(a=8) if number % 2 else held(b=8))
    assert current(past, START + 140)["a"][2] == pytest.approx((100 - 5) / 100)
    assert current(past, START + 500) == {"a": (0.0, 0.0, 1.0)}
    assert len(past._records) == 1


def test_a_tumbling_window_begins_anew() -> None:
    past = PastUsage(replace(CONFIG, window=Window(WindowType.TUMBLING, 100.0, start=START)))
    past.record(START, held(a=8))
    past.record(START + 100, held(b=8))
    assert current(past, START + 100) == {"a": (0.0, 0.0, 1.0)}
    assert current(past, START + 110) == {"b": (0.0, 0.0, 1.0)}


def rivals(usage: dict[str, Any] | None, k: float = 1.0, until: float = 7200.0) -> SimulationResult:
    arguments = {"proportion": {"kValue": k}}
    plugins = [{"name": name, "arguments": arguments.get(name, {})} for name in registry.BUILT_IN]
    config = scheduler_config.read({"tiers": [{"plugins": plugins}], **({"usageDBConfig": usage} if usage else {})})
    counted = read_usage_config(usage, Setting().start) if usage else None
    return play(*RIVALS, until=until, setting=Setting(usage=counted), config=config)


def owners(outcome: SimulationResult) -> list[str]:
    """Who had the node, one after the other."""
    found = [name for sample in outcome.history.samples for name in "ab" if sample.queues[name].allocated[2]]
    return [first for first, then in pairwise([*found, ""]) if first != then]


def test_two_queues_take_turns_where_the_past_counts() -> None:
    turns = owners(rivals(TEN_MINUTES))
    assert len(turns) > 6
    assert all(first != then for first, then in pairwise(turns))


@pytest.mark.parametrize(("usage", "k"), [(None, 1.0), (TEN_MINUTES, 0.0)])
def test_without_a_past_or_without_weight_of_it_the_first_keeps_all(usage: dict[str, Any] | None, k: float) -> None:
    assert len(owners(rivals(usage, k))) == 1


def test_use_is_shown_where_it_counts() -> None:
    outcome = rivals(TEN_MINUTES, k=0.0, until=300.0)
    first, *_, last = outcome.history.samples
    (holder,) = owners(outcome)
    assert first.queues[holder].usage == (0.0, 0.0, 0.0)
    assert last.queues[holder].usage == pytest.approx((1 / 64, 0.0, 1.0), abs=0.02)
    shown = document(outcome, 0)["queues"]["ab".index(holder)]
    assert shown["usage"] == pytest.approx({"cpu": 0.0156, "memory": 0.0, "gpu": 1.0}, abs=0.02)
    columns = [column.header for column in queue_table(outcome, 120).columns]
    assert columns[4:6] == ["past use", "fair share"]


def test_nothing_of_it_is_shown_where_it_does_not() -> None:
    outcome = rivals(None, until=60.0)
    assert "usage" not in document(outcome, 0)["queues"][0]
    assert "past use" not in [column.header for column in queue_table(outcome, 120).columns]


def test_a_run_in_which_the_past_counts_has_to_be_told_its_end() -> None:
    with pytest.raises(ValueError, match="no end of its own"):
        play(*RIVALS, setting=Setting(usage=CONFIG))


def test_the_same_past_gives_the_same_future() -> None:
    first, again = (document(rivals(TEN_MINUTES, until=1800.0), 0) for _ in range(2))
    assert first == again
