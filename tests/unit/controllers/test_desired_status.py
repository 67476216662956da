"""Statuses of PodGroups and Queues as pure functions of objects."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.controllers import pod_group_status, queue_status
from pykai.controllers.pod_group_status import PodResourcesError, RelatedObjects, node_gpu_memory

SCHEDULED = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
NODES = {"n1": {"metadata": {"name": "n1", "labels": {"nvidia.com/gpu.memory": "8000"}}}}
CLAIM = {
    "spec": {
        "devices": {
            "requests": [
                {"name": "a", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}},
                {"name": "b", "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "All"}},
                {"name": "c", "exactly": {"deviceClassName": "Big-GPU"}},
                {"name": "d", "exactly": {"deviceClassName": "nic.example.com", "count": 4}},
            ]
        }
    }
}
AROUND = RelatedObjects(NODES, {("ns", "claim"): CLAIM}, [{"metadata": {"name": "build"}, "value": 100}])


def pod(status: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "ns", "annotations": annotations or {}},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}], "nodeName": "n1", **spec},
        "status": status,
    }


def resources(*pods: dict[str, Any], **spec: Any) -> dict[str, Any]:
    status: dict[str, Any] = pod_group_status.desired_status({"spec": spec}, pods, AROUND)["resourcesStatus"]
    return status


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Pending"}, {"requested": {"cpu": "1"}}),
        (SCHEDULED, {"requested": {"cpu": "1"}, "allocated": {"cpu": "1"}}),
        ({"phase": "Running"}, {"requested": {"cpu": "1"}, "allocated": {"cpu": "1"}}),
        ({**SCHEDULED, "phase": "Succeeded"}, {}),
        ({**SCHEDULED, "phase": "Failed"}, {}),
        ({"phase": "Unknown"}, {}),
    ],
)
def test_what_a_pod_counts_in_each_phase(status: dict[str, Any], expected: dict[str, Any]) -> None:
    assert resources(pod(status)) == expected


@pytest.mark.parametrize(
    ("annotations", "requested", "allocated"),
    [
        ({"gpu-fraction": "0.5"}, {"nvidia.com/gpu": "500m"}, {"nvidia.com/gpu": "500m"}),
        (
            {"gpu-fraction": "0.4", "gpu-fraction-num-devices": "3"},
            {"nvidia.com/gpu": "1200m"},
            {"nvidia.com/gpu": "1200m"},
        ),
        ({"gpu-memory": "2000"}, {"run.ai/gpu.memory": "2k"}, {"nvidia.com/gpu": "250m"}),
        (
            {"gpu-memory": "2000", "gpu-fraction-num-devices": "2"},
            {"run.ai/gpu.memory": "4k"},
            {"nvidia.com/gpu": "500m"},
        ),
        (
            {"nvidia.com/container.c.gpu-memory.request": "2000Mi", "gpu-fraction-num-devices": "2"},
            {"run.ai/gpu.memory": "4k"},
            {"nvidia.com/gpu": "500m"},
        ),
        (
            {"nvidia.com/container.c.gpu-memory.limit": "2000Mi"},
            {"run.ai/gpu.memory": "2k"},
            {"nvidia.com/gpu": "250m"},
        ),
        (
            {"gpu-fraction": "0.5", "nvidia.com/container.c.gpu-memory.request": "3999Mi"},
            {"nvidia.com/gpu": "500m"},
            {"nvidia.com/gpu": "500m"},
        ),
        ({"gpu-fraction": "1.0"}, {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}),
        ({"gpu-fraction": "1e-3"}, {"nvidia.com/gpu": "1m"}, {"nvidia.com/gpu": "1m"}),
        ({"gpu-fraction": "0.25" + "0" * 5000}, {"nvidia.com/gpu": "250m"}, {"nvidia.com/gpu": "250m"}),
    ],
)
def test_shares_of_gpus(annotations: dict[str, str], requested: dict[str, str], allocated: dict[str, str]) -> None:
    got = resources(pod({"phase": "Running"}, {**annotations, "received-resource-type": "Fraction"}))
    assert got == {"requested": {"cpu": "1", **requested}, "allocated": {"cpu": "1", **allocated}}


def test_a_share_whose_annotation_a_user_removed_is_held() -> None:
    shared = pod({"phase": "Running"}, {"gpu-fraction": "0.5"})
    assert resources(shared)["allocated"] == {"cpu": "1"}
    shared["metadata"]["labels"] = {"runai-gpu-group": "g"}
    assert resources(shared)["allocated"] == {"cpu": "1", "nvidia.com/gpu": "500m"}


def test_a_share_that_was_not_given_as_one_is_not_held() -> None:
    got = resources(pod({"phase": "Running"}, {"gpu-fraction": "0.5", "received-resource-type": "Regular"}))
    assert got["allocated"] == {"cpu": "1"}


def test_claims_count_gpus_by_device_class() -> None:
    direct = [{"name": "x", "resourceClaimName": "claim"}]
    from_template = [{"name": "x", "resourceClaimTemplateName": "template"}]
    made = {"phase": "Running", "resourceClaimStatuses": [{"name": "x", "resourceClaimName": "claim"}]}
    for each in (pod({"phase": "Running"}, resourceClaims=direct), pod(made, resourceClaims=from_template)):
        assert resources(each)["allocated"] == {"Big-GPU": "1", "cpu": "1", "gpu.example.com": "3"}
    unneeded = {"phase": "Running", "resourceClaimStatuses": [{"name": "x"}]}
    assert resources(pod(unneeded, resourceClaims=from_template))["allocated"] == {"cpu": "1"}


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (pod({"phase": "Pending"}, {"gpu-fraction": "half"}), "gpu-fraction"),
        (pod({"phase": "Pending"}, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}), "num-devices"),
        (pod({"phase": "Pending"}, {"gpu-memory": "-5"}), "gpu-memory"),
        (pod(SCHEDULED, {"received-resource-type": "Fraction"}), "neither annotation"),
        (pod(SCHEDULED, {"gpu-memory": "5", "received-resource-type": "Fraction"}, nodeName="gone"), "node"),
        (pod(SCHEDULED, resourceClaims=[{"name": "x", "resourceClaimName": "other"}]), "claim other"),
        (pod(SCHEDULED, resourceClaims=[{"name": "x", "resourceClaimTemplateName": "t"}]), "claim x"),
    ],
)
def test_what_cannot_be_told_is_refused_by_name(broken: dict[str, Any], named: str) -> None:
    with pytest.raises(PodResourcesError, match=f"pod ns/p: .*{named}"):
        resources(broken)
    assert resources({**broken, "status": {"phase": "Succeeded"}}) == {}


@pytest.mark.parametrize(
    ("spec", "fixed"),
    [
        ({"priorityClassName": "build"}, True),
        ({"priorityClassName": "build", "preemptibility": "preemptible"}, False),
        ({"priorityClassName": "unknown"}, False),
        ({"preemptibility": "non-preemptible"}, True),
    ],
)
def test_what_cannot_be_taken_back(spec: dict[str, str], fixed: bool) -> None:
    got = resources(pod({"phase": "Running"}), pod({"phase": "Running"}), **spec)
    assert got.get("allocatedNonPreemptible") == ({"cpu": "2"} if fixed else None)


@pytest.mark.parametrize(
    ("labels", "memory"),
    [
        ({"nvidia.com/gpu.memory": "81559"}, 81559),
        ({"beta.amd.com/gpu.vram.64G": "8"}, 64000),
        ({"beta.amd.com/gpu.vram.64G": "8", "nvidia.com/gpu.memory": "1"}, None),
        ({"nvidia.com/gpu.memory": "0"}, None),
        ({"nvidia.com/gpu.memory": "many"}, None),
        ({"beta.amd.com/gpu.vram": "8"}, None),
        ({"beta.amd.com/gpu.vram": "64G", "beta.amd.com/gpu.vram.64G": "8"}, 64000),
        ({}, None),
    ],
)
def test_gpu_memory_of_a_node(labels: dict[str, str], memory: int | None) -> None:
    node = {"metadata": {"name": "n", "labels": labels}}
    if memory is not None:
        assert node_gpu_memory(node) == memory
        return
    with pytest.raises(PodResourcesError, match="node n"):
        node_gpu_memory(node)


def test_a_queue_sums_its_children_and_its_own_groups() -> None:
    def child(name: str, parent: str, cpu: str) -> dict[str, Any]:
        status = {"requested": {"cpu": cpu}, "allocated": {"cpu": cpu}}
        return {"metadata": {"name": name}, "spec": {"parentQueue": parent}, "status": status}

    groups: list[dict[str, Any]] = [
        {"spec": {"queue": "q"}, "status": {"resourcesStatus": {"requested": {"nvidia.com/gpu": "500m"}}}},
        {"spec": {"queue": "q"}},
        {"spec": {"queue": "other"}, "status": {"resourcesStatus": {"requested": {"cpu": "100"}}}},
    ]
    children = [child("b", "q", "1"), child("a", "q", "500m"), child("c", "elsewhere", "7")]
    assert queue_status.desired_status({"metadata": {"name": "q"}, "spec": {}}, children, groups) == {
        "childQueues": ["a", "b"],
        "requested": {"cpu": "1500m", "nvidia.com/gpu": "500m"},
        "allocated": {"cpu": "1500m"},
    }
    assert queue_status.desired_status({"metadata": {"name": "empty"}, "spec": {}}, children, groups) == {}
    in_a_circle = queue_status.desired_status(
        {"metadata": {"name": "q"}, "spec": {"parentQueue": "b"}}, children, [], ancestors={"b", "q"}
    )
    assert in_a_circle == {"childQueues": ["a", "b"], "requested": {"cpu": "500m"}, "allocated": {"cpu": "500m"}}


def test_init_steps_and_sidecars_count_as_for_the_scheduler() -> None:
    def step(cpu: str, **more: str) -> dict[str, Any]:
        return {"name": cpu, "resources": {"requests": {"cpu": cpu}}, **more}

    item = pod(SCHEDULED, {}, containers=[step("1")], initContainers=[step("500m", restartPolicy="Always"), step("4")])
    assert resources(item)["allocated"]["cpu"] == "4500m"
