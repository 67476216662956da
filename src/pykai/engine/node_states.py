"""How all nodes are at this moment: columns that every ranking of a cycle shares, kept up to date node by node.

A placement touches one node. What is free there, what is left on its shared devices and where it stands among all nodes
is worked out once for all classes of pods, when the first of them looks.
"""

from __future__ import annotations

from operator import add
from typing import NamedTuple

import numpy as np

from pykai.engine.devices import rooms
from pykai.engine.plugin_api import RelativeScore
from pykai.engine.relative import Standing
from pykai.engine.trial import Trial
from pykai.model.resources import Column, Rows

FEW = 4
"""Up to this many nodes are added up one by one: a loop is faster than columns then."""


class NodeState(NamedTuple):
    """One node at this moment: amounts by resource, and the room on its shared devices, ascending (MiB)."""

    idle: list[float]
    free: list[float]
    """Idle plus what is being released."""
    rooms: list[float]


class NodeStates:
    """Up to date after `refresh`; blocks are [resource, node]. Columns over all nodes are brought up to date when many
    nodes are looked at; a few are asked for one by one."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.idle = trial.idle
        self._free: Column = trial.idle + trial.releasing
        self._rooms = np.full((0, len(trial.snapshot.nodes)), -np.inf)
        """[device, node]: the largest request that fits on each shared device, ascending; -inf: no such device."""
        self._states: dict[int, NodeState] = {}
        self._standings: dict[tuple[int, int], Standing] = {}
        """By identity of the plugin, and resource."""
        self._most: list[float] | None = None
        self._loose = False
        """Whether lower bounds than `_most` may do."""
        self._read = len(trial.touched)
        self._outdated: tuple[set[int], set[int]] = (set(), set(trial.shares))
        """Nodes whose entries in `_free` and in `_rooms` are not those of this moment."""

    def refresh(self) -> None:
        """Look again at the nodes touched since the last time."""
        trial = self._trial
        if self._read == len(trial.touched):
            return
        changed = set(trial.touched[self._read :])
        self._read, self._loose = len(trial.touched), True
        for outdated in self._outdated:
            outdated |= changed
        for standing in self._standings.values():
            standing.outdated |= changed
        for node in changed:
            self._states.pop(node, None)
            if self._most is not None:
                self._most = list(map(max, self._most, self.of(node).free))

    @property
    def free(self) -> Column:
        """Idle plus what is being released; read only."""
        outdated = self._outdated[0]
        if len(outdated) <= FEW:
            for node in outdated:
                np.add(self.idle[:, node], self._trial.releasing[:, node], out=self._free[:, node])
        else:
            nodes = np.fromiter(outdated, dtype=np.int64, count=len(outdated))
            self._free[:, nodes] = self.idle.take(nodes, axis=1) + self._trial.releasing.take(nodes, axis=1)
        outdated.clear()
        return self._free

    def free_of(self, resource: int, nodes: Rows) -> Column:
        """What some nodes have free of a resource."""
        free: Column = self.idle[resource].take(nodes) + self._trial.releasing[resource].take(nodes)
        return free

    @property
    def most(self) -> list[float] | None:
        """Per resource an upper bound of what is free on any node; None as long as every pod has found a node."""
        return self._most

    def tighten(self) -> None:
        """Make the upper bounds exact: worth its while when a pod has just found no node."""
        if self._loose or self._most is None:
            self._loose = False
            self._most = self.free.max(axis=1, initial=-np.inf).tolist()

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
        outdated = self._outdated[1]
        for node in outdated:
            if node in self._trial.shares:
                self._note_rooms(node)
        outdated.clear()
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
