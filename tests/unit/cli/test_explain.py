"""`kai explain`, `kai what-if`, `kai snapshot` and `kai diff` on small snapshot files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pykai.cli.main import main
from tests.unit.cli.test_replay import node, queue, snapshot_file, work


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
    [
        ("bigg", "team", "did you mean 'big'?"),
        ("big", "other", "there is one in namespace team (-n team)"),
        ("job/none", "team", "nothing named"),
        ("job/big", "team", "nothing named 'job/big' waits or runs in namespace team: did you mean 'big'?"),
    ],
)
def test_a_wrong_target_is_answered(file: Path, target: str, namespace: str, text: str) -> None:
    found = kai("explain", target, "-n", namespace, "--snapshot", file)
    assert found.exit_code == 2
    assert text in found.output


def test_a_workload_is_shown_by_its_own_name(tmp_path: Path) -> None:
    group, pod = work("pg-train-42e66fa2-cdc1-48fe-b87b-d612b2461321", 9)
    pod["metadata"]["name"] = "train-0"
    path = snapshot_file(tmp_path / "cluster.zip", [node("n0", 8)], [(group, pod), work("run", 8, "n0")])
    text = kai("explain", "train-0", "-n", "team", "--snapshot", path).output
    assert text.startswith("team/train: Waits since 2026-01-01T00:00:00Z (1 waiting, PodGroup pg-train-42e66fa2-")
    for command in (("queue", "leaf"), ("top",), ("replay", path)):
        source = () if command[0] == "replay" else ("--snapshot", path)
        text = kai(*command, *source).output
        assert "team/train " in text, command
        assert "pg-train" not in text, command


def test_what_if_says_who_wins(file: Path) -> None:
    found = kai("what-if", "--add-nodes", 1, "--like", "n0", "--snapshot", file)
    assert found.exit_code == 0, found.output
    assert found.output.splitlines() == ["Wins:", "  team/big: Waits -> Starts"]


def test_queues_that_a_manifest_brings_along_are_known(file: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "queues.yaml"
    manifest.write_text(yaml.safe_dump_all([queue("below", "above"), queue("above")]))
    found = kai("what-if", "-f", manifest, "--snapshot", file)
    assert (found.exit_code, found.output) == (0, "Answer: nothing to start\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "nothing to decide"),
        (("--like", "n0"), "nothing to decide"),
        (("--add-nodes", "1", "--like", "n9"), "there is no node n9"),
        (("--set", "queue/none.gpu.quota=1"), "there is no queue none; there are leaf, root"),
        (("--set", "queue/laef.gpu.quota=1"), "there is no queue laef: did you mean 'leaf'?"),
        (("--set", "queue/leaf.memory.quota=7Gi"), "'7Gi' is not a number of megabytes"),
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
