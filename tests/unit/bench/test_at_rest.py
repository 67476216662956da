"""Variants played to rest: what is read from a run, and the row of one that did not end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from bench import at_rest
from bench.at_rest import Played, Rest, play, sheet
from bench.measure import BenchError
from click.testing import CliRunner


def queue(name: str, parent: str, fair: float, asked: float, held: float) -> dict[str, object]:
    amounts = {"fairShare": {"gpu": fair}, "requested": {"gpu": asked}, "allocated": {"gpu": held}}
    return {"name": name, "parent": parent, **amounts}


RUN = {
    "simulatedSeconds": 130.0,
    "nextDeadline": None,
    "cycles": 6,
    "queues": [
        queue("all", "", 16, 16, 9),
        queue("a", "all", 8, 12, 6),
        queue("b", "all", 8, 3, 3),
        queue("c", "all", 0, 5, 1),
    ],
    "samples": [{"waitingPods": 9, "gpusUsed": 1.0, "gpus": 16.0}, {"waitingPods": 4, "gpusUsed": 10.5, "gpus": 16.0}],
    "events": [{"kind": "Evicted"}, {"kind": "Started"}, {"kind": "Evicted"}],
}


def test_what_queues_lack_is_counted_up_to_what_they_ask_for() -> None:
    played = msgspec.convert(RUN, Played)
    assert (played.evictions, played.idle, played.due) == (2, 5.5, 2.0)


def test_one_that_is_not_at_rest_is_said() -> None:
    rows = sheet([Rest("calm", msgspec.convert(RUN, Played)), Rest("endless", None)]).rows
    assert rows[0] == ["calm", "130 s", "6", "2", "4", "16", "5.5", "2"]
    assert rows[1] == ["endless", "not at rest", *["-"] * 6]


def test_one_that_rests_until_a_deadline_is_said() -> None:
    (row,) = sheet([Rest("protected", msgspec.convert({**RUN, "nextDeadline": 3600.4}, Played))]).rows
    assert row[:2] == ["protected", "130 s, until 3,600 s"]


def test_a_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="failed"):
        play(tmp_path / "missing.zip", 20)
    result = CliRunner().invoke(at_rest.main, ["--perf", str(tmp_path)])
    assert result.exit_code == 1
