"""A JSON patch applied to a copy of a value, by the letter of RFC 6902: the judge of patches in tests."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any


def applied(operations: Iterable[dict[str, Any]], value: Any) -> Any:
    """The value after the operations; raises when one names a place that does not exist."""
    document = {"root": deepcopy(value)}
    for operation in operations:
        _apply(document, operation)
    return document["root"]


def _apply(document: Any, operation: dict[str, Any]) -> None:
    *parents, last = ["root", *(_unescaped(part) for part in operation["path"].split("/")[1:])]
    target = document
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target[part]
    key: Any = last
    if isinstance(target, list):
        key = len(target) if last == "-" else int(last)
    if operation["op"] == "remove":
        del target[key]
    elif operation["op"] == "add" and isinstance(target, list):
        target.insert(key, operation["value"])
    else:
        if operation["op"] == "replace":
            target[key]
        target[key] = operation["value"]


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
