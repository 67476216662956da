from __future__ import annotations

import numpy as np
import pytest

from pykai.engine.relative import Standing
from pykai.model.resources import GPU
from pykai.plugins.scoring import Pack

OFFERED = np.array([True, True, True, False])
EVERY = np.arange(4)


def fresh(free: list[float]) -> Standing:
    standing = Standing(Pack(), GPU, OFFERED)
    standing.put_all(EVERY, np.array(free))
    standing.settled()
    return standing


@pytest.mark.parametrize(
    ("node", "free", "settled"),
    [
        (1, 6.0, True),  # between the extremes
        (1, 4.0, True),  # nothing changed
        (1, 0.0, True),  # as low as the lowest
        (2, 8.0, True),  # the highest, unchanged
        (1, 9.0, False),  # a new highest
        (0, 1.0, False),  # the lowest is no more
        (2, 5.0, False),  # the highest is no more
        (3, 7.0, True),  # has no measure, whatever is said
    ],
)
def test_a_change_of_one_node_is_that_of_a_fresh_look(node: int, free: float, settled: bool) -> None:
    amounts = [0.0, 4.0, 8.0, 0.0]
    standing = fresh(amounts)
    score = standing.put(node, free)
    assert standing.settled() is settled
    amounts[node] = free
    expected = fresh(amounts).scores(EVERY)
    assert standing.scores(EVERY).tolist() == expected.tolist()
    if settled:
        assert score == expected[node]


def test_extremes_that_others_share_stay() -> None:
    standing = fresh([0.0, 0.0, 8.0, 0.0])
    assert standing.put(0, 4.0) == 4.5
    assert standing.settled()


def test_among_some_nodes_their_own_extremes_count() -> None:
    standing = fresh([0.0, 4.0, 8.0, 0.0])
    assert standing.scores(np.array([1, 2])).tolist() == [4.5, 0]
    assert standing.within(np.array([1, 2])).tolist() == [9, 0]
    assert standing.within(np.array([3])).tolist() == [0]
