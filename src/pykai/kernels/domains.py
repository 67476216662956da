"""Domains of a topology as slices of a column: racks within blocks within the cluster.

The nodes of a topology are put in tree order, sorted by the values of their level labels from the widest level to the
narrowest. Then every domain of every depth is one slice, a figure of all domains is one `reduceat`, and siblings are
in order of their ids. Depth 0 is the root (all nodes), depth d the d-th level. Domains are numbered per depth.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from pykai.model.resources import Column, Rows

NOTHING_FREE = 1000.0
"""The tightness of a domain that has nothing of a requested resource."""
SCORE_STEPS = 10
SCORE_UNIT = 100_000.0
Sums = list[list[float]]
"""[figure][domain]: lists, because few domains change and are looked at in a turn."""
_WHOLE = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class DomainTree:
    """`order`: node rows in tree order. Per depth: where each domain starts in it, its parent and its first child."""

    order: Rows
    starts: tuple[Rows, ...]
    parents: tuple[Rows, ...]
    children: tuple[Rows, ...]

    def count(self, depth: int) -> int:
        return len(self.starts[depth])

    @cached_property
    def cuts(self) -> list[list[int]]:
        """Per depth: where each domain starts in the tree order, and where the last one ends."""
        return [[*starts.tolist(), len(self.order)] for starts in self.starts]

    @cached_property
    def families(self) -> list[list[int]]:
        """Per depth but the deepest: the first child of each domain, and where the children of the last one end."""
        return [[*first.tolist(), self.count(depth)] for depth, first in enumerate(self.children, start=1)]

    @cached_property
    def above(self) -> list[list[int]]:
        """Per depth: the parent of each domain."""
        return [parents.tolist() for parents in self.parents]

    @cached_property
    def around(self) -> list[list[int]]:
        """Per depth: by position, the domain that it is in."""
        places = np.arange(len(self.order))
        return [self.domain_of(depth, places).tolist() for depth in range(len(self.starts))]

    def members(self, depth: int, domain: int) -> Rows:
        """The node rows of a domain, in tree order."""
        first, end = self.cuts[depth][domain : domain + 2]
        return self.order[first:end]

    def domain_of(self, depth: int, positions: Rows) -> Rows:
        """The domains at a depth that contain positions of the tree order."""
        return np.searchsorted(self.starts[depth], positions, side="right") - 1


def domain_tree(values: Sequence[Sequence[str | None]]) -> DomainTree:
    """The tree of `values[level][node]`, widest level first; a node that lacks one value is in no domain."""
    codes = np.array([_codes(column) for column in values], dtype=np.int64).reshape(len(values), -1)
    rows = np.flatnonzero((codes >= 0).all(axis=0))
    by_path = np.lexsort(codes[::-1, rows]) if len(values) else np.arange(len(rows))
    return _sliced(rows[by_path], codes[:, rows[by_path]])


def _codes(column: Sequence[str | None]) -> list[int]:
    """Each value's rank among the distinct ones; -1 for None."""
    rank: dict[str | None, int] = {value: at for at, value in enumerate(sorted({v for v in column if v is not None}))}
    rank[None] = -1
    return [rank[value] for value in column]


def within(tree: DomainTree, kept: Sequence[int]) -> DomainTree:
    """The part of a tree that holds the nodes at the given positions, ascending."""
    places = np.array(kept, dtype=np.int64)
    domains = [tree.domain_of(depth, places) for depth in range(1, len(tree.starts))]
    return _sliced(tree.order[places], np.array(domains, dtype=np.int64).reshape(len(domains), len(kept)))


def _sliced(order: Rows, codes: Rows) -> DomainTree:
    """Cut nodes in tree order wherever a code `[level, position]` changes."""
    starts = [np.zeros(1, dtype=np.int64)]
    first = np.zeros(len(order), dtype=bool)
    first[:1] = True
    for level in codes:
        first[1:] |= level[1:] != level[:-1]
        starts.append(np.flatnonzero(first))
    steps = list(pairwise(starts))
    parents = [starts[0], *(np.searchsorted(above, begin, side="right") - 1 for above, begin in steps)]
    return DomainTree(order, tuple(starts), tuple(parents), tuple(np.searchsorted(b, above) for above, b in steps))


def common_depth(tree: DomainTree, deepest: int) -> int:
    """How far down, at most to `deepest`, one domain holds all the nodes."""
    depth = 0
    while depth < deepest and tree.count(depth + 1) == 1:
        depth += 1
    return depth


def sums_by_depth(tree: DomainTree, deepest: int, figures: Column) -> list[Sums]:
    """Figures of nodes `[figure, position]` added up per domain, for each depth from the root to the deepest."""
    if not len(tree.order):
        return [[[0.0] * tree.count(depth) for _ in figures] for depth in range(deepest + 1)]
    sums: list[Sums] = [np.add.reduceat(figures, tree.starts[deepest], axis=-1).tolist()]
    for family in reversed(tree.families[:deepest]):
        spans = list(pairwise(family))
        sums.append([[sum(below[first:end]) for first, end in spans] for below in sums[-1]])
    return sums[::-1]


def sum_again(tree: DomainTree, figures: Column, sums: Sequence[Sums], domains: Set[int]) -> None:
    """Add up anew, in `sums` by depth, what the nodes in these domains of the deepest depth have, and so what all
    domains around them have: the same additions as of `sums_by_depth`."""
    deepest = len(sums) - 1
    cuts = tree.cuts[deepest]
    for at in domains:
        totals = np.add.reduceat(figures[:, cuts[at] : cuts[at + 1]], _WHOLE, axis=-1)[:, 0].tolist()
        for added, total in zip(sums[deepest], totals, strict=True):
            added[at] = total
    for depth in range(deepest - 1, -1, -1):
        domains, first = {tree.above[depth + 1][at] for at in domains}, tree.families[depth]
        for below, added in zip(sums[depth + 1], sums[depth], strict=True):
            for at in domains:
                added[at] = sum(below[first[at] : first[at + 1]])


def pods_per_node(free: Column, need: Column) -> Column:
    """How many pods that take `need[resource]` each go into `free[resource, node]`; needs are above zero."""
    return np.asarray(np.maximum(np.trunc(np.minimum.reduce(free / need[:, None])), 0.0))


def tightness(total: Column, free: Column) -> Column:
    """The largest part that `total[resource]` would take of `free[resource, domain]`; 0 where nothing is asked."""
    taken = np.full(free.shape, NOTHING_FREE)
    np.divide(total[:, None], free, out=taken, where=free > 0)
    return np.asarray(taken.max(axis=0, initial=0.0))


def tightness_of(total: Sequence[float], free: Sequence[float]) -> float:
    """The same for one domain, by resource."""
    return max([want / have if have > 0 else NOTHING_FREE for want, have in zip(total, free, strict=True)], default=0.0)


class TreeOrder:
    """The domains of a tree from left to right: below each parent the tightest first, then by id.

    `tight[depth][domain]` are the ratios; one that changes leaves all other families as they are.
    """

    def __init__(self, tree: DomainTree, tight: list[list[float]]) -> None:
        self.tree = tree
        self.tight = tight
        self._families: dict[tuple[int, int], list[int]] = {}

    def put(self, depth: int, domain: int, ratio: float) -> None:
        if self.tight[depth][domain] != ratio:
            self.tight[depth][domain] = ratio
            self._families.pop((depth, self.tree.above[depth][domain]), None)

    def family(self, depth: int, parent: int) -> Sequence[int]:
        """The domains of a depth below one of the depth above."""
        known = self._families.get((depth, parent))
        if known is None:
            first, tight = self.tree.families[depth - 1], self.tight[depth]
            children = range(first[parent], first[parent + 1])
            known = self._families[depth, parent] = sorted(children, key=tight.__getitem__, reverse=True)
        return known

    def level(self, depth: int) -> list[int]:
        """All domains of a depth."""
        found = [0]
        for at in range(1, depth + 1):
            found = [domain for parent in found for domain in self.family(at, parent)]
        return found


def position_scores(tree: DomainTree, depth: int, order: Sequence[int]) -> Column:
    """Scores by position in the tree: domains further right in the given order score higher, in ten steps."""
    count = len(order)
    scores = np.empty(count)
    scores[order] = SCORE_STEPS * np.arange(1, count + 1) // max(count, 1) * SCORE_UNIT
    return np.repeat(scores, np.diff(tree.cuts[depth]))
