"""Access to fields of workload objects, which are JSON of kinds that we do not own.

An absent field and a null one are the same: None. A field of the wrong type is refused with its path, because the text
ends up in an event on the user's pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pykai.kube.api import Object

_WHOLE = re.compile(r"[+-]?0*[0-9]{1,10}", re.ASCII)
_INT32_MAX = 2**31 - 1


class GroupingError(ValueError):
    """The pod cannot be grouped; the text names the field at fault."""


def labels_of(obj: Object) -> Mapping[str, str]:
    """The labels of an object, empty where it has none."""
    return text_map_at(obj, "metadata", "labels")


def annotations_of(obj: Object) -> Mapping[str, str]:
    """The annotations of an object, empty where it has none."""
    return text_map_at(obj, "metadata", "annotations")


def name_of(obj: Object) -> str:
    """The object's own name."""
    return text_at(obj, "metadata", "name")


def namespace_of(obj: Object) -> str:
    """The object's namespace, empty for a cluster-wide one."""
    return text_at(obj, "metadata", "namespace")


def uid_of(obj: Object) -> str:
    """The object's identity."""
    return text_at(obj, "metadata", "uid")


def full_name(obj: Object) -> str:
    """`namespace/name`, for messages."""
    return f"{namespace_of(obj)}/{name_of(obj)}"


def group_version_kind(obj: Object) -> tuple[str, str, str]:
    """(group, version, kind); the core group is empty."""
    group, _, version = text_at(obj, "apiVersion").rpartition("/")
    return group, version, text_at(obj, "kind")


def owner_reference(obj: Object) -> Object:
    """The owner reference to this object."""
    return {
        "apiVersion": text_at(obj, "apiVersion"),
        "kind": text_at(obj, "kind"),
        "name": name_of(obj),
        "uid": uid_of(obj),
    }


def owner_references(obj: Object) -> list[Object]:
    """The owner references of an object."""
    return maps_at(obj, "metadata", "ownerReferences") or []


def value_at(obj: Object, *path: str) -> Any:
    """The value below a path of keys, None where it or a step to it is absent."""
    found: Any = obj
    for depth, key in enumerate(path):
        if found is None:
            return None
        if not isinstance(found, dict):
            raise _wrong(obj, path[:depth], "a map")
        found = found.get(key)
    return found


def text_at(obj: Object, *path: str) -> str:
    """The string at a path, empty where it is absent."""
    found = value_at(obj, *path)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise _wrong(obj, path, "a string")
    return found


def count_at(obj: Object, *path: str) -> int | None:
    """The whole number at a path, None where it is absent."""
    found = value_at(obj, *path)
    if found is None:
        return None
    if isinstance(found, float) and found.is_integer():
        return int(found)
    if isinstance(found, bool) or not isinstance(found, int):
        raise _wrong(obj, path, "a whole number")
    return found


def map_at(obj: Object, *path: str) -> Object | None:
    """The map at a path, None where it is absent."""
    found = value_at(obj, *path)
    if found is not None and not isinstance(found, dict):
        raise _wrong(obj, path, "a map")
    return found


def text_map_at(obj: Object, *path: str) -> Mapping[str, str]:
    """The map of strings at a path, empty where it is absent."""
    found = map_at(obj, *path) or {}
    for key, value in found.items():
        if not isinstance(value, str):
            raise _wrong(obj, (*path, key), "a string")
    return found


def maps_at(obj: Object, *path: str) -> list[Object] | None:
    """The list of maps at a path, None where it is absent."""
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
    """The annotations of the pod (or job) template at a path."""
    return text_map_at(obj, *path, "metadata", "annotations")


def whole(text: str, what: str) -> int:
    """The whole number (32 bits) a label or annotation spells; `what` names it in the refusal."""
    if not _WHOLE.fullmatch(text) or abs(int(text)) > _INT32_MAX:
        raise GroupingError(f"{what}: {text!r} is not a whole number")
    return int(text)


def positive(text: str, what: str) -> int:
    """A whole number of at least 1."""
    number = whole(text, what)
    if number < 1:
        raise GroupingError(f"{what}: value {number} must be >= 1")
    return number


def _wrong(obj: Object, path: tuple[str, ...], expected: str) -> GroupingError:
    owner = obj.get("metadata") if isinstance(obj, dict) else None
    of = f" of {obj.get('kind')} {owner['name']}" if isinstance(owner, dict) and "name" in owner else ""
    return GroupingError(f"{'.'.join(path) or 'the value'}{of} must be {expected}")
