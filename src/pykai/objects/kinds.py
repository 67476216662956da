"""The Kubernetes objects the scheduler reads, as msgspec structs: only the fields we read.

The parts of a pod's spec that only matter as a whole (containers, affinity, tolerations, volumes ...) stay
`msgspec.Raw`: pods made from one template carry the same bytes, so the cache decodes them once per template
(`objects.pod_template`) and ten thousand identical pods cost one parse.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct, field, json
from msgspec.structs import force_setattr

from pykai.objects import dra_versions

ABSENT = Raw(b"")


class Kind(Struct, rename="camel", gc=False, kw_only=True, omit_defaults=True, frozen=True):
    """What every struct here shares: immutable, camelCase on the wire, unknown fields ignored."""


class OwnerReference(Kind):
    name: str = ""
    kind: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(Kind):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: list[OwnerReference] | None = None


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


# ------------------------------------------------------------------------------------------------ scheduling.run.ai
class QueueResource(Kind):
    quota: float = 0.0
    limit: float = 0.0
    over_quota_weight: float = 0.0


class QueueResources(Kind):
    cpu: QueueResource = QueueResource()
    memory: QueueResource = QueueResource()
    gpu: QueueResource = QueueResource()


class QueueSpec(Kind):
    display_name: str = ""
    parent_queue: str = ""
    resources: QueueResources | None = None
    priority: int | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


Amounts = dict[str, str | int | float]


class QueueStatus(Kind):
    child_queues: list[str] | None = None
    requested: Amounts | None = None
    allocated: Amounts | None = None
    allocated_non_preemptible: Amounts | None = None


class Queue(Kind):
    metadata: ObjectMeta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class TopologyConstraint(Kind):
    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class SubGroup(Kind):
    name: str = ""
    parent: str | None = None
    min_member: int | None = None
    min_sub_group: int | None = None
    topology_constraint: TopologyConstraint | None = None


class PodGroupSpec(Kind):
    queue: str = ""
    min_member: int | None = None
    min_sub_group: int | None = None
    priority_class_name: str = ""
    preemptibility: str = ""
    topology_constraint: TopologyConstraint | None = None
    sub_groups: list[SubGroup] | None = None
    mark_unschedulable: bool | None = None
    scheduling_backoff: int | None = None
    preemption_delay: str | None = None
    staleness_grace_period: str | None = None


class SchedulingCondition(Kind):
    type: str = ""
    node_pool: str = ""
    reason: str = ""
    message: str = ""
    status: str = ""
    transition_id: str = field(default="", name="transitionID")


class ResourcesStatus(Kind):
    requested: Amounts | None = None
    allocated: Amounts | None = None
    allocated_non_preemptible: Amounts | None = None


class PodGroupStatus(Kind):
    scheduling_conditions: list[SchedulingCondition] | None = None
    resources_status: ResourcesStatus | None = None


class PodGroup(Kind):
    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class ReceivedGpu(Kind):
    count: int = 0
    portion: str = ""


class ClaimAllocation(Kind):
    name: str = ""
    allocation: dict[str, Any] | None = None


class NumaZone(Kind):
    zone: str = ""
    amount: dict[str, str | int | float] | None = None


class BindRequestSpec(Kind):
    pod_name: str = ""
    selected_node: str = ""
    received_resource_type: str = ""
    received_gpu: ReceivedGpu | None = field(default=None, name="receivedGPU")
    selected_gpu_groups: list[str] | None = field(default=None, name="selectedGPUGroups")
    resource_claim_allocations: list[ClaimAllocation] | None = None
    extended_resource_claim_allocation: dict[str, Any] | None = None
    predicted_numa_zones: list[NumaZone] | None = field(default=None, name="predictedNUMAZones")
    backoff_limit: int | None = None


class BindRequestStatus(Kind):
    phase: str = ""
    reason: str = ""
    failed_attempts: int = 0


class BindRequest(Kind):
    metadata: ObjectMeta
    spec: BindRequestSpec = BindRequestSpec()
    status: BindRequestStatus = BindRequestStatus()


# ----------------------------------------------------------------------------------------------------- kai.scheduler
class TopologyLevel(Kind):
    node_label: str = ""
    alias: str = ""


class TopologySpec(Kind):
    levels: list[TopologyLevel] = []


class Topology(Kind):
    metadata: ObjectMeta
    spec: TopologySpec = TopologySpec()


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
