from __future__ import annotations

from typing import Any

import pytest

from pykai.objects import kinds, names
from pykai.plugins import node_filters as nf
from tests.builders import as_kind
from tests.unit.plugins.small_clusters import Fields, cycle, node, placed, pod, rejected

GPU = {names.NVIDIA_GPU: "2"}
MIG = "nvidia.com/mig-1g.5gb"


def asks(**requests: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"requests": requests}}]}


NODES = [
    node("cpu"),
    node("dra"),
    node("gpu", {names.GPU_MEMORY_LABEL: "16000"}, GPU),
    node("mixed", {names.MIG_STRATEGY_LABEL: "mixed"}, {MIG: "4"}),
    node("single", {names.MIG_STRATEGY_LABEL: "single", names.MIG_WORKER_LABEL: "true"}, GPU),
    as_kind(
        kinds.ResourceSlice,
        {"metadata": {"name": "s"}, "spec": {"nodeName": "dra", "driver": "gpu.x", "devices": [{}]}},
    ),
]
OFFERS = [  # what the pod asks for, its annotations, node -> reason
    (asks(cpu="1"), {}, {}),
    (asks(**{names.NVIDIA_GPU: "1"}), {}, {"mixed": nf.MIG_MIXED}),
    (
        asks(cpu="1"),
        {names.GPU_FRACTION: "0.5"},
        {"dra": nf.SHARED_ON_DRA, "mixed": nf.MIG_MIXED, "single": nf.MIG_SINGLE},
    ),
    (asks(**{MIG: "1"}), {}, {"cpu": nf.NO_MIG, "dra": nf.NO_MIG, "gpu": nf.NO_MIG, "single": nf.MIG_SINGLE}),
    (asks(cpu="1"), {MIG: "1"}, dict.fromkeys(["cpu", "dra", "gpu", "mixed", "single"], nf.LEGACY_MIG)),
]


@pytest.mark.parametrize(("spec", "annotations", "expected"), OFFERS)
def test_kinds_of_gpu(spec: dict[str, Any], annotations: dict[str, str], expected: dict[str, str]) -> None:
    made = cycle([*NODES, pod("p", spec, annotations=annotations)], ())
    assert rejected(made, nf.GpuOffer(), "p") == expected


def test_mig_pods_keep_away_from_legacy_ones() -> None:
    legacy = pod("old", {"nodeName": "mixed"}, annotations={MIG: "1"})
    gone = pod("elsewhere", {"nodeName": "gpu"}, annotations={MIG: "1"})
    made = cycle([*NODES, legacy, gone, pod("p", asks(**{MIG: "1"}))], ())
    assert rejected(made, nf.GpuOffer(), "p")["mixed"] == nf.BESIDE_LEGACY_MIG.format("ns/old")
    assert rejected(made, nf.GpuOffer(), "p")["gpu"] == nf.NO_MIG


def test_gpu_memory_must_be_known() -> None:
    made = cycle([*NODES, pod("p", annotations={names.GPU_MEMORY: "100"}), pod("other")], ())
    assert set(rejected(made, nf.GpuMemoryKnown(), "p")) == {"cpu", "dra", "mixed", "single"}
    assert rejected(made, nf.GpuMemoryKnown(), "other") == {}


def test_conditions_of_the_node() -> None:
    states: dict[str, Fields] = {
        "ok": {},
        "cordoned": {"unschedulable": True},
        "dead": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        "full": {"conditions": [{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": "True"}]},
    }
    made = cycle([*(node(name, **state) for name, state in states.items()), pod("p")], ())
    assert rejected(made, nf.NodeConditions(), "p") == {
        "cordoned": "node is unschedulable",
        "dead": "node has NotReady condition",
        "full": "node has DiskPressure condition",
    }


TAINTS = {
    "plain": [],
    "soft": [{"key": "k", "value": "v", "effect": "PreferNoSchedule"}],
    "v": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    "w": [{"key": "k", "value": "w", "effect": "NoExecute"}],
    "two": [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "l", "effect": "NoSchedule"}],
    "5": [{"key": "level", "value": "5", "effect": "NoSchedule"}],
}
TOLERATIONS = [  # tolerations, nodes that stay closed
    ([], {"v", "w", "two", "5"}),
    ([{"key": "k", "value": "v"}], {"w", "two", "5"}),
    ([{"key": "k", "operator": "Exists"}], {"two", "5"}),
    ([{"key": "k", "operator": "Exists", "effect": "NoExecute"}], {"v", "two", "5"}),
    ([{"operator": "Exists"}], set()),
    ([{"operator": "Exists", "effect": "NoSchedule"}], {"w"}),
    ([{"key": "k", "value": "v"}, {"key": "l", "operator": "Exists"}], {"w", "5"}),
    ([{"key": "k", "operator": "Almost", "value": "v"}], {"v", "w", "two", "5"}),
    *[
        ([{"key": "k", "operator": "Exists"}, {"key": "level", "operator": operator, "value": value}], {"two", *closed})
        for operator, value, closed in (
            ("Lt", "6", set()),
            ("Lt", "5", {"5"}),
            ("Gt", "4", set()),
            ("Gt", "5", {"5"}),
            ("Gt", "-1", set()),
            ("Gt", "04", {"5"}),
            ("Lt", "many", {"5"}),
        )
    ],
]


@pytest.mark.parametrize(("tolerations", "closed"), TOLERATIONS)
def test_taints(tolerations: list[dict[str, str]], closed: set[str]) -> None:
    nodes = [node(name, taints=taints) for name, taints in TAINTS.items()]
    made = cycle([*nodes, pod("p", {"tolerations": tolerations})], ())
    assert rejected(made, nf.Taints(), "p") == dict.fromkeys(closed, nf.UNTOLERATED)


def terms(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str, part: str = "matchExpressions") -> dict[str, Any]:
    return {part: [{"key": key, "operator": operator, "values": list(values)}]}


LABELS = {"a": {"zone": "1", "cores": "8"}, "b": {"zone": "2", "cores": "16"}, "c": {}}
AFFINITIES = [  # pod spec, nodes that match
    ({}, "abc"),
    ({"nodeSelector": {"zone": "1"}}, "a"),
    ({"nodeSelector": {"zone": "3"}}, ""),
    (terms(expression("zone", "In", "1", "2")), "ab"),
    (terms(expression("zone", "NotIn", "1")), "bc"),
    (terms(expression("zone", "Exists")), "ab"),
    (terms(expression("zone", "DoesNotExist")), "c"),
    (terms(expression("cores", "Gt", "8")), "b"),
    (terms(expression("cores", "Lt", "16")), "a"),
    (terms(expression("metadata.name", "In", "c", part="matchFields")), "c"),
    (terms(expression("metadata.name", "NotIn", "c", part="matchFields")), "ab"),
    (terms(expression("zone", "In", "1"), expression("zone", "DoesNotExist")), "ac"),
    (terms({}), ""),
    (terms(), ""),
    ({"nodeSelector": {"zone": "1"}, **terms(expression("cores", "Gt", "8"))}, ""),
]


@pytest.mark.parametrize(("spec", "matching"), AFFINITIES)
def test_node_selector_and_affinity(spec: dict[str, Any], matching: str) -> None:
    made = cycle([*(node(name, labels) for name, labels in LABELS.items()), pod("p", spec)], ())
    assert rejected(made, nf.NodeAffinity(), "p") == dict.fromkeys(set("abc") - set(matching), nf.NO_AFFINITY)


@pytest.mark.parametrize(
    ("spec", "restrict", "closed"),
    [
        (asks(cpu="1"), True, {"gpu": nf.NO_CPU_WORKER}),
        (asks(**{names.NVIDIA_GPU: "1"}), True, {"cpu": nf.NO_GPU_WORKER}),
        (asks(cpu="1"), False, {}),
    ],
)
def test_worker_roles(spec: dict[str, Any], restrict: bool, closed: dict[str, str]) -> None:
    workers = [node("cpu", {names.CPU_WORKER_LABEL: ""}), node("gpu", {names.GPU_WORKER_LABEL: ""}, GPU)]
    made = cycle([*workers, pod("p", spec)], (), restrict_nodes=restrict)
    assert rejected(made, nf.WorkerRole(), "p") == closed


@pytest.mark.parametrize(
    ("toleration", "allowed"),
    [
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_pod_that_tolerates_the_cordon_may_use_the_node(toleration: dict[str, str], allowed: bool) -> None:
    not_ready = [{"type": "Ready", "status": "False"}]
    nodes = [node("cordoned", unschedulable=True), node("broken", unschedulable=True, conditions=not_ready)]
    made = cycle([*nodes, pod("p", {"tolerations": [toleration]}), pod("q")], [nf.NodeConditions()])
    assert ("cordoned" not in rejected(made, nf.NodeConditions(), "p")) is allowed
    assert "broken" in rejected(made, nf.NodeConditions(), "p")
    assert rejected(made, nf.NodeConditions(), "q").keys() == {"cordoned", "broken"}
    assert placed(made)["p"] == ("cordoned" if allowed else "")
