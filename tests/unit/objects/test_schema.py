"""A struct with notes is a structural schema: types, rules, required fields, names on the wire."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import pytest
from msgspec import json

from pykai.objects import custom_resources, kinds
from pykai.objects.schema import Amounts, Doc, Duration, Kind, struct_schema


class Part(Kind, frozen=True):
    """A part, in {unit}."""

    size: Annotated[int | None, Doc("How many {unit}.", minimum=0, nullable=True)] = None


class Whole(Kind, frozen=True):
    """All of it."""

    name: Annotated[str, Doc("A name.", required=True)] = ""
    my_parts: Annotated[list[Part] | None, Doc("Parts.", words={"unit": "bolts"})] = None
    wait: Annotated[Duration | None, Doc("How long.")] = None
    held: Annotated[Amounts | None, Doc("What it holds.")] = None
    free: Annotated[dict[str, Any] | None, Doc("Anything.")] = None
    unread: ClassVar[Annotated[bool, Doc("Not decoded.")]]


def test_fields_become_properties() -> None:
    made = struct_schema(Whole)
    fields = made["properties"]
    assert (made["type"], made["description"], made["required"]) == ("object", "All of it.", ["name"])
    assert list(fields) == ["name", "myParts", "wait", "held", "free", "unread"]
    part = fields["myParts"]["items"]
    assert part["description"] == "A part, in bolts."
    assert part["properties"]["size"] == {
        "type": "integer",
        "format": "int32",
        "minimum": 0,
        "nullable": True,
        "description": "How many bolts.",
    }
    assert fields["wait"]["description"] == "How long. A duration such as 90s or 1h30m."
    assert fields["held"]["additionalProperties"]["x-kubernetes-int-or-string"] is True
    assert fields["free"]["x-kubernetes-preserve-unknown-fields"] is True
    assert fields["unread"] == {"type": "boolean", "description": "Not decoded."}


def test_rules_do_not_stop_decoding() -> None:
    assert json.decode(b'{"size": -1}', type=Part).size == -1
    assert json.decode(b'{"wait": "soon", "unread": 5}', type=Whole).wait == "soon"


def test_a_field_without_a_note_is_an_error() -> None:
    class Forgotten(Kind, frozen=True):
        """A struct with a field that nobody explained."""

        name: str = ""

    with pytest.raises(TypeError, match=r"Forgotten\.name needs a Doc"):
        struct_schema(Forgotten)


def test_own_kinds_are_imported_from_kinds() -> None:
    own = ("Queue", "PodGroup", "BindRequest", "Topology")
    assert [getattr(kinds, name) for name in own] == [getattr(custom_resources, name) for name in own]
