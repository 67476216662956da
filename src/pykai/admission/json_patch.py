"""The JSON patch (RFC 6902) that turns one JSON value into another.

Lists are compared by place: what admission does to a list is append and replace, for which that is the shortest form.
Values are equal when their JSON is: `1` and `true` differ although Python says they do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykai.admission.verdict import PatchOperation


def difference(old: Any, new: Any, path: str = "") -> Iterator[PatchOperation]:
    """Operations that, applied in order to `old`, give `new`; `path` is the JSON pointer of the two values."""
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _object_difference(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _list_difference(old, new, path)
    elif type(old) is not type(new) or old != new:
        yield {"op": "replace", "path": path, "value": new}


def _object_difference(old: dict[str, Any], new: dict[str, Any], path: str) -> Iterator[PatchOperation]:
    for key in (key for key in old if key not in new):
        yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
    for key, value in new.items():
        place = f"{path}/{_escaped(key)}"
        if key in old:
            yield from difference(old[key], value, place)
        else:
            yield {"op": "add", "path": place, "value": value}


def _list_difference(old: list[Any], new: list[Any], path: str) -> Iterator[PatchOperation]:
    for index, (before, after) in enumerate(zip(old, new, strict=False)):
        yield from difference(before, after, f"{path}/{index}")
    for index in range(len(old) - 1, len(new) - 1, -1):
        yield {"op": "remove", "path": f"{path}/{index}"}
    for value in new[len(old) :]:
        yield {"op": "add", "path": f"{path}/-", "value": value}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
