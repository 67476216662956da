"""Paths of what is wrong: down to the key of a map, and in the words of the file."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct

from pykai.config.fields import FieldError, converted, path_prefix


class Leaf(Struct, forbid_unknown_fields=True):
    size: Annotated[int, Meta(ge=1)] = 1


class Tree(Struct, forbid_unknown_fields=True):
    name: str
    leaves: dict[str, Leaf] = {}
    rows: list[dict[str, dict[str, int]]] = []


WRONG: list[tuple[Any, str, str]] = [
    ([], "", "expected a map, got a list"),
    ({}, "", "name is missing"),
    ({"name": "a", "colour": 1}, "", "unknown field 'colour'"),
    ({"name": 3}, "name", "expected a string, got a whole number"),
    ({"name": "a", "leaves": {"b": {}, "c": {"size": 0}}}, "leaves.c.size", "must be at least 1"),
    ({"name": "a", "leaves": {"b": {}, "c/d.e": {"shape": 0}}}, "leaves.c/d.e", "unknown field 'shape'"),
    ({"name": "a", "rows": [{}, {"b": {"c": 1}, "d": {"e": 1, "f": "2"}}]}, "rows[1].d.f", "expected a whole number"),
    ({"name": "a", "rows": [{"b": 1}]}, "rows[0].b", "expected a map, got a whole number"),
    ({1: 2}, "", "a key must be a string"),
]


@pytest.mark.parametrize(("document", "path", "message"), WRONG)
def test_what_is_wrong_is_named_down_to_the_key(document: Any, path: str, message: str) -> None:
    with pytest.raises(FieldError) as refused:
        converted(document, Tree)
    assert (refused.value.path, refused.value.message[: len(message)]) == (path, message)


@pytest.mark.parametrize(
    ("place", "path", "expected"),
    [
        ("f.yaml: ", "a.b", "f.yaml: a.b: no"),
        ("f.yaml: ", "", "f.yaml: no"),
        ("spec", "a", "spec.a: no"),
        ("spec", "[0]", "spec[0]: no"),
        ("spec", "", "spec: no"),
    ],
)
def test_the_place_is_told_with_what_is_wrong_below_it(place: str, path: str, expected: str) -> None:
    with pytest.raises(FieldError) as refused, path_prefix(place):
        raise FieldError(path, "no")
    assert str(refused.value) == expected
