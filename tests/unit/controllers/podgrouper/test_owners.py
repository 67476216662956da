from __future__ import annotations

from typing import Any

import pytest

from pykai.controllers.podgrouper.grouping import has_labels, ownership
from pykai.controllers.podgrouper.rules.workload import GroupingError

from .cluster import Memory, Object, obj, pod, ref

TOP = obj("apps/v1", "Deployment", "d")
MIDDLE = obj("apps/v1", "ReplicaSet", "r", owners=[ref(TOP)])
MEMBER = pod(owners=[ref(MIDDLE)])


def test_chain_from_the_pod_upwards() -> None:
    found = ownership(MEMBER, Memory(TOP, MIDDLE))
    assert (found.top, found.owners) == (TOP, (MIDDLE, TOP))


def test_a_pod_alone_is_its_own_top() -> None:
    lone = pod()
    found = ownership(lone, Memory())
    assert (found.top, found.owners) == (lone, ())


def test_only_the_pods_first_owner_counts() -> None:
    assert ownership(pod(owners=[ref(MIDDLE), ref(obj("x/v1", "Other"))]), Memory(TOP, MIDDLE)).top == TOP


@pytest.mark.parametrize(
    ("forbidden", "top", "owners"), [("Deployment", MIDDLE, (MIDDLE,)), ("ReplicaSet", MEMBER, ())]
)
def test_what_we_may_not_read_ends_the_chain(forbidden: str, top: Object, owners: tuple[Any, ...]) -> None:
    found = ownership(MEMBER, Memory(TOP, MIDDLE, forbidden=frozenset({forbidden})))
    assert (found.top, found.owners) == (top, owners)


def test_broken_chains_are_refused() -> None:
    with pytest.raises(GroupingError, match="failed to find Deployment: <ns/d>, uid: <u-d>"):
        ownership(MEMBER, Memory(MIDDLE))
    other = {**TOP, "metadata": {**TOP["metadata"], "uid": "another"}}
    with pytest.raises(GroupingError, match="Owner resource with uid u-d not found"):
        ownership(MEMBER, Memory(other, MIDDLE))
    forked = obj("apps/v1", "ReplicaSet", "r", owners=[ref(TOP), ref(obj("x/v1", "Other"))])
    with pytest.raises(GroupingError, match="found ReplicaSet <r in namespace ns> with multiple owners"):
        ownership(MEMBER, Memory(TOP, forked))
    one, two = obj("x/v1", "One", "1"), obj("x/v1", "Two", "2")
    one["metadata"]["ownerReferences"], two["metadata"]["ownerReferences"] = [ref(two)], [ref(one)]
    with pytest.raises(GroupingError, match="is its own owner"):
        ownership(pod(owners=[ref(one)]), Memory(one, two))


@pytest.mark.parametrize(
    ("labels", "selector", "expected"),
    [({"a": "1"}, {"a": "1"}, True), ({"a": "1"}, {"a": "2"}, False), (None, {"a": "1"}, False), (None, None, True)],
)
def test_has_labels(labels: Object | None, selector: Object | None, expected: bool) -> None:
    assert has_labels(labels, selector) is expected
