"""Studies of time-based fair share: how they are written, what cluster they become, and what is seen."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean
from typing import Any

import pytest
import yaml

from pykai.cli.time_based_fairshare_simulator import simulation
from pykai.config.fields import FieldError
from pykai.simulate import time_based
from pykai.simulate.manifests import ManifestError
from pykai.simulate.time_based import Figures, Study, objects

TWO = {
    "Nodes": [{"GPUs": 16}],
    "Queues": [{"Name": "a"}, {"Name": "b"}],
    "Jobs": {"a": {"GPUs": 16}, "b": {"GPUs": 16}},
}


def study(**document: Any) -> Study:
    return time_based.read(yaml.safe_dump({**TWO, **document}), "study.yaml")


def played(found: Study) -> list[Figures]:
    outcome = simulation(found, "study.yaml").play(time_based.duration(found))
    return list(time_based.figures(found, outcome))


def held(found: list[Figures], queue: str) -> list[float]:
    return [row.allocation for row in found if row.queue == queue]


def test_what_is_not_said_has_its_usual_value() -> None:
    found = time_based.read("Queues: [{Name: q}]\nNodes: [{GPUs: 2}]\nJobs: {q: {GPUs: 1}}", "f")
    assert (found.cycles, found.window_size, found.half_life_period, found.k_value) == (100, 5, None, 1.0)
    (queue,), (node,), job = found.queues, found.nodes, found.jobs["q"]
    assert (queue.parent, queue.priority, queue.deserved_gpus, queue.weight) == ("", 100, 0.0, 1.0)
    assert (node.count, job.num_pods, job.num_jobs) == (1, 1, 1)


def test_keys_are_read_in_any_case_and_names_of_queues_as_they_are() -> None:
    text = """
cycles: 7
WINDOWSIZE: 3
halfLifePeriod: 2
nodes: [{gpus: 4, count: 2}]
queues: [{name: Name, deservedgpus: -1}]
jobs: {Name: {gpus: 1, numPods: 2, NUMJOBS: 3}}
"""
    found = time_based.read(text, "f")
    assert (found.cycles, found.window_size, found.half_life_period) == (7, 3, 2.0)
    assert (found.nodes[0].count, found.queues[0].deserved_gpus) == (2, -1.0)
    assert found.jobs["Name"].num_jobs == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "study.yaml: expected one document, got 0"),
        ("Cycles: 1\n---\nCycles: 2", "study.yaml: expected one document, got 2"),
        ("Cycles: [", "study.yaml: document 1: not YAML"),
        ("Cycles: 0", "study.yaml: Cycles: "),
        ("Cycles: many", "study.yaml: Cycles: expected a whole number, got a string"),
        ("Cycles: 1\ncycles: 2", "study.yaml: Cycles: is written twice"),
        ("Turns: 3", "study.yaml: unknown field 'Turns'"),
        ("KValue: -1", "study.yaml: KValue: "),
        ("Nodes: [{Count: 1}]", "study.yaml: Nodes[0]: GPUs is missing"),
        ("Nodes: [4]", "study.yaml: Nodes[0]: expected a map, got a whole number"),
        ("Queues: [{Name: a}, {Name: a}]", "study.yaml: Queues[1].Name: 'a' is written twice"),
        ("Queues: [{Name: a, Parent: z}]", "study.yaml: Queues[0].Parent: there is no queue 'z'"),
        ("Jobs: {z: {GPUs: 1}}", "study.yaml: Jobs.z: there is no such queue"),
        (
            "Queues: [{Name: a}, {Name: b, Parent: a}]\nJobs: {a: {GPUs: 1}}",
            "study.yaml: Jobs.a: has queues below it, which hold the jobs",
        ),
        ("Queues: [{Name: a}]\nJobs: {a: {GPUs: 0}}", "study.yaml: Jobs.a.GPUs: "),
    ],
)
def test_what_is_wrong_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises((FieldError, ManifestError)) as error:
        time_based.read(text, "study.yaml")
    assert str(error.value).startswith(message)


def test_every_node_of_every_kind_exists() -> None:
    found = objects(study(Nodes=[{"GPUs": 4, "Count": 2}, {"GPUs": 4}, {"GPUs": 200}]), "f")
    nodes = [one.obj for one in found if one.obj["kind"] == "Node"]
    assert [node["metadata"]["name"] for node in nodes] == ["node-1", "node-2", "node-3", "node-4"]
    offers = [node["status"]["allocatable"] for node in nodes]
    assert [offer["nvidia.com/gpu"] for offer in offers] == ["4", "4", "4", "200"]
    assert offers[-1]["pods"] == "200"


def test_queues_and_jobs_are_as_they_were_asked_for() -> None:
    found = study(
        Nodes=[{"GPUs": 8, "Count": 2}],
        Queues=[{"Name": "top"}, {"Name": "a", "Parent": "top", "Weight": 3, "DeservedGPUs": 2, "Priority": 7}],
        Jobs={"a": {"GPUs": 2, "NumPods": 3, "NumJobs": 2}},
        Cycles=3,
    )
    outcome = simulation(found, "f").play(time_based.duration(found))
    row = outcome.queues.rows["a"]
    assert (outcome.queues.weight[2, row], outcome.queues.deserved[2, row], outcome.queues.priority[row]) == (3, 2, 7)
    assert len({life.job for life in outcome.history.lives}) == 2
    assert [row.allocation for row in time_based.figures(found, outcome)] == [12.0] * 6


def test_two_queues_take_turns_and_have_the_same_in_the_long_run() -> None:
    found = played(study(Cycles=600, WindowSize=16, HalfLifePeriod=8))
    first, second = held(found, "a"), held(found, "b")
    assert {*zip(first, second, strict=True)} == {(16.0, 0.0), (0.0, 16.0), (0.0, 0.0)}
    turns = [
        name for amounts in zip(first, second, strict=True) for name, got in zip("ab", amounts, strict=True) if got
    ]
    changes = sum(one != other for one, other in pairwise(turns))
    assert changes > 20
    assert fmean(first) == pytest.approx(fmean(second), rel=0.05), "but for one turn"
    assert fmean(first) + fmean(second) > 14


def test_without_half_life_all_use_in_the_window_counts_the_same() -> None:
    none, zero = (played(study(Cycles=60, WindowSize=10, **more)) for more in ({}, {"HalfLifePeriod": 0}))
    assert none == zero
    assert none != played(study(Cycles=60, WindowSize=10, HalfLifePeriod=2))
    assert set(held(none, "a")) == {0.0, 16.0}


def test_weights_are_seen_in_the_long_run() -> None:
    queues = [{"Name": "a", "Weight": 3}, {"Name": "b"}]
    jobs = {name: {"GPUs": 1, "NumJobs": 16} for name in "ab"}
    found = played(study(Cycles=40, WindowSize=10, Queues=queues, Jobs=jobs))
    assert fmean(held(found, "a")[5:]) == pytest.approx(12.0, abs=0.5)


def test_the_past_does_not_count_where_k_is_0() -> None:
    found = played(study(Cycles=60, KValue=0))
    assert {fmean(held(found, name)) for name in "ab"} == {0.0, 16.0}
    assert {row.fair_share for row in found} == {8.0}


def test_there_are_figures_for_cycles_in_which_nobody_waited() -> None:
    found = played(study(Cycles=50, Jobs={"a": {"GPUs": 3}}))
    assert [(row.cycle, row.queue) for row in found] == [(cycle, name) for cycle in range(50) for name in "ab"]
    assert set(held(found, "a")) == {3.0}
    assert played(study(Cycles=1)) != []
