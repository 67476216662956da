"""Orders of nodes that classes of pods share which differ in amounts alone: the first node with enough is the best one.

Where requests differ from pod to pod, a ranking for each class is rarely used again, or has to follow what is placed
for all the others. An order of the nodes serves all of these classes, and follows once. It answers for pods that can
start at once, and mostly for those that wait; for the others the ranking of their class does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np

from pykai.engine.best_nodes import NodesByRoom, SortedNodes, ordered_by_figures
from pykai.engine.node_facts import NodeFacts
from pykai.engine.node_states import NodeState
from pykai.engine.plugin_api import RelativeScore
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column, Rows

Best = tuple[int, bool]
"""A node, and whether the class fits there without waiting for a release."""
NOWHERE: Best = (-1, False)
"""Instead of a node: the class fits on none."""
MOST_TRIED = 16
"""Number of nodes of an order that are tried for a pod."""
MOST_STEPS = 128
"""Number of sizes of shares by which nodes are grouped."""


class CommonOrder(Protocol):
    """An order of nodes."""

    def first(self, pod_class: PodClass) -> Best | None:
        """Return the best node for a pod of a class; `NOWHERE` if it fits on no node. None: the nodes that were tried
        do not show it."""
        ...


class CommonOrders:
    """The orders of a cycle, by `NodeFacts.but_amounts`."""

    def __init__(self, facts: NodeFacts) -> None:
        self._facts = facts
        self._known: dict[Hashable, CommonOrder | None] = {}
        self._of_class: dict[int, CommonOrder | None] = {}

    def of(self, pod_class: PodClass) -> CommonOrder | None:
        """Return the order for a class; None: which of two nodes is better depends on others, or on more than score and
        measure."""
        row = pod_class.row
        if row not in self._of_class:
            self._of_class[row] = self._shared_by(pod_class) if self._facts.steady else None
        return self._of_class[row]

    def _shared_by(self, pod_class: PodClass) -> CommonOrder | None:
        key = (pod_class.compute_mode if pod_class.shared else -1, self._facts.but_amounts(pod_class))
        if key not in self._known:
            self._known[key] = self._made(pod_class)
        return self._known[key]

    def _made(self, pod_class: PodClass) -> CommonOrder | None:
        facts = self._facts
        measured, span = [row for row in facts.measured(pod_class) if row is not None], span_of(facts.relative)
        if span is None or len(measured) != 1:
            return None
        if pod_class.shared:
            return _share_order(facts, pod_class, span) if measured[0] == GPU else None
        return _whole_order(facts, pod_class, measured[0], span)


def span_of(relative: Sequence[RelativeScore]) -> float | None:
    """Return the largest possible difference of relative scores if all plugins declare `packs`; else None."""
    spans: list[float] = [plugin.packs for plugin in relative if hasattr(plugin, "packs")]
    return sum(spans) if len(spans) == len(relative) else None


def _fits(state: NodeState, demand: Sequence[tuple[int, float]]) -> bool | None:
    """Whether a node has these amounts idle; None: not even with what is being released."""
    idle, free, _ = state
    now = True
    for row, need in demand:
        if free[row] < need:
            return None
        now = now and idle[row] >= need
    return now


# ----------------------------------------------------------------------------------------------- pods without shares
def _whole_order(facts: NodeFacts, pod_class: PodClass, resource: int, span: float) -> WholeOrder | None:
    nodes, steady = np.flatnonzero(facts.allowed(pod_class)), facts.steady_scores(pod_class)
    now, later = steady.column(True, False)[nodes], steady.column(False, False)[nodes]
    if not len(nodes) or not ordered_by_figures(now, span) or now.min() - later.max() <= span or np.ptp(now - later):
        return None
    return WholeOrder(facts, nodes, now, resource)


class WholeOrder:
    """Nodes by score, then by what is free of a resource: those where a pod starts in the same order as those where it
    waits."""

    def __init__(self, facts: NodeFacts, nodes: Rows, scores: Column, resource: int) -> None:
        self._facts, self._resource, self._touched = facts, resource, facts.trial.touched
        self._nodes = SortedNodes(nodes, scores, facts.states().free[resource])
        self._read = len(self._touched)

    def first(self, pod_class: PodClass) -> Best | None:
        demand = pod_class.demand
        least = dict(demand).get(self._resource)
        if least is None:  # nodes that have none of the resource are feasible, too
            return None
        state_of, later = self._facts.states().of, NOWHERE
        for node in set(self._touched[self._read :]):
            self._nodes.put(node, state_of(node).free[self._resource])
        self._read = len(self._touched)
        for tried, node in enumerate(self._nodes.above(least)):
            if tried == MOST_TRIED:
                return None
            fits = _fits(state_of(node), demand)
            if fits:
                return node, True
            if fits is False and later is NOWHERE:
                later = node, False
        return later


# ------------------------------------------------------------------------------------------------------------- shares
def _share_order(facts: NodeFacts, pod_class: PodClass, span: float) -> ShareOrder | None:
    """Return the order for shares of devices of one size where all nodes score the same but for having a shared device
    with room, and for waiting."""
    snapshot, steady = facts.trial.snapshot, facts.steady_scores(pod_class)
    nodes = np.flatnonzero(facts.allowed(pod_class) & (snapshot.nodes.allocatable[GPU] > 0))
    if not len(nodes) or facts.states().free[GPU, nodes].min() < 0:
        return None
    scores = [steady.column(now, shared)[nodes] for shared in (True, False) for now in (True, False)]
    if any(np.ptp(column) for column in (snapshot.nodes.gpu_memory[nodes], *scores)):
        return None
    beside, beside_later, alone, alone_later = (float(column[0]) for column in scores)
    if beside - max(beside_later, alone, alone_later) <= span or alone - alone_later <= span:
        return None
    return ShareOrder(facts, nodes, pod_class.compute_mode)


class ShareOrder:
    """Nodes with shared devices by room, then by free GPUs; all nodes by free GPUs."""

    def __init__(self, facts: NodeFacts, nodes: Rows, mode: int) -> None:
        self._facts, self._mode, self._touched = facts, mode, facts.trial.touched
        self._example = int(nodes[0])
        self._capacity = facts.trial.amounts.gpu_memory[self._example]
        self._memory: dict[int, float] = {}
        """What a share takes of a device, by class row."""
        self._nodes = frozenset(nodes.tolist())
        self._shared = NodesByRoom(self._steps())
        self._whole = SortedNodes(nodes, np.zeros(len(nodes)), facts.states().free[GPU])
        self._put(self._nodes)
        self._read = len(self._touched)

    def _steps(self) -> list[float]:
        """The sizes of shares that pods request (MiB), ascending; some of them, where there are many."""
        amounts, classes = self._facts.trial.amounts, self._facts.trial.snapshot.pods.classes
        sizes = sorted({amounts.share_memory(c, self._example) for c in classes if c.shared})
        return sizes[:: -(-len(sizes) // MOST_STEPS)]

    def _put(self, nodes: set[int] | frozenset[int]) -> None:
        state_of = self._facts.seen.of
        for node in nodes:
            state = state_of(node)
            left, free = state.rooms[self._mode], state.free[GPU]
            self._shared.put(node, left[-1] if left else -1.0, free)
            self._whole.put(node, free)

    def first(self, pod_class: PodClass) -> Best | None:
        memory = self._memory.get(pod_class.row)
        if memory is None:
            memory = self._memory[pod_class.row] = self._facts.trial.amounts.share_memory(pod_class, self._example)
        if pod_class.devices != 1 or memory > self._capacity:
            return None
        state_of, demand = self._facts.states().of, pod_class.demand
        self._put(self._nodes.intersection(self._touched[self._read :]))
        self._read = len(self._touched)
        tried, waits = 0, False
        for found, wanted in ((self._shared.above(memory), 1), (self._whole.above(1.0), 0)):
            for node in found:
                if tried == MOST_TRIED:
                    return None
                tried += 1
                state = state_of(node)
                left = state.rooms[self._mode]
                shared = len(left) - bisect_left(left, memory)
                fits = _fits(state, demand)
                if shared < wanted or fits is None or state.free[GPU] + shared < 1:
                    continue
                if fits and state.idle[GPU] + shared >= 1:
                    return node, True
                waits = True
            if waits:
                return None
        return NOWHERE
