"""The few shapes a schema is built from by hand, so that the values of the chart read as a table of fields.

Every shape takes the sentence that describes it. `rules` are further keywords of the schema, as they are written there:
`default`, `minimum`, `pattern`, `nullable` and so on.
"""

from __future__ import annotations

from typing import Any

from pykai.objects.schema import DURATION_RULES, QUANTITY_RULES, Schema

_OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def text(doc: str, **rules: Any) -> Schema:
    """A string."""
    return {"type": "string", "description": doc, **rules}


def whole(doc: str, **rules: Any) -> Schema:
    """An integer of 32 bits."""
    return {"type": "integer", "format": "int32", "description": doc, **rules}


def decimal(doc: str, **rules: Any) -> Schema:
    """A number."""
    return {"type": "number", "description": doc, **rules}


def switch(doc: str, **rules: Any) -> Schema:
    """True or false."""
    return {"type": "boolean", "description": doc, **rules}


def choice(doc: str, *values: str, **rules: Any) -> Schema:
    """One of a few strings."""
    return {"type": "string", "description": doc, "enum": list(values), **rules}


def duration(doc: str) -> Schema:
    """A length of time such as 90s or 1h30m."""
    return text(f"{doc} A duration such as 90s or 1h30m.", **DURATION_RULES)


def moment(doc: str, **rules: Any) -> Schema:
    """A point in time (RFC 3339)."""
    return {"type": "string", "format": "date-time", "description": doc, **rules}


def quantity(doc: str) -> Schema:
    """An amount of a resource such as 500m or 16Gi."""
    return {"description": doc, **QUANTITY_RULES}


def quantities(doc: str) -> Schema:
    """Amounts by the name of the resource."""
    return mapping(doc, quantity("Amount of this resource."))


def record(doc: str, fields: dict[str, Schema], **rules: Any) -> Schema:
    """An object with these fields."""
    return {"type": "object", "description": doc, "properties": fields, **rules}


def mapping(doc: str, values: Schema, **rules: Any) -> Schema:
    """An object with keys of the user's choice."""
    return {"type": "object", "description": doc, "additionalProperties": values, **rules}


def array(doc: str, items: Schema, **rules: Any) -> Schema:
    """A list."""
    return {"type": "array", "description": doc, "items": items, **rules}


def words(doc: str) -> Schema:
    """A list of strings."""
    return array(doc, {"type": "string"})


def labels(doc: str) -> Schema:
    """A map from string to string."""
    return mapping(doc, {"type": "string"})


def foreign(doc: str) -> Schema:
    """An object that belongs to the Kubernetes API and is passed on as it is."""
    return {**_OBJECT, "description": doc}


def foreign_list(doc: str) -> Schema:
    """A list of objects that belong to the Kubernetes API."""
    return array(doc, dict(_OBJECT))
