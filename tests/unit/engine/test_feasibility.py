"""Whether pods could go into free places together, found out before anything is simulated."""

from __future__ import annotations

import pytest

from pykai.engine.feasibility import could_pack


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
