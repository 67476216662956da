"""Patches are pure: a document and a patch give a new document."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from charts.shapes import array, record, text

from pykai.kube.errors import BadRequest, Invalid
from pykai.kube.memory.patches import (
    applied,
    built_in_keys,
    json_patch,
    leaves,
    merge_patch,
    owners_after_write,
    schema_keys,
    strategic_patch,
)
from pykai.objects.config_kinds import OperatorStatus
from pykai.objects.schema import struct_schema

MERGES: list[tuple[Any, Any, Any]] = [
    ({"a": 1}, {"a": 2}, {"a": 2}),
    ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
    ({"a": 1}, {"a": None}, {}),
    ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    ({"a": {"b": 1, "c": 1}}, {"a": {"b": None}}, {"a": {"c": 1}}),
    ({"a": 1}, {"a": {"b": None, "c": 2}}, {"a": {"c": 2}}),
    ({"a": 1}, [1], [1]),
]


@pytest.mark.parametrize(("document", "patch", "expected"), MERGES)
def test_merge(document: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy(document)
    assert merge_patch(document, patch) == expected
    assert document == before


OPERATIONS: list[tuple[Any, list[dict[str, Any]], Any]] = [
    ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
    ({"a": [1]}, [{"op": "add", "path": "/a/0", "value": 0}], {"a": [0, 1]}),
    ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
    ({"a": [1, 2]}, [{"op": "replace", "path": "/a/1", "value": 9}], {"a": [1, 9]}),
    ({"a/b": 1, "c~d": 2}, [{"op": "move", "from": "/a~1b", "path": "/c~0d"}], {"c~d": 1}),
    ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}], {}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
]


@pytest.mark.parametrize(("document", "operations", "expected"), OPERATIONS)
def test_json_patch(document: Any, operations: list[dict[str, Any]], expected: Any) -> None:
    before = copy.deepcopy(document)
    assert json_patch(document, operations) == expected
    assert document == before


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ({"op": "remove", "path": "/b"}, Invalid),
        ({"op": "replace", "path": "/b", "value": 1}, Invalid),
        ({"op": "add", "path": "/b/c", "value": 1}, Invalid),
        ({"op": "add", "path": "/l/5", "value": 1}, Invalid),
        ({"op": "test", "path": "/a", "value": 2}, Invalid),
        ({"op": "add", "path": "a", "value": 1}, Invalid),
        ({"op": "add", "path": "/a"}, Invalid),
        ({"op": "turn", "path": "/a"}, BadRequest),
    ],
)
def test_json_patch_refuses(operation: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        json_patch({"a": 1, "l": []}, [operation])


def conditions(*types: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True"} for kind in types]}


STRATEGIC: list[tuple[Any, Any, Any]] = [
    ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
    ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
    ({"a": 1}, {"a": None}, {}),
    ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
    ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
    (conditions("A", "B"), {"conditions": [{"type": "C", "status": "True"}]}, conditions("C", "A", "B")),
    (conditions("A", "B"), {"conditions": [{"type": "B", "reason": "r"}]}, None),
    (conditions("A", "B"), {"conditions": [{"type": "A", "$patch": "delete"}]}, conditions("B")),
    (conditions("A"), {"conditions": [{"$patch": "replace"}, *conditions("Z")["conditions"]]}, conditions("Z")),
]


@pytest.mark.parametrize(("document", "patch", "expected"), STRATEGIC)
def test_strategic(document: Any, patch: Any, expected: Any) -> None:
    result = strategic_patch(document, patch)
    if expected is None:
        expected = {"conditions": [*conditions("A")["conditions"], {"type": "B", "status": "True", "reason": "r"}]}
    assert result == expected


def test_strategic_refuses_what_it_does_not_know() -> None:
    with pytest.raises(BadRequest, match="setElementOrder"):
        strategic_patch({}, {"$setElementOrder/conditions": []})
    with pytest.raises(Invalid, match="type"):
        strategic_patch(conditions("A"), {"conditions": [{"status": "True"}]})


def test_leaves_of_keyed_and_plain_lists() -> None:
    value = {"conditions": [{"type": "A", "status": "True"}], "args": ["x"], "empty": {}}
    assert leaves(value, built_in_keys) == {
        ("conditions", ("A",), "type"): "A",
        ("conditions", ("A",), "status"): "True",
        ("args",): ["x"],
        ("empty",): {},
    }


def test_managers_share_a_keyed_list() -> None:
    one = {"spec": {"containers": [{"name": "a", "image": "1"}]}}
    two = {"spec": {"containers": [{"name": "b", "image": "1"}]}}
    body, owners = applied({}, {}, one, "left", built_in_keys)
    body, owners = applied(body, owners, two, "right", built_in_keys)
    assert [c["name"] for c in body["spec"]["containers"]] == ["a", "b"]
    body, owners = applied(body, owners, {"metadata": {}}, "left", built_in_keys)
    assert body["spec"]["containers"] == [{"name": "b", "image": "1"}]


def test_a_manager_takes_the_fields_that_it_changes() -> None:
    body, owners = applied({}, {}, {"spec": {"containers": [{"name": "a", "image": "1"}]}}, "left", built_in_keys)
    other = {"spec": {"containers": [{"name": "a", "image": "2"}]}}
    body, owners = applied(body, owners, other, "right", built_in_keys)
    assert body["spec"]["containers"][0]["image"] == "2"
    assert ("spec", "containers", ("a",), "image") not in owners["left"]


def test_a_custom_resources_lists_follow_its_schema() -> None:
    status = struct_schema(OperatorStatus, {"what": "d"})
    status["properties"]["words"] = array("d", text("d"))
    schema = record("d", {"status": status})
    keys = schema_keys(schema)
    assert keys(("status", "conditions")) == ("type",)
    assert keys(("status", "words")) == ()
    assert keys(("metadata", "ownerReferences")) == ("uid",)
    assert keys(("unknown", "list")) == ()


def test_what_a_plain_write_removes_nobody_owns() -> None:
    body, owners = applied({}, {}, {"data": {"x": "1", "y": "1"}}, "left", built_in_keys)
    after: dict[str, Any] = {"data": {"y": "1"}}
    owners = owners_after_write(owners, body, after, built_in_keys)
    assert owners["left"] == frozenset({("data", "y")})
    again, _ = applied(after, owners, {"data": {"x": "2", "y": "1"}}, "left", built_in_keys)
    assert again == {"data": {"x": "2", "y": "1"}}


def test_inputs_stay_as_they_are() -> None:
    current, config = {"data": {"x": "1"}}, {"data": {"y": "1"}}
    applied(current, {}, config, "left", built_in_keys)
    assert (current, config) == ({"data": {"x": "1"}}, {"data": {"y": "1"}})
