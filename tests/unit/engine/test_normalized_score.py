from __future__ import annotations

import numpy as np
import pytest

from pykai.engine.node_states import NormalizedScore
from pykai.model.resources import Column
from pykai.plugins.scoring import Pack

OFFERED = np.array([True, True, True, False])


def fresh(free: list[float]) -> NormalizedScore:
    return NormalizedScore(Pack(), OFFERED, np.array(free))


def scores(free: list[float]) -> list[float]:
    found: list[float] = fresh(free).scores(np.array(free)).tolist()
    return found


@pytest.mark.parametrize(
    ("node", "free"),
    [
        (1, 6.0),  # between the extremes
        (1, 4.0),  # nothing changed
        (1, 0.0),  # as low as the lowest
        (2, 8.0),  # the highest, unchanged
        (1, 9.0),  # a new highest
        (0, 1.0),  # the lowest is no more
        (2, 5.0),  # the highest is no more
        (3, 7.0),  # has no measure, whatever is put
    ],
)
def test_a_change_of_one_node_is_that_of_a_fresh_look(node: int, free: float) -> None:
    amounts = np.array([0.0, 4.0, 8.0, 0.0])
    standing = NormalizedScore(Pack(), OFFERED, amounts)
    standing.scores(amounts)
    put(standing, amounts, {node: free})
    assert standing.scores(amounts).tolist() == scores(amounts.tolist())


def test_changes_add_up_until_the_next_look() -> None:
    amounts = np.array([0.0, 0.0, 8.0, 0.0])
    standing = NormalizedScore(Pack(), OFFERED, amounts)
    standing.scores(amounts)
    put(standing, amounts, {0: 4.0})
    put(standing, amounts, {1: 2.0})
    put(standing, amounts, {1: 0.0})
    assert standing.scores(amounts).tolist() == [4.5, 9, 0, 0]


def test_an_extreme_may_go_from_one_node_to_another() -> None:
    amounts = np.array([0.0, 4.0, 8.0, 0.0])
    standing = NormalizedScore(Pack(), OFFERED, amounts)
    standing.scores(amounts)
    put(standing, amounts, {0: 4.0, 1: 0.0})
    assert standing.scores(amounts).tolist() == [4.5, 9, 0, 0]


@pytest.mark.parametrize("many", [9, 12])
def test_changes_of_many_nodes_are_those_of_a_fresh_look(many: int) -> None:
    offered, amounts = np.arange(16) != 3, np.arange(16.0)
    standing = NormalizedScore(Pack(), offered, amounts)
    standing.scores(amounts)
    put(standing, amounts, {node: 20.0 - node for node in range(many)})
    assert standing.scores(amounts).tolist() == NormalizedScore(Pack(), offered, amounts).scores(amounts).tolist()


def test_among_some_nodes_their_own_extremes_count() -> None:
    standing = fresh([0.0, 4.0, 8.0, 0.0])
    assert scores([0.0, 4.0, 8.0, 0.0])[1:3] == [4.5, 0]
    assert standing.within(np.array([1, 2]), np.array([4.0, 8.0])).tolist() == [9, 0]
    assert standing.within(np.array([3]), np.array([0.0])).tolist() == [0]


def put(standing: NormalizedScore, amounts: Column, new: dict[int, float]) -> None:
    """Change what is free on nodes, as the owner of a standing does."""
    for node, free in new.items():
        amounts[node] = free
        standing.outdated.add(node)
