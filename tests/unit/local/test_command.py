"""`kai local` as typed: options become an order, mistakes are named, records are shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from pykai.cli import local as command
from pykai.cli import local_cluster
from pykai.cli.local import LocalOptions, local
from pykai.local import cluster_session, clusters
from pykai.local.cluster_session import ClusterPlan
from pykai.local.clusters import ClusterRecord
from pykai.local.process import ProcessId, identify


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def kai(*arguments: str) -> Result:
    return CliRunner().invoke(local, arguments)


def store(name: str, **fields: object) -> None:
    me = identify(os.getpid())
    assert me is not None
    given = {"phase": "ready", "owner": me, "created": time.time(), "version": "v1.35.4", **fields}
    clusters.directory_of(name).mkdir(parents=True)
    clusters.write_record(ClusterRecord(name=name, **given))  # type: ignore[arg-type]


ORDER = LocalOptions(name="x", nodes=3, gpus=1, gpu_memory=23034, gpu_product="NVIDIA-L4", time_slices=4, bare=True)


@pytest.mark.parametrize("order", [ORDER, LocalOptions(name="x", nodes=0, gpus=0)])
def test_an_order_survives_the_command_line(order: LocalOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ClusterPlan] = []
    monkeypatch.setattr(command, "_binary", lambda: Path("/bin/true"))
    monkeypatch.setattr(cluster_session, "run_cluster", lambda plan, binary, on_ready: seen.append(plan))
    result = kai("run", *order.arguments(), "--kube-scheduler")
    assert result.exit_code == 0, result.output
    (plan,) = seen
    assert plan.name == "x"
    assert list(plan.nodes) == order.shapes()
    assert list(plan.extra_parts) == ["kube-scheduler"]


def test_shapes_of_an_order(tmp_path: Path) -> None:
    assert [shape.name for shape in ORDER.shapes()] == ["node-0", "node-1", "node-2"]
    assert ORDER.shapes()[0].gpus is not None
    assert LocalOptions(gpus=0).shapes()[0].gpus is None
    path = tmp_path / "nodes.yaml"
    path.write_text("nodes: [{name: only}]")
    assert [shape.name for shape in LocalOptions(nodes_file=str(path)).shapes()] == ["only"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "Bad Name"], "cluster name 'Bad Name'"),
        (["--nodes", "-1"], "--nodes"),
        (["--time-slices", "0"], "--time-slices"),
        (["--nodes-file", "/nowhere/nodes.yaml"], "/nowhere/nodes.yaml: cannot be read: No such file or directory"),
        (["--nodes-file", "nodes.yaml", "--gpus", "4"], "--nodes-file describes the nodes: leave out --gpus"),
        (["--gpu-product", "NVIDIA A100"], "--gpu-product: 'NVIDIA A100' cannot be the value of a label"),
        (["--job-seconds", "nan"], "nan is not a finite number"),
    ],
)
@pytest.mark.parametrize("verb", ["up", "run"])
def test_mistakes_are_named_before_anything_is_built(
    verb: str, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Path:
        raise AssertionError("nothing should be built")

    monkeypatch.setattr(command, "_binary", build)
    result = kai(verb, *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_up_refuses_a_running_name() -> None:
    store("kai")
    result = kai("up")
    assert result.exit_code == 1
    assert "already running; stop it with `kai local down --name kai`" in result.output


def test_an_order_with_a_file_survives_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("nodes: [{name: only}]")
    assert "--nodes=2" not in LocalOptions(nodes_file=str(path)).arguments()
    assert f"--nodes-file={path}" in LocalOptions(nodes_file=str(path)).arguments()


def test_a_cluster_that_is_not_there_is_named_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_binary", lambda: pytest.fail("nothing should be built"))
    assert "there is no cluster 'x' that is ready" in kai("kubectl", "--on", "x", "get", "pods").output
    assert "there is no cluster 'x'; `kai local up --name x` starts one" in kai("status", "--name", "x").output
    assert (kai("down", "--name", "Bad Name").exit_code, kai("down", "--name", "x").exit_code) == (2, 0)


def test_what_lies_beside_clusters_is_none_of_our_business(tmp_path: Path) -> None:
    store("good")
    root = clusters.directory_of("good").parent
    (root / ".DS_Store").write_text("")
    (root / "My Cluster").mkdir()
    assert kai("status").exit_code == 0
    (root / "good" / "cluster.json").write_text("{")
    result = kai("status")
    assert (result.exit_code, "cluster.json is not the record of a cluster" in result.output) == (1, True)


def test_status_of_nothing() -> None:
    assert "no local cluster" in kai("status").output
    assert kai("status").exit_code == 0
    assert kai("status", "--name", "kai").exit_code == 1


def test_status_shows_state_and_failure() -> None:
    store("good")
    assert kai("status").exit_code == 0
    store("bad", phase="failed", failure="etcd was killed by signal 9")
    store("lost", owner=ProcessId(2**22 + 1, "never"))
    result = kai("status", "-o", "json")
    assert result.exit_code == 1
    assert {row["name"]: row["state"] for row in json.loads(result.output)} == {
        "good": "ready",
        "bad": "failed",
        "lost": "dead",
    }
    assert yaml.safe_load(kai("status", "-o", "yaml").output) == json.loads(result.output)
    assert "bad: etcd was killed by signal 9" in kai("status").output
    assert kai("status", "--name", "good").exit_code == 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What kubectl was asked, after its kubeconfig; plugins beside this Python are found."""
    calls: list[list[str]] = []

    def run(words: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        assert env["PATH"].startswith(f"{Path(sys.executable).parent}{os.pathsep}")
        calls.append([env["KUBECONFIG"], *words[2:]])
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(command, "_binary", lambda: Path("/bin/kai"))
    monkeypatch.setattr(subprocess, "run", run)
    return calls


WORDS = ["-n", "team", "run", "first", "--image=ubuntu", "--", "ls", "-la", "--on", "x"]


@pytest.mark.parametrize(("chosen", "config"), [(["--on", "one"], "1"), (["--on=kai"], "2"), ([], "2")])
def test_kubectl_gets_its_words_as_they_are(chosen: list[str], config: str, asked: list[list[str]]) -> None:
    store("one", kubeconfig="1")
    store("kai", kubeconfig="2")
    assert kai("kubectl", *chosen, *WORDS).exit_code == 0
    assert asked == [[config, *WORDS]]


def test_kubectl_takes_the_only_cluster_and_names_those_to_choose_from(asked: list[list[str]]) -> None:
    store("lost", owner=ProcessId(2**22 + 1, "never"))
    assert "`kai local up --name kai` starts one\n" in kai("kubectl", "version").output
    store("one", kubeconfig="1")
    assert kai("kubectl", "version").exit_code == 0
    assert asked == [["1", "version"]]
    assert "ready are one: choose with --on NAME" in kai("kubectl", "--on", "lost", "version").output
    store("two", kubeconfig="2")
    assert "ready are one, two: choose with --on NAME" in kai("kubectl", "version").output


def test_down() -> None:
    store("lost", owner=ProcessId(2**22 + 1, "never"))
    store("gone", owner=ProcessId(2**22 + 1, "never"))
    assert "there is no cluster kai" in kai("down").output
    assert "cluster lost is gone" in kai("down", "--name", "lost").output
    assert "cluster gone is gone" in kai("down", "--all").output
    assert clusters.records() == []


def test_the_first_program_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program() -> None:
        return None

    made = program()
    monkeypatch.setattr(local_cluster, "PROGRAMS", [lambda *_: None, lambda *_: made, lambda *_: pytest.fail("asked")])
    assert local_cluster.first_program({}, "n", (), print) is made
    made.close()


def test_operators_are_chosen_by_name_each_once() -> None:
    assert LocalOptions(operators="lws, jobset,lws").chosen_operators() == ["lws", "jobset"]
    result = kai("up", "--operators=jobset,volcano")
    assert result.exit_code == 2
    assert "--operators: there is no 'volcano'; there are jobset, lws, " in result.output
