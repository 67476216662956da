"""The structure a Karta describes: a tree of components, how many pods each has, which pods are whose.

A component is a definition with a parent; its paths are jq programs. Paths to scale and instance ids are read from the
workload, those of pod selectors from the pod. A component that gives no scale has the scale of its children together;
one without any selector in its subtree takes every pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, zip_longest
from typing import Any

import jq

from pykai.controllers.grouping.fields import GroupingError, Object, map_at, maps_at, text_at

_SELECTOR_PATHS = (
    ("podSelector", "componentTypeSelector", "keyPath"),
    ("podSelector", "componentInstanceSelector", "idPath"),
)
_SCALE_FIELDS = ("minReplicasPath", "replicasPath")
_WORKLOAD_PATHS = (*(("scaleDefinition", field) for field in _SCALE_FIELDS), ("instanceIdPath",))


MAX_VALUES = 10_000


class KartaError(GroupingError):
    """The Karta itself is at fault, or does not fit its workload."""


@dataclass(frozen=True)
class Structure:
    """The components by name; `root` names the workload itself."""

    root: str
    components: Mapping[str, Object]

    def component(self, name: str) -> Object:
        if name not in self.components:
            raise KartaError(f"component {name} is not part of the structure")
        return self.components[name]

    def children(self, name: str) -> list[str]:
        return [child for child, definition in self.components.items() if text_at(definition, "ownerRef") == name]


def structure(karta: Object) -> Structure:
    """The tree of a Karta; raises KartaError where it is not one tree of distinct, readable components."""
    root = map_at(karta, "spec", "structureDefinition", "rootComponent") or {}
    children = maps_at(karta, "spec", "structureDefinition", "childComponents") or []
    names = [text_at(definition, "name") for definition in (root, *children)]
    if not all(names) or len(set(names)) != len(names):
        raise KartaError(f"component names must be given and distinct, found {names}")
    found = Structure(names[0], dict(zip(names, (root, *children), strict=True)))
    for name in names[1:]:
        _check_descent(found, name)
    for definition in found.components.values():
        for path in (*_SELECTOR_PATHS, *_WORKLOAD_PATHS):
            if program := text_at(definition, *path):
                compiled(program)
    return found


def _check_descent(found: Structure, name: str) -> None:
    seen: set[str] = set()
    current = name
    while current != found.root:
        if current in seen or current not in found.components:
            raise KartaError(f"component {name} does not descend from {found.root}: ownerRef leads to {current!r}")
        seen.add(current)
        current = text_at(found.components[current], "ownerRef")


@lru_cache(maxsize=1024)
def compiled(program: str) -> Any:
    """A jq program, refused with its text where it is not one."""
    try:
        return jq.compile(program)
    except ValueError as error:
        raise KartaError(f"jq program {program!r}: {error}") from error


def values(program: str, obj: Object) -> list[Any]:
    """Everything a jq program yields for an object."""
    try:
        found = list(islice(compiled(program).input_value(obj), MAX_VALUES + 1))
    except ValueError as error:
        raise KartaError(f"jq program {program!r}: {error}") from error
    if len(found) > MAX_VALUES:
        raise KartaError(f"jq program {program!r} yields more than {MAX_VALUES} values")
    return found


def scale(found: Structure, name: str, workload: Object, instance: str | None = None) -> int:
    """Pods below a component, or below one instance of it; 0 where nothing in its subtree gives a scale."""
    definition = found.component(name)
    if any(text_at(definition, "scaleDefinition", field) for field in _SCALE_FIELDS):
        return sum(_per_instance(definition, workload, instance))
    return sum(scale(found, child, workload) for child in found.children(name))


def _per_instance(definition: Object, workload: Object, instance: str | None) -> list[int]:
    minimum, replicas = (_counts(definition, field, workload) for field in _SCALE_FIELDS)
    counts = [least or usual for least, usual in zip_longest(minimum, replicas, fillvalue=0)]
    id_path = text_at(definition, "instanceIdPath")
    if instance is None or not id_path:
        return counts
    return [count for identity, count in zip(values(id_path, workload), counts, strict=False) if identity == instance]


def _counts(definition: Object, field: str, workload: Object) -> list[int]:
    program = text_at(definition, "scaleDefinition", field)
    found = values(program, workload) if program else []
    if not all(value is None or isinstance(value, int | float) for value in found):
        raise KartaError(f"{field} {program!r} yields {found}, expected numbers")
    return [int(value or 0) for value in found]


def owns(found: Structure, name: str, pod: Object) -> bool:
    """Whether the pod belongs to a component or to one below it."""
    subtree = _subtree(found, name)
    selecting = [definition for definition in subtree if any(text_at(definition, *path) for path in _SELECTOR_PATHS)]
    return not selecting or any(_selects(definition, pod) for definition in selecting)


def _subtree(found: Structure, name: str) -> list[Object]:
    below = [definition for child in found.children(name) for definition in _subtree(found, child)]
    return [found.component(name), *below]


def _selects(definition: Object, pod: Object) -> bool:
    key, identity = (text_at(definition, *path) for path in _SELECTOR_PATHS)
    wanted = map_at(definition, "podSelector", "componentTypeSelector") or {}
    if key and not _has(values(key, pod), wanted.get("value")):
        return False
    return not identity or _has(values(identity, pod), None)


def _has(found: list[Any], wanted: str | None) -> bool:
    return any(value is not None and wanted in (None, str(value)) for value in found)
