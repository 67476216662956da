"""Domains of a topology as slices of a column: racks within blocks within the cluster.

The nodes of a topology are put in tree order, sorted by the values of their level labels from the widest level to the
narrowest. Then every domain of every depth is one slice, a figure of all domains is one `reduceat`, and siblings are
in order of their ids. Depth 0 is the root (all nodes), depth d the d-th level. Domains are numbered per depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pykai.model.resources import Column, Rows

NOTHING_FREE = 1000.0
"""The tightness of a domain that has nothing of a requested resource."""
SCORE_STEPS = 10
SCORE_UNIT = 100_000.0


@dataclass(frozen=True, eq=False)
class DomainTree:
    """`order`: node rows in tree order. Per depth: where each domain starts in it, its parent and its first child."""

    order: Rows
    starts: tuple[Rows, ...]
    parents: tuple[Rows, ...]
    children: tuple[Rows, ...]

    def count(self, depth: int) -> int:
        return len(self.starts[depth])

    def ends(self, depth: int) -> Rows:
        return np.append(self.starts[depth], len(self.order))[1:]

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


def within(tree: DomainTree, kept: Rows) -> DomainTree:
    """The part of a tree that holds the nodes at the given positions, ascending."""
    domains = [tree.domain_of(depth, kept) for depth in range(1, len(tree.starts))]
    return _sliced(tree.order[kept], np.array(domains, dtype=np.int64).reshape(len(domains), len(kept)))


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


def sums_by_depth(tree: DomainTree, deepest: int, block: Column) -> list[Column]:
    """Figures of nodes `[..., position]` added up per domain, for each depth from the root to the deepest."""
    if not len(tree.order):
        return [np.zeros((*block.shape[:-1], tree.count(depth))) for depth in range(deepest + 1)]
    sums = [np.add.reduceat(block, tree.starts[deepest], axis=-1)]
    for depth in range(deepest - 1, -1, -1):
        sums.append(np.add.reduceat(sums[-1], tree.children[depth], axis=-1))
    return sums[::-1]


def pods_per_node(free: Column, need: Column) -> Column:
    """How many pods that take `need[resource]` each go into `free[resource, node]`; needs are above zero."""
    return np.asarray(np.maximum(np.trunc((free / need[:, None]).min(axis=0)), 0.0))


def tightness(total: Column, free: Column) -> Column:
    """The largest part that `total[resource]` would take of `free[resource, domain]`; 0 where nothing is asked."""
    taken = np.full(free.shape, NOTHING_FREE)
    np.divide(total[:, None], free, out=taken, where=free > 0)
    return np.asarray(taken.max(axis=0, initial=0.0))


def left_to_right(tree: DomainTree, tight: Sequence[Column]) -> list[Rows]:
    """The domains of depth 1, 2, ... in tree order: below each parent the tightest first, then by id."""
    orders: list[Rows] = []
    for depth, ratio in enumerate(tight, start=1):
        if not orders:
            orders.append(np.argsort(-ratio, kind="stable"))
        else:
            place = np.empty_like(orders[-1])
            place[orders[-1]] = np.arange(len(place))
            orders.append(np.lexsort((-ratio, place[tree.parents[depth]])))
    return orders


def position_scores(tree: DomainTree, depth: int, order: Rows) -> Column:
    """Scores by position in the tree: domains further right in the given order score higher, in ten steps."""
    count = len(order)
    scores = np.empty(count)
    scores[order] = SCORE_STEPS * np.arange(1, count + 1) // max(count, 1) * SCORE_UNIT
    return np.repeat(scores, tree.ends(depth) - tree.starts[depth])
