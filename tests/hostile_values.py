"""Hostile values for property tests: whatever JSON can hold, and objects that are nearly right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

TEXTS = ["", "a", "b", "kai-scheduler", "InitContainer", "0.5", "1e-3", "NaN", "0x1p-1", "2000", "9" * 5000, "1h", "é"]

texts = st.sampled_from(TEXTS) | st.text(max_size=8)
numbers = st.integers() | st.floats() | st.sampled_from([0, 1, 2, -1, 2**31, 10**400, -(10**400)])
leaves = st.none() | st.booleans() | numbers | texts


def anything(names: Sequence[str]) -> st.SearchStrategy[Any]:
    """Any value; maps have some of these names as keys."""
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names) | texts, inner, max_size=5),
        max_leaves=25,
    )
