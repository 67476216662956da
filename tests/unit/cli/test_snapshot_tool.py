"""`kai snapshot-tool` with the flags and the output that scripts know from KAI."""

from __future__ import annotations

import json
import pstats
import tracemalloc
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pykai.cli.main import main
from tests.unit.cli.test_replay import node, snapshot_file, work

ACTIONS = ["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["snapshot-tool", *arguments])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return snapshot_file(tmp_path / "snapshot.gzip", [node("n", 1)], [work("a", 1), work("b", 1)])


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_the_durations_are_printed_and_logged(dashes: str, file: Path) -> None:
    result = run(f"{dashes}filename", str(file))
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found) == ["total_duration_ms", "action_durations_ms"]
    assert list(found["action_durations_ms"]) == ACTIONS
    durations = [found["total_duration_ms"], *found["action_durations_ms"].values()]
    assert all(isinstance(duration, int) and duration >= 0 for duration in durations)
    assert all(f"Action {action} completed in " in result.stderr for action in ACTIONS)


def test_a_low_verbosity_logs_nothing(file: Path) -> None:
    assert run("--filename", str(file), "--verbosity", "1").stderr == ""


def test_profiles_can_be_read(file: Path, tmp_path: Path) -> None:
    cpu, memory = tmp_path / "cpu", tmp_path / "memory"
    result = run("--filename", str(file), "--cpuprofile", str(cpu), "--memprofile", str(memory))
    assert result.exit_code == 0, result.output
    assert pstats.Stats(str(cpu)).total_calls > 0  # type: ignore[attr-defined]
    assert tracemalloc.Snapshot.load(str(memory)).traces
    assert not tracemalloc.is_tracing()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--filename is required"),
        (["--filename", ""], "--filename is required"),
        (["--filename", "missing.zip"], "there is no file missing.zip"),
        (["--filename", "{file}", "--cpuprofile", "nowhere/cpu"], "the profile cannot be written"),
        (["--filename", "{file}", "--memprofile", "nowhere/memory"], "the profile cannot be written"),
        (["--filename", __file__], "not a zip archive"),
    ],
)
def test_what_is_wrong_is_told(arguments: list[str], message: str, file: Path) -> None:
    result = run(*(argument.replace("{file}", str(file)) for argument in arguments))
    assert result.exit_code == 2
    assert message in result.stderr
    assert not tracemalloc.is_tracing()
