"""`kai queues`, `kai queue`, `kai nodes`, `kai evictions` and `kai top` on a snapshot file, for people and programs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pykai.cli.main import main
from tests.unit.dashboard.boards import cluster

SECTIONS = {"Node": "nodes", "Queue": "queues", "PodGroup": "podGroups", "Pod": "pods"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A snapshot of the two teams."""
    objects: dict[str, list[Any]] = {section: [] for section in SECTIONS.values()}
    for each in cluster():
        objects[SECTIONS[each["kind"]]].append(each)
    params = {"schedulerName": "kai-scheduler", "partitionParams": {}, "fullHierarchyFairness": True}
    path = tmp_path / "snapshot.zip"
    with zipfile.ZipFile(path, "w") as archive:
        document = {"config": {}, "schedulerParams": params, "rawObjects": objects}
        archive.writestr("snapshot.json", json.dumps(document))
    return path


def kai(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments], catch_exceptions=False, env={"COLUMNS": "160"})


def test_the_tree_of_queues(file: Path) -> None:
    lines = kai("queues", "--snapshot", file).output.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["dept", "q-blue", "q-late", "q-red"]
    assert lines[4].split() == ["q-blue", "4", "2", "∞", "0", "2", "1", "q-red"]
    assert lines[6].split()[:5] == ["q-red", "4", "5", "∞", "8"]
    assert "(+4)" in lines[6]
    assert "CPU cores" in kai("queues", "--snapshot", file, "--resource", "cpu").output


def test_one_queue_with_its_order_of_service(file: Path) -> None:
    text = kai("queue", "q-blue", "--snapshot", file).output
    assert "Order of service: 1" in text
    assert "blue/blue-small" in text
    assert "May reclaim from: q-red" in text
    found = json.loads(kai("queue", "q-blue", "--snapshot", file, "-o", "json").output)
    assert [(each["position"], each["name"]) for each in found["orderOfService"]] == [(1, "blue-small")]
    assert found["queue"]["mayReclaimFrom"] == ["q-red"]


def test_a_queue_that_does_not_exist_is_named(file: Path) -> None:
    result = kai("queue", "none", "--snapshot", file)
    assert result.exit_code == 2
    assert "there is no queue 'none'; there are dept, q-blue, q-late, q-red" in result.output
    assert "there is no queue 'q-bleu': did you mean 'q-blue'?" in kai("queue", "q-bleu", "--snapshot", file).output


def test_nodes_with_their_devices(file: Path) -> None:
    text = kai("nodes", "--snapshot", file).output
    assert text.count("■■■■") == 2
    assert "8 of 8 GPUs allocated, 0 free" in text
    one = yaml.safe_load(kai("nodes", "n2", "--snapshot", file, "-o", "yaml").output)
    assert [node["name"] for node in one["nodes"]] == ["n2"]
    assert one["nodes"][0]["devices"][0]["holders"][0]["workload"] == "red-train-2"
    result = kai("nodes", "n9", "--snapshot", file)
    assert result.exit_code == 2
    assert "there is no node 'n9'; there are n1, n2" in result.output


def test_evictions_of_the_next_cycle(file: Path) -> None:
    found = json.loads(kai("evictions", "--snapshot", file, "-o", "json").output)
    (evicted,) = found["nextCycle"]
    assert (evicted["queue"], evicted["evictor"], evicted["gpus"]) == ("q-red", "blue-small", 2.0)
    assert "In the next cycle: 1" in kai("evictions", "--snapshot", file).output


def test_top_prints_one_picture_where_there_is_no_terminal(file: Path) -> None:
    text = kai("top", "--snapshot", file).output
    assert "8 of 8 GPUs allocated" in text
    assert "Waiting: 2" in text


@pytest.mark.parametrize(
    "command",
    [["queues"], ["queue", "q-blue"], ["nodes"], ["evictions"], ["top"], ["explain", "blue-small", "-n", "blue"]],
)
def test_json_and_yaml_are_the_same_data(file: Path, command: list[str]) -> None:
    as_json, as_yaml = (kai(*command, "--snapshot", file, "-o", each).output for each in ("json", "yaml"))
    assert json.loads(as_json) == yaml.safe_load(as_yaml)


def test_top_as_data_has_every_part_of_the_screen(file: Path) -> None:
    found = json.loads(kai("top", "--snapshot", file, "-o", "json").output)
    assert found["totals"]["gpus"] == 8
    assert [each["name"] for each in found["queues"]] == ["dept", "q-blue", "q-late", "q-red"]
    assert len(found["waiting"]) == 2
    assert [each["evictor"] for each in found["evictions"]] == ["blue-small"]


@pytest.mark.parametrize("command", [["queues"], ["queue", "q"], ["nodes"], ["evictions"], ["top"], ["dashboard"]])
def test_a_file_that_is_no_snapshot_is_refused_with_its_name(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "text.zip"
    path.write_text("not a zip")
    result = kai(*command, "--snapshot", path)
    assert result.exit_code == 2
    assert f"{path}: not a zip archive" in result.output


@pytest.mark.parametrize("command", [["queues"], ["top"], ["dashboard", "--port", "0"]])
def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "config"
    path.write_text("nothing: here")
    result = kai(*command, "--kubeconfig", path)
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--in-cluster", ":0", "--snapshot", "FILE"], "cannot be used with --snapshot"),
        (["--tls-cert-file", "FILE"], "require each other"),
        (["--in-cluster", "nowhere"], "is not an address to listen on"),
    ],
)
def test_options_of_the_dashboard_that_do_not_go_together(file: Path, arguments: list[str], message: str) -> None:
    result = kai("dashboard", *(str(file) if each == "FILE" else each for each in arguments))
    assert result.exit_code != 0
    assert message in result.output
