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
            "The queue's weight in the division of resources over quota among queues that request more than their "
            "quota. A queue with weight 0 gets none of them."
        ),
    ] = 0.0
    limit: Annotated[float, Doc("The maximum amount, in {unit}. -1 is unlimited; 0 allows nothing.")] = 0.0


class QueueResources(Kind):
    """Quota, limit and weight for each resource."""

    gpu: Annotated[QueueResource, Doc(words={"unit": "GPUs, fractions allowed"})] = QueueResource()
    cpu: Annotated[QueueResource, Doc(words={"unit": "thousandths of a CPU (1000 is one core)"})] = QueueResource()
    memory: Annotated[QueueResource, Doc(words={"unit": "megabytes (1 MB is 1,000,000 bytes)"})] = QueueResource()


class QueueSpec(Kind):
    """Quotas, limits and over-quota weights of the queue."""

    display_name: Annotated[str, Doc("A display name, used in messages and metrics instead of the object's name.")] = ""
    parent_queue: Annotated[
        str,
        Doc(
            "The name of the parent queue; empty for a top-level queue. "
            "A queue whose parent does not exist is not scheduled."
        ),
    ] = ""
    resources: Annotated[
        QueueResources | None,
        Doc("Quota, limit and weight for each resource. Required: a queue without them can run nothing."),
    ] = None
    priority: Annotated[
        int | None,
        Doc(
            "Queues with a higher priority are scheduled first and lose resources to reclaim last.",
            default=100,
        ),
    ] = None
    preempt_min_runtime: Annotated[
        Duration | None,
        Doc("The minimum runtime of a workload of this queue before one of the same queue may preempt it."),
    ] = None
    reclaim_min_runtime: Annotated[
        Duration | None,
        Doc("The minimum runtime of a workload of this queue before another queue may reclaim its resources."),
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
    child_queues: Annotated[list[str] | None, Doc("The names of the child queues.")] = None
    allocated: Annotated[Amounts | None, Doc("Resources allocated to workloads of this queue and its descendants.")] = (
        None
    )
    allocated_non_preemptible: Annotated[
        Amounts | None, Doc("The part of `allocated` that belongs to non-preemptible workloads.")
    ] = None
    requested: Annotated[Amounts | None, Doc("Resources requested by workloads of this queue and its descendants.")] = (
        None
    )
    fair_share: Annotated[
        Amounts | None,
        Doc(
            "The queue's fair share in the last scheduling cycle: the resources that it may hold by its quota, weight "
            "and priority, given the requests of all queues."
        ),
    ] = None


class Queue(Kind):
    metadata: ObjectMeta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class TopologyConstraint(Kind):
    """A constraint that places pods in one topology domain."""

    topology: Annotated[str, Doc("The name of the Topology object that defines the levels.")] = ""
    required_topology_level: Annotated[
        str,
        Doc("All pods run in one domain of this level, or none is scheduled. A node label or an alias of a level."),
    ] = ""
    preferred_topology_level: Annotated[
        str,
        Doc(
            "Pods run in one domain of this level if they fit, else in one of a wider level. "
            "A node label or an alias of a level."
        ),
    ] = ""


class SubGroup(Kind):
    """A subgroup with its own minimum. Pods name it in the label kai.scheduler/subgroup-name."""

    name: Annotated[
        str, Doc("The name of the subgroup, unique in the group.", required=True, minLength=1, pattern=NAME_PATTERN)
    ] = ""
    min_member: Annotated[int | None, Doc("The minimum number of pods of this subgroup.", minimum=0, nullable=True)] = (
        None
    )
    min_sub_group: Annotated[
        int | None, Doc("The minimum number of direct subgroups that must reach their own minimum.", minimum=0)
    ] = None
    parent: Annotated[
        str | None,
        Doc("The parent subgroup; absent for a direct subgroup of the group.", pattern=NAME_PATTERN),
    ] = None
    topology_constraint: Annotated[TopologyConstraint | None, Doc()] = None


class PodGroupSpec(Kind):
    """The requirements of the group and the policies that apply to it."""

    min_member: Annotated[
        int | None,
        Doc(
            "The minimum number of pods that must fit before any of them is bound. Absent means 1; 0 means that pods "
            "are scheduled independently. Excludes minSubGroup.",
            minimum=0,
            nullable=True,
        ),
    ] = None
    min_sub_group: Annotated[
        int | None,
        Doc(
            "The minimum number of direct subgroups that must reach their own minimum; absent means all, 0 means none. "
            "Excludes minMember.",
            minimum=0,
        ),
    ] = None
    queue: Annotated[str, Doc("The queue that the pods are charged to.")] = ""
    priority_class_name: Annotated[
        str,
        Doc("The PriorityClass, which determines the order within the queue; priority 50 if absent or unknown."),
    ] = ""
    preemptibility: Annotated[
        str,
        Doc(
            "Whether running pods may be evicted for others: all, those above the minimum (semi-preemptible), or none. "
            "Absent: preemptible below priority 100.",
            enum=["preemptible", "semi-preemptible", "non-preemptible"],
        ),
    ] = ""
    topology_constraint: Annotated[TopologyConstraint | None, Doc()] = None
    sub_groups: Annotated[list[SubGroup] | None, Doc("The subgroups, a tree by `parent`.")] = None
    mark_unschedulable: Annotated[
        bool | None,
        Doc(
            "Whether pending pods get the condition PodScheduled=False, by which a cluster autoscaler adds nodes. "
            "Absent means true."
        ),
    ] = None
    scheduling_backoff: Annotated[
        int | None,
        Doc("-1 (or absent): schedule until the group fits. 1: try once per node pool, then no more."),
    ] = None
    preemption_delay: Annotated[
        Duration | None,
        Doc(
            "How long the group waits after its creation or last eviction before other workloads may be evicted for it."
        ),
    ] = None
    staleness_grace_period: Annotated[
        Duration | None,
        Doc(
            "How long a running group may have fewer pods than its minimum before all of them are evicted; "
            "negative means for ever. Absent means the scheduler's default."
        ),
    ] = None
    safe_to_consolidate: Annotated[
        bool | None,
        Doc(
            "Whether consolidation may move running pods to other nodes; absent means true. "
            "Reclaim and preempt may evict them in any case."
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
    """The amounts of the queue that exceeds its quota or limit."""

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
    """Details of the reason."""

    queue_details: Annotated[QuotaDetails | None, Doc()] = None


class SchedulingReason(Kind):
    """One reason why the group is pending."""

    reason: Annotated[str, Doc("The reason as a CamelCase identifier, such as OverLimit or PodSchedulingErrors.")] = ""
    message: Annotated[str, Doc("The reason as text.")] = ""
    details: Annotated[ReasonDetails | None, Doc()] = None


class SchedulingCondition(GroupCondition):
    """The last scheduling result for one node pool."""

    type: Annotated[str, Doc("UnschedulableOnNodePool.")] = ""
    node_pool: Annotated[str, Doc("The node pool that the condition is about.")] = ""
    reasons: Annotated[
        list[SchedulingReason] | None,
        Doc("All reasons: why the group does not fit, then the result of each action that evicts."),
    ] = None


class ResourcesStatus(Kind):
    """Resources allocated to and requested by the pods of the group; written by the pod group controller."""

    allocated: Annotated[Amounts | None, Doc("Resources allocated to the pods.")] = None
    allocated_non_preemptible: Annotated[Amounts | None, Doc("The same if the group is non-preemptible.")] = None
    requested: Annotated[Amounts | None, Doc("Resources requested by the pods.")] = None


class SchedulingState(Kind):
    """State that the scheduler keeps about the group."""

    core_pods: Annotated[
        list[str] | None,
        Doc("The core pods of a semi-preemptible group, which cannot be evicted, sorted by name."),
    ] = None


class PodGroupStatus(Kind):
    """The observed state of the group."""

    conditions: ClassVar[Annotated[list[GroupCondition], Doc("Kept for compatibility; not written.")]]
    scheduling_conditions: Annotated[
        list[SchedulingCondition] | None,
        Doc("Why the group could not be scheduled, one entry per node pool; written by the scheduler."),
    ] = None
    phase: Annotated[
        str,
        Doc(
            "Pending, Running (the minimum of pods run or have succeeded), Succeeded, or Failed (all have ended, "
            "one failed); written by the pod group controller."
        ),
    ] = ""
    running: Annotated[int | None, Doc("The number of running pods.")] = None
    minimum: Annotated[
        int | None, Doc("The minimum number of pods that must fit before any is bound, subgroups included.")
    ] = None
    resources_status: Annotated[ResourcesStatus | None, Doc()] = None
    scheduling_state: Annotated[SchedulingState | None, Doc()] = None


class PodGroup(Kind):
    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


Allocation = Annotated[
    dict[str, Any] | None, Doc("The allocated devices, as an AllocationResult of resource.k8s.io/v1.")
]


class ReceivedGpu(Kind):
    """The GPU amount that the pod receives."""

    count: Annotated[int, Doc("The number of devices.", format=None)] = 0
    portion: Annotated[str, Doc("The portion of each device, as a decimal such as 0.50; 1.00 is a whole device.")] = ""


class ClaimAllocation(Kind):
    """The allocation of one claim."""

    name: Annotated[str, Doc("The name of the claim in the pod's spec.")] = ""
    allocation: Allocation = None


class ExtendedClaimAllocation(Kind):
    """The allocation of the claim for the pod's extended resources."""

    allocation: Allocation = None
    device_requests: Annotated[list[Any] | None, Doc("The requests of the claim.")] = None
    container_mappings: Annotated[list[Any] | None, Doc("The container and extended resource of each request.")] = None


class NumaZone(Kind):
    """The predicted use of one NUMA zone."""

    zone: Annotated[str, Doc("The name of the zone, such as node-0.")] = ""
    amount: Annotated[Amounts | None, Doc("The amounts that the zone provides.")] = None


class FractionalGpuGroup(Kind):
    """One shared device."""

    id: Annotated[str, Doc("The id of the GPU group.")] = ""
    compute_sharing_mode: Annotated[
        str, Doc("The compute sharing mode of the device; empty: time-slicing.", enum=[*names.COMPUTE_MODES])
    ] = ""


class BindRequestSpec(Kind):
    """The node of the pod and the resources that it receives."""

    pod_name: Annotated[str, Doc("The pod, in the namespace of this object.")] = ""
    selected_node: Annotated[str, Doc("The node that the pod is bound to.")] = ""
    received_resource_type: Annotated[
        str, Doc("The type of GPU resource that the pod receives: Regular, Fraction or MigInstance.")
    ] = ""
    received_gpu: Annotated[ReceivedGpu | None, Doc()] = field(default=None, name="receivedGPU")
    selected_gpu_groups: Annotated[
        list[str] | None,
        Doc("Deprecated, read if selectedFractionalGpuGroups is empty: the ids of the GPU groups of a fraction."),
    ] = field(default=None, name="selectedGPUGroups")
    selected_fractional_gpu_groups: Annotated[
        list[FractionalGpuGroup] | None, Doc("For a fraction: the GPU groups, one for each shared device.")
    ] = None
    resource_claim_allocations: Annotated[
        list[ClaimAllocation] | None, Doc("The allocations of the pod's resource claims.")
    ] = None
    extended_resource_claim_allocation: Annotated[dict[str, Any] | None, Doc(shape=ExtendedClaimAllocation)] = None
    predicted_numa_zones: Annotated[
        list[NumaZone] | None, Doc("The NUMA zones that the kubelet is predicted to use.")
    ] = field(default=None, name="predictedNUMAZones")
    backoff_limit: Annotated[
        int | None, Doc("The number of failed attempts after which the request fails; absent: the binder's default.")
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
    """The progress of the binder."""

    phase: Annotated[str, Doc("Pending (also when empty), Succeeded or Failed.")] = ""
    reason: Annotated[str, Doc("The last error.")] = ""
    failed_attempts: Annotated[int, Doc("The number of failed attempts.")] = 0


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
    """A level of the topology: nodes with the same value of its label form a domain."""

    node_label: Annotated[str, Doc("The node label whose value names the domain.", required=True, **_LABEL)] = ""
    alias: Annotated[str, Doc("A short name that workloads may use instead of the node label.", **_LABEL)] = ""


class TopologySpec(Kind):
    """The levels of the topology."""

    levels: Annotated[
        list[TopologyLevel],
        Doc(
            "The levels from the widest (such as a zone) to the narrowest (such as a rack or a node). "
            "Their node labels are immutable.",
            required=True,
            minItems=1,
            maxItems=16,
            **{"x-kubernetes-list-type": "atomic", "x-kubernetes-validations": _LEVEL_RULES},
        ),
    ] = []


class Topology(Kind):
    metadata: ObjectMeta
    spec: TopologySpec = TopologySpec()
