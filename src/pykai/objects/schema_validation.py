"""Prunes, defaults and validates custom resources by their structural schema, as the API server does.

CEL rules (`x-kubernetes-validations`) are evaluated, too; transition rules, which read `oldSelf`, only on updates.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pykai.objects.schema import DURATION_PATTERN, DURATION_RULES

Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_RANGES = (("greater", "minimum", "exclusiveMinimum", 1), ("less", "maximum", "exclusiveMaximum", -1))
_DURATION_RULE: str = DURATION_RULES["x-kubernetes-validations"][0]["rule"]
_DURATION = re.compile(DURATION_PATTERN)
_MAX_SHOWN = 128
EMBEDDED = frozenset({"apiVersion", "kind", "metadata"})


def prune(value: Any, schema: Schema, root: bool = True) -> Any:
    """Return the value without fields that the schema does not have."""
    if isinstance(value, list) and "items" in schema:
        return [prune(item, schema["items"], False) for item in value]
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    result: dict[str, Any] = {}
    for name, item in value.items():
        if root and name in EMBEDDED:
            result[name] = item
        elif name in known:
            result[name] = prune(item, known[name], False)
        elif others is not None:
            result[name] = prune(item, others, False) if isinstance(others, Mapping) else item
    return result


def default(value: Any, schema: Schema) -> Any:
    """Return the value with the schema's defaults for absent fields of objects that are present."""
    if isinstance(value, list) and "items" in schema:
        return [default(item, schema["items"]) for item in value]
    if not isinstance(value, dict):
        return value
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    result = {
        name: default(item, known[name] if name in known else others if isinstance(others, Mapping) else {})
        for name, item in value.items()
    }
    for name, field in known.items():
        if "default" in field and (name not in value or (value[name] is None and not field.get("nullable"))):
            result[name] = default(copy.deepcopy(field["default"]), field)
    return {name: item for name, item in result.items() if item is not None or known.get(name, {}).get("nullable")}


def violations(value: Any, schema: Schema, path: str = "", old: Any = None) -> Iterator[tuple[str, str]]:
    """Yield (path, message) for each violation of the schema; `old`: the stored value, None on creation."""
    if value is None:
        if not schema.get("nullable"):
            yield path, f'Invalid value: "null": must be of type {schema.get("type", "any")}'
        return
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield path, "Invalid value: must be an integer or a string"
        else:
            yield from _bounds(value, schema, path)
        return
    if not _has_type(value, schema.get("type")):
        yield path, f"Invalid value: {_quoted(value)}: {path} in body must be of type {schema['type']}"
        return
    yield from _bounds(value, schema, path)
    yield from _children(value, schema, path, old)
    yield from _rules(value, schema, path, old)


def _has_type(value: Any, name: str | None) -> bool:
    if name is None:
        return True
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _bounds(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(f'"{item}"' for item in schema["enum"])
        yield path, f"Unsupported value: {_quoted(value)}: supported values: {allowed}"
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield path, f"Invalid value: {_quoted(value)}: should match '{schema['pattern']}'"
        yield from _size(len(value), schema, ("minLength", "maxLength"), path, "chars long")
    elif isinstance(value, list):
        yield from _size(len(value), schema, ("minItems", "maxItems"), path, "items")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _range(value, schema, path)


def _size(size: int, schema: Schema, names: tuple[str, str], path: str, unit: str) -> Iterator[tuple[str, str]]:
    least, most = schema.get(names[0]), schema.get(names[1])
    if least is not None and size < least:
        yield path, f"Invalid value: should be at least {least} {unit}"
    if most is not None and size > most:
        yield path, f"Too long: may not be more than {most} {unit}"


def _range(value: float, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
        yield path, f"Invalid value: {_quoted(value)}: {path} in body must be an integer of 32 bits"
        return
    for word, bound, exclusive, sign in _RANGES:
        limit = schema.get(bound)
        if limit is None:
            continue
        if (value - limit) * sign < 0 or (schema.get(exclusive) and value == limit):
            or_equal = "" if schema.get(exclusive) else " or equal to"
            yield path, f"Invalid value: {_quoted(value)}: should be {word} than{or_equal} {limit}"


def _children(value: Any, schema: Schema, path: str, old: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from violations(item, schema.get("items") or {}, f"{path}[{index}]")
        yield from _duplicates(value, schema, path)
        return
    if not isinstance(value, dict):
        return
    for name in schema.get("required") or ():
        if name not in value:
            yield _join(path, name), "Required value"
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    old_fields = old if isinstance(old, dict) else {}
    for name, item in value.items():
        inner = known.get(name, others if isinstance(others, Mapping) else None)
        if inner is not None:
            yield from violations(item, inner, _join(path, name), old_fields.get(name))


def _duplicates(value: list[Any], schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    keys = schema.get("x-kubernetes-list-map-keys")
    if not keys and schema.get("x-kubernetes-list-type") != "set":
        return
    seen: list[Any] = []
    for index, item in enumerate(value):
        entry_key = [item.get(key) for key in keys] if keys and isinstance(item, dict) else item
        if entry_key in seen:
            yield f"{path}[{index}]", f"Duplicate value: {_quoted(entry_key)}"
        seen.append(entry_key)


def _rules(value: Any, schema: Schema, path: str, old: Any) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations") or ():
        transition = re.search(r"\boldSelf\b", rule["rule"]) is not None
        if (old is not None or not transition) and not _rule_holds(rule["rule"], value, old if transition else None):
            prefix = f"{_quoted(value)}: " if isinstance(value, str) else ""
            yield path, f"Invalid value: {prefix}{rule.get('message') or 'failed rule: ' + rule['rule']}"


def _rule_holds(rule: str, value: Any, old: Any) -> bool:
    """Whether a CEL rule holds; a rule that fails to evaluate, such as for an absent field, does not."""
    if rule == _DURATION_RULE:  # by far the most frequent rule: skip the CEL interpreter
        return _DURATION.search(value) is not None
    from celpy.adapter import json_to_cel  # takes 0.1 s to import, and most processes evaluate no rule
    from celpy.evaluation import CELEvalError

    names = {"self": json_to_cel(value)} | ({} if old is None else {"oldSelf": json_to_cel(old)})
    try:
        return bool(_compiled_rule(rule).evaluate(names))
    except CELEvalError:
        return False


@cache
def _compiled_rule(rule: str) -> Any:
    import celpy

    environment = celpy.Environment()
    return environment.program(environment.compile(rule))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _quoted(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN:
        return "a number with many digits"
    shown = str(value) if len(str(value)) <= _MAX_SHOWN else f"{str(value)[:_MAX_SHOWN]}..."
    return f'"{shown}"' if isinstance(value, str) else shown
