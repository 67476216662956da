"""The Kubernetes objects that components read, as msgspec structs: only the fields we read.

Our own kinds are declared in `custom_resources.py`, from which their definitions are generated as well.

The parts of a pod's spec that only matter as a whole (containers, affinity, tolerations, volumes ...) stay
`msgspec.Raw`: pods made from one template carry the same bytes, so the cache decodes them once per template
(`objects.pod_template`) and ten thousand identical pods cost one parse.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, json
from msgspec.structs import force_setattr

from pykai.objects import dra_versions
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


class Node(Kind):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PodSpec(Kind):
    """The fields before `node_name` are the pod's template, read as a whole."""

    containers: Raw = ABSENT
    init_containers: Raw = ABSENT
    overhead: Raw = ABSENT
    node_selector: Raw = ABSENT
    affinity: Raw = ABSENT
    tolerations: Raw = ABSENT
    volumes: Raw = ABSENT
    resource_claims: Raw = ABSENT
    scheduling_gates: Raw = ABSENT
    node_name: str = ""
    scheduler_name: str = ""
    priority_class_name: str = ""
    priority: int | None = None


class ClaimStatus(Kind):
    name: str = ""
    resource_claim_name: str = ""


class PodStatus(Kind):
    phase: str = "Pending"
    nominated_node_name: str = ""
    qos_class: str = ""
    conditions: list[Condition] | None = None
    resource_claim_statuses: list[ClaimStatus] | None = None


class Pod(Kind):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PriorityClass(Kind):
    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False


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


class CSIDriverSpec(Kind):
    storage_capacity: bool = False


class CSIDriver(Kind):
    metadata: ObjectMeta
    spec: CSIDriverSpec = CSIDriverSpec()


# ------------------------------------------------------------------------------------ resource.k8s.io, topology.node
class ResourceClaim(Kind):
    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "spec", dra_versions.claim_spec(self.spec))


class ResourceSlice(Kind):
    metadata: ObjectMeta
    spec: dict[str, Any] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "spec", dra_versions.slice_spec(self.spec))


class DeviceClass(Kind):
    metadata: ObjectMeta
    spec: dict[str, Any] = {}


class NodeResourceTopology(Kind):
    metadata: ObjectMeta
    topology_policies: list[str] | None = None
    attributes: list[dict[str, Any]] | None = None
    zones: list[dict[str, Any]] | None = None


def decode(data: bytes | str, kind: type[Any]) -> Any:
    """One object of the given kind from JSON; msgspec.ValidationError names the path of a wrong field."""
    return json.decode(data, type=kind)
