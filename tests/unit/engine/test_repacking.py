"""Whether items could go into bins, found out by counting."""

from __future__ import annotations

import pytest

from pykai.engine.packing import could_pack, most_filled


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
        ([0.5, 0.5, 0.4, 0.4], [0.9, 0.9], True),
        ([0.5, 0.5, 0.4, 0.4], [0.85, 0.85], False),  # each is filled to 0.8 at most
    ],
)
def test_items_of_given_sizes(sizes: list[float], bins: list[float], fits: bool) -> None:
    assert could_pack(sizes, bins) is fits


def test_what_takes_too_long_is_left_to_a_simulation() -> None:
    bins = [3.0 + step / 100 for step in range(40)]
    assert could_pack([2.0] * 39 + [1.5] * 2, bins)


@pytest.mark.parametrize(
    ("kinds", "free", "most"),
    [((0.4,), 1.0, 0.8), ((0.3, 0.4), 1.0, 1.0), ((0.3, 0.7), 0.65, 0.6), ((0.5,), 0.4, 0.0), ((2.0, 5.0), 8.0, 8.0)],
)
def test_of_a_bin_items_fill_what_their_sizes_add_up_to(kinds: tuple[float, ...], free: float, most: float) -> None:
    assert most_filled(kinds, free) == pytest.approx(most)
