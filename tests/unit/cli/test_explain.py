"""`kai explain`, `kai what-if`, `kai snapshot` and `kai diff` on small snapshot files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pykai.cli.main import main
from tests.unit.cli.test_replay import node, snapshot_file, work


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two nodes of 8 GPUs with 4 free, and one workload that needs 8."""
    works = [*(work(f"run{n}", 4, f"n{n // 2}") for n in range(3)), work("big", 8), work("huge", 9)]
    return snapshot_file(tmp_path / "cluster.zip", [node("n0", 8), node("n1", 8)], works)


def kai(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def test_explain_as_text(file: Path) -> None:
    found = kai("explain", "big", "-n", "team", "--snapshot", file)
    assert found.exit_code == 0, found.output
    assert "team/big: Waits" in found.output
    assert "InsufficientResources (shortage)" in found.output
    assert "team/run2 (4 GPUs) ends" in found.output


def test_explain_as_data(file: Path) -> None:
    arguments = ("explain", "podgroup/huge", "-n", "team", "--snapshot", file, "--no-remedies", "-o")
    as_json, as_yaml = kai(*arguments, "json"), kai(*arguments, "yaml")
    found = json.loads(as_json.output)
    assert found == yaml.safe_load(as_yaml.output)
    assert found["reason"]["token"] == "TooLargeForEveryNode"
    assert [each["action"] for each in found["verdicts"]] == ["allocate", "consolidation", "reclaim", "preempt"]


@pytest.mark.parametrize(
    ("target", "namespace", "text"),
    [("bigg", "team", "did you mean 'big'?"), ("big", "other", "-n team"), ("job/none", "team", "nothing named")],
)
def test_a_wrong_target_is_answered(file: Path, target: str, namespace: str, text: str) -> None:
    found = kai("explain", target, "-n", namespace, "--snapshot", file)
    assert found.exit_code == 2
    assert text in found.output


def test_what_if_says_who_wins(file: Path) -> None:
    found = kai("what-if", "--add-nodes", 1, "--like", "n0", "--snapshot", file)
    assert found.exit_code == 0, found.output
    assert "team/big: Waits -> Starts" in found.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "nothing to decide"),
        (("--like", "n0"), "nothing to decide"),
        (("--add-nodes", "1", "--like", "n9"), "there is no node n9"),
        (("--set", "queue/none.gpu.quota=1"), "there is no queue none"),
        (("--set", "leaf=1"), "queue/NAME.gpu.quota=16"),
        (("--drain", "n9"), "there is no node n9"),
        (("--delete", "job/none", "-n", "team"), "nothing named"),
    ],
)
def test_wrong_changes_are_refused(file: Path, arguments: tuple[str, ...], text: str) -> None:
    found = kai("what-if", *arguments, "--snapshot", file)
    assert found.exit_code == 2
    assert text in found.output


def test_a_redacted_snapshot_says_no_name_and_decides_the_same(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "redacted.zip"
    assert kai("snapshot", "--snapshot", file, "--redact", "-o", target).exit_code == 0
    before, after = (json.loads(kai("replay", each, "-o", "json").output) for each in (file, target))
    assert [each["reason"]["token"] for each in before["waiting"]] == [
        each["reason"]["token"] for each in after["waiting"]
    ]
    assert "team" not in json.dumps(after["waiting"])
    assert kai("snapshot", "--snapshot", file, "-o", target).exit_code == 2


def test_diff_shows_objects_and_decisions(file: Path, tmp_path: Path) -> None:
    works = [*(work(f"run{n}", 4, f"n{n // 2}") for n in range(2)), work("big", 8), work("huge", 9)]
    other = snapshot_file(tmp_path / "other.zip", [node("n0", 8), node("n1", 8)], works)
    found = json.loads(kai("diff", file, other, "-o", "json").output)
    assert [(each["kind"], each["name"], each["change"]) for each in found["objects"]] == [
        ("podGroups", "team/run2", "removed"),
        ("pods", "team/run2", "removed"),
    ]
    assert [(each["name"], each["after"]) for each in found["plan"]] == [("team/big", "bound to n1"), ("team/big", "")]
    assert "nothing differs" in kai("diff", file, file).output
    assert "team/run2" in kai("diff", file, other).output


def test_workloads_with_the_same_reason_are_one_row(tmp_path: Path) -> None:
    works = [work("run", 8, "n0"), *(work(f"late{n}", 1) for n in range(30))]
    shown = kai("replay", snapshot_file(tmp_path / "full.zip", [node("n0", 8)], works)).output
    assert "Left pending: 30" in shown
    assert "team/late0 and 29 more" in shown
    assert len(shown.splitlines()) < 12
