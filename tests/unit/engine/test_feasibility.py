"""Whether pods could go into free places together, found out before anything is simulated."""

from __future__ import annotations

import pytest

from pykai.engine.feasibility import could_pack, grows_to, next_size


@pytest.mark.parametrize(
    ("sizes", "bins", "fits"),
    [
        ([4.0, 4.0], [8.0], True),
        ([4.0, 4.0], [6.0, 2.0], False),
        ([6.0, 2.0], [6.0, 2.0], True),
        ([0.3, 0.08], [0.35, 0.07], False),
        ([0.3, 0.08], [0.35, 0.08], True),
        ([3.0, 3.0, 2.0], [4.0, 4.0], False),
        ([3.0, 3.0, 2.0], [5.0, 4.0], True),
        ([1.0], [], False),
    ],
)
def test_items_of_given_sizes(sizes: list[float], bins: list[float], fits: bool) -> None:
    assert could_pack(sizes, bins) is fits


def test_what_takes_too_long_is_left_to_a_simulation() -> None:
    bins = [3.0 + step / 100 for step in range(40)]
    assert could_pack([2.0] * 39 + [1.5] * 2, bins)


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
