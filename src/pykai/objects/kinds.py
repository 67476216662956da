"""The Kubernetes objects that components read, as msgspec structs with the fields pykai reads.

Custom resources are declared in `custom_resources.py` and re-exported here.

The template of a pod's spec (containers, affinity, tolerations, volumes ...) stays `msgspec.Raw`: pods of one template
have the same bytes, so the cache decodes them once per template (`objects.pod_template`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import Raw, json
from msgspec.structs import force_setattr

from pykai.objects import pod_resize
from pykai.objects.custom_resources import (  # noqa: F401 - all kinds are imported from here
    BindRequest,
    BindRequestSpec,
    BindRequestStatus,
    ClaimAllocation,
    NumaZone,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    Queue,
    QueueResource,
    QueueResources,
    QueueSpec,
    QueueStatus,
    ReceivedGpu,
    ResourcesStatus,
    SchedulingCondition,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    TopologySpec,
)
from pykai.objects.schema import Kind, ObjectMeta, OwnerReference  # noqa: F401

ABSENT = Raw(b"")


# --------------------------------------------------------------------------------------------------------- core
class Taint(Kind):
    key: str = ""
    value: str = ""
    effect: str = ""


class Expression(Kind):
    key: str = ""
    operator: str = ""
    values: list[str] = []


class LabelSelector(Kind):
    match_labels: dict[str, str] = {}
    match_expressions: list[Expression] = []

    @property
    def keys(self) -> set[str]:
        """The label keys that the selector reads."""
        return {*self.match_labels, *(each.key for each in self.match_expressions)}


class NodeSpec(Kind):
    unschedulable: bool = False
    taints: list[Taint] | None = None


class Condition(Kind):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class NodeStatus(Kind):
    allocatable: Raw = ABSENT
    conditions: list[Condition] | None = None
    images: Raw = ABSENT


class Node(Kind):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class WorkloadReference(Kind):
    """The pod group of a Workload (scheduling.k8s.io) that a pod belongs to."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class SchedulingGroup(Kind):
    """The PodGroup (scheduling.k8s.io) that a pod belongs to."""

    pod_group_name: str = ""


class PodSpec(Kind):
    """The fields before `node_name` form the pod's template, which is decoded separately."""

    containers: Raw = ABSENT
    init_containers: Raw = ABSENT
    overhead: Raw = ABSENT
    resources: Raw = ABSENT
    node_selector: Raw = ABSENT
    affinity: Raw = ABSENT
    tolerations: Raw = ABSENT
    volumes: Raw = ABSENT
    resource_claims: Raw = ABSENT
    scheduling_gates: Raw = ABSENT
    topology_spread_constraints: Raw = ABSENT
    node_name: str = ""
    scheduler_name: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    workload_ref: WorkloadReference | None = None
    scheduling_group: SchedulingGroup | None = None
    active_deadline_seconds: int | None = None


class ClaimStatus(Kind):
    name: str = ""
    resource_claim_name: str = ""


class PodStatus(Kind):
    phase: str = "Pending"
    nominated_node_name: str = ""
    qos_class: str = ""
    conditions: list[Condition] | None = None
    resource_claim_statuses: list[ClaimStatus] | None = None
    container_statuses: Raw = ABSENT
    """Kept only while a resize may be in progress, when they determine the charged requests (`objects.pod_resize`)."""
    init_container_statuses: Raw = ABSENT
    observed_generation: int = 0
    resize: str = ""
    start_time: datetime | None = None


class Pod(Kind):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        status = self.status
        if status.container_statuses is ABSENT and status.init_container_statuses is ABSENT:
            return
        # Requests and allocation may differ if a resize is reported, or the kubelet has yet to observe the spec.
        resizes = bool(status.resize) or 0 < status.observed_generation < self.metadata.generation
        if not resizes and not any(each.type in _RESIZING for each in status.conditions or ()):
            force_setattr(status, "container_statuses", ABSENT)
            force_setattr(status, "init_container_statuses", ABSENT)


_RESIZING = frozenset({pod_resize.PENDING, pod_resize.IN_PROGRESS})


class PriorityClass(Kind):
    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class Namespace(Kind):
    metadata: ObjectMeta


class Revised(ObjectMeta):
    """Metadata of objects with an `observedGeneration` in their status."""

    generation: int = 0


class PodDisruptionBudgetSpec(Kind):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(Kind):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    desired_healthy: int = 0


class PodDisruptionBudget(Kind):
    """`status`: None until the disruption controller has written it."""

    metadata: Revised
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus | None = None


class ConfigMap(Kind):
    metadata: ObjectMeta


class PersistentVolumeClaimSpec(Kind):
    storage_class_name: str | None = None
    volume_name: str = ""
    resources: dict[str, Any] | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    selector: dict[str, Any] | None = None


class VolumePhase(Kind):
    phase: str = ""


class PersistentVolumeClaim(Kind):
    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: VolumePhase = VolumePhase()


class PersistentVolumeSpec(Kind):
    storage_class_name: str = ""
    capacity: dict[str, str | int | float] | None = None
    node_affinity: Raw = ABSENT
    claim_ref: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None


class PersistentVolume(Kind):
    metadata: ObjectMeta
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: VolumePhase = VolumePhase()


class StorageClass(Kind):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[dict[str, Any]] | None = None


class CSIStorageCapacity(Kind):
    metadata: ObjectMeta
    storage_class_name: str = ""
    capacity: str | int | float = "0"
    maximum_volume_size: str | int | float | None = None
    node_topology: dict[str, Any] | None = None


class CSINodeDriver(Kind):
    name: str = ""
    allocatable: dict[str, Any] | None = None


class CSINodeSpec(Kind):
    drivers: list[CSINodeDriver] = []


class CSINode(Kind):
    metadata: ObjectMeta
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Kind):
    storage_capacity: bool = False


class CSIDriver(Kind):
    metadata: ObjectMeta
    spec: CSIDriverSpec = CSIDriverSpec()


# ------------------------------------------------------------------------------------ resource.k8s.io, topology.node
DRA_VERSIONS: Final = ("v1beta2", "v1beta1")
"""Versions of resource.k8s.io that a server may have instead of v1, the only form used inside; the newest first.

| | v1, v1beta2 | v1beta1 |
|---|---|---|
| a plain request of a claim | fields below `exactly` | fields in the request itself |
| a device of a slice | fields in the device itself | fields below `basic` |

Requests with `firstAvailable`, the status of claims, and device classes are the same in all versions. The form is
detected from the object's fields, because items of lists and files carry no version.
"""

_Conversion = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def claim_in_version(claim: dict[str, Any], version: str) -> dict[str, Any]:
    """Convert a ResourceClaim from v1 to the version of the server that creates it."""
    return {**claim, "spec": _with_requests(claim["spec"], _without_exactly)} if version == "v1beta1" else claim


def _with_requests(spec: dict[str, Any], change: _Conversion) -> dict[str, Any]:
    """Return the spec of a claim with converted requests; the argument itself if none changes."""
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or ()
    changed = [change(request) for request in requests]
    if all(new is old for new, old in zip(changed, requests, strict=True)):
        return spec
    return {**spec, "devices": {**devices, "requests": changed}}


def _with_exactly(request: Mapping[str, Any]) -> Mapping[str, Any]:
    if "exactly" in request or "firstAvailable" in request:
        return request
    return {"name": request.get("name", ""), "exactly": _without(request, "name")}


def _without_exactly(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_without(request, "exactly"), **request["exactly"]} if "exactly" in request else request


def _without(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


class ResourceClaim(Kind):
    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "spec", _with_requests(self.spec, _with_exactly))


class ResourceSlice(Kind):
    metadata: ObjectMeta
    spec: dict[str, Any] = {}

    def __post_init__(self) -> None:
        devices = self.spec.get("devices") or ()
        if any("basic" in device for device in devices):
            plain = [{**(each.get("basic") or {}), **_without(each, "basic")} for each in devices]
            force_setattr(self, "spec", {**self.spec, "devices": plain})


class DeviceClass(Kind):
    metadata: ObjectMeta
    spec: dict[str, Any] = {}


class DeviceTaintRule(Kind):
    metadata: ObjectMeta
    spec: dict[str, Any] = {}


class NodeResourceTopology(Kind):
    metadata: ObjectMeta
    topology_policies: list[str] | None = None
    attributes: list[dict[str, Any]] | None = None
    zones: list[dict[str, Any]] | None = None


def decode(data: bytes | str, kind: type[Any]) -> Any:
    """Decode an object of this kind from JSON; msgspec.ValidationError names the path of an invalid field."""
    return json.decode(data, type=kind)
