"""Structural schemas: pruning, defaults, and violations by field."""

from __future__ import annotations

from typing import Any

import pytest
from charts.shapes import (
    array,
    choice,
    decimal,
    duration,
    foreign,
    labels,
    mapping,
    quantity,
    record,
    switch,
    text,
    whole,
)

from pykai.objects.crds import DEFINITIONS
from pykai.objects.schema_validation import default, prune, violations

PART = record("d", {"on": switch("d", default=True), "name": text("d", minLength=1)}, required=["name"])
SPEC = record(
    "d",
    {
        "size": whole("d", minimum=0, maximum=3),
        "ratio": decimal("d", minimum=0, exclusiveMinimum=True),
        "word": choice("d", "a", "b"),
        "wait": duration("d"),
        "amount": quantity("d"),
        "part": PART,
        "parts": array("d", PART, maxItems=2, **{"x-kubernetes-list-map-keys": ["name"]}),
        "by": mapping("d", whole("d", nullable=True)),
        "free": foreign("d"),
        "labels": labels("d"),
    },
)
ROOT = {"type": "object", "properties": {"spec": SPEC, "metadata": {"type": "object"}}}


def test_prune_keeps_what_is_known_and_what_is_free() -> None:
    body = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "n"},
        "spec": {"size": 1, "x": 1, "parts": [{"name": "a", "x": 1}], "free": {"x": {"y": 1}}, "labels": {"x": "1"}},
        "x": 1,
    }
    spec = {"size": 1, "parts": [{"name": "a"}], "free": {"x": {"y": 1}}, "labels": {"x": "1"}}
    assert prune(body, ROOT) == {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "spec": spec}


def test_defaults_fill_present_parents_only() -> None:
    assert default({"spec": {}}, ROOT) == {"spec": {}}
    assert default({"spec": {"part": {}}}, ROOT) == {"spec": {"part": {"on": True}}}
    assert default({"spec": {"parts": [{"on": False}, {}]}}, ROOT)["spec"]["parts"] == [{"on": False}, {"on": True}]
    assert default({"spec": {"part": {"on": None}, "size": None}}, ROOT) == {"spec": {"part": {"on": True}}}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"size": -1}, "spec.size"),
        ({"size": 4}, "spec.size"),
        ({"size": 1.5}, "spec.size"),
        ({"size": True}, "spec.size"),
        ({"ratio": 0}, "spec.ratio"),
        ({"word": "c"}, "spec.word"),
        ({"wait": "5 minutes"}, "spec.wait"),
        ({"wait": "5"}, "spec.wait"),
        ({"amount": "1Zi"}, "spec.amount"),
        ({"amount": [1]}, "spec.amount"),
        ({"part": {}}, "spec.part.name"),
        ({"part": {"name": ""}}, "spec.part.name"),
        ({"part": []}, "spec.part"),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, "spec.parts[1]"),
        ({"parts": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}, "spec.parts"),
        ({"by": {"x": "1"}}, "spec.by.x"),
        ({"labels": {"x": 1}}, "spec.labels.x"),
        ({"size": None}, "spec.size"),
    ],
)
def test_violations_name_the_field(spec: dict[str, Any], field: str) -> None:
    assert [path for path, _ in violations({"spec": spec}, ROOT)] == [field]


@pytest.mark.parametrize(
    "spec",
    [
        {"size": 0, "ratio": 0.5, "word": "a"},
        {"wait": "1h30m"},
        {"wait": "-0.5s"},
        {"wait": "0"},
        {"amount": "500m"},
        {"amount": 3},
        {"amount": "1e3"},
        {"by": {"x": None}},
    ],
)
def test_good_values(spec: dict[str, Any]) -> None:
    assert list(violations({"spec": spec}, ROOT)) == []


def test_rules_see_the_old_value() -> None:
    rule = {"rule": "self >= oldSelf", "message": "may only grow"}
    schema = record("d", {"n": whole("d", **{"x-kubernetes-validations": [rule]})})
    assert list(violations({"n": 1}, schema)) == []
    assert list(violations({"n": 2}, schema, "", {"n": 1})) == []
    assert list(violations({"n": 1}, schema, "", {"n": 2})) == [("n", "Invalid value: may only grow")]


def test_a_rule_about_a_field_that_is_missing_does_not_hold() -> None:
    rule = {"rule": "self.n > 0 && self.m > 0", "message": "both must be positive"}
    schema = record("d", {"n": whole("d"), "m": whole("d")}, **{"x-kubernetes-validations": [rule]})
    assert list(violations({}, schema)) == [("", "Invalid value: both must be positive")]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind)
def test_the_defaults_of_our_definitions_are_valid(definition: Any) -> None:
    schema = definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    if definition.kind != "Topology":
        assert list(violations(default({"spec": {}}, schema), schema)) == []
