"""Past use in a run: what is remembered, when the scheduler is told, and what it makes of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from pykai.cli.simulate import group
from pykai.config import scheduler
from pykai.config.usage import UsageConfig, Window, WindowType
from pykai.plugins import registry
from pykai.simulate.document import document
from pykai.simulate.history import Outcome, QueueSample, Sample
from pykai.simulate.past_use import PastUse
from pykai.simulate.setting import Setting
from pykai.simulate.tables import queues as queue_table
from tests.unit.sim.stories import job, node, play, queue

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
TEN_MINUTES = UsageConfig("fake-with-history", window=Window(size=600.0), fetch_interval=10.0)


def held(**gpus: float) -> Sample:
    nothing = (0.0, 0.0, 0.0)
    queues = {name: QueueSample(nothing, (0.0, 0.0, amount), nothing) for name, amount in gpus.items()}
    return Sample(0.0, queues, sum(gpus.values()), (0.0, 0.0, 8.0), 0)


def test_the_answer_is_that_of_the_last_fetch() -> None:
    past = PastUse(CONFIG, START)
    assert past.current(START) == {}
    past.record(START, held(a=8))
    assert past.current(START + 9) == {}, "not asked again yet"
    assert past.current(START + 10) == {"a": (0.0, 0.0, 1.0)}
    past.record(START + 10, held(b=4))
    assert past.current(START + 19) == {"a": (0.0, 0.0, 1.0)}
    late = past.current(START + 45)
    assert set(late) == {"a", "b"}
    assert late["a"] == pytest.approx((0.0, 0.0, 10 / 40))
    assert late["b"] == pytest.approx((0.0, 0.0, 0.5 * 30 / 40))


def test_what_lies_before_the_window_is_forgotten_but_what_reaches_into_it_is_not() -> None:
    past = PastUse(CONFIG, START)
    for number in range(50):
        past.record(START + number, held(a=8) if number % 2 else held(b=8))
    assert past.current(START + 140)["a"][2] == pytest.approx((100 - 5) / 100)
    assert past.current(START + 500) == {"a": (0.0, 0.0, 1.0)}
    assert len(past._records) == 1


def test_a_tumbling_window_begins_anew() -> None:
    past = PastUse(replace(CONFIG, window=Window(WindowType.TUMBLING, 100.0, start=START)), START)
    past.record(START, held(a=8))
    past.record(START + 100, held(b=8))
    assert past.current(START + 100) == {"a": (0.0, 0.0, 1.0)}
    assert past.current(START + 110) == {"b": (0.0, 0.0, 1.0)}


def rivals(usage: UsageConfig | None, k: float = 1.0, until: float = 7200.0) -> Outcome:
    arguments = {"proportion": {"kValue": k}}
    plugins = [{"name": name, "arguments": arguments.get(name, {})} for name in registry.BUILT_IN]
    config = scheduler.read({"tiers": [{"plugins": plugins}]})
    return play(*RIVALS, until=until, setting=Setting(group=group, usage=usage), config=config)


def owners(outcome: Outcome) -> list[str]:
    """Who had the node, one after the other."""
    found = [name for sample in outcome.history.samples for name in "ab" if sample.queues[name].allocated[2]]
    return [first for first, then in pairwise([*found, ""]) if first != then]


def test_two_queues_take_turns_where_the_past_counts() -> None:
    turns = owners(rivals(TEN_MINUTES))
    assert len(turns) > 6
    assert all(first != then for first, then in pairwise(turns))


@pytest.mark.parametrize(("usage", "k"), [(None, 1.0), (TEN_MINUTES, 0.0)])
def test_without_a_past_or_without_weight_of_it_the_first_keeps_all(usage: UsageConfig | None, k: float) -> None:
    assert len(owners(rivals(usage, k))) == 1


def test_use_is_shown_where_it_counts() -> None:
    outcome = rivals(TEN_MINUTES, k=0.0, until=300.0)
    first, *_, last = outcome.history.samples
    (holder,) = owners(outcome)
    assert first.queues[holder].usage == (0.0, 0.0, 0.0)
    assert last.queues[holder].usage == pytest.approx((1 / 64, 0.0, 1.0))
    shown = document(outcome, 0)["queues"]["ab".index(holder)]
    assert shown["usage"] == {"cpu": 0.0156, "memory": 0.0, "gpu": 1.0}
    columns = [column.header for column in queue_table(outcome, 8).columns]
    assert columns[4:6] == ["past use", "fair share"]


def test_nothing_of_it_is_shown_where_it_does_not() -> None:
    outcome = rivals(None, until=60.0)
    assert "usage" not in document(outcome, 0)["queues"][0]
    assert "past use" not in [column.header for column in queue_table(outcome, 8).columns]


def test_a_run_in_which_the_past_counts_has_to_be_told_its_end() -> None:
    with pytest.raises(ValueError, match="no end of its own"):
        play(*RIVALS, setting=Setting(group=group, usage=CONFIG))


def test_the_same_past_gives_the_same_future() -> None:
    first, again = (document(rivals(TEN_MINUTES, until=1800.0), 0) for _ in range(2))
    assert first == again
