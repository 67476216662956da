"""Status of PodGroups and Queues, and what a pod contributes to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykai.controllers import pod_group_status, queue_status
from pykai.objects.units import canonical, sum_resources
from tests.conformance.cases import Record, choose

Case = dict[str, Any]


def objects(case: Case, kind: str) -> list[Case]:
    """The cluster objects of a kind (plural), such as nodes."""
    return [
        each["object"] for each in case["input"].get("cluster_objects", []) if each["resource"].endswith("/" + kind)
    ]


def node(case: Case, name: str) -> Case | None:
    return next((each for each in objects(case, "nodes") if each["metadata"].get("name", "") == name), None)


def around(case: Case) -> pod_group_status.RelatedObjects:
    claims = objects(case, "resourceclaims")
    return pod_group_status.RelatedObjects(
        nodes={each["metadata"].get("name", ""): each for each in objects(case, "nodes")},
        claims={(each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in claims},
        priority_classes=objects(case, "priorityclasses"),
    )


def group_of(metadata: Case) -> tuple[str, str | None]:
    return metadata.get("namespace", ""), (metadata.get("annotations") or {}).get("pod-group-name")


def group_status(case: Case) -> Any:
    group = case["input"]["pod_group"]
    key = (group["metadata"].get("namespace", ""), group["metadata"]["name"])
    members = [pod for pod in objects(case, "pods") if group_of(pod["metadata"]) == key]
    status = pod_group_status.desired_status(group, members, around(case))
    return {name: value for name, value in status.items() if value}


def queue_fields(wanted: Callable[[str], bool]) -> Callable[[Case], Any]:
    """The fields of a queue's status that one updater writes."""

    def found(case: Case) -> Any:
        queue = case["input"].get("queue", Record())
        status = queue_status.desired_status(queue, objects(case, "queues"), objects(case, "podgroups"))
        return {name: value for name, value in status.items() if value and wanted(name)}

    return found


def share(case: Case) -> str:
    """The part of a device that a pod, or a text of gpu-memory, is on a node."""
    given = case["input"]
    if "pod" not in given:
        return canonical(
            pod_group_status.device_share({"gpu-memory": given["gpu_memory_str"]}, node(case, given["node_name"]))
        )
    pod = given["pod"]
    where = node(case, pod["spec"].get("nodeName", ""))
    return canonical(pod_group_status.device_share(pod["metadata"].get("annotations", {}), where))


def gpu_memory(case: Case) -> Any:
    name = case["input"]["node_name"]
    found = node(case, name)
    if found is None:
        raise pod_group_status.PodResourcesError(f"node {name} does not exist")
    return pod_group_status.node_gpu_memory(found)


def of_pod(judge: Callable[[Case], Any]) -> Callable[[Case], Any]:
    return lambda case: judge(case["input"]["pod"])


def received(case: Case) -> Any:
    pod = case["input"]["pod"]
    return sum_resources([pod_group_status.allocated_share(pod, node(case, pod["spec"].get("nodeName", "")))])


def terminal(pod: Case) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"} and not pod_group_status.is_active(pod)


OPERATIONS: dict[str, tuple[str, Callable[[Case], Any]]] = {
    "controllers.PodGroupReconciler.handlePodGroupStatus": ("pod_group_status", group_status),
    "resource_updater.ResourceUpdater.UpdateQueue": ("queue_status", queue_fields(lambda name: name != "childQueues")),
    "childqueues_updater.ChildQueuesUpdater.UpdateQueue": (
        "queue_status",
        queue_fields(lambda name: name == "childQueues"),
    ),
    "pod-group.IsPreemptible": (
        "result",
        lambda case: pod_group_status.is_preemptible(case["input"]["pod_group"], objects(case, "priorityclasses")),
    ),
    "metadata.isActivePod": ("result", of_pod(pod_group_status.is_active)),
    "metadata.isAllocatedPod": ("result", of_pod(pod_group_status.is_allocated)),
    "metadata.isTerminalPod": ("result", of_pod(terminal)),
    "resources.ExtractGPUSharingRequestedResources": ("result", of_pod(pod_group_status.requested_share)),
    "resources.ExtractGPUSharingReceivedResources": ("result", received),
    "resources.calculateAllocatedFraction": ("result", share),
    "resources.getFractionFromMemoryRequest": ("result", share),
    "resources.getNodeSingleGpuMemory": ("result", gpu_memory),
}


def status(case: Case, _document: Case) -> list[str]:
    key, operation = choose(OPERATIONS, case["function"])
    try:
        got = operation(case)
    except pod_group_status.PodResourcesError as error:
        return [] if "error" in case["expected"] else [f"refused: {error}"]
    if "error" in case["expected"]:
        return [f"expected {case['expected']['error']}, got {got}"]
    expected = case["expected"].get(key, type(got)())
    return [] if got == expected else [f"got {got}, expected {expected}"]


SUITES = {"controllers/status": status}
