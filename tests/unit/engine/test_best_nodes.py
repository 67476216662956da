"""The best node of a class, found without comparing all: as if all were compared."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pykai.engine.best_nodes import BestNodes, Entry, NodesByRoom, SortedNodes, ordered_by_figures
from pykai.engine.ranked import UNFIT

figures = st.tuples(
    st.sampled_from([UNFIT, 0.0, 1000.0, 11000.0]), st.sampled_from([0.0, 1.0, 2.0, 7.5]), st.booleans()
)


def entry(node: int, figure: tuple[float, float, bool]) -> Entry | None:
    local, measure, now = figure
    return None if local == UNFIT else (-local, measure, node, now)


@given(st.lists(figures, min_size=1, max_size=6), st.lists(st.tuples(st.integers(0, 5), figures), max_size=12))
def test_the_best_node_is_the_best_of_all(
    nodes: list[tuple[float, float, bool]], changes: list[tuple[int, tuple[float, float, bool]]]
) -> None:
    local, measure, now = (np.array(column) for column in zip(*nodes, strict=True))
    best, entries = BestNodes(local, measure, now), [entry(node, figure) for node, figure in enumerate(nodes)]
    for number, figure in [(0, nodes[0]), *changes]:
        node = number % len(nodes)
        entries[node] = entry(node, figure)
        best.put(node, entries[node])
        assert best.first() == min((each for each in entries if each is not None), default=None)


def test_an_untouched_cluster_has_its_best_node() -> None:
    assert BestNodes(np.array([5.0, 5.0, UNFIT]), np.array([2.0, 1.0, 0.0]), np.ones(3, dtype=bool)).first() == (
        -5.0,
        1.0,
        1,
        True,
    )


def test_scores_that_a_relative_one_makes_up_for_give_no_order() -> None:
    assert ordered_by_figures(np.array([0.0, 10.0, 10.0, 1010.0]), 9.0)
    assert not ordered_by_figures(np.array([0.0, 9.0]), 9.0)
    assert ordered_by_figures(np.array([3.0]), 9.0)


rooms = st.sampled_from([-1.0, 0.0, 1.0, 3.0, 3.5, 9.0])
sizes = st.sampled_from([-1.0, 0.0, 1.0, 2.0, 7.5])


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 10.0, 1000.0]), sizes, st.booleans()), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), sizes), max_size=12),
    sizes,
)
def test_sorted_nodes_stay_in_order(
    nodes: list[tuple[float, float, bool]], changes: list[tuple[int, float]], least: float
) -> None:
    """Nodes that are not among them are never there, whatever happens to them."""
    scores, measure, among = (np.array(column) for column in zip(*nodes, strict=True))
    rows = np.flatnonzero(among)
    found = SortedNodes(rows, scores[rows], measure)
    for number, measured in changes:
        node = number % len(nodes)
        measure[node] = measured
        found.put(node, measured)
    order = sorted(rows.tolist(), key=lambda node: (-scores[node], measure[node], node))
    assert [node for _, node in found.above(least)] == [node for node in order if measure[node] >= least]
    some = rows.tolist()[::-2]
    assert found.of(some) == [node for node in order if node in some]


@given(st.lists(st.tuples(st.integers(0, 5), rooms, sizes), max_size=12), st.sampled_from([0.5, 1.0, 3.0, 9.0]))
def test_nodes_with_room_are_in_the_order_of_the_measure(
    changes: list[tuple[int, float, float]], wanted: float
) -> None:
    """A size that is no step gets nodes with less room, too: the caller looks at what it gets."""
    steps = [1.0, 3.0, 9.0]
    found = NodesByRoom(steps)
    for change in changes:
        found.put(*change)
    now = sorted((measured, node) for node, (room, measured) in {n: (r, m) for n, r, m in changes}.items())
    room = {node: room for node, room, _ in changes}
    least = wanted if wanted in steps else -np.inf
    assert list(found.above(wanted)) == [entry for entry in now if room[entry[1]] >= least]
