from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert

from pykai.cache.cluster import ClusterCache
from pykai.cache.podgroups import SubGroupError, sub_group_tree
from pykai.model.params import SchedulerParams
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


@pytest.mark.parametrize(
    ("spec", "has_tree"),
    [
        ({"minMember": 2}, False),
        ({"minMember": 2, "topologyConstraint": {}}, False),  # as the pod grouper writes it without annotations
        ({"minMember": 2, "topologyConstraint": {"topology": "net", "requiredTopologyLevel": "rack"}}, True),
        ({"subGroups": [{"name": "a", "minMember": 2}]}, True),
    ],
)
def test_gangs_of_one_podset_without_constraints_have_no_tree(spec: dict[str, Any], has_tree: bool) -> None:
    cache = ClusterCache(SchedulerParams())
    cache.load([convert({"metadata": {"name": "g"}, "spec": spec}, PodGroup)])
    gangs = cache.snapshot(0.0).gangs
    assert [bool(gangs.trees), gangs.podset_min[0], gangs.tree(0).needs_all] == [has_tree, 2, True]
