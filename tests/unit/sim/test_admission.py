"""What is refused, and with which file, document and field."""

from __future__ import annotations

import pytest

from pykai.sim import admission, manifests
from pykai.sim.admission import ManifestsError
from pykai.sim.manifests import ManifestError
from tests.unit.sim.stories import job, node, pod, queue

CYCLE = f"{queue('a', parent='b')}---{queue('b', parent='a')}"
REFUSED = [
    ("kind: Deployment", "kind", "'Deployment' cannot be simulated"),
    ("metadata: {name: a}", "kind", "is missing"),
    ("kind: Pod\napiVersion: v2", "apiVersion", "Pod is v1, not 'v2'"),
    ("kind: Pod\napiVersion: v1", "metadata", "is missing"),
    ("kind: Pod\napiVersion: v1\nmetadata: {}", "metadata.name", "is missing"),
    (pod("a", "q").replace("{cpu", "{memory: -1Gi, cpu"), "spec.containers[0].resources.limits.memory", "negative"),
    (
        job("a", "q").replace('"1"}', '"much"}'),
        "spec.template.spec.containers[0].resources.limits.nvidia.com/gpu",
        "much",
    ),
    (pod("a", "q", notes="x: 1"), "metadata.annotations.x", "put it in quotes"),
    (pod("a", "q", notes='gpu-fraction: "0.5", gpu-memory: "100"'), "metadata.annotations", "mutually exclusive"),
    (pod("a", "q", notes="pykai.io/arrives: soon"), "metadata.annotations.pykai.io/arrives", "not a duration"),
    (pod("a", "q", notes="pykai.io/arrive: 1s"), "metadata.annotations.pykai.io/arrive", "no such annotation"),
    (pod("a", "q", notes='pykai.io/run-seconds: "-1"'), "metadata.annotations.pykai.io/run-seconds", "negative"),
    (pod("a", "q").replace("[{name: main", "[{name: 3"), "spec.containers[0].name", "expected a string"),
    ("kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {}", "spec.containers", "at least one container"),
    (pod("a", "q").replace("spec:\n", "spec:\n  nodeName: nowhere\n", 1), "spec.nodeName", "there is no node"),
    (node("a").replace('"64"', "-4"), "status.allocatable.cpu", "-4 is negative"),
    ("kind: Node\napiVersion: v1\nmetadata: {name: a}", "status.allocatable", "would offer nothing"),
    (queue("a", quota=-2), "spec.resources.gpu.quota", "-2 is negative (-1 means unlimited)"),
    (queue("a").replace("resources:", "resourceQuota:"), "spec.resourceQuota", "unknown field"),
    (queue("a").replace("quota: -1, limit: -1", "quota: lots, limit: -1", 1), "spec.resources.cpu.quota", "number"),
    (queue("a", parent="b"), "spec.parentQueue", "there is no queue 'b'"),
    (CYCLE, "spec.parentQueue", "cycle of queues a -> b -> a"),
    (
        "kind: PodGroup\napiVersion: scheduling.run.ai/v2alpha2\nmetadata: {name: g}\n"
        "spec: {subGroups: [{name: a, minMember: 1}, {name: b, parent: x, minMember: 1}]}",
        "spec.subGroups",
        "parent subgroup <x> of <b> not found",
    ),
    (f"{pod('a', 'q')}---{pod('a', 'q')}", "metadata.name", "already defined in f.yaml: document 1"),
    (f"{queue('a')}---{queue('a')}", "metadata.name", "already defined"),
]


@pytest.mark.parametrize(("text", "field", "message"), REFUSED)
def test_what_cannot_be_simulated_is_refused(text: str, field: str, message: str) -> None:
    with pytest.raises(ManifestsError) as refused:
        admission.admit(manifests.parse(text, "f.yaml"))
    error = refused.value.errors[0]
    assert str(error).startswith("f.yaml: document ")
    assert error.field == field
    assert message in str(error)


def test_all_problems_are_told_at_once() -> None:
    text = "\n---\n".join([node("a"), queue("b", quota=-7), pod("c", "b"), "kind: Mystery"])
    with pytest.raises(ManifestsError) as refused:
        admission.admit(manifests.parse(text, "f.yaml"))
    assert [str(error).split(":")[1].strip() for error in refused.value.errors] == [
        "document 2 (Queue b)",
        "document 4 (Mystery)",
    ]


def test_what_is_filled_in() -> None:
    text = node("a").replace("allocatable", "capacity") + "---" + pod("p", "q")
    machine, one = admission.admit(manifests.parse(text, "f.yaml"))
    assert machine.obj["status"]["allocatable"] == machine.obj["status"]["capacity"]
    assert one.key == ("Pod", "default", "p")


NOT_YAML = [
    ("a: [1", "document 1: not YAML: line 2, column 1: did not find expected"),
    ("a: 1\n---\nb: {c: 1, c: 2}", "document 2: not YAML: line 3, column 11: key 'c' is written twice"),
    ("- a", "document 1: expected an object, got list"),
    ("kind: List\nitems: 3", "document 1: items: expected a list"),
]


@pytest.mark.parametrize(("text", "message"), NOT_YAML)
def test_what_is_not_yaml_is_refused(text: str, message: str) -> None:
    with pytest.raises(ManifestError) as refused:
        manifests.parse(text, "f.yaml")
    assert str(refused.value).startswith("f.yaml: ")
    assert message in str(refused.value)


def test_lists_anchors_and_times_are_read() -> None:
    text = """
kind: List
items:
- {kind: A, base: &base {x: 1, y: 2}}
- {kind: B, derived: {<<: *base, y: 3}, at: 2026-01-01T00:00:00Z}
"""
    first, second = (found.obj for found in manifests.parse(text, "f.yaml"))
    assert first["base"] == {"x": 1, "y": 2}
    assert second == {"kind": "B", "derived": {"x": 1, "y": 3}, "at": "2026-01-01T00:00:00Z"}
