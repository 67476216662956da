"""Whether a single pod could be placed once some others are gone: node by node, with devices and neighbours.

`Room` counts amounts in columns, for many pods and victims at once: the spare memory of all shared devices of a node is
as good as a device to it, and it does not know who must not be neighbours. For one pod and a few victims both can be
looked up exactly, at a fraction of what a simulation costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor

import numpy as np

from pykai.engine.pod_locations import PodCounts
from pykai.engine.pool import VictimPool
from pykai.engine.ranked import UNFIT
from pykai.engine.room import cumulated
from pykai.model.resources import GPU, Column, Mask, Rows

_SLACK = 1e-9


@dataclass(frozen=True)
class Leaving:
    """Pods that go one after the other: where they are, whether each can go, and how many GPUs it frees."""

    pods: Rows
    nodes: Rows
    goes: Mask
    gpus: Column


class FitAfter:
    """One pod that waits, and the cluster as it is now."""

    def __init__(self, pool: VictimPool, pod: int) -> None:
        self.cycle = pool.cycle
        self._shares = pool.shares
        self.pod = pod
        self._class = pool.cycle.trial.of_class(pod)

    @cached_property
    def _fits_now(self) -> list[int]:
        """Nodes that would take it as things are, as far as amounts go."""
        rows: list[int] = np.flatnonzero(self.cycle.rankings.of(self._class).total > UNFIT).tolist()
        return rows

    @cached_property
    def _blockers(self) -> list[PodCounts]:
        """Pods of which none may stay in the domain of the pod's node."""
        states = self.cycle.resources.of_class(self._class).all
        return [counts for state in states for counts in state.blockers(self.pod)]

    def possible(self, gone: Sequence[int]) -> bool:
        """Whether the pod could find a place without these pods. True where only a simulation can tell."""
        if any(self._open(node, gone) for node in self._fits_now):
            return True
        trial, by_node = self.cycle.trial, dict[int, list[int]]()
        for pod in gone:
            by_node.setdefault(trial.node[pod], []).append(pod)
        allowed = self.cycle.node_facts.allowed(self._class)
        return any(
            node >= 0 and allowed[node] and self._holds(node, pods) and self._open(node, gone)
            for node, pods in by_node.items()
        )

    def opening(self, leaving: Leaving) -> Mask:
        """For pods that go one after the other, node by node: after which of them the own node has devices for the pod
        and nobody who keeps it from there, or one less does from a node that would take it."""
        pods, nodes = leaving.pods, leaving.nodes
        found = np.ones(len(pods), dtype=bool)
        helps = np.zeros(len(pods), dtype=bool)
        for tally in self._blockers:
            blocks = tally.pods[pods] & leaving.goes
            found &= cumulated(nodes, blocks.astype(np.float64)) >= tally.present[tally.domains[nodes]]
            wanted = np.unique(tally.domains[self._fits_now])
            helps |= blocks & np.isin(tally.domains[nodes], wanted[wanted > 0])
        return np.asarray((found & self._devices_open(leaving)) | helps)

    def _devices_open(self, leaving: Leaving) -> Mask:
        """After which pods the own node has devices; always where the pod wants shares of several devices, or none, or
        has a place already and waits for something else."""
        trial, c, nodes = self.cycle.trial, self._class, leaving.nodes
        need = 1.0 if c.shared else float(self.cycle.node_facts.least(c)[GPU])
        if c.devices > 1 or need < 1 or not trial.shares or self._fits_now:
            return np.ones(len(nodes), dtype=bool)
        devices, memory = self._shares.of(leaving.pods, nodes)
        shared = devices >= 0
        left = np.where(shared, self._shares.held()[devices], 0.0)
        left -= cumulated(devices, np.where(leaving.goes, memory, 0.0))
        whole = np.where(shared, left <= _SLACK, np.ceil(leaving.gpus))
        free = np.floor(trial.idle[GPU] + trial.releasing[GPU] + _SLACK)[nodes]
        opened = free + cumulated(nodes, np.where(leaving.goes, whole, 0.0)) >= need - _SLACK
        if c.shared:
            spared = {
                node: trial.amounts.gpu_memory[node] - trial.share_memory(c, node) for node in set(nodes.tolist())
            }
            beside = left <= np.array([spared[node] for node in nodes.tolist()]) + _SLACK
            opened |= cumulated(nodes, (shared & leaving.goes & beside).astype(np.float64)) > 0
        return np.asarray(opened)

    def _holds(self, node: int, gone: Sequence[int]) -> bool:
        """Whether the node has what the pod asks for."""
        trial, c = self.cycle.trial, self._class
        free = (trial.idle[:, node] + trial.releasing[:, node]).tolist()
        for pod in gone:
            amount = trial.amounts.of_node(trial.klass[pod], node)
            free = [have + more for have, more in zip(free, amount.tolist(), strict=True)]
        whole, sharable = self._devices(node, gone)
        free[GPU] += whole
        need = self.cycle.node_facts.least(c)
        if any(free[row] + _SLACK < need[row] for row in c.dims.tolist() if row != GPU):
            return False
        if c.shared:
            return bool(floor(free[GPU] + _SLACK) + sharable >= c.devices)
        return bool(free[GPU] + _SLACK >= float(need[GPU]))

    def _devices(self, node: int, gone: Sequence[int]) -> tuple[int, int]:
        """Shared devices that only those who are gone had, and those beside whose other users the pod fits."""
        trial = self.cycle.trial
        capacity = trial.amounts.gpu_memory[node]
        memory = trial.share_memory(self._class, node) if self._class.shared else capacity
        freed: dict[str, float] = {}
        for pod in gone:
            if trial.amounts.shared[trial.klass[pod]]:
                for group in trial.gpu_groups.get(pod, ()):
                    freed[group] = freed.get(group, 0.0) + trial.share_memory(trial.of_class(pod), node)
        whole = sharable = 0
        for group, share in trial.shares.get(node, {}).items():
            held = share.allocated - share.releasing  # by those who stay, or were promised it
            left = held - freed.get(group, 0.0)
            if left <= _SLACK:
                whole += held > _SLACK
            elif capacity - left >= memory:
                sharable += 1
        return whole, sharable

    def _open(self, node: int, gone: Sequence[int]) -> bool:
        """Whether nobody stays in the node's domains beside whom the pod may not be."""
        place = self.cycle.trial.node
        for tally in self._blockers:
            domain = tally.domains[node]
            if domain:
                leaving = sum(1 for pod in gone if tally.pods[pod] and tally.domains[place[pod]] == domain)
                if tally.present[domain] > leaving:
                    return False
        return True
