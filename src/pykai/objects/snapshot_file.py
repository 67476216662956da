"""KAI's snapshot file: the objects, configuration and parameters one scheduling cycle saw."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from msgspec import Struct, field

from pykai.objects import kinds
from pykai.objects.kinds import Kind


class Partition(Kind):
    key: str = field(default="", name="NodePoolLabelKey")
    value: str = field(default="", name="NodePoolLabelValue")


class Params(Kind):
    """Durations are nanoseconds; a missing field is its zero value."""

    scheduler_name: str = "kai-scheduler"
    restrict_scheduling_nodes: bool = False
    partition_params: Partition = Partition()
    max_number_consolidation_preemptees: int = 0
    schedule_csi_storage: bool = field(default=False, name="scheduleCSIStorage")
    use_scheduling_signatures: bool = False
    full_hierarchy_fairness: bool = False
    allow_consolidating_reclaim: bool = False
    global_default_staleness_grace_period: int = 0
    stuck_in_releasing_threshold: int = 0
    detailed_fit_errors: bool = False
    update_pod_eviction_condition: bool = False
    queue_label_key: str = "kai.scheduler/queue"
    gpu_sharing_mode: str = ""


class RawObjects(Kind):
    pods: list[kinds.Pod] | None = None
    nodes: list[kinds.Node] | None = None
    queues: list[kinds.Queue] | None = None
    pod_groups: list[kinds.PodGroup] | None = None
    bind_requests: list[kinds.BindRequest] | None = None
    priority_classes: list[kinds.PriorityClass] | None = None
    namespaces: list[kinds.Namespace] | None = None
    pod_disruption_budgets: list[kinds.PodDisruptionBudget] | None = None
    config_maps: list[kinds.ConfigMap] | None = None
    persistent_volumes: list[kinds.PersistentVolume] | None = None
    persistent_volume_claims: list[kinds.PersistentVolumeClaim] | None = None
    csi_storage_capacities: list[kinds.CSIStorageCapacity] | None = None
    storage_classes: list[kinds.StorageClass] | None = None
    csi_drivers: list[kinds.CSIDriver] | None = None
    csi_nodes: list[kinds.CSINode] | None = None
    resource_claims: list[kinds.ResourceClaim] | None = None
    resource_slices: list[kinds.ResourceSlice] | None = None
    device_classes: list[kinds.DeviceClass] | None = None
    device_taint_rules: list[kinds.DeviceTaintRule] | None = None
    topologies: list[kinds.Topology] | None = None
    node_resource_topologies: list[kinds.NodeResourceTopology] | None = None

    def all(self) -> Iterator[Any]:
        return chain.from_iterable(getattr(self, name) or () for name in self.__struct_fields__)


class SnapshotFile(Struct, rename="camel"):
    raw_objects: RawObjects
    config: dict[str, Any] = {}
    scheduler_params: Params = Params()
    discovery: dict[str, Any] | None = None
