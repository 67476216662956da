"""`kai simulate`: the quick start, outputs, refusals and the example plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pykai.cli.simulate import simulate
from pykai.plugins import registry

EXAMPLES = Path(__file__).parents[3] / "examples"
QUICKSTART = EXAMPLES / "quickstart"
PLUGIN = EXAMPLES / "plugins"
TIME_BASED = EXAMPLES / "time-based-fairshare"


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(simulate, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def story() -> dict[str, Any]:
    result = run(QUICKSTART, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def pods(story: dict[str, Any], job: str) -> list[dict[str, Any]]:
    return [pod for pod in story["pods"] if (pod["job"] or pod["name"]) == job]


def test_three_services_share_one_device(story: dict[str, Any]) -> None:
    places = {(pods(story, name)[0]["node"], *pods(story, name)[0]["devices"]) for name in ("chat", "rerank", "embed")}
    assert len(places) == 1
    ((node, device),) = places
    found = next(row for row in story["nodes"] if row["name"] == node)
    assert sorted(found["gpus"][device].values()) == [0.2, 0.25, 0.5]


def test_build_takes_the_gpu_of_train_for_a_while(story: dict[str, Any]) -> None:
    first, again = pods(story, "train")[:2]
    (build,) = pods(story, "build")
    assert (first["evictedBy"], first["evictedFor"]) == ("preempt", f"test/{build['group']}")
    assert build["state"] == "Finished"
    assert again["scheduledAt"] >= build["endedAt"]
    assert "Limit is 1 GPUs" in again["waitedFor"]


def test_the_gang_waits_whole_and_starts_whole(story: dict[str, Any]) -> None:
    gang = pods(story, "pretrain")
    assert len(gang) == 4
    assert len({pod["scheduledAt"] for pod in gang}) == 1
    assert gang[0]["scheduledAt"] > gang[0]["arrivedAt"] + 10
    assert "while 4 are required for gang scheduling" in gang[0]["waitedFor"]


def test_language_reclaims_its_quota_from_vision(story: dict[str, Any]) -> None:
    gone = [pod for pod in story["pods"] if pod["evictedBy"] == "reclaim"]
    assert {(pod["queue"], pod["job"]) for pod in gone} == {("vision", "sweep")}
    assert "with a quota of <GPU: 3" in gone[0]["reason"]


def test_consolidation_moves_pods_and_they_run_again(story: dict[str, Any]) -> None:
    moved = [pod for pod in story["pods"] if pod["evictedBy"] == "consolidation"]
    assert moved
    for pod in moved:
        assert pod["movesTo"]
        assert any(other["state"] == "Running" and other["node"] == pod["movesTo"] for other in pods(story, pod["job"]))
    assert pods(story, "render")[0]["state"] == "Running"


def test_whoever_waits_at_the_end_knows_why(story: dict[str, Any]) -> None:
    reasons = {pod["name"]: pod["reason"] for pod in story["pods"] if pod["state"] == "Waiting"}
    assert {name: bool(reason) for name, reason in reasons.items()} == dict.fromkeys(
        ("second-train", "needs-arm", "too-large", "no-queue", "trio-0"), True
    )


def test_queues_are_shown_with_quota_fair_share_and_use(story: dict[str, Any]) -> None:
    (vision,) = [queue for queue in story["queues"] if queue["name"] == "vision"]
    assert (vision["quota"]["gpu"], vision["fairShare"]["gpu"], vision["allocated"]["gpu"]) == (3.0, 3.0, 2.0)
    output = run(QUICKSTART).output
    for text in ("Queues (GPUs)", "fair share", "GPUs at the end", "Timeline", "Evicted: ", "Waited: ", "reclaim"):
        assert text in output


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_the_same_seed_gives_the_same_bytes(output: str, tmp_path: Path) -> None:
    arguments = ("--nodes", 3, "--gpus", 4, "--jobs", 15, "--seed", 5, "-o", output)
    first, again = (run(*arguments, "--events", tmp_path / f"{number}.jsonl") for number in range(2))
    assert first.exit_code == 0, first.output
    assert first.stdout_bytes == again.stdout_bytes
    assert (tmp_path / "0.jsonl").read_bytes() == (tmp_path / "1.jsonl").read_bytes()
    other = run(*arguments, "--seed", 6)
    assert other.stdout_bytes != first.stdout_bytes


def test_the_same_bytes_come_from_every_process() -> None:
    """Also where Python orders its sets differently."""
    command = [sys.executable, "-m", "pykai", "simulate", str(QUICKSTART), "-o", "json"]
    outputs = {
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_yaml_and_json_say_the_same(story: dict[str, Any]) -> None:
    assert yaml.safe_load(run(QUICKSTART, "-o", "yaml").stdout) == story


def test_the_event_log_has_a_line_for_each_event(story: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    run(QUICKSTART, "--events", log, "-o", "json")
    assert [json.loads(line) for line in log.read_text().splitlines()] == story["events"]


def test_until_and_generated_nodes() -> None:
    found = json.loads(run("--nodes", 100, "--gpus", 8, "--until", "90s", "-o", "json").stdout)
    assert (found["simulatedSeconds"], len(found["nodes"]), len(found["nodes"][0]["gpus"])) == (90.0, 100, 8)


def test_a_report_is_plots_and_a_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        assert run(QUICKSTART, "--report", folder).exit_code == 0
    page = (folders[0] / "index.html").read_text()
    for image in ("queues.png", "gpus.png", "waits.png"):
        assert f'src="{image}"' in page
        content = (folders[0] / image).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert content == (folders[1] / image).read_bytes()
    assert "was preempted by higher priority workload" in page


def test_a_report_that_cannot_be_written_is_told_in_a_line(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "file").touch()
    result = run("--nodes", 1, "--until", "1s", "--report", tmp_path / "file" / "folder")
    assert result.exit_code == 2
    assert f"--report: cannot write to {tmp_path}/file/folder: Not a directory" in result.output


@pytest.mark.parametrize("more", [(QUICKSTART,), ("--nodes", 1), ("--nodes", 1, "--jobs", 1)])
def test_faults_take_no_cluster(more: tuple[Any, ...]) -> None:
    result = run("--faults", 1, *more)
    assert result.exit_code == 2
    assert "--faults makes clusters of its own" in result.output


def test_wrong_input_ends_with_code_2_and_names_file_document_and_field(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("kind: List\nitems: []\n---\nkind: Mystery\n---\nkind: Quue\n")
    result = run(file)
    assert result.exit_code == 2
    assert f"{file}: document 2 (Mystery): kind: 'Mystery' cannot be simulated (known: Node, Queue," in result.output
    assert f"{file}: document 3 (Quue): kind: 'Quue' cannot be simulated: did you mean Queue?" in result.output
    config = tmp_path / "scheduler.yaml"
    config.write_text("actions: fly")
    assert (
        "scheduler.yaml: actions: failed to find Action fly as given in the config"
        in run("--nodes", 1, "--config", config).output
    )
    assert (run().exit_code, run("--until", "soon", "--nodes", 1).exit_code) == (2, 2)


# ------------------------------------------------------------------------------------------------------------ past use
WEBHOOK_REFUSES = [
    (
        "kind: Pod\napiVersion: v1\nmetadata: {name: a, annotations: {gpu-fraction: '0.5', "
        "gpu-fraction-container-name: x}}\nspec: {schedulerName: kai-scheduler, containers: [{name: m}]}",
        "container with name x not found",
    ),
    (
        "kind: Job\napiVersion: batch/v1\nmetadata: {name: a}\nspec: {template: {metadata: {annotations: {"
        "gpu-fraction: '0.5', gpu-fraction-container-name: x}}, "
        "spec: {schedulerName: kai-scheduler, containers: [{name: m}]}}}",
        "container with name x not found",
    ),
    (
        "kind: PodGroup\napiVersion: scheduling.run.ai/v2alpha2\nmetadata: {name: a}\n"
        "spec: {subGroups: [{name: b, minSubGroup: 1}]}",
        "minSubGroup cannot be set on a leaf SubGroup",
    ),
]


@pytest.mark.parametrize(("text", "message"), WEBHOOK_REFUSES)
def test_what_the_webhooks_would_refuse_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    result = CliRunner().invoke(simulate, [str(path), "--nodes", "1"])
    assert result.exit_code == 2
    assert f"{path}: document 1 (" in result.output
    assert message in result.output


def test_what_a_configuration_asks_for_in_vain_is_told(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text("tiers: [{plugins: [{name: predicates, arguments: {colour: red}}]}]")
    result = CliRunner().invoke(simulate, ["--nodes", "1", "--config", str(path)])
    assert result.exit_code == 0
    assert f"note: {path}: tiers[0].plugins[0].arguments.colour: plugin predicates has no such" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--until", "-5s"], "'--until': -5s is negative"),
        (["--job-seconds", "nan"], "nan is not a finite number"),
    ],
)
def test_times_that_are_none_are_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(simulate, ["--nodes", "1", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_where_past_use_counts_two_teams_take_turns() -> None:
    arguments = (TIME_BASED / "manifests", "--config", TIME_BASED / "scheduler.yaml", "--until", "1h")
    found = json.loads(run(*arguments, "-o", "json").stdout)
    owners = [pod["queue"] for pod in found["pods"] if pod["scheduledAt"] is not None]
    assert len(owners) > 5
    assert all({*pair} == {"team-a", "team-b"} for pair in pairwise(owners))
    department, *teams = (queue["usage"]["gpu"] for queue in sorted(found["queues"], key=lambda queue: queue["parent"]))
    assert department == pytest.approx(sum(teams), abs=1e-3)
    assert 0.95 < department < 1.0
    assert "past use" in run(*arguments).output


def test_the_configuration_of_past_use_is_read_and_needs_an_end(tmp_path: Path) -> None:
    unending = run(TIME_BASED / "manifests", "--config", TIME_BASED / "scheduler.yaml")
    assert unending.exit_code == 2
    assert "requires --until" in unending.output
    config = tmp_path / "scheduler.yaml"
    config.write_text("usageDBConfig: {clientType: fake, usageParams: {windowSize: soon}}")
    result = run("--nodes", 1, "--until", "1s", "--config", config)
    assert result.exit_code == 2
    assert f"{config}: usageDBConfig.usageParams.windowSize: 'soon' is not a duration" in result.output


# -------------------------------------------------------------------------------------------------------------- plugin
@pytest.fixture
def installed_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example as an installation would leave it: its module on the path, its entry points beside it."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(PLUGIN))
    registry._third_party.cache_clear()
    yield
    sys.modules.pop("cheapest_first", None)
    registry._third_party.cache_clear()


def node_of_train(*arguments: Any) -> str:
    result = run(PLUGIN / "manifests", "-o", "json", *arguments)
    assert result.exit_code == 0, result.output
    return str(json.loads(result.stdout)["pods"][0]["node"])


def test_a_plugin_of_fifteen_lines_changes_where_pods_land(installed_plugin: None) -> None:
    assert len((PLUGIN / "cheapest_first.py").read_text().splitlines()) <= 16
    assert node_of_train() == "first"
    assert node_of_train("--config", PLUGIN / "scheduler.yaml") == "second"


def test_what_the_plugin_is_told_counts(installed_plugin: None, tmp_path: Path) -> None:
    assert run(PLUGIN / "manifests", "--config", PLUGIN / "scheduler.yaml").stderr == ""
    result = run(PLUGIN / "manifests", "--config", changed_policy(tmp_path, '"1000"', '"much"'))
    assert result.exit_code == 2
    assert "scheduler.yaml: tiers[0].plugins[5]: could not convert string to float: 'much'" in result.output


def test_a_plugin_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    """Under a name that nobody has, because whoever follows the documentation has installed the example."""
    result = run(PLUGIN / "manifests", "--config", changed_policy(tmp_path, "cheapestfirst", "dearestfirst"))
    assert result.exit_code == 2
    assert "scheduler.yaml: tiers[0].plugins[5]: plugin 'dearestfirst' does not exist" in result.output


def changed_policy(folder: Path, old: str, new: str) -> Path:
    """The policy of the example with another word in it."""
    file = folder / "scheduler.yaml"
    file.write_text((PLUGIN / "scheduler.yaml").read_text().replace(old, new))
    return file
