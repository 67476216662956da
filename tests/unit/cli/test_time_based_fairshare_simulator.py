"""`kai time-based-fairshare-simulator`: files and streams, refusals, the example."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
import structlog
from click.testing import CliRunner, Result

from pykai.cli.time_based_fairshare_simulator import EXAMPLE, time_based_fairshare_simulator

ROOT = Path(__file__).parents[3]
STUDY = """
Cycles: 3
Nodes: [{GPUs: 2}]
Queues: [{Name: a}, {Name: b}]
Jobs: {a: {GPUs: 2}}
"""
ROWS = [
    "Time,QueueID,Allocation,FairShare",
    "0,a,2.000000,2.000000",
    "0,b,0.000000,0.000000",
    "1,a,2.000000,2.000000",
    "1,b,0.000000,0.000000",
    "2,a,2.000000,2.000000",
    "2,b,0.000000,0.000000",
]


@pytest.fixture(autouse=True)
def usual_logs() -> Iterator[None]:
    """Commands set up logging for their process, which here is that of all tests."""
    yield
    structlog.reset_defaults()


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(time_based_fairshare_simulator, list(arguments), input=text)


@pytest.mark.parametrize("dash", ["-", "--"])
def test_from_standard_input_to_standard_output(dash: str) -> None:
    result = run(f"{dash}input", "-", f"{dash}output=-", text=STUDY)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ROWS
    assert "a: 2.00 GPUs on average over 3 cycles" in result.stderr


def test_from_file_to_file_with_a_report(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    source, target, report = tmp_path / "study.yaml", tmp_path / "out.csv", tmp_path / "report"
    source.write_text(STUDY)
    result = run("-input", str(source), "-output", str(target), "-report", str(report), "-enable-controller-logs")
    assert result.exit_code == 0, result.output
    assert target.read_text().splitlines() == ROWS
    assert (report / "queues.png").read_bytes().startswith(b"\x89PNG")
    assert "flag has no effect" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-input", "nowhere.yaml"], "Invalid value for -input: nowhere.yaml cannot be read"),
        (["-input", "-", "-output", "no/such/folder.csv"], "Invalid value for -output: no/such/folder.csv cannot be"),
    ],
)
def test_files_that_cannot_be_used(arguments: list[str], message: str) -> None:
    result = run(*arguments, text=STUDY)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Cycles: few", "-: Cycles: expected a whole number, got a string"),
        ("Queues: [{Name: a, Parent: b}, {Name: b, Parent: a}]", "cycle of queues a -> b -> a"),
    ],
)
def test_a_wrong_study_is_refused(text: str, message: str) -> None:
    result = run("-input", "-", "-output", "-", text=text)
    assert result.exit_code == 2
    assert message in result.output


def test_the_example_shows_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shortened = Path(EXAMPLE).read_text().replace("1024", "400").replace("256", "64").replace("128", "32")
    result = run("-input", "-", "-output", "-", text=shortened)
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(result.stdout.splitlines()))
    held = {name: [float(row["Allocation"]) for row in rows if row["QueueID"] == name] for name in ("team-a", "team-b")}
    assert [fmean(amounts) for amounts in held.values()] == pytest.approx([8.0, 8.0], abs=1.0)
    for amounts in held.values():
        assert sum(one != other for one, other in pairwise(amounts)) > 6
