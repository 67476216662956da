"""Queue objects -> the table of queues: quotas in units of the engine, the hierarchy, and what is left out of it."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.model.snapshot import QueueTable
from tests.builders import UNLIMITED as FREE
from tests.builders import queue, snapshot


def table(*queues: dict[str, Any]) -> QueueTable:
    return snapshot(queues).queues


@pytest.mark.parametrize(
    ("megabytes", "stored"), [(0, 0.0), (1, 1e6), (1.5, 1.5e6), (-1, -1.0), (-7, -1.0), (2000, 2e9)]
)
@pytest.mark.parametrize(("field", "column"), [("quota", "deserved"), ("limit", "limit")])
def test_memory_is_in_bytes_and_every_resource_is_read_by_itself(
    megabytes: float, stored: float, field: str, column: str
) -> None:
    found = table(queue(cpu={field: 3000}, memory={field: megabytes}, gpu={field: 4}))
    assert getattr(found, column)[:, 0].tolist() == [3000.0, stored, 4.0]


def test_a_queue_that_says_nothing_is_guaranteed_nothing() -> None:
    bare = {**queue(), "spec": {}}
    found = table(bare)
    assert [found.deserved[:, 0].tolist(), found.limit[:, 0].tolist(), found.weight[:, 0].tolist()] == [[0.0] * 3] * 3
    assert [*found.priority, *found.creation, *found.titles] == [100, 0.0, "q"]
    assert [*found.preempt_min_runtime, *found.reclaim_min_runtime] == [None, None]


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("1h30m", 5400.0), ("soon", None), (None, None)])
def test_minimum_run_times(text: str | None, seconds: float | None) -> None:
    found = table(queue(preemptMinRuntime=text, reclaimMinRuntime="1s"), queue("r", reclaimMinRuntime=text))
    assert list(found.preempt_min_runtime) == [seconds, None]
    assert list(found.reclaim_min_runtime) == [1.0, seconds]


def test_weights_are_weights_and_no_amounts() -> None:
    found = table(queue(cpu=FREE, memory={"overQuotaWeight": 3}, gpu={"overQuotaWeight": 0.5}))
    assert found.weight[:, 0].tolist() == [1.0, 3.0, 0.5]


def test_queues_without_all_their_ancestors_are_left_out_with_the_reason() -> None:
    found = table(
        queue("top"), queue("team", "top"), queue("user", "team"), queue("lost", "gone"), queue("child", "lost"),
        queue("round", "about"), queue("about", "round"), queue("self", "self"),
    )  # fmt: skip
    assert list(found.names) == ["team", "top", "user"]
    assert [found.names[above] if above >= 0 else "" for above in found.parent] == ["top", "", "team"]
    assert [[found.names[row] for row in path] for path in found.paths] == [
        ["team", "top"],
        ["top"],
        ["user", "team", "top"],
    ]
    assert found.left_out == {"lost": "gone", "child": "gone", "round": "", "about": "", "self": ""}
