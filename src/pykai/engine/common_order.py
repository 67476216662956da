"""Orders of nodes that classes of pods share which differ in amounts or in the nodes they may use: the first node that
is allowed and has enough is the best one.

Where requests or constraints differ from pod to pod, a ranking for each class is rarely used again, or has to follow
what is placed for all the others. An order of the nodes serves all of these classes, and follows once. It answers for
pods that can start at once, and mostly for those that wait; for the others the ranking of their class does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Protocol

import numpy as np

from pykai.engine.best_nodes import Measured, NodesByRoom, SortedNodes, ordered_by_figures
from pykai.engine.node_facts import NodeFacts
from pykai.engine.node_states import NodeState
from pykai.engine.plugin_api import RelativeScore
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column, Mask, Rows

Best = tuple[int, bool]
"""A node, and whether the class fits there without waiting for a release."""
NOWHERE: Best = (-1, False)
"""Instead of a node: the class fits on none."""
MOST_TRIED = 16
"""Number of allowed nodes of an order that are tried for a pod."""
MOST_LOOKED_AT = 512
"""Number of nodes of an order that are looked at for a pod, most of which it may not use."""
FEW = 32
"""Up to so many allowed nodes are put in order for each pod anew."""
MOST_MISSES = 8
"""If an order did not answer so often for the same allowed nodes, these get an order of their own."""
MOST_COVERED = 16
"""Such orders are made until they cover so many times as many nodes as there are."""
MOST_STEPS = 128
"""Number of sizes of shares by which nodes are grouped."""
MOST_SIZES = 8
"""Number of sizes of devices in an order for shares."""


@dataclass(frozen=True, eq=False)
class Reach:
    """The nodes that filters allow a class."""

    mask: Mask
    cells: bytes
    """0 or 1 by node."""
    few: Sequence[int] | None
    """These nodes, if there are up to `FEW` of them; else None."""


class CommonOrder(Protocol):
    """An order of nodes."""

    def first(self, pod_class: PodClass, reach: Reach) -> Best | None:
        """Return the best node for a pod of a class; `NOWHERE` if it fits on no node. None: the nodes that were tried
        do not show it."""
        ...


@dataclass(eq=False)
class Choice:
    """The order for classes with the same `NodeFacts.ordering` and allowed nodes; None: which of two nodes is better
    depends on others, or on more than score and measure."""

    order: CommonOrder | None
    reach: Reach
    missed: int = 0
    """How often the order did not answer."""


class CommonOrders:
    """The orders of a cycle: of all nodes by `NodeFacts.ordering`; beside them, of the nodes that some classes are
    allowed, where these are too few to be found among all."""

    def __init__(self, facts: NodeFacts) -> None:
        self._facts = facts
        self._of_all: dict[Hashable, CommonOrder | None] = {}
        self._choices: dict[Hashable, Choice] = {}
        self._of_class: dict[int, Choice] = {}
        self._left = MOST_COVERED * len(facts.every)
        """Number of nodes that further orders of some nodes may have."""

    def first(self, pod_class: PodClass) -> Best | None:
        """Return what `CommonOrder.first` of the order for a class does; None also if there is no order for it."""
        choice = self._of_class.get(pod_class.row)
        if choice is None:
            choice = self._of_class[pod_class.row] = self._choice(pod_class)
        if choice.order is None:
            return None
        best = choice.order.first(pod_class, choice.reach)
        if best is None:
            choice.missed += 1
            if choice.missed == MOST_MISSES and choice.reach.few is None:
                self._narrow(choice, pod_class)
        return best

    def _choice(self, pod_class: PodClass) -> Choice:
        facts, mask = self._facts, self._facts.allowed(pod_class)
        mode = pod_class.compute_mode if pod_class.shared else -1
        key = mode, facts.ordering(pod_class)
        known = self._choices.get((key, id(mask)))
        if known is None:
            if key not in self._of_all:
                self._of_all[key] = self._made(pod_class, facts.every) if facts.steady else None
            few = np.flatnonzero(mask).tolist() if np.count_nonzero(mask) <= FEW else None
            reach = Reach(mask, facts.allowed_cells(pod_class), few)
            known = self._choices[key, id(mask)] = Choice(self._of_all[key], reach)
        return known

    def _narrow(self, choice: Choice, pod_class: PodClass) -> None:
        """Make an order of the allowed nodes alone, unless most nodes are allowed or there are many such orders."""
        nodes = np.flatnonzero(choice.reach.mask)
        if 2 * len(nodes) <= len(choice.reach.mask) and len(nodes) <= self._left:
            self._left -= len(nodes)
            choice.order = self._made(pod_class, nodes)

    def _made(self, pod_class: PodClass, nodes: Rows) -> CommonOrder | None:
        facts = self._facts
        measured, span = [row for row in facts.measured(pod_class) if row is not None], span_of(facts.relative)
        if span is None or len(measured) != 1:
            return None
        if pod_class.shared:
            return _share_order(facts, pod_class, nodes, span) if measured[0] == GPU else None
        return _whole_order(facts, pod_class, nodes, (measured[0], span))


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


def _among(entries: Iterable[Measured], reach: Reach) -> Iterator[int]:
    """Yield the allowed nodes of some entries; -1 in place of all that follow `MOST_LOOKED_AT` of these."""
    cells, left = reach.cells, iter(entries)
    for _, node in islice(left, MOST_LOOKED_AT):
        if cells[node]:
            yield node
    if next(left, None) is not None:
        yield -1


# ----------------------------------------------------------------------------------------------- pods without shares
def _whole_order(facts: NodeFacts, pod_class: PodClass, nodes: Rows, measured: tuple[int, float]) -> WholeOrder | None:
    (resource, span), steady = measured, facts.steady_scores(pod_class)
    now, later = steady.column(True, False)[nodes], steady.column(False, False)[nodes]
    if not len(nodes) or not ordered_by_figures(now, span) or now.min() - later.max() <= span or np.ptp(now - later):
        return None
    return WholeOrder(facts, nodes, now, resource)


class WholeOrder:
    """Nodes by score, then by what is free of a resource: those where a pod starts in the same order as those where it
    waits."""

    def __init__(self, facts: NodeFacts, nodes: Rows, scores: Column, resource: int) -> None:
        self._facts, self._resource, self._touched = facts, resource, facts.trial.touched
        self._rows = nodes
        self._nodes = SortedNodes(nodes, scores, facts.states().free[resource])
        self._read = len(self._touched)

    def first(self, pod_class: PodClass, reach: Reach) -> Best | None:
        demand = pod_class.demand
        least = dict(demand).get(self._resource)
        if least is None:  # nodes that have none of the resource are feasible, too
            return None
        self._follow()
        if reach.few is not None:
            return _first(self._facts, self._nodes.of(reach.few), demand, len(reach.few))
        return _first(self._facts, _among(self._nodes.above(least), reach), demand, MOST_TRIED)

    def _follow(self) -> None:
        states = self._facts.states()
        if self._read < len(self._touched):
            for node in self._facts.trial.touched_since(self._read, self._rows):
                self._nodes.put(node, states.of(node).free[self._resource])
            self._read = len(self._touched)


def _first(facts: NodeFacts, nodes: Iterable[int], demand: Sequence[tuple[int, float]], most: int) -> Best | None:
    """Return the first node with these amounts idle, else the first with what is being released; None: neither is
    among the first `most`, and there are more."""
    state_of, later = facts.seen.of, NOWHERE
    for tried, node in enumerate(nodes):
        if node < 0 or tried == most:
            return None
        fits = _fits(state_of(node), demand)
        if fits:
            return node, True
        if fits is False and later is NOWHERE:
            later = node, False
    return later


# ------------------------------------------------------------------------------------------------------------- shares
def _share_order(facts: NodeFacts, pod_class: PodClass, nodes: Rows, span: float) -> ShareOrder | None:
    """Return the order for shares of devices where all nodes score the same but for having a shared device with room,
    and for waiting, and devices have few sizes."""
    snapshot, steady = facts.trial.snapshot, facts.steady_scores(pod_class)
    nodes = nodes[snapshot.nodes.allocatable[GPU, nodes] > 0]
    if not len(nodes) or facts.states().free[GPU, nodes].min() < 0:
        return None
    scores = [steady.column(now, shared)[nodes] for shared in (True, False) for now in (True, False)]
    if any(np.ptp(column) for column in scores) or len(np.unique(snapshot.nodes.gpu_memory[nodes])) > MOST_SIZES:
        return None
    beside, beside_later, alone, alone_later = (float(column[0]) for column in scores)
    if beside - max(beside_later, alone, alone_later) <= span or alone - alone_later <= span:
        return None
    return ShareOrder(facts, nodes, pod_class.compute_mode)


class SizeOrder:
    """Nodes with devices of one size: those with shared devices by room, then by free GPUs; all by free GPUs."""

    def __init__(self, facts: NodeFacts, nodes: Rows) -> None:
        amounts, classes = facts.trial.amounts, facts.trial.snapshot.pods.classes
        self.example = int(nodes[0])
        """One of the nodes."""
        self.capacity = amounts.gpu_memory[self.example]
        """MiB of a device."""
        shares = sorted({amounts.share_memory(c, self.example) for c in classes if c.shared})
        self.shared = NodesByRoom(shares[:: -(-len(shares) // MOST_STEPS)])
        self.whole = SortedNodes(nodes, np.zeros(len(nodes)), facts.states().free[GPU])


class ShareOrder:
    """The nodes by size of their devices, in an order for each."""

    def __init__(self, facts: NodeFacts, nodes: Rows, mode: int) -> None:
        self._facts, self._mode, self._touched = facts, mode, facts.trial.touched
        self._rows, memory = nodes, facts.trial.snapshot.nodes.gpu_memory[nodes]
        each = [nodes[memory == size] for size in np.unique(memory).tolist()]
        self._sizes = [SizeOrder(facts, rows) for rows in each]
        self._size_of = {n: size for rows, size in zip(each, self._sizes, strict=True) for n in rows.tolist()}
        self._memory: dict[int, dict[SizeOrder, float]] = {}
        """By class row: what a share takes of a device (MiB), for sizes that are large enough."""
        self._put(nodes.tolist())
        self._read = len(self._touched)

    def _put(self, nodes: Iterable[int]) -> None:
        state_of, size_of = self._facts.seen.of, self._size_of
        for node in nodes:
            size = size_of.get(node)
            if size is not None:
                state = state_of(node)
                left, free = state.rooms[self._mode], state.free[GPU]
                size.shared.put(node, left[-1] if left else -1.0, free)
                size.whole.put(node, free)

    def first(self, pod_class: PodClass, reach: Reach) -> Best | None:
        if pod_class.devices != 1:
            return None
        states, demand, memory = self._facts.states(), pod_class.demand, self._memory_of(pod_class)
        if self._read < len(self._touched):
            self._put(self._facts.trial.touched_since(self._read, self._rows))
            self._read = len(self._touched)
        tried, most, waits = 0, 2 * FEW if reach.few is not None else MOST_TRIED, False
        for wanted in (1, 0):  # shared devices with room
            for node in self._in_order(memory, reach, wanted):
                if node < 0 or tried == most:
                    return None
                tried += 1
                state = states.of(node)
                left = state.rooms[self._mode]
                shared = len(left) - bisect_left(left, memory[self._size_of[node]])
                fits = _fits(state, demand)
                if shared < wanted or fits is None or state.free[GPU] + shared < 1:
                    continue
                if fits and state.idle[GPU] + shared >= 1:
                    return node, True
                waits = True
            if waits:
                return None
        return NOWHERE

    def _memory_of(self, c: PodClass) -> dict[SizeOrder, float]:
        known = self._memory.get(c.row)
        if known is None:
            taken = {size: self._facts.trial.amounts.share_memory(c, size.example) for size in self._sizes}
            known = self._memory[c.row] = {size: each for size, each in taken.items() if each <= size.capacity}
        return known

    def _in_order(self, memory: Mapping[SizeOrder, float], reach: Reach, wanted: int) -> Iterator[int]:
        """Yield the nodes that may have so many shared devices with room, the fewest free GPUs first, as `_among`."""
        if reach.few is not None:
            nodes = [node for node in reach.few if self._size_of.get(node) in memory]
            free = self._facts.seen.of
            return iter(sorted(nodes, key=lambda node: (free(node).free[GPU], node)))
        orders = [size.shared.above(each) if wanted else size.whole.above(1.0) for size, each in memory.items()]
        return _among(orders[0] if len(orders) == 1 else merge(*orders), reach)
