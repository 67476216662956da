"""Access to fields of workload objects, which are JSON of kinds that others define.

Absent and null fields are both None. A field of the wrong type raises GroupingError with its path, because the message
becomes an event on the user's pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pykai.kube.api import Object

_WHOLE = re.compile(r"[+-]?0*[0-9]{1,10}", re.ASCII)
_INT32_MAX = 2**31 - 1


class GroupingError(ValueError):
    """The pod cannot be grouped; the message names the invalid field."""


def labels_of(obj: Object) -> Mapping[str, str]:
    """Return the labels of an object, empty if it has none."""
    return text_map_at(obj, "metadata", "labels")


def annotations_of(obj: Object) -> Mapping[str, str]:
    """Return the annotations of an object, empty if it has none."""
    return text_map_at(obj, "metadata", "annotations")


def name_of(obj: Object) -> str:
    """Return the object's own name."""
    return text_at(obj, "metadata", "name")


def namespace_of(obj: Object) -> str:
    """Return the object's namespace, empty for a cluster-wide one."""
    return text_at(obj, "metadata", "namespace")


def uid_of(obj: Object) -> str:
    """Return the object's uid."""
    return text_at(obj, "metadata", "uid")


def full_name(obj: Object) -> str:
    """Return `namespace/name`, for messages."""
    return f"{namespace_of(obj)}/{name_of(obj)}"


def group_version_kind(obj: Object) -> tuple[str, str, str]:
    """Return (group, version, kind); the core group is empty."""
    group, _, version = text_at(obj, "apiVersion").rpartition("/")
    return group, version, text_at(obj, "kind")


def owner_reference(obj: Object) -> Object:
    """Return the owner reference to this object."""
    return {
        "apiVersion": text_at(obj, "apiVersion"),
        "kind": text_at(obj, "kind"),
        "name": name_of(obj),
        "uid": uid_of(obj),
    }


def owner_references(obj: Object) -> list[Object]:
    """Return the owner references of an object."""
    return maps_at(obj, "metadata", "ownerReferences") or []


def value_at(obj: Object, *path: str) -> Any:
    """Return the value at a path of keys; None if any part of the path is absent."""
    found: Any = obj
    for depth, key in enumerate(path):
        if found is None:
            return None
        if not isinstance(found, dict):
            raise _wrong(obj, path[:depth], "a map")
        found = found.get(key)
    return found


def text_at(obj: Object, *path: str) -> str:
    """Return the string at a path, empty if it is absent."""
    found = value_at(obj, *path)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise _wrong(obj, path, "a string")
    return found


def count_at(obj: Object, *path: str) -> int | None:
    """Return the whole number at a path, None if it is absent."""
    found = value_at(obj, *path)
    if found is None:
        return None
    if isinstance(found, float) and found.is_integer():
        return int(found)
    if isinstance(found, bool) or not isinstance(found, int):
        raise _wrong(obj, path, "a whole number")
    return found


def map_at(obj: Object, *path: str) -> Object | None:
    """Return the map at a path, None if it is absent."""
    found = value_at(obj, *path)
    if found is not None and not isinstance(found, dict):
        raise _wrong(obj, path, "a map")
    return found


def text_map_at(obj: Object, *path: str) -> Mapping[str, str]:
    """Return the map of strings at a path, empty if it is absent."""
    found = map_at(obj, *path) or {}
    for key, value in found.items():
        if not isinstance(value, str):
            raise _wrong(obj, (*path, key), "a string")
    return found


def maps_at(obj: Object, *path: str) -> list[Object] | None:
    """Return the list of maps at a path, None if it is absent."""
    found = value_at(obj, *path)
    if found is None:
        return None
    if not isinstance(found, list):
        raise _wrong(obj, path, "a list")
    for index, item in enumerate(found):
        if not isinstance(item, dict):
            raise _wrong(obj, (*path[:-1], f"{path[-1]}[{index}]"), "a map")
    return found


def template_annotations(obj: Object, *path: str) -> Mapping[str, str]:
    """Return the annotations of the pod (or job) template at a path."""
    return text_map_at(obj, *path, "metadata", "annotations")


def whole(text: str, what: str) -> int:
    """Parse the whole number (32 bits) of a label or annotation; `what` names it in the error."""
    if not _WHOLE.fullmatch(text) or abs(int(text)) > _INT32_MAX:
        raise GroupingError(f"{what}: {text!r} is not a whole number")
    return int(text)


def positive(text: str, what: str) -> int:
    """Parse a whole number of at least 1; `what` names it in the error."""
    number = whole(text, what)
    if number < 1:
        raise GroupingError(f"{what}: value {number} must be >= 1")
    return number


def _wrong(obj: Object, path: tuple[str, ...], expected: str) -> GroupingError:
    owner = obj.get("metadata") if isinstance(obj, dict) else None
    of = f" of {obj.get('kind')} {owner['name']}" if isinstance(owner, dict) and "name" in owner else ""
    return GroupingError(f"{'.'.join(path) or 'the value'}{of} must be {expected}")
