from __future__ import annotations

import numpy as np
import pytest

from pykai.engine.relative import Standing
from pykai.plugins.scoring import Pack

OFFERED = np.array([True, True, True, False])


def fresh(free: list[float]) -> Standing:
    return Standing(Pack(), OFFERED, np.array(free))


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
    amounts = [0.0, 4.0, 8.0, 0.0]
    standing = fresh(amounts)
    standing.scores()
    standing.put(node, free)
    amounts[node] = free
    assert standing.scores().tolist() == fresh(amounts).scores().tolist()


def test_changes_add_up_until_somebody_looks() -> None:
    standing = fresh([0.0, 0.0, 8.0, 0.0])
    standing.scores()
    standing.put(0, 4.0)
    standing.put(1, 2.0)
    standing.put(1, 0.0)
    assert standing.scores().tolist() == [4.5, 9, 0, 0]


def test_among_some_nodes_their_own_extremes_count() -> None:
    standing = fresh([0.0, 4.0, 8.0, 0.0])
    assert standing.scores()[[1, 2]].tolist() == [4.5, 0]
    assert standing.within(np.array([1, 2])).tolist() == [9, 0]
    assert standing.within(np.array([3])).tolist() == [0]
