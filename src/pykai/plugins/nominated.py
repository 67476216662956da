"""nominatednode: the nodes that pods are nominated to (`status.nominatedNodeName`).

A pod of this scheduler prefers the node that it is nominated to. The resources and host ports that a pending pod of
another scheduler requests are reserved on its nominated node against pods of the same or lower priority, as
kube-scheduler reserves them for its own pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor
from typing import NamedTuple

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.devices import with_room
from pykai.engine.plugin_api import NodeResourceState, Rejection
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.plugins.ports import collide, host_ports

NOMINATED = 10_000_000.0
RESERVED = "node(s) keep their free resources for pods that other schedulers nominated to them"


@dataclass(frozen=True)
class NominatedNode:
    """The node that the pod's status names, before all others."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return pod_class.row in cycle.state(_nominated)

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None:
        name = cycle.snapshot.pods.objects[pod].status.nominated_node_name
        nodes = cycle.snapshot.nodes
        if not name or (row := nodes.rows.get(name)) is None:
            return None
        score = np.zeros(len(nodes))
        score[row] = NOMINATED
        return score


def _nominated(cycle: Cycle) -> set[int]:
    """Rows of classes with a pod whose status names a node."""
    pods = cycle.snapshot.pods
    return {int(pods.klass[row]) for row in pods.nominated}


# --------------------------------------------------------------------------------------------- pods of other schedulers
class Reservation(NamedTuple):
    """What a pod of another scheduler is to get."""

    pod: int
    priority: int


def reservations(snapshot: Snapshot) -> dict[int, list[Reservation]]:
    """By node row the waiting pods of other schedulers that are nominated to it."""
    pods, found = snapshot.pods, dict[int, list[Reservation]]()
    for row in sorted(pods.nominated):
        pod = pods.objects[row]
        node = snapshot.nodes.rows.get(pod.status.nominated_node_name)
        waits = pods.status[row] == Status.PENDING and pod.spec.scheduler_name != snapshot.params.scheduler_name
        if waits and node is not None:
            found.setdefault(node, []).append(Reservation(row, pod.spec.priority or 0))
    return found


@dataclass(frozen=True)
class ReservedForOthers:
    """Rejects nodes where the pod would take what is reserved for nominated pods of other schedulers."""

    def open(self, cycle: Cycle) -> Reserved | None:
        return Reserved(cycle) if cycle.snapshot.derived(reservations) else None


class Reserved(NodeResourceState):
    """Reservations of a cycle; few nodes have any."""

    def __init__(self, cycle: Cycle) -> None:
        self._trial = cycle.trial
        self._by_node = cycle.snapshot.derived(reservations)

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        trial = self._trial
        gang, c = trial.gang[pod], trial.of_class(pod)
        priority = trial.snapshot.gangs.priority[gang] if gang >= 0 else 0
        mask = np.zeros(len(trial.snapshot.nodes), dtype=bool)
        for node, reserved in self._by_node.items():
            kept = [each.pod for each in reserved if each.priority >= priority]
            mask[node] = bool(kept) and not (self._leaves_room(c, node, kept) and self._leaves_ports(c, kept))
        if mask.any():
            yield RESERVED, mask

    def _leaves_room(self, c: PodClass, node: int, kept: Iterable[int]) -> bool:
        """Whether a pod of a class fits on a node beside what is kept there."""
        trial = self._trial
        free = trial.idle[:, node] + trial.releasing[:, node]
        for other in kept:
            free = free - trial.amounts.requests[:, trial.klass[other]]
        if (c.request[c.dims] > free[c.dims]).any():
            return False
        if not c.shared:
            return True
        memory, capacity = trial.share_memory(c, node), trial.amounts.gpu_memory[node]
        shared = with_room(trial.shares.get(node, {}), memory, capacity, c.compute_mode)
        return floor(float(free[GPU])) + len(shared) >= c.devices

    def _leaves_ports(self, c: PodClass, kept: Iterable[int]) -> bool:
        ports = host_ports(c.template)
        return not ports or not any(collide(ports, host_ports(self._trial.of_class(other).template)) for other in kept)
