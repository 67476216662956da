"""A patch turns the old value into the new one, whatever the two are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonpatch import apply_patch
from msgspec import json

from pykai.admission.pod_draft import difference

leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0]) | st.sampled_from(["", "a", "~/"])
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "a/b", "~", "~1", ""]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(values, values)
def test_the_patch_leads_from_old_to_new(old: Any, new: Any) -> None:
    patch = list(difference(old, new))
    assert json.encode(apply_patch(old, list(patch)), order="sorted") == json.encode(new, order="sorted")


@settings(max_examples=50, deadline=None)
@given(values)
def test_equal_values_need_no_patch(value: Any) -> None:
    assert list(difference(value, json.decode(json.encode(value)))) == []


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": 1}, {"a": 1, "b/c~": 2}, [{"op": "add", "path": "/b~1c~0", "value": 2}]),
        ({"a": 1}, {}, [{"op": "remove", "path": "/a"}]),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ([1], [1, 2], [{"op": "add", "path": "/-", "value": 2}]),
        ([1, 2, 3], [1], [{"op": "remove", "path": "/2"}, {"op": "remove", "path": "/1"}]),
        (1, {"a": 1}, [{"op": "replace", "path": "", "value": {"a": 1}}]),
    ],
)
def test_the_shortest_form(old: Any, new: Any, patch: list[dict[str, Any]]) -> None:
    assert list(difference(old, new)) == patch
