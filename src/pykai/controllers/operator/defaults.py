"""Defaults of a custom resource's spec, taken from its schema: the tables of fields are the only place that has them.

The API server fills in defaults only inside parts that are present. Here absent parts are made first, so that a spec of
`{}` comes out complete.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]


def filled(value: Any, schema: Schema) -> Any:
    """The value with every default of the schema; parts made of fields exist afterwards, even if empty."""
    if not isinstance(value, dict):
        return value
    known = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    result = {
        name: filled(item, known.get(name) or (others if isinstance(others, Mapping) else {}))
        for name, item in value.items()
        if item is not None
    }
    for name, part in known.items():
        if name in result:
            continue
        if "default" in part:
            result[name] = copy.deepcopy(part["default"])
        elif part.get("properties"):
            result[name] = filled({}, part)
    return result
