"""Prefixes of a gang that grow while they are solved."""

from __future__ import annotations

import pytest

from pykai.engine.feasibility import grows_to, next_size


@pytest.mark.parametrize(
    ("total", "fit", "more", "reaches"),
    [
        (4, 0, 1, True),  # 1, 2, not 4, 3, then all
        (5, 0, 1, False),
        (8, 0, 1, False),
        (8, 0, 2, True),
        (16, 0, 2, False),
        (16, 14, 2, True),
        (3, 0, 0, False),
        (3, 3, 0, True),
    ],
)
def test_a_node_for_each_prefix_reaches_a_gang_or_does_not(total: int, fit: int, more: int, reaches: bool) -> None:
    assert grows_to(total, fit, more) is reaches


def test_prefixes_double_until_one_is_not_solved() -> None:
    assert [next_size((size, 16, 16), size) for size in (1, 2, 4, 8)] == [2, 4, 8, 16]
    assert next_size((8, 15, 16), 16) == 12
