from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import NodeResourceState
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Rows
from pykai.objects import kinds, names
from pykai.plugins.gates import ConfigMaps, MaxNodePoolResources, SchedulingConditions
from tests.builders import as_kind
from tests.unit.plugins.small_clusters import cycle, node, placed, pod, row

NODES = [
    node("big", allocatable={"cpu": "16", "memory": "4G", "ephemeral-storage": "50G"}),
    node("small", allocatable={"cpu": "2", "memory": "8G", names.NVIDIA_GPU: "2"}),
]


def asks(**requests: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"requests": requests}}]}


def problem(condition: Any, *objects: Any, **params: Any) -> str | None:
    made = cycle([*NODES, *objects], (), **params)
    found: str | None = condition.problem(made, row(made, "p"))
    return found


AMOUNTS = [  # requests, annotations, what the sentence says after the pod's name
    (asks(cpu="16", memory="8G"), {}, None),
    (
        asks(cpu="17"),
        {},
        "requires GPU: 0, CPU: 17 (cores), memory: 0 (GB). "
        "Max CPU resources available in a single node in the default node-pool is topped at 16 cores",
    ),
    (
        asks(memory="8500M", **{names.NVIDIA_GPU: "1"}),
        {},
        "requires GPU: 1, CPU: 0 (cores), memory: 8.5 (GB). "
        "Max memory resources available in a single node in the default node-pool is topped at 8 GB",
    ),
    (
        asks(cpu="99", **{names.NVIDIA_GPU: "3"}),
        {},
        "requires GPU: 3, CPU: 99 (cores), memory: 0 (GB). "
        "Max GPU resources available in a single node in the default node-pool is topped at 2",
    ),
    (asks(cpu="1"), {names.GPU_FRACTION: "0.5", names.GPU_FRACTION_DEVICES: "2"}, None),
    (
        asks(**{"ephemeral-storage": "60G"}),
        {},
        "requires GPU: 0, CPU: 0 (cores), memory: 0 (GB), ephemeral-storage: 60000000000. "
        "Max ephemeral-storage resources available in a single node in the default node-pool is topped at 50 GB",
    ),
    (
        asks(**{"x.io/fpga": "3", "nvidia.com/mig-1g.5gb": "1"}),
        {},
        "requires GPU: 0, CPU: 0 (cores), memory: 0 (GB), x.io/fpga: 3, mig nvidia.com/mig-1g.5gb: 1. "
        "No node in the default node-pool has x.io/fpga resources",
    ),
]


@pytest.mark.parametrize(("spec", "annotations", "says"), AMOUNTS)
def test_more_than_any_node_has(spec: dict[str, Any], annotations: dict[str, str], says: str | None) -> None:
    found = problem(MaxNodePoolResources(), pod("p", spec, annotations=annotations))
    assert found == (says and f"The pod ns/p {says}")


def test_what_somebody_else_provides_need_not_be_on_a_node() -> None:
    class Provided(NodeResourceState):
        @property
        def relieves(self) -> bool:
            return True

        def spared(self, pod_class: PodClass, nodes: Rows) -> Column:
            return np.repeat(pod_class.request[:, None], len(nodes), axis=1)

    class Provider:
        def open(self, cycle: Cycle) -> Provided:
            return Provided()

    made = cycle([*NODES, pod("p", asks(**{"x.io/fpga": "3"}))], [Provider()])
    assert MaxNodePoolResources().problem(made, row(made, "p")) is None


def test_the_pool_is_named() -> None:
    of_pool = node("n", {names.NODE_POOL_LABEL: "blue"})
    group = {"name": "p", "namespace": "ns", "labels": {names.NODE_POOL_LABEL: "blue"}}
    made = cycle(
        [of_pool, pod("p", asks(**{names.NVIDIA_GPU: "1"})), as_kind(kinds.PodGroup, {"metadata": group})],
        (),
        node_pool="blue",
    )
    text = MaxNodePoolResources().problem(made, row(made, "p"))
    assert text is not None
    assert text.endswith("No node in the blue node-pool has GPU resources")


MAPS = [as_kind(kinds.ConfigMap, {"metadata": {"name": "there", "namespace": "ns"}})]
SOURCES: list[tuple[dict[str, Any], str | None]] = [  # container and volumes, what is missing
    ({"envFrom": [{"configMapRef": {"name": "there"}}]}, None),
    ({"envFrom": [{"configMapRef": {"name": "b"}}, {"configMapRef": {"name": "a"}}]}, "[a b]"),
    ({"envFrom": [{"configMapRef": {"name": "b", "optional": True}}]}, None),
    ({"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "b", "key": "k"}}}]}, "[b]"),
    ({"volumeMounts": [{"name": "v"}]}, "[mounted projected]"),
    ({"volumeMounts": [{"name": "w"}]}, None),
    ({"envFrom": [{"configMapRef": {"name": "p-gpu-0"}}]}, None),
]


@pytest.mark.parametrize(("container", "missing"), SOURCES)
def test_config_maps(container: dict[str, Any], missing: str | None) -> None:
    sources = [{"configMap": {"name": "projected"}}]
    volumes = [
        {"name": "v", "configMap": {"name": "mounted"}},
        {"name": "v", "projected": {"sources": sources}},
        {"name": "u", "configMap": {"name": "nobody-mounts-it"}},
    ]
    spec = {"containers": [{"name": "main", **container}], "volumes": volumes}
    made = pod("p", spec, annotations={names.SHARED_GPU_CONFIGMAP: "p-gpu"})
    assert problem(ConfigMaps(), *MAPS, made) == (missing and f"Missing required configmaps: {missing}")


def test_config_maps_made_for_a_gpu_share_are_those_of_the_pod_itself() -> None:
    def sharing(name: str, namespace: str) -> list[Any]:
        spec = {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": f"{name}-shared-gpu-0"}}]}]}
        made_later = {names.SHARED_GPU_CONFIGMAP: f"{name}-shared-gpu"}
        return pod(name, spec, namespace=namespace, annotations=made_later)

    assert problem(ConfigMaps(), sharing("o", "elsewhere"), sharing("p", "ns")) is None


def test_all_failures_in_one_lasting_refusal() -> None:
    spec = asks(cpu="99")
    spec["containers"][0]["envFrom"] = [{"configMapRef": {"name": "b"}}]
    made = cycle([*NODES, pod("p", spec), pod("fine")], ())
    gate = SchedulingConditions((MaxNodePoolResources(), ConfigMaps()))
    refusal = gate.refuse(made, row(made, "p"))
    assert refusal is not None
    assert refusal.lasting
    assert refusal.message.splitlines() == [
        "Scheduling conditions were not met for pod ns/p:",
        "MaxNodePoolResources: The pod ns/p requires GPU: 0, CPU: 99 (cores), memory: 0 (GB). Max CPU resources "
        "available in a single node in the default node-pool is topped at 16 cores.",
        "ConfigMap: Missing required configmaps: [b].",
    ]
    assert gate.refuse(made, row(made, "fine")) is None


def test_a_class_that_passed_is_not_asked_again() -> None:
    asked = []

    class Counting:
        name = "Counting"
        token = "PodRefused"

        def problem(self, cycle: Any, pod: int) -> None:
            asked.append(pod)

    made = cycle([*NODES, *(pod(f"p{i}") for i in range(5))], ())
    gate = SchedulingConditions((Counting(),))
    assert [gate.refuse(made, row(made, f"p{i}")) for i in range(5)] == [None] * 5
    assert len(asked) == 1


def test_a_pod_with_a_scheduling_gate_is_not_placed() -> None:
    gated = pod("gated", {"schedulingGates": [{"name": "x"}]})
    assert placed(cycle([node("a"), gated, pod("free")], [])) == {"gated": "", "free": "a"}
