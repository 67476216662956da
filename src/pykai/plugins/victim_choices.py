"""Ways of choosing victims among those a search has accumulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pykai.engine.accumulated import Accumulated
from pykai.engine.victim_order import VictimOrder
from pykai.model.resources import GPU, Column, Rows


@dataclass(frozen=True)
class OneNode:
    """Victims are searched node by node: for each node of the latest one, every gang with a pod there."""

    generator = "NodeLocalGreedy"
    for_gangs = False

    def one_by_one(self, order: VictimOrder, opens: Callable[[int, list[int]], bool | None]) -> Iterator[list[int]]:
        """The same for a single pod that fits nowhere yet, as batches come; it ends at one on several nodes, or where
        `opens`, which says whether a node takes the pod, gives up."""
        on_node: dict[int, tuple[list[int], list[int]]] = {}
        for number, pods, node in order.one_by_one():
            numbers, gone = on_node.setdefault(node, ([], []))
            numbers.append(number)
            gone.extend(pods)
            opened = opens(node, gone)
            if opened is None:
                return
            if opened:
                yield numbers.copy()

    def worth_a_look(self, found: Accumulated) -> Rows:
        missing = found.room.missing[found.nodes]
        if found.single:
            return found.where((found.own >= missing) & found.goes & found.own_enough)
        return found.where((found.total >= missing) & (found.along >= missing) & found.enough)

    def choices(self, found: Accumulated, latest: int, _: Sequence[float]) -> Iterator[list[int]]:
        start, end = np.searchsorted(found.batch_of, (latest, latest + 1)).tolist()
        for node in np.unique(found.nodes[start:end]):
            yield found.batches_on(np.array([node]), latest)


@dataclass(frozen=True)
class FewNodes:
    """Victims are searched on the fewest nodes, tightest first, that cover the need; then on more and more of them."""

    generator = "MultiNodeGang"
    for_gangs = True

    def worth_a_look(self, found: Accumulated) -> Rows:
        return found.where((found.total >= found.room.missing[found.nodes]) & found.enough)

    def choices(self, found: Accumulated, latest: int, needs: Sequence[float]) -> Iterator[list[int]]:
        start, end = np.searchsorted(found.batch_of, (latest, latest + 1)).tolist()
        free, domains = found.room.free[GPU], found.room.domains
        freed = np.bincount(found.nodes[:end], weights=found.amounts[GPU, :end], minlength=len(free))
        gained = np.zeros(len(free))
        np.maximum.at(gained, found.nodes[:end], found.own[:end])
        met, first = np.unique(found.nodes[:end], return_index=True)
        for domain, at in zip(*np.unique(domains[found.nodes[start:end]], return_index=True), strict=True):
            capacity, node = (free + freed)[met], int(found.nodes[start + at])
            useful = (capacity >= min(needs)) & (domains[met] == domain)
            useful &= found.room.tightest(gained, int(domain), node)[met]
            order = np.lexsort((first[useful], capacity[useful]))
            nodes, capacity = met[useful][order], capacity[useful][order]
            there = np.maximum(free[(domains == domain) & found.room.open], 0).sum()
            baseline = float(there - np.maximum(free[nodes], 0).sum())
            for count in _sizes(sum(needs) - baseline, capacity):
                yield found.batches_on(nodes[:count], latest)


def _sizes(need: float, capacities: Column) -> Iterator[int]:
    """Lengths of prefixes: the shortest that covers the need, then longer by 1, 2, 4 ... up to all."""
    size = int(np.searchsorted(np.cumsum(capacities), need - 1e-9)) + 1
    step = 1
    while size < len(capacities):
        yield size
        size, step = size + step, step * 2
    if len(capacities):
        yield len(capacities)
