"""`kai replay` on small snapshot files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pykai.cli.replay import SearchFigures, replay, search_figures
from pykai.model.plan import GeneratorStatistics, ScenarioState, SearchStatistics
from pykai.model.plan import SearchResult as Ended
from tests import builders

PLUGINS = [
    "predicates",
    "proportion",
    "priority",
    "nodeavailability",
    "elastic",
    "minruntime",
    "gpupack",
    "nodeplacement",
    "sg-nodelocalgreedy",
    "sg-multinodegang",
]
CONFIG = {
    "actions": "allocate, consolidation, reclaim, preempt, stalegangeviction",
    "tiers": [{"plugins": [{"name": name} for name in PLUGINS]}],
}
PARAMS = {
    "maxNumberConsolidationPreemptees": 16,
    "useSchedulingSignatures": True,
    "fullHierarchyFairness": True,
    "allowConsolidatingReclaim": True,
    "globalDefaultStalenessGracePeriod": 60_000_000_000,
    "stuckInReleasingThreshold": 120_000_000_000,
}
CREATED = "2026-01-01T00:00:00Z"


def node(name: str, gpus: int) -> dict[str, Any]:
    made = builders.node(name, gpus, allocatable={"cpu": "64", "memory": "256Gi"})
    made["metadata"]["creationTimestamp"] = CREATED
    return made


def queue(name: str, parent: str | None = None, limit: float = -1) -> dict[str, Any]:
    made = builders.queue(name, parent or "", gpu={"limit": limit})
    made["metadata"]["creationTimestamp"] = CREATED
    return made


def work(name: str, gpus: int, home: str = "", priority: str = "train") -> tuple[dict[str, Any], dict[str, Any]]:
    """A PodGroup and its pod; with a home, it runs there."""
    meta: dict[str, Any] = {"namespace": "team", "uid": name, "creationTimestamp": CREATED}
    group = builders.pod_group(name, "leaf", metadata=meta, priorityClassName=priority)
    return group, builders.pod(name, name, home, {"cpu": "1", "gpu": gpus}, **meta)


def snapshot_file(path: Path, nodes: list[Any], works: list[Any], **more: Any) -> Path:
    classes = [{"metadata": {"name": n}, "value": v} for n, v in (("train", 50), ("build", 100))]
    objects = {
        "nodes": nodes,
        "queues": [queue("root"), queue("leaf", "root", more.pop("limit", -1))],
        "podGroups": [group for group, _ in works],
        "pods": [pod for _, pod in works],
        "priorityClasses": classes,
    }
    document = {"config": CONFIG, "schedulerParams": PARAMS, "rawObjects": objects, **more}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("snapshot.json", json.dumps(document))
    return path


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(replay, [str(argument) for argument in arguments])


def counts(cycle: dict[str, Any]) -> dict[str, int]:
    return {name: cycle[name] for name in ("bound", "evicted", "pipelined", "moved", "left_pending")}


def test_json_has_counts_and_timings_of_every_cycle(tmp_path: Path) -> None:
    file = snapshot_file(tmp_path / "s.zip", [node("n", 2)], [work("a", 1), work("b", 1), work("c", 1)])
    result = run(file, "--json", "--cycles", 3)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["nodes"], found["pods"], found["groups"]) == (1, 3, 3)
    assert 10 < found["peak_rss_mb"] < 1000
    assert len(found["cycles"]) == 3
    for cycle in found["cycles"]:
        assert counts(cycle) == {"bound": 2, "evicted": 0, "pipelined": 0, "moved": 0, "left_pending": 1}
        assert list(cycle["actions"]) == ["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]
        assert all(set(timing) == {"cpu_ms"} for timing in cycle["actions"].values())
        parts = cycle["snapshot_cpu_ms"] + sum(timing["cpu_ms"] for timing in cycle["actions"].values())
        assert 0 < parts <= cycle["cycle_cpu_ms"] + 0.1


def test_warm_cycles_decide_the_same(tmp_path: Path) -> None:
    file = snapshot_file(tmp_path / "s.zip", [node("n", 2)], [work("a", 1), work("b", 1), work("c", 1)])
    found = json.loads(run(file, "--json", "--warm", "--cycles", 2).stdout)
    assert len(found["warm"]) == 2
    assert list(map(counts, found["warm"])) == list(map(counts, found["cycles"]))
    assert "warm cycle 2: " in run(file, "--warm", "--cycles", 2).output


def test_a_preemptor_is_pipelined_and_its_victim_evicted(tmp_path: Path) -> None:
    works = [work("low", 1, "n"), work("high", 1, priority="build")]
    file = snapshot_file(tmp_path / "s.zip", [node("n", 1)], works)
    (cycle,) = json.loads(run(file, "--json").stdout)["cycles"]
    assert counts(cycle) == {"bound": 0, "evicted": 1, "pipelined": 1, "moved": 0, "left_pending": 0}


def test_a_moved_pod_is_evicted_and_moved_but_not_pipelined(tmp_path: Path) -> None:
    works = [work("left", 1, "a"), work("right", 1, "b"), work("wide", 2)]
    file = snapshot_file(tmp_path / "s.zip", [node("a", 2), node("b", 2)], works)
    (cycle,) = json.loads(run(file, "--json").stdout)["cycles"]
    assert counts(cycle) == {"bound": 0, "evicted": 1, "pipelined": 1, "moved": 1, "left_pending": 0}


def test_searches_are_counted_by_action(tmp_path: Path) -> None:
    works = [work("low", 1, "n"), work("high", 1, priority="build")]
    file = snapshot_file(tmp_path / "s.zip", [node("n", 1)], works)
    (cycle,) = json.loads(run(file, "--json").stdout)["cycles"]
    assert cycle["searches"]["preempt"] == {"searched": 1, "solved": 1, "simulated": 1, "failed": 0, "most": 1}


def effort(result: Ended, *simulated: int) -> SearchStatistics:
    parts = (
        GeneratorStatistics("g", Ended.UNSOLVED, 0.0, {ScenarioState.SIMULATED: n, ScenarioState.FILTERED: 9})
        for n in simulated
    )
    return SearchStatistics("reclaim", result, reduced_budget=False, generators=tuple(parts))


@pytest.mark.parametrize(
    ("efforts", "figures"),
    [
        ([], {}),
        ([effort(Ended.UNSOLVED)], {}),
        ([effort(Ended.SOLVED, 3)], {"reclaim": SearchFigures(1, 1, 3, 2, 3)}),
        ([effort(Ended.GENERATORS_EXHAUSTED, 4, 6)], {"reclaim": SearchFigures(1, 0, 10, 10, 10)}),
        (
            [effort(Ended.SOLVED, 1, 4), effort(Ended.UNSOLVED), effort(Ended.VALIDATOR_REJECTED, 2)],
            {"reclaim": SearchFigures(2, 1, 7, 6, 5)},
        ),
    ],
)
def test_a_simulation_fails_unless_it_ends_a_search_with_a_solution(
    efforts: list[SearchStatistics], figures: dict[str, SearchFigures]
) -> None:
    assert search_figures(efforts) == figures


def test_the_plan_is_shown_with_its_reasons(tmp_path: Path) -> None:
    works = [work("left", 1, "a"), work("right", 1, "b"), work("wide", 2), work("huge", 9)]
    file = snapshot_file(tmp_path / "s.zip", [node("a", 2), node("b", 2)], works)
    output = " ".join(run(file).output.split())
    for text in ("Evicted: 1", "consolidation", "team/wide", "Left pending: 1", "topped at 2"):
        assert text in output
    assert "cycle 1: 0 bound, 1 evicted, 1 pipelined, 1 moved, 1 left pending" in output


def test_long_tables_are_cut(tmp_path: Path) -> None:
    file = snapshot_file(tmp_path / "s.zip", [node("n", 8)], [work(f"w{number}", 1) for number in range(8)])
    output = run(file, "--rows", 3).output
    assert "Bound: 8" in output
    assert "... 5 more" in output
    assert "team/w7" not in output


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("pods[1].spec.containers[0].resources.limits.cpu", lambda n, p: p["spec"]["containers"][0]["resources"]),
        ("nodes[0].status.allocatable.cpu", lambda n, p: n["status"]),
    ],
)
def test_an_amount_that_is_none_is_named(path: str, change: Any, tmp_path: Path) -> None:
    broken, works = node("n", 1), [work("a", 1), work("b", 1)]
    change(broken, works[1][1])[path.split(".")[-2]]["cpu"] = "plenty"
    file = snapshot_file(tmp_path / "s.zip", [broken], works)
    result = run(file)
    assert result.exit_code == 2
    assert f"{file}: snapshot.json: rawObjects.{path}: 'plenty' is not a quantity" in result.output


def test_time_is_an_argument(tmp_path: Path) -> None:
    group, pod = work("gone", 1, "n")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    file = snapshot_file(tmp_path / "s.zip", [node("n", 1)], [(group, pod), work("next", 1)])
    (in_time,) = json.loads(run(file, "--json").stdout)["cycles"]
    assert counts(in_time)["pipelined"] == 1
    (later,) = json.loads(run(file, "--json", "--now", "2026-01-01T01:00:00Z").stdout)["cycles"]
    assert counts(later)["left_pending"] == 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"actions": "fly"}, "actions: failed to find Action fly as given in the config"),
        ({"tiers": [{"plugins": [{"name": "nosuch"}]}]}, "tiers[0].plugins[0]: plugin 'nosuch' does not exist"),
    ],
)
def test_wrong_configuration_is_refused(tmp_path: Path, config: Any, message: str) -> None:
    file = snapshot_file(tmp_path / "s.zip", [], [], config=config)
    result = run(file)
    assert result.exit_code == 2
    assert f"{file}: snapshot.json: config.{message}" in result.output


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("schedulingGates", "x", "schedulingGates: expected a list, got a string"),
        ("affinity", {"nodeAffinity": []}, "affinity.nodeAffinity: expected a map, got a list"),
        ("nodeSelector", {"a": "b", "c": 1}, "nodeSelector.c: expected a string, got a whole number"),
    ],
)
def test_a_part_of_a_pod_of_another_type_is_named(part: str, value: Any, message: str, tmp_path: Path) -> None:
    works = [work("a", 1), work("b", 1)]
    works[1][1]["spec"][part] = value
    file = snapshot_file(tmp_path / "s.zip", [node("n", 1)], works)
    result = run(file)
    assert result.exit_code == 2
    assert f"{file}: snapshot.json: rawObjects.pods[1].spec.{message}" in result.output


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain.zip"
    plain.write_text("no archive")
    assert (run(plain).exit_code, run(tmp_path / "missing.zip").exit_code) == (2, 2)
    assert "not a zip archive" in run(plain).output
    assert run(plain, "--now", "yesterday").exit_code == 2
