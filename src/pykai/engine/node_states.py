"""How all nodes are at this moment: columns that every ranking of a cycle shares, kept up to date node by node.

A placement touches one node. What is free there, what is left on its shared devices and where it stands among all nodes
is worked out once for all classes of pods, when the first of them looks.
"""

from __future__ import annotations

from operator import add
from typing import NamedTuple

import numpy as np

from pykai.engine.devices import rooms
from pykai.engine.points import RelativeScore
from pykai.engine.relative import Standing
from pykai.engine.trial import Trial
from pykai.model.resources import Column


class NodeState(NamedTuple):
    """One node at this moment: amounts by resource, and the room on its shared devices, ascending (MiB)."""

    idle: list[float]
    free: list[float]
    """Idle plus what is being released."""
    rooms: list[float]


class NodeStates:
    """Up to date after `refresh`; blocks are [resource, node]."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.idle = trial.idle
        self.free: Column = trial.idle + trial.releasing
        """Idle plus what is being released."""
        self.most: list[float] = self.free.max(axis=1, initial=-np.inf).tolist()
        """Per resource an upper bound of what is free on any node."""
        self._loose = False
        """Whether a lower bound may do."""
        self._rooms = np.full((0, len(trial.snapshot.nodes)), -np.inf)
        """[device, node]: the largest request that fits on each shared device, ascending; -inf: no such device."""
        self._states: dict[int, NodeState] = {}
        self._standings: dict[tuple[int, int], Standing] = {}
        """By identity of the plugin, and resource."""
        self._read = len(trial.touched)
        for node in trial.shares:
            self._note_rooms(node)

    def refresh(self) -> None:
        """Look again at the nodes touched since the last time."""
        touched = self._trial.touched
        if self._read == len(touched):
            return
        idle, releasing, free = self.idle, self._trial.releasing, self.free
        for node in set(touched[self._read :]):
            self._states.pop(node, None)
            np.add(idle[:, node], releasing[:, node], out=free[:, node])
            self.most = list(map(max, self.most, free[:, node].tolist()))
            if node in self._trial.shares:
                self._note_rooms(node)
            for (_, resource), standing in self._standings.items():
                standing.put(node, float(free[resource, node]))
        self._read, self._loose = len(touched), True

    def tighten(self) -> None:
        """Make the upper bounds exact: worth its while when a pod has just found no node."""
        if self._loose:
            self._loose = False
            self.most = self.free.max(axis=1, initial=-np.inf).tolist()

    def of(self, node: int) -> NodeState:
        """One node; what one class asked for the next one need not work out."""
        known = self._states.get(node)
        if known is None:
            trial = self._trial
            idle: list[float] = trial.idle[:, node].tolist()
            free = list(map(add, idle, trial.releasing[:, node].tolist()))
            shares = trial.shares.get(node)
            left = rooms(shares, trial.amounts.gpu_memory[node]) if shares else []
            known = self._states[node] = NodeState(idle, free, left)
        return known

    def sharable(self, memory: Column) -> Column:
        """How many devices that are shared already have room for a request of so much memory (MiB), by node."""
        counts: Column = np.add.reduce(self._rooms >= memory, dtype=np.float64)
        return counts

    def _note_rooms(self, node: int) -> None:
        left = self.of(node).rooms
        if len(left) > len(self._rooms):
            more = np.full((len(left) - len(self._rooms), self._rooms.shape[1]), -np.inf)
            self._rooms = np.concatenate([self._rooms, more])
        self._rooms[: len(left), node] = left
        self._rooms[len(left) :, node] = -np.inf

    def standing(self, plugin: RelativeScore, resource: int) -> Standing:
        """Where nodes stand by what they have free of a resource."""
        known = self._standings.get((id(plugin), resource))
        if known is None:
            offered = self._trial.snapshot.nodes.allocatable[resource] > 0
            known = self._standings[id(plugin), resource] = Standing(plugin, offered, self.free[resource])
        return known
