"""Sub-groups that must each be within one rack: whether they fit into blocks, and the fewest racks for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pykai.engine.cycle import Cycle
from pykai.engine.policy import Policy
from pykai.engine.sub_domains import SubDomains, sub_domains
from pykai.plugins.topology import Topology
from tests import builders
from tests.builders import NOW, decoded

from .clusters import gang, node, pod, seen

BLOCKS, RACKS = np.array([0, 0, 0, 0, 1, 1, -1]), np.array([0, 0, 1, 1, 2, 2, -1])
"""By node; the last is in none."""


@pytest.mark.parametrize(
    ("sizes", "counts", "fits"),
    [
        ([2], [1, 1, 0, 0, 0, 0, 9], [True, False]),
        ([2], [1, 0, 1, 0, 2, 0, 9], [False, True]),  # enough in the block, but not in one rack of it
        ([2, 2], [3, 0, 1, 0, 4, 0, 9], [False, True]),
        ([2, 2], [2, 0, 1, 1, 0, 2, 9], [True, False]),
        ([3, 1], [3, 0, 0, 1, 2, 1, 9], [True, True]),  # each size counts as if the others wanted nothing
        ([3, 3, 1], [3, 3, 2, 0, 3, 3, 9], [True, True]),
        ([3, 3, 1], [3, 2, 2, 0, 3, 3, 9], [False, True]),
    ],
)
def test_free_places_count_in_whole_sub_groups(sizes: Sequence[int], counts: Sequence[float], fits: list[bool]) -> None:
    parts = SubDomains(RACKS, np.array([0, 0, 1]), sizes)
    assert parts.fit(np.array(counts, dtype=float), 2).tolist() == fits


@pytest.mark.parametrize(
    ("sizes", "counts", "first", "racks"),
    [
        ([2], [4, 0, 2, 0, 0, 0, 0], 0, {0}),  # that of the node, though it has more room
        ([2], [4, 0, 2, 0, 0, 0, 0], 2, {1}),
        ([2], [1, 0, 2, 0, 0, 0, 0], 0, {1}),  # it is too small
        ([2, 2], [3, 0, 2, 0, 0, 0, 0], 0, {0, 1}),
        ([2, 2], [4, 0, 2, 0, 0, 0, 0], 0, {0}),
        ([2, 2, 2], [3, 0, 2, 0, 0, 0, 0], 0, {0, 1}),  # not enough: all that could hold one of them
        ([5], [3, 0, 2, 0, 9, 0, 0], 0, set()),  # that of another block is of no use
    ],
)
def test_victims_are_looked_for_in_the_fewest_narrow_domains(
    sizes: Sequence[int], counts: Sequence[float], first: int, racks: set[int]
) -> None:
    parts = SubDomains(RACKS, np.array([0, 0, 1]), sizes)
    nodes = np.flatnonzero(parts.tightest(np.array(counts, dtype=float), 0, first))
    assert set(RACKS[nodes].tolist()) == racks


def test_sub_groups_with_domains_of_their_own_at_every_level() -> None:
    """Of `b`, which has no pod among those asked about, nothing is known; `c` is within `top`, `d` may be anywhere."""
    rack = {"topology": "tree", "requiredTopologyLevel": "rack"}
    groups = [
        {"name": "top", "topologyConstraint": {"topology": "tree", "requiredTopologyLevel": "block"}},
        {"name": "a", "minMember": 1, "topologyConstraint": rack},
        {"name": "b", "minMember": 1, "topologyConstraint": rack},
        {"name": "c", "parent": "top", "minMember": 2, "topologyConstraint": rack},
        {"name": "d", "minMember": 1},
    ]
    nodes = [node(f"n{at}", 1, labels={"block": f"b{at // 4}", "rack": f"r{at // 2}"}) for at in range(6)]
    levels = [{"nodeLabel": "block"}, {"nodeLabel": "rack"}]
    tree = decoded({"kind": "Topology", "metadata": {"name": "tree"}, "spec": {"levels": levels}})
    pods = [pod(f"new-{at}", gpus=1, part=part) for at, part in enumerate("abccd")]
    snapshot = seen(*nodes, tree, builders.queue("q"), gang("new", subGroups=groups), *pods)
    cycle = Cycle(snapshot, Policy((Topology(),)), NOW)
    rows = [row for row, name in enumerate(snapshot.pods.names) if name != "new-1"]
    found = sub_domains(cycle, rows, np.zeros(6, dtype=np.int64))
    assert [(part.cells.tolist(), sorted(part.sizes)) for part in found] == [
        ([0, 0, 1, 1, 2, 2], [1, 2]),
        ([0, 0, 0, 0, 1, 1], [2]),
    ]
