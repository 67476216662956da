"""The custom resources Queue, PodGroup, BindRequest and Topology.

The scheduler's cache decodes these structs, admission validates objects against them, and the chart's CRDs and the
reference pages are generated from them (see `schema.py` for `Doc`). After a change, run `make chart docs`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

from msgspec import field

from pykai.objects import names
from pykai.objects.schema import NAME_PATTERN, Amounts, Doc, Duration, Kind, ObjectMeta, keyed_by_type


class QueueResource(Kind):
    """Quota and limit of this resource, in {unit}, and its over-quota weight."""

    quota: Annotated[float, Doc("The guaranteed amount, in {unit}. -1 is unlimited; 0 guarantees nothing.")] = 0.0
    over_quota_weight: Annotated[
        float,
        Doc(
            "The queue's weight when resources beyond all quotas are divided among the queues that want them. "
            "0 takes part in no such division."
        ),
    ] = 0.0
    limit: Annotated[float, Doc("The most the queue may ever use, in {unit}. -1 is unlimited; 0 allows nothing.")] = 0.0


class QueueResources(Kind):
    """The queue's share of every resource."""

    gpu: Annotated[QueueResource, Doc(words={"unit": "GPUs, fractions allowed"})] = QueueResource()
    cpu: Annotated[QueueResource, Doc(words={"unit": "thousandths of a CPU (1000 is one core)"})] = QueueResource()
    memory: Annotated[QueueResource, Doc(words={"unit": "megabytes (1 MB is 1,000,000 bytes)"})] = QueueResource()


class QueueSpec(Kind):
    """Quotas, limits and over-quota weights of the queue."""

    display_name: Annotated[
        str, Doc("A name for people; used in messages and metrics instead of the object's name.")
    ] = ""
    parent_queue: Annotated[
        str,
        Doc(
            "The name of the queue this one is part of; empty for a queue at the top. "
            "A queue whose parent does not exist is not scheduled."
        ),
    ] = ""
    resources: Annotated[
        QueueResources | None,
        Doc("The queue's share of every resource. Required: a queue without it can run nothing."),
    ] = None
    priority: Annotated[
        int | None, Doc("Queues with a higher priority are served first and give back last. 100 if absent.")
    ] = None
    preempt_min_runtime: Annotated[
        Duration | None,
        Doc("How long a workload of this queue runs at least before one of the same queue may preempt it."),
    ] = None
    reclaim_min_runtime: Annotated[
        Duration | None,
        Doc("How long a workload of this queue runs at least before another queue may take its resources back."),
    ] = None


class QueueCondition(Kind):
    """One condition of the queue."""

    type: Annotated[str, Doc("The type of the condition.", required=True)] = ""
    status: Annotated[str, Doc("True, False or Unknown.", required=True)] = ""
    last_probe_time: Annotated[datetime | None, Doc("When the condition was last checked.", nullable=True)] = None
    last_transition_time: Annotated[datetime | None, Doc("When the status last changed.", nullable=True)] = None
    reason: Annotated[str, Doc("The reason as a CamelCase identifier.")] = ""
    message: Annotated[str, Doc("The reason as text.")] = ""


class QueueStatus(Kind):
    """Current use of the queue, written by the queue controller, and its fair share, written by the scheduler."""

    conditions: ClassVar[Annotated[list[QueueCondition], keyed_by_type("Conditions of the queue.")]]
    child_queues: Annotated[list[str] | None, Doc("The names of the queues that name this one as their parent.")] = None
    allocated: Annotated[Amounts | None, Doc("Resources allocated to workloads of this queue and its descendants.")] = (
        None
    )
    allocated_non_preemptible: Annotated[
        Amounts | None, Doc("The part of `allocated` that non-preemptible workloads hold.")
    ] = None
    requested: Annotated[Amounts | None, Doc("Resources requested by workloads of this queue and its descendants.")] = (
        None
    )
    fair_share: Annotated[
        Amounts | None,
        Doc(
            "The resources that the queue may hold by its quota, weight and priority, given what all queues request; "
            "of the last scheduling cycle."
        ),
    ] = None


class Queue(Kind):
    metadata: ObjectMeta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class TopologyConstraint(Kind):
    """Which pods must or should be close to one another."""

    topology: Annotated[str, Doc("The name of the Topology object whose levels are meant.")] = ""
    required_topology_level: Annotated[
        str,
        Doc("All pods run within one domain of this level, or none is scheduled. A node label or an alias of a level."),
    ] = ""
    preferred_topology_level: Annotated[
        str,
        Doc(
            "Pods run within one domain of this level if there is room, else within a wider one. "
            "A node label or an alias of a level."
        ),
    ] = ""


class SubGroup(Kind):
    """A part of the group with a minimum of its own. Pods name it in the label kai.scheduler/subgroup-name."""

    name: Annotated[
        str, Doc("The name of the subgroup, unique in the group.", required=True, minLength=1, pattern=NAME_PATTERN)
    ] = ""
    min_member: Annotated[
        int | None, Doc("How many pods of this subgroup must run for it to count.", minimum=0, nullable=True)
    ] = None
    min_sub_group: Annotated[
        int | None, Doc("How many of the subgroups directly below this one must be satisfied.", minimum=0)
    ] = None
    parent: Annotated[
        str | None,
        Doc("The subgroup this one is part of; absent for one directly below the group.", pattern=NAME_PATTERN),
    ] = None
    topology_constraint: Annotated[TopologyConstraint | None, Doc()] = None


class PodGroupSpec(Kind):
    """What the group needs to start and how it is treated."""

    min_member: Annotated[
        int | None,
        Doc(
            "How many pods must be able to run before any of them is started. Absent means 1, 0 means that every pod "
            "stands for itself. Not together with minSubGroup.",
            minimum=0,
            nullable=True,
        ),
    ] = None
    min_sub_group: Annotated[
        int | None,
        Doc(
            "How many of the direct subgroups must be satisfied; absent means all, 0 means none. "
            "Not together with minMember.",
            minimum=0,
        ),
    ] = None
    queue: Annotated[str, Doc("The queue whose share the pods use.")] = ""
    priority_class_name: Annotated[
        str, Doc("The PriorityClass that decides the order within the queue; 50 if absent or unknown.")
    ] = ""
    preemptibility: Annotated[
        str,
        Doc(
            "Whether running pods may be taken down for others: all, those above the minimum (semi-preemptible), or "
            "none. Absent: preemptible below priority 100.",
            enum=["preemptible", "semi-preemptible", "non-preemptible"],
        ),
    ] = ""
    topology_constraint: Annotated[TopologyConstraint | None, Doc()] = None
    sub_groups: Annotated[list[SubGroup] | None, Doc("The parts of the group, as a tree by `parent`.")] = None
    mark_unschedulable: Annotated[
        bool | None,
        Doc(
            "Whether waiting pods get the condition PodScheduled=False, which makes a cluster autoscaler add nodes. "
            "Absent means true."
        ),
    ] = None
    scheduling_backoff: Annotated[
        int | None,
        Doc("-1 (or absent): try until it fits. 1: try once per node pool and then leave the group alone."),
    ] = None
    preemption_delay: Annotated[
        Duration | None,
        Doc(
            "How long the group waits, counted from its creation or its last eviction, before it may take others down."
        ),
    ] = None
    staleness_grace_period: Annotated[
        Duration | None,
        Doc(
            "How long a running group may have fewer pods than its minimum before all of them are taken down; "
            "negative means for ever. Absent means the scheduler's own setting."
        ),
    ] = None
    safe_to_consolidate: Annotated[
        bool | None,
        Doc(
            "Whether consolidation may move running pods to other nodes; absent means true. "
            "Reclaim and preempt may evict them all the same."
        ),
    ] = None


class GroupCondition(Kind):
    """One condition."""

    type: Annotated[str, Doc("The type of the condition.")] = ""
    status: Annotated[str, Doc("True, False or Unknown.")] = ""
    transition_id: Annotated[str, Doc("A number that grows with every change.")] = field(
        default="", name="transitionID"
    )
    last_transition_time: ClassVar[Annotated[datetime, Doc("When the status last changed.", nullable=True)]]
    reason: Annotated[str, Doc("The reason as a CamelCase identifier.")] = ""
    message: Annotated[str, Doc("The reason as text.")] = ""


class QuotaDetails(Kind):
    """The figures of the queue that is at its limit."""

    name: Annotated[str, Doc("The name of the queue.")] = ""
    queue_requested_resources: Annotated[Amounts | None, Doc("Resources requested by the queue's workloads.")] = None
    queue_deserved_resources: Annotated[Amounts | None, Doc("The queue's quota.")] = None
    queue_allocated_resources: Annotated[Amounts | None, Doc("Resources allocated to the queue's workloads.")] = None
    queue_allocated_non_preemptible_resources: Annotated[
        Amounts | None, Doc("Resources allocated to the queue's non-preemptible workloads.")
    ] = None
    queue_resource_limits: Annotated[Amounts | None, Doc("The queue's limit.")] = None
    pod_group_requested_resources: Annotated[Amounts | None, Doc("Resources requested by this group.")] = None
    pod_group_requested_non_preemptible_resources: Annotated[
        Amounts | None, Doc("Non-preemptible resources requested by this group.")
    ] = None


class ReasonDetails(Kind):
    """What the reason is about."""

    queue_details: Annotated[QuotaDetails | None, Doc()] = None


class SchedulingReason(Kind):
    """One reason why the group waits."""

    reason: Annotated[str, Doc("The reason as a CamelCase identifier, such as OverLimit or PodSchedulingErrors.")] = ""
    message: Annotated[str, Doc("The reason as text.")] = ""
    details: Annotated[ReasonDetails | None, Doc()] = None


class SchedulingCondition(GroupCondition):
    """The last verdict for one node pool."""

    type: Annotated[str, Doc("UnschedulableOnNodePool.")] = ""
    node_pool: Annotated[str, Doc("The node pool the verdict is for.")] = ""
    reasons: Annotated[
        list[SchedulingReason] | None,
        Doc("All reasons: what speaks against the group, then what each action that evicts found."),
    ] = None


class ResourcesStatus(Kind):
    """Resources allocated to and requested by the pods of the group; written by the pod group controller."""

    allocated: Annotated[Amounts | None, Doc("Resources allocated to the pods.")] = None
    allocated_non_preemptible: Annotated[Amounts | None, Doc("The same, if the group is not preemptible.")] = None
    requested: Annotated[Amounts | None, Doc("Resources requested by the pods.")] = None


class SchedulingState(Kind):
    """What the scheduler holds true of the group."""

    core_pods: Annotated[
        list[str] | None,
        Doc("The pods of a semi-preemptible group that cannot be evicted, sorted by name."),
    ] = None


class PodGroupStatus(Kind):
    """What became of the group."""

    conditions: ClassVar[Annotated[list[GroupCondition], Doc("Kept for older readers; not written.")]]
    scheduling_conditions: Annotated[
        list[SchedulingCondition] | None,
        Doc("Why the group could not be scheduled, one entry per node pool; written by the scheduler."),
    ] = None
    phase: Annotated[
        str,
        Doc(
            "Pending, Running (as many pods as the minimum run or have succeeded), Succeeded or Failed (no pod is left "
            "to run; one failed); written by the pod group controller."
        ),
    ] = ""
    running: Annotated[int | None, Doc("How many pods run.")] = None
    minimum: Annotated[int | None, Doc("How many pods must be able to run before any starts, sub-groups included.")] = (
        None
    )
    resources_status: Annotated[ResourcesStatus | None, Doc()] = None
    scheduling_state: Annotated[SchedulingState | None, Doc()] = None


class PodGroup(Kind):
    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


Allocation = Annotated[
    dict[str, Any] | None, Doc("The devices that were chosen, as an AllocationResult of resource.k8s.io/v1.")
]


class ReceivedGpu(Kind):
    """How much GPU the pod gets."""

    count: Annotated[int, Doc("The number of devices.", format=None)] = 0
    portion: Annotated[str, Doc("The part of every device, as a decimal such as 0.50; 1.00 is a whole one.")] = ""


class ClaimAllocation(Kind):
    """What one claim receives."""

    name: Annotated[str, Doc("The name of the claim in the pod's spec.")] = ""
    allocation: Allocation = None


class ExtendedClaimAllocation(Kind):
    """What the claim receives that stands for the pod's extended resources."""

    allocation: Allocation = None
    device_requests: Annotated[list[Any] | None, Doc("The requests of the claim.")] = None
    container_mappings: Annotated[list[Any] | None, Doc("Which container's resource each request stands for.")] = None


class NumaZone(Kind):
    """What is expected from one zone."""

    zone: Annotated[str, Doc("The name of the zone, such as node-0.")] = ""
    amount: Annotated[Amounts | None, Doc("What it provides.")] = None


class FractionalGpuGroup(Kind):
    """One shared device."""

    id: Annotated[str, Doc("The id of the GPU group.")] = ""
    compute_sharing_mode: Annotated[
        str, Doc("The compute sharing mode of the device; empty: time-slicing.", enum=[*names.COMPUTE_MODES])
    ] = ""


class BindRequestSpec(Kind):
    """Where the pod goes and what it gets there."""

    pod_name: Annotated[str, Doc("The pod, in the namespace of this object.")] = ""
    selected_node: Annotated[str, Doc("The node the pod is bound to.")] = ""
    received_resource_type: Annotated[
        str, Doc("What kind of GPU share the pod gets: Regular, Fraction or MigInstance.")
    ] = ""
    received_gpu: Annotated[ReceivedGpu | None, Doc()] = field(default=None, name="receivedGPU")
    selected_gpu_groups: Annotated[
        list[str] | None,
        Doc("Deprecated, read where selectedFractionalGpuGroups is empty: the ids of the GPU groups of a fraction."),
    ] = field(default=None, name="selectedGPUGroups")
    selected_fractional_gpu_groups: Annotated[
        list[FractionalGpuGroup] | None, Doc("For a fraction: the GPU groups, one for each shared device.")
    ] = None
    resource_claim_allocations: Annotated[
        list[ClaimAllocation] | None, Doc("What the pod's resource claims receive.")
    ] = None
    extended_resource_claim_allocation: Annotated[dict[str, Any] | None, Doc(shape=ExtendedClaimAllocation)] = None
    predicted_numa_zones: Annotated[list[NumaZone] | None, Doc("The NUMA zones the node is expected to use.")] = field(
        default=None, name="predictedNUMAZones"
    )
    backoff_limit: Annotated[
        int | None, Doc("How many failed attempts end the request; absent means the binder's own rule.")
    ] = None

    @property
    def gpu_groups(self) -> list[str]:
        """The ids of the GPU groups of a fraction, in order."""
        if self.selected_fractional_gpu_groups:
            return [group.id for group in self.selected_fractional_gpu_groups]
        return self.selected_gpu_groups or []

    @property
    def compute_mode(self) -> str:
        """The compute sharing mode, which is the same on all devices of a pod."""
        groups = self.selected_fractional_gpu_groups or ()
        return next((group.compute_sharing_mode for group in groups if group.compute_sharing_mode), names.TIME_SLICING)


class BindRequestStatus(Kind):
    """How far the binder got."""

    phase: Annotated[str, Doc("Pending (also when empty), Succeeded or Failed.")] = ""
    reason: Annotated[str, Doc("What went wrong last.")] = ""
    failed_attempts: Annotated[int, Doc("How many attempts failed.")] = 0


class BindRequest(Kind):
    metadata: ObjectMeta
    spec: BindRequestSpec = BindRequestSpec()
    status: BindRequestStatus = BindRequestStatus()


_LABEL: Final[dict[str, Any]] = {
    "minLength": 1,
    "maxLength": 316,
    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
}
_LEVEL_RULES: Final = [
    {
        "rule": "self.map(level, level.nodeLabel) == oldSelf.map(level, level.nodeLabel)",
        "message": "nodeLabel structure is immutable; only aliases may be edited",
    },
    {
        "rule": "self.all(level, self.exists_one(other, other.nodeLabel == level.nodeLabel))",
        "message": "nodeLabel must be unique",
    },
    {
        "rule": "!self.exists(level, level.nodeLabel == 'kubernetes.io/hostname') || "
        "self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
        "message": "the kubernetes.io/hostname label can only be used at the lowest level of topology",
    },
]


class TopologyLevel(Kind):
    """One level: nodes with the same value of its label are in one domain."""

    node_label: Annotated[str, Doc("The node label whose value names the domain.", required=True, **_LABEL)] = ""
    alias: Annotated[str, Doc("A short name that workloads may use instead of the label.", **_LABEL)] = ""


class TopologySpec(Kind):
    """The levels of the topology."""

    levels: Annotated[
        list[TopologyLevel],
        Doc(
            "The levels from the widest (such as a zone) to the narrowest (such as a rack or a node). "
            "Their node labels cannot be changed later.",
            required=True,
            minItems=1,
            maxItems=16,
            **{"x-kubernetes-list-type": "atomic", "x-kubernetes-validations": _LEVEL_RULES},
        ),
    ] = []


class Topology(Kind):
    metadata: ObjectMeta
    spec: TopologySpec = TopologySpec()
