"""What is to be known of nodes before any are compared: which a class may use, what it must find free there, and how
they are at this moment. Kept by class or by node, as long as it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from operator import add
from typing import NamedTuple

import numpy as np

from pykai.engine import points
from pykai.engine.devices import rooms
from pykai.engine.policy import Policy
from pykai.engine.ranked import UNFIT
from pykai.engine.trial import Trial
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Mask, Rows

Relief = Callable[[PodClass, Rows], Column | None]


class NodeState(NamedTuple):
    """One node at this moment: amounts by resource, and the room on its shared devices, ascending (MiB)."""

    idle: list[float]
    free: list[float]
    """Idle plus what is being released."""
    rooms: list[float]


class NodeFacts:
    """What all rankings of a cycle share."""

    def __init__(self, trial: Trial, policy: Policy) -> None:
        self.trial = trial
        self.filters = policy.of(points.NodeFilter)  # type: ignore[type-abstract]
        self.scores = policy.of(points.NodeScore)  # type: ignore[type-abstract]
        self.relative = policy.of(points.RelativeScore)  # type: ignore[type-abstract]
        self.reliefs: tuple[Relief, ...] = ()
        """What a class need not find free on nodes, [resource, node]."""
        self.every = np.arange(len(trial.snapshot.nodes))
        self._allowed: dict[int, Mask] = {}
        self._needs: dict[int, Column] = {}
        self._states: dict[int, NodeState] = {}
        self._read = 0

    def states(self) -> Callable[[int], NodeState]:
        """How nodes are at this moment, by row; what one class asked for the next one need not work out."""
        touched = self.trial.touched
        for node in touched[self._read :]:
            self._states.pop(node, None)
        self._read = len(touched)
        return self._state

    def _state(self, node: int) -> NodeState:
        known = self._states.get(node)
        if known is None:
            trial = self.trial
            idle: list[float] = trial.idle[:, node].tolist()
            free = list(map(add, idle, trial.releasing[:, node].tolist()))
            shares = trial.shares.get(node)
            left = rooms(shares, trial.amounts.gpu_memory[node]) if shares else []
            known = self._states[node] = NodeState(idle, free, left)
        return known

    @cached_property
    def steady(self) -> bool:
        """Whether the scores of a node follow from few facts, so that one node is scored by looking them up."""
        return not self.reliefs and all(getattr(plugin, "steady", False) for plugin in self.scores)

    def need(self, pod_class: PodClass, nodes: Rows) -> Column:
        """What a class must find free, [resource, node], one column where that is the same on all nodes; -inf where
        it asks for nothing: a node that is short of something does not matter to who does not want it."""
        need = self._needs.get(pod_class.row)
        if need is None:
            need = np.full((len(pod_class.request), 1), UNFIT)
            need[pod_class.dims, 0] = pod_class.request[pod_class.dims]
            self._needs[pod_class.row] = need
        for relief in self.reliefs:
            spared = relief(pod_class, nodes)
            if spared is not None:
                need = need - spared
        return need

    def least(self, pod_class: PodClass) -> Column:
        """What a class must find free at least, wherever it goes; read only."""
        least = pod_class.request
        for relief in self.reliefs:
            spared = relief(pod_class, self.every)
            if spared is not None:
                least = least - spared.max(axis=1, initial=0.0)
        return least

    def rejections(self, pod_class: PodClass) -> Iterator[points.Rejection]:
        for node_filter in self.filters:
            yield from node_filter.rejections(self.trial.snapshot, pod_class)

    def allowed(self, pod_class: PodClass) -> Mask:
        """Nodes no filter rejects for the class, whatever is placed where."""
        mask = self._allowed.get(pod_class.row)
        if mask is None:
            mask = np.ones(len(self.trial.snapshot.nodes), dtype=bool)
            for _, rejected in self.rejections(pod_class):
                mask &= ~rejected
            self._allowed[pod_class.row] = mask
        return mask
