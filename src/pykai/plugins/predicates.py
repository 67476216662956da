"""predicates: the filters every cluster has, in the order in which they are asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Rows
from pykai.model.status import Status
from pykai.plugins.affinity import RequiredPodAffinity
from pykai.plugins.gates import ConfigMaps, MaxNodePoolResources, SchedulingConditions
from pykai.plugins.node_filters import (
    FractionsReady,
    GpuMemoryKnown,
    GpuOffer,
    NodeAffinity,
    NodeConditions,
    NodeQuota,
    Taints,
    WorkerRole,
)
from pykai.plugins.ports import HostPorts
from pykai.plugins.scoring import AVAILABLE_NOW
from pykai.plugins.spread import TopologySpread
from pykai.plugins.storage import StoragePools
from pykai.plugins.volume_limits import AttachLimits, Disks, ExclusiveClaims
from pykai.plugins.volumes import ClaimsExist, VolumeChoice, VolumeReach


@dataclass(frozen=True)
class LateStart:
    """Subtract the score of `NodeAvailability`, once, on nodes where the pod must wait for some node resource.

    Where a port, pod, volume, device or zone is still being released, the pod cannot start at once although the node
    columns have room. Nodes without that score are unchanged.
    """

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return bool(cycle.resources.of_class(pod_class).waiting)

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None:
        trial = cycle.trial
        if trial.status[pod] != Status.PENDING:
            return None
        c = trial.of_class(pod)
        available: Rows | None = None
        score: Column | None = None
        for state in cycle.resources.of_class(c).waiting:
            if not state.may_wait():
                continue
            if available is None:
                available = np.flatnonzero(cycle.rankings.of(c).fits_now)
            waits = state.must_wait(pod, available)
            if waits is not None:
                score = np.zeros(len(cycle.snapshot.nodes)) if score is None else score
                score[available[waits]] = -AVAILABLE_NOW
        return score


PREDICATES: tuple[object, ...] = (
    SchedulingConditions((MaxNodePoolResources(), ConfigMaps(), ClaimsExist())),
    StoragePools(),
    NodeQuota(),
    GpuOffer(),
    GpuMemoryKnown(),
    FractionsReady(),
    NodeConditions(),
    Taints(),
    NodeAffinity(),
    HostPorts(),
    RequiredPodAffinity(),
    TopologySpread(),
    VolumeReach(),
    VolumeChoice(),
    ExclusiveClaims(),
    Disks(),
    AttachLimits(),
    WorkerRole(),
    LateStart(),
)
