"""Patches are pure: a document and a patch give a new document."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pykai.kube.errors import BadRequest, Invalid
from pykai.kube.memory.patches import json_patch, merge, strategic

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
    assert merge(document, patch) == expected
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
    result = strategic(document, patch)
    if expected is None:
        expected = {"conditions": [*conditions("A")["conditions"], {"type": "B", "status": "True", "reason": "r"}]}
    assert result == expected


def test_strategic_refuses_what_it_does_not_know() -> None:
    with pytest.raises(BadRequest, match="setElementOrder"):
        strategic({}, {"$setElementOrder/conditions": []})
    with pytest.raises(Invalid, match="type"):
        strategic(conditions("A"), {"conditions": [{"status": "True"}]})
