"""Server-side apply: who owns which field, and what an applied configuration changes.

Ownership is kept as the set of leaf paths per manager. A leaf is a scalar, an empty map, or a list that is replaced as
a whole; a keyed list (conditions by type) is a map from key to item. An object that was never applied is owned by
nobody in particular: its first apply treats all present fields as owned by one manager that may be overruled by force.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from pykai.kube.api import Object
from pykai.kube.errors import Conflict
from pykai.kube.memory.patches import LIST_KEYS

Path = tuple[Any, ...]
Owners = Mapping[str, frozenset[Path]]
ListKeys = Callable[[Path], tuple[str, ...]]

FIRST = "before-first-apply"
IDENTITY = frozenset({("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")})
SERVER_OWNED = frozenset(
    ("metadata", name)
    for name in ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields")
)


def built_in_keys(path: Path) -> tuple[str, ...]:
    """The keys of a list of a built-in kind; empty for a list that is one value."""
    key = LIST_KEYS.get(path[-1]) if path else None
    return (key,) if key else ()


def schema_keys(schema: Mapping[str, Any]) -> ListKeys:
    """The keys of a list as a custom resource's schema declares them."""

    def keys(path: Path) -> tuple[str, ...]:
        if path == ("metadata", "ownerReferences"):
            return ("uid",)
        at: Mapping[str, Any] = schema
        for part in path:
            at = at.get("items", {}) if isinstance(part, tuple) else _property(at, part)
        return tuple(at.get("x-kubernetes-list-map-keys") or ())

    return keys


def _property(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    others = schema.get("additionalProperties")
    found = (schema.get("properties") or {}).get(name, others)
    return found if isinstance(found, Mapping) else {}


def leaves(value: Any, keys: ListKeys, path: Path = ()) -> dict[Path, Any]:
    """Every leaf of the value by its path."""
    if isinstance(value, dict) and value:
        found: dict[Path, Any] = {}
        for name, item in value.items():
            found |= leaves(item, keys, (*path, name))
        return found
    names = keys(path) if isinstance(value, list) and value else ()
    if not names:
        return {path: value}
    found = {}
    for item in value:
        found |= leaves(item, keys, (*path, tuple(item.get(name) for name in names)))
    return found


def taken(owners: Owners, before: Object, after: Object, keys: ListKeys) -> Owners:
    """The owners after a write that was no apply: what it changed, the appliers no longer own."""
    if not owners:
        return owners
    old, new = leaves(before, keys), leaves(after, keys)
    changed = frozenset(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)) - SERVER_OWNED
    gone = old.keys() - new.keys()
    kept = {manager: paths - changed for manager, paths in owners.items()}
    kept[FIRST] = kept.get(FIRST, frozenset()) | (changed - gone)
    return kept


def applied(
    current: Object, owners: Owners, config: Object, manager: tuple[str, bool], keys: ListKeys
) -> tuple[Object, Owners]:
    """The object and its owners after `config` was applied by (name, force); Conflict names fields of others."""
    name, force = manager
    present = leaves(current, keys)
    if not owners and current:
        owners = {FIRST: frozenset(present) - IDENTITY - SERVER_OWNED}
    wanted = leaves(config, keys)
    mine = frozenset(wanted) - IDENTITY
    disputed = _disputed(owners, name, {path: wanted[path] for path in mine}, present)
    if disputed and not force:
        raise _conflict(disputed)
    lost = frozenset(path for paths in disputed.values() for path in paths)
    others = {other: paths - lost for other, paths in owners.items() if other != name}
    dropped = owners.get(name, frozenset()) - mine - frozenset().union(*others.values())
    result = _merged(current, config, keys, ())
    for path in sorted(dropped - IDENTITY, key=lambda path: _is_key(path, keys)):
        _remove(result, path, keys)
    return result, others | {name: mine}


def _disputed(
    owners: Owners, name: str, wanted: Mapping[Path, Any], present: Mapping[Path, Any]
) -> dict[str, set[Path]]:
    differing = {path for path, value in wanted.items() if path in present and present[path] != value}
    found = {other: differing & paths for other, paths in owners.items() if other != name}
    return {other: set(paths) for other, paths in found.items() if paths}


def _conflict(disputed: Mapping[str, set[Path]]) -> Conflict:
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{other}"', "field": _dotted(path)}
        for other, paths in disputed.items()
        for path in sorted(paths, key=_dotted)
    ]
    lines = "; ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    return Conflict(f"Apply failed with {len(causes)} conflict(s): {lines}", details={"causes": causes})


def _dotted(path: Path) -> str:
    return "".join(f"[{','.join(map(str, part))}]" if isinstance(part, tuple) else f".{part}" for part in path)


def _merged(current: Any, config: Any, keys: ListKeys, path: Path) -> Any:
    if isinstance(config, dict) and isinstance(current, dict):
        both = {name: _merged(current.get(name), value, keys, (*path, name)) for name, value in config.items()}
        return {**copy.deepcopy({k: v for k, v in current.items() if k not in both}), **both}
    names = keys(path) if isinstance(config, list) and isinstance(current, list) else ()
    if not names:
        return copy.deepcopy(config)
    items = {tuple(item.get(name) for name in names): copy.deepcopy(item) for item in current}
    for item in config:
        key = tuple(item.get(name) for name in names)
        items[key] = _merged(items.get(key, {}), item, keys, (*path, key))
    return list(items.values())


def _is_key(path: Path, keys: ListKeys) -> bool:
    """Whether the leaf is the key of a list item, by which its other leaves are found: it must go last."""
    return len(path) > 2 and isinstance(path[-2], tuple) and path[-1] in keys(path[:-2])


def _has_parts(value: Any, keys: ListKeys, path: Path) -> bool:
    """Whether what was one leaf (an empty map or list) has got parts of its own meanwhile."""
    return bool(value) and (isinstance(value, dict) or (isinstance(value, list) and bool(keys(path))))


def _remove(value: Any, path: Path, keys: ListKeys, at: int = 0) -> None:
    """Take one leaf out of `value`, with the maps and list items that become empty by it."""
    part = path[at]
    if isinstance(value, list):
        names = keys(path[:at])
        found = [item for item in value if tuple(item.get(name) for name in names) == part]
        for item in found:
            _remove(item, path, keys, at + 1)
            if not item:
                value.remove(item)
    elif isinstance(value, dict) and part in value:
        if at + 1 == len(path):
            if not _has_parts(value[part], keys, path):
                del value[part]
            return
        _remove(value[part], path, keys, at + 1)
        if value[part] in ({}, []):
            del value[part]
