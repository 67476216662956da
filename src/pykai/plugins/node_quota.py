"""Queue limits with the figures of the node (spec/scheduling.md §6.2.1).

A request for GPU memory is a different part of a GPU on every kind of node, so the check before placement can only
use the most favourable one. Here it is done with the node at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykai.engine.cycle import Cycle
from pykai.model.pods import GpuKind, PodClass


@dataclass(frozen=True)
class NodeQuota:
    """On this node the pod must not take its queues beyond limit or, where it cannot be evicted, quota."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return cycle.quota is not None and pod_class.gpu_kind in (GpuKind.MEMORY, GpuKind.MIG)

    def reject(self, cycle: Cycle, pod: int, node: int) -> str | None:
        gang = cycle.trial.gang[pod]
        if cycle.quota is None or gang < 0:
            return None
        over = cycle.quota.over_capacity(cycle, gang, cycle.trial.quota_amounts(cycle.trial.of_class(pod), node))
        if over is None:
            return None
        return f"node does not have enough capacity. Reason: {over.reason}, Details: {over.message}"
