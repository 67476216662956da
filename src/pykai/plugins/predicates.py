"""predicates: the filters every cluster has, in the order in which they are asked (spec/scheduling.md §6)."""

from __future__ import annotations

from pykai.plugins.conditions import SchedulingConditions
from pykai.plugins.csi_storage import StoragePools
from pykai.plugins.gates import ConfigMaps, MaxNodePoolResources
from pykai.plugins.late_start import LateStart
from pykai.plugins.node_filters import GpuMemoryKnown, GpuOffer, NodeAffinity, NodeConditions, Taints, WorkerRole
from pykai.plugins.node_quota import NodeQuota
from pykai.plugins.pod_affinity import RequiredPodAffinity
from pykai.plugins.ports import HostPorts
from pykai.plugins.volumes import ClaimsExist, VolumeChoice, VolumeReach

PREDICATES: tuple[object, ...] = (
    SchedulingConditions((MaxNodePoolResources(), ConfigMaps(), ClaimsExist())),
    StoragePools(),
    NodeQuota(),
    GpuOffer(),
    GpuMemoryKnown(),
    NodeConditions(),
    Taints(),
    NodeAffinity(),
    HostPorts(),
    RequiredPodAffinity(),
    VolumeReach(),
    VolumeChoice(),
    WorkerRole(),
    LateStart(),
)
