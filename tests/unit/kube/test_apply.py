"""Server-side apply on keyed lists and custom resources; plain maps are covered by the contract tests."""

from __future__ import annotations

from typing import Any

import pytest
from charts.shapes import array, record, text

from pykai.kube.errors import Conflict
from pykai.kube.memory.apply import applied, built_in_keys, leaves, schema_keys, taken
from pykai.objects.config_kinds import OperatorStatus
from pykai.objects.schema import struct_schema


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
    body, owners = applied({}, {}, one, ("left", False), built_in_keys)
    body, owners = applied(body, owners, two, ("right", False), built_in_keys)
    assert [c["name"] for c in body["spec"]["containers"]] == ["a", "b"]
    body, owners = applied(body, owners, {"metadata": {}}, ("left", False), built_in_keys)
    assert body["spec"]["containers"] == [{"name": "b", "image": "1"}]


def test_a_conflict_names_field_and_manager() -> None:
    body, owners = applied(
        {}, {}, {"spec": {"containers": [{"name": "a", "image": "1"}]}}, ("left", False), built_in_keys
    )
    other = {"spec": {"containers": [{"name": "a", "image": "2"}]}}
    with pytest.raises(Conflict, match=r'conflict with "left": \.spec\.containers\[a\]\.image'):
        applied(body, owners, other, ("right", False), built_in_keys)
    body, owners = applied(body, owners, other, ("right", True), built_in_keys)
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
    body, owners = applied({}, {}, {"data": {"x": "1", "y": "1"}}, ("left", False), built_in_keys)
    after: dict[str, Any] = {"data": {"y": "1"}}
    owners = taken(owners, body, after, built_in_keys)
    assert owners["left"] == frozenset({("data", "y")})
    again, _ = applied(after, owners, {"data": {"x": "2", "y": "1"}}, ("left", False), built_in_keys)
    assert again == {"data": {"x": "2", "y": "1"}}


def test_inputs_stay_as_they_are() -> None:
    current, config = {"data": {"x": "1"}}, {"data": {"y": "1"}}
    applied(current, {}, config, ("left", True), built_in_keys)
    assert (current, config) == ({"data": {"x": "1"}}, {"data": {"y": "1"}})
