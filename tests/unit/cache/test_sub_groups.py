from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert

from pykai.cache.podgroups import SubGroupError, sub_group_tree
from pykai.objects.kinds import PodGroup


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ([{"name": ""}], "has no name"),
        ([{"name": "a"}, {"name": "a"}], "<a> already exists"),
        ([{"name": "a", "parent": "b"}], "parent subgroup <b> of <a> not found"),
        ([{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}], "<a> is part of a cycle"),
    ],
)
def test_trees_that_are_none_are_refused(groups: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(SubGroupError, match=says):
        sub_group_tree(convert({"metadata": {"name": "g"}, "spec": {"subGroups": groups}}, PodGroup))
