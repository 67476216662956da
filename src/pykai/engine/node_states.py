"""The current state of all nodes: columns that the rankings of a cycle share, updated node by node.

A placement touches one node. What is free there and on its shared devices, and its normalized scores, are computed once
for all classes of pods, on first use.
"""

from __future__ import annotations

from operator import add
from typing import NamedTuple

import numpy as np

from pykai.engine.devices import rooms
from pykai.engine.plugin_api import RelativeScore
from pykai.engine.trial import Trial
from pykai.model.resources import Column, Mask, Rows

FEW = 4
"""Up to this many nodes are added up one by one: a loop is faster than columns then."""
FEW_SCORES = 8
"""Up to this many nodes are scored one by one."""


class NodeState(NamedTuple):
    """The current state of one node: amounts by resource and, by compute mode, the free memory of its shared devices
    (MiB, ascending)."""

    idle: list[float]
    free: list[float]
    """Idle plus what is being released."""
    rooms: tuple[list[float], ...]


class NodeStates:
    """The state of all nodes as of the last `refresh`; blocks are [resource, node]. Columns over all nodes are updated
    when they are read, single nodes on their own."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.idle = trial.idle
        self._free: Column = trial.idle + trial.releasing
        self._modes = range(trial.amounts.compute_modes)
        self._rooms = [np.full((0, len(trial.snapshot.nodes)), -np.inf) for _ in self._modes]
        """By compute mode [device, node]: the largest request that fits on each shared device, ascending; -inf: no such
        device."""
        self._no_rooms: tuple[list[float], ...] = tuple([] for _ in self._modes)
        self._states: dict[int, NodeState] = {}
        self._normalized: dict[tuple[int, int], NormalizedScore] = {}
        """By identity of the plugin, and resource."""
        self._most: list[float] | None = None
        self._loose = False
        """Whether `_most` may be larger than the exact maxima."""
        self._read = len(trial.touched)
        self._outdated: tuple[set[int], set[int]] = (set(), set(trial.shares))
        """Nodes whose entries in `_free` and in `_rooms` are outdated."""

    def refresh(self) -> None:
        """Take in the nodes touched since the last call."""
        trial = self._trial
        if self._read == len(trial.touched):
            return
        changed = set(trial.touched[self._read :])
        self._read, self._loose = len(trial.touched), True
        for outdated in self._outdated:
            outdated |= changed
        for normalized in self._normalized.values():
            normalized.outdated |= changed
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
        """By resource an upper bound of what is free on any node; None until `tighten` is called."""
        return self._most

    def tighten(self) -> None:
        """Make the upper bounds of `most` exact; called when no node was feasible for a pod."""
        if self._loose or self._most is None:
            self._loose = False
            self._most = self.free.max(axis=1, initial=-np.inf).tolist()

    def of(self, node: int) -> NodeState:
        """Return the state of one node, cached until it is touched."""
        known = self._states.get(node)
        if known is None:
            trial = self._trial
            idle: list[float] = trial.idle[:, node].tolist()
            free = list(map(add, idle, trial.releasing[:, node].tolist()))
            shares = trial.shares.get(node)
            left = self._no_rooms
            if shares:
                capacity = trial.amounts.gpu_memory[node]
                left = tuple([rooms(shares, capacity, mode) for mode in self._modes])
            known = self._states[node] = NodeState(idle, free, left)
        return known

    def sharable(self, memory: Column, mode: int) -> Column:
        """Return by node how many shared devices of a compute mode have room for `memory` (MiB, by node)."""
        outdated = self._outdated[1]
        for node in outdated:
            if node in self._trial.shares:
                self._note_rooms(node)
        outdated.clear()
        counts: Column = np.add.reduce(self._rooms[mode] >= memory, dtype=np.float64)
        return counts

    def _note_rooms(self, node: int) -> None:
        for mode, left in enumerate(self.of(node).rooms):
            known = self._rooms[mode]
            if len(left) > len(known):
                more = np.full((len(left) - len(known), known.shape[1]), -np.inf)
                known = self._rooms[mode] = np.concatenate([known, more])
            known[: len(left), node] = left
            known[len(left) :, node] = -np.inf

    def normalized(self, plugin: RelativeScore, resource: int) -> NormalizedScore:
        """The scores of a plugin by what nodes have free of a resource."""
        known = self._normalized.get((id(plugin), resource))
        if known is None:
            offered = self._trial.snapshot.nodes.allocatable[resource] > 0
            known = self._normalized[id(plugin), resource] = NormalizedScore(plugin, offered, self.free[resource])
        return known


class NormalizedScore:
    """The scores one plugin gives to all nodes, normalized by the extremes of what is free of one resource. Nodes that
    do not offer it have no measure.

    As long as the extremes stay where they are, a node that changes changes no other node's score: entries are kept up
    to date one by one. The owner says in `outdated` where something changed.
    """

    def __init__(self, plugin: RelativeScore, offered: Mask, free: Column) -> None:
        self._plugin = plugin
        self.offered = offered
        """Nodes that have a measure."""
        self.outdated: set[int] = set()
        """Nodes whose score does not follow from what is free now."""
        self._measure = np.where(offered, free, np.nan)
        self._low = self._high = np.nan
        self._at_low = self._at_high = 0
        """How many nodes have just the extreme measures."""
        self._known: dict[float, float] = {}
        """Scores by measure, between these extremes."""
        self._doubt = True
        """Whether an extreme may have moved since it was last looked for."""
        self._scores = np.zeros(len(offered))

    def scores(self, free: Column) -> Column:
        """The scores of all nodes, by what is free there now; read only."""
        if len(self.outdated) > FEW_SCORES:
            self._measure, self._doubt = np.where(self.offered, free, np.nan), True
        else:
            for node in self.outdated:
                self._put(node, float(free[node]))
        if self._doubt:
            self._look_for_extremes()
            self._scores = np.array(self._plugin.relative(self._measure, self._low, self._high))
        else:
            for node in self.outdated:
                if self.offered[node]:
                    self._scores[node] = self._score(float(self._measure[node]))
        self.outdated.clear()
        return self._scores

    def _put(self, node: int, free: float) -> None:
        old = float(self._measure[node])
        if old != old or free == old:
            return
        self._measure[node] = free
        if not (self._low < old < self._high and self._low < free < self._high):
            self._count(old, free)

    def _count(self, old: float, new: float) -> None:
        low, high = self._low, self._high
        self._at_low += (new == low) - (old == low)
        self._at_high += (new == high) - (old == high)
        if not (low <= new <= high and self._at_low and self._at_high):
            self._doubt = True

    def _look_for_extremes(self) -> None:
        self._low, self._high = _extremes(self._measure)
        self._at_low, self._at_high = (
            int(np.count_nonzero(self._measure == extreme)) for extreme in (self._low, self._high)
        )
        self._known.clear()
        self._doubt = False

    def _score(self, measure: float) -> float:
        score = self._known.get(measure)
        if score is None:
            score = self._known[measure] = float(self._plugin.relative(np.array([measure]), self._low, self._high)[0])
        return score

    def within(self, nodes: Rows, free: Column) -> Column:
        """The scores that nodes have among each other, by what is free there now."""
        measure = np.where(self.offered.take(nodes), free, np.nan)
        return self._plugin.relative(measure, *_extremes(measure))


def _extremes(measure: Column) -> tuple[float, float]:
    return float(np.fmin.reduce(measure, initial=np.nan)), float(np.fmax.reduce(measure, initial=np.nan))
