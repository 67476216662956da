"""The few shapes a structural schema is built from, so that a definition reads as a table of fields.

Every shape takes the sentence that `kubectl explain` shows. `rules` are further keywords of the schema, as they are
written there: `default`, `minimum`, `pattern`, `nullable` and so on.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

NAME_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DURATION_PATTERN = (
    r"^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*)$"
)
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


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
    """One of a few words."""
    return {"type": "string", "description": doc, "enum": list(values), **rules}


def duration(doc: str, **rules: Any) -> Schema:
    """A length of time such as 90s or 1h30m."""
    return {
        "type": "string",
        "description": f"{doc} A duration such as 90s or 1h30m.",
        "pattern": DURATION_PATTERN,
        **rules,
    }


def moment(doc: str, **rules: Any) -> Schema:
    """A point in time (RFC 3339)."""
    return {"type": "string", "format": "date-time", "description": doc, **rules}


def quantity(doc: str, **rules: Any) -> Schema:
    """An amount of a resource such as 500m or 16Gi."""
    either = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    return {"description": doc, "pattern": QUANTITY_PATTERN, **either, **rules}


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


def words(doc: str, **rules: Any) -> Schema:
    """A list of strings."""
    return array(doc, {"type": "string"}, **rules)


def labels(doc: str, **rules: Any) -> Schema:
    """A map from string to string."""
    return mapping(doc, {"type": "string"}, **rules)


def foreign(doc: str) -> Schema:
    """An object that belongs to the Kubernetes API and is passed on as it is."""
    return {"type": "object", "description": doc, "x-kubernetes-preserve-unknown-fields": True}


def foreign_list(doc: str) -> Schema:
    """A list of objects that belong to the Kubernetes API."""
    return {
        "type": "array",
        "description": doc,
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }


def conditions(doc: str) -> Schema:
    """Standard conditions, one per type."""
    fields = {
        "type": text("What the condition is about.", maxLength=316),
        "status": choice("Whether it holds.", "True", "False", "Unknown"),
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "The generation of the spec this was said of.",
        },
        "lastTransitionTime": moment("When the status last changed."),
        "reason": text("Why, as one word for programs.", maxLength=1024),
        "message": text("Why, in plain words.", maxLength=32768),
    }
    item = record("One condition.", fields, required=["type", "status", "lastTransitionTime", "reason", "message"])
    return array(doc, item, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]})
