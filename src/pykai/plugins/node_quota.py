"""Queue limits with the figures of the node (spec/scheduling.md §6.2.1).

A request for GPU memory is a different part of a GPU on every kind of node, so the check before placement can only
use the most favourable one. Here it is done with the node at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.points import Rejection
from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import Column, Rows
from pykai.model.snapshot import Snapshot

REASON = "node does not have enough capacity. Reason: {}, Details: {}"


def device_sizes(snapshot: Snapshot) -> tuple[Column, Rows, Column]:
    """The distinct amounts of memory per device, a node with each, and the amount of every node."""
    memory = snapshot.nodes.gpu_memory
    sizes, examples = np.unique(memory, return_index=True)
    return sizes, examples, memory


@dataclass(frozen=True)
class NodeQuota:
    """On this node the pod must not take its queues beyond limit or, where it cannot be evicted, quota."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return cycle.quota is not None and pod_class.gpu_kind in (GpuKind.MEMORY, GpuKind.MIG)

    def closed(self, cycle: Cycle, pod: int) -> Iterable[Rejection]:
        """One answer for each size of device in the cluster."""
        trial, gang = cycle.trial, cycle.trial.gang[pod]
        if cycle.quota is None or gang < 0:
            return
        sizes, examples, kind = cycle.snapshot.derived(device_sizes)
        for size, node in zip(sizes.tolist(), examples.tolist(), strict=True):
            over = cycle.quota.over_capacity(cycle, gang, trial.quota_amounts(trial.of_class(pod), node))
            if over is not None:
                yield REASON.format(over.reason, over.message), kind == size
