"""predicates: the filters every cluster has, in the order in which they are asked (spec/scheduling.md §6)."""

from __future__ import annotations

from pykai.plugins.conditions import SchedulingConditions
from pykai.plugins.gates import ConfigMaps, MaxNodePoolResources
from pykai.plugins.node_filters import GpuMemoryKnown, GpuOffer, NodeAffinity, NodeConditions, Taints, WorkerRole
from pykai.plugins.node_quota import NodeQuota

PREDICATES: tuple[object, ...] = (
    SchedulingConditions((MaxNodePoolResources(), ConfigMaps())),
    NodeQuota(),
    GpuOffer(),
    GpuMemoryKnown(),
    NodeConditions(),
    Taints(),
    NodeAffinity(),
    WorkerRole(),
)
