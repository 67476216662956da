"""What is refused, and with which file, document and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykai.simulate import checks, generate, manifest_validation, manifests
from pykai.simulate.manifest_validation import ManifestsError
from pykai.simulate.manifests import ManifestError
from tests.unit.simulate.stories import job, node, pod, queue

CYCLE = f"{queue('a', parent='b')}---{queue('b', parent='a')}"
REFUSED = [
    ("kind: Quue\napiVersion: scheduling.run.ai/v2", "kind", "'Quue' cannot be simulated"),
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
    (pod("a", "q").replace("limits:", "limit:"), "spec.containers[0].resources.limit", "did you mean limits?"),
    (
        pod("a", "q").replace("containers:", "nodeSelectors: {a: b}\n  containers:"),
        "spec.nodeSelectors",
        "unknown field",
    ),
    (job("a", "q").replace("parallelism", "paralelism"), "spec.paralelism", "did you mean parallelism?"),
    (node("a").replace("allocatable", "allocateable"), "status.allocateable", "did you mean allocatable?"),
    (queue("a").replace("name: a", "name: a, label: {a: b}"), "metadata.label", "did you mean labels?"),
    (pod("A_b", "q"), "metadata.name", "cannot be a name"),
    (pod("a", "q/r/s"), "metadata.labels.kai.scheduler/queue", "cannot be the value of a label"),
    (
        pod("a", "q", gpus=1).replace("nvidia.com/gpu", "gpu"),
        "spec.containers[0].resources.limits.gpu",
        "nvidia.com/gpu",
    ),
    (
        pod("a", "q", gpus=1).replace('gpu: "1"', 'gpu: "0.5"'),
        "spec.containers[0].resources.limits.nvidia.com/gpu",
        "must be a whole number, not 0.5; annotation gpu-fraction",
    ),
    (
        pod("a", "q").replace("limits: {cpu", "requests: {cpu: 2}, limits: {cpu"),
        "spec.containers[0].resources.requests.cpu",
        "2 is more than the limit of 1",
    ),
    (
        pod("a", "q").replace("limits:", "requests:").replace("cpu", "nvidia.com/gpu"),
        "spec.containers[0].resources.limits.nvidia.com/gpu",
        "must be there and be equal to the request of 1",
    ),
    (
        pod("a", "q").replace("[{name: main", "[{name: main}, {name: main"),
        "spec.containers[1].name",
        "another container",
    ),
    (pod("a", "q") + "  schedulingGates: wait\n", "spec.schedulingGates", "must be of type array"),
    (pod("a", "q") + "  tolerations: [{operator: exists}]\n", "spec.tolerations[0].operator", '"Exists"'),
    (pod("a", "q") + "  nodeSelector: {a: b, c: 3}\n", "spec.nodeSelector.c", "expected a string"),
    (pod("a", "q") + "  priorityClassName: nope\n", "spec.priorityClassName", "there is no priority class 'nope'"),
    (
        job("a", "q") + "      priorityClassName: nope\n",
        "spec.template.spec.priorityClassName",
        "there is no priority class 'nope'",
    ),
    (
        job("a", "q").replace("template:", "template:\n    metadata: {labels: {a: 1}}"),
        "spec.template.metadata.labels.a",
        "expected a string",
    ),
    (
        job("a", "q").replace("schedulerName: kai-scheduler", "schedulerName: 3"),
        "spec.template.spec.schedulerName",
        "3",
    ),
    ("kind: Job\napiVersion: batch/v1\nmetadata: {name: a}\nspec: []", "spec", "must be of type object"),
    (node("a").replace('"80000"', "80GB"), "metadata.labels.nvidia.com/gpu.memory", "whole number of MiB, got '80GB'"),
    (node("a") + "spec: {taints: [{key: a, effect: noschedule}]}", "spec.taints[0].effect", '"NoSchedule"'),
    ("kind: PriorityClass\napiVersion: scheduling.k8s.io/v1\nmetadata: {name: a}", "value", "Required value"),
    ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {a: 1}", "data.a", "put it in quotes"),
]


@pytest.mark.parametrize(("text", "field", "message"), REFUSED)
def test_what_cannot_be_simulated_is_refused(text: str, field: str, message: str) -> None:
    with pytest.raises(ManifestsError) as refused:
        manifest_validation.admit(manifests.parse(text, "f.yaml"))
    error = refused.value.errors[0]
    assert str(error).startswith("f.yaml: document ")
    assert error.field == field
    assert message in str(error)


def test_all_problems_are_told_at_once() -> None:
    text = "\n---\n".join([node("a"), queue("b", quota=-7), pod("c", "b"), "kind: Mystery"])
    with pytest.raises(ManifestsError) as refused:
        manifest_validation.admit(manifests.parse(text, "f.yaml"))
    assert [str(error).split(":")[1].strip() for error in refused.value.errors] == [
        "document 2 (Queue b)",
        "document 4 (Mystery)",
    ]


def test_what_refers_to_something_that_is_refused_is_not_told_as_well() -> None:
    text = "\n---\n".join([queue("a", quota=-7), queue("b", parent="a")])
    with pytest.raises(ManifestsError) as refused:
        manifest_validation.admit(manifests.parse(text, "f.yaml"))
    assert [error.field for error in refused.value.errors] == ["spec.resources.gpu.quota"]


def test_a_cluster_wide_object_has_no_namespace() -> None:
    (one,) = manifest_validation.admit(manifests.parse(queue("a", more=", namespace: b"), "f.yaml"))
    assert one.key == ("Queue", "", "a")


def test_priority_classes_of_every_cluster_are_there() -> None:
    found = manifests.parse(pod("a", "q") + "  priorityClassName: system-node-critical\n", "f.yaml")
    assert manifest_validation.admit(generate.with_defaults(found))


HINTS = [
    (
        pod("a", "q", notes='gpu-fractions: "0.5"'),
        "annotations.gpu-fractions: has no effect: did you mean gpu-fraction?",
    ),
    (pod("a", "q").replace("scheduler/queue", "scheduler/Queue"), "did you mean kai.scheduler/queue?"),
    (pod("a", "q", notes="kai.scheduler/queue: q"), "annotations.kai.scheduler/queue: has no effect as an annotation"),
    (pod("a", "q").replace("labels: {", 'labels: {gpu-memory: "10", '), "labels.gpu-memory: has no effect as a label"),
    (job("a", "q", notes='gpu-fraction: "0.5"'), "write it under spec.template.metadata.annotations"),
]


@pytest.mark.parametrize(("text", "message"), HINTS)
def test_keys_without_effect_that_look_like_ours_are_told(text: str, message: str) -> None:
    (one,) = manifest_validation.admit(manifests.parse(text, "f.yaml"))
    (remark,) = one.remarks
    assert remark.startswith("f.yaml: document 1 (")
    assert message in remark


@pytest.mark.parametrize("text", [pod("a", "q", notes='team: x, gpu-fraction: "0.5"'), job("a", "q"), node("a")])
def test_other_keys_are_not(text: str) -> None:
    assert [list(one.remarks) for one in manifest_validation.admit(manifests.parse(text, "f.yaml"))] == [[]]


def test_what_is_filled_in() -> None:
    text = node("a").replace("allocatable", "capacity") + "---" + pod("p", "q")
    machine, one = manifest_validation.admit(manifests.parse(text, "f.yaml"))
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


@pytest.mark.parametrize("text", ["", "# nothing", "---\n---"])
def test_a_file_without_objects_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    with pytest.raises(ManifestError, match=r"f\.yaml: holds no object"):
        manifests.read([path])


@pytest.mark.parametrize("row", checks.ROWS)
def test_every_field_of_the_table_can_be_read(row: str) -> None:
    fields = checks.schema_of(row)["properties"]
    assert len(fields) == len(checks.ROWS[row].split())


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
