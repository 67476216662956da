"""The benchmark of live cycles, on a cluster of two nodes: what happens there, and what is shown of it."""

from __future__ import annotations

import pytest
from bench import live_cycle
from bench.live_cycle import STEPS, main, play, play_unequal
from click.testing import CliRunner


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_cycle, "MANY", 3)


def test_pods_get_the_places_that_are_free() -> None:
    measured = play(nodes=2, rounds=2)
    assert {title: len(found) for title, found in measured.items()} == {
        "nothing: 0 bound": 2,
        "1 arrives, 1 place: 1 bound": 2,
        "1 arrives, full: 0 bound": 1,
        "3 arrive, full: 0 bound": 1,
        "1 ends, 3 wait: 1 bound": 2,
    }
    assert all(set(steps) == {*STEPS, "all"} for found in measured.values() for steps in found)


def test_unequal_queues_have_nothing_to_take_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_cycle, "MANY", 32)
    measured = play_unequal(nodes=8, rounds=1)
    assert list(measured) == [
        "unequal: 32 arrive: 0 bound",
        "unequal: 1 arrives, 32 wait: 0 bound",
        "unequal: 1 ends, 32 wait: 0 bound",
    ]


def test_every_step_is_shown() -> None:
    shown = CliRunner().invoke(main, ["--nodes", "2", "--rounds", "1"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "2 nodes, 16 pods" in shown.output
    assert "1 ends, 3 wait: 1 bound" in shown.output
