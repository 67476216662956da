"""The patch formats and server-side apply, as pure functions from a document and a patch to a new document.

`LIST_KEYS` states which lists of the built-in kinds strategic merge merges by key; every other list is replaced. In a
merged list, items that only the patch has precede those that it does not have, and the rest keeps the server's order:
the real server does so, and readers of `conditions` see it.

Server-side apply keeps field ownership as the set of leaf paths per manager. A leaf is a scalar, an empty map, or a
list that is replaced as a whole; a keyed list (conditions by type) is a map from key to item. The first apply of an
object attributes all present fields to one manager. Every apply takes the fields that it changes from their owners.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pykai.kube.api import Fields, Object
from pykai.kube.errors import BadRequest, Invalid

LIST_KEYS: dict[str, str] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "resourceClaims": "name",
    "resourceClaimStatuses": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
PRIMITIVE_SETS = frozenset({"finalizers"})


def merge_patch(document: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386): maps merge, None removes, everything else replaces."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


# ------------------------------------------------------------------------------------------------------ RFC 6902
def json_patch(document: Any, operations: Sequence[Fields]) -> Any:
    """Apply a JSON patch (RFC 6902); Invalid, without any change, if an operation fails."""
    result = copy.deepcopy(document)
    for number, operation in enumerate(operations):
        try:
            result = _operate(result, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            name = f"operation {number} ({operation.get('op')} {operation.get('path')})"
            raise Invalid(f"the JSON patch cannot be applied: {name}: {error}") from error
    return result


def _operate(document: Any, operation: Fields) -> Any:
    kind, path = operation["op"], _pointer(operation["path"])
    if kind in {"move", "copy"}:
        value = copy.deepcopy(_lookup(document, _pointer(operation["from"])))
        if kind == "move":
            document = _removed(document, _pointer(operation["from"]))
        return _added(document, path, value)
    if kind == "test":
        if _lookup(document, path) != operation.get("value"):
            raise ValueError("the value is not the expected one")
        return document
    if kind == "remove":
        return _removed(document, path)
    if kind == "replace":
        _lookup(document, path)
        return _added(_removed(document, path) if path else document, path, copy.deepcopy(operation["value"]))
    if kind == "add":
        return _added(document, path, copy.deepcopy(operation["value"]))
    raise BadRequest(f"unknown JSON patch operation {kind!r}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(f"the path {text!r} must begin with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _lookup(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[_index(part, len(document) - 1)] if isinstance(document, list) else document[part]
    return document


def _index(part: str, last: int) -> int:
    if not part.isdigit() or int(part) > last:
        raise IndexError(f"no list item {part!r}")
    return int(part)


def _added(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _lookup(document, path[:-1])
    if isinstance(parent, list):
        parent.insert(len(parent) if path[-1] == "-" else _index(path[-1], len(parent)), value)
    else:
        parent[path[-1]] = value
    return document


def _removed(document: Any, path: list[str]) -> Any:
    parent = _lookup(document, path[:-1])
    del parent[_index(path[-1], len(parent) - 1) if isinstance(parent, list) else path[-1]]
    return document


# --------------------------------------------------------------------------------------------- strategic merge
def strategic_patch(document: Any, patch: Any) -> Any:
    """Apply a strategic merge patch: lists in LIST_KEYS merge by key, `$patch: delete|replace` is honoured."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    directive = patch.get("$patch")
    if directive == "replace":
        return {name: copy.deepcopy(value) for name, value in patch.items() if name != "$patch"}
    result = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if name.startswith("$"):
            raise BadRequest(f"the strategic merge directive {name!r} is not supported here")
        if value is None:
            result.pop(name, None)
        elif isinstance(value, list):
            result[name] = _strategic_list(name, result.get(name) or [], value)
        else:
            result[name] = strategic_patch(result.get(name), value)
    return result


def _strategic_list(name: str, present: list[Any], patch: list[Any]) -> list[Any]:
    if name in PRIMITIVE_SETS:
        return present + [item for item in patch if item not in present]
    key = LIST_KEYS.get(name)
    if key is None or any(item.get("$patch") == "replace" for item in patch):
        return [copy.deepcopy(item) for item in patch if item.get("$patch") != "replace"] if key else list(patch)
    if any(key not in item for item in patch):
        raise Invalid(f"{name}: every item of a strategic merge patch needs its key {key!r}")
    return _merged_by_key(key, present, patch)


def _merged_by_key(key: str, present: list[Any], patch: list[Any]) -> list[Any]:
    place = {item[key]: index for index, item in enumerate(present)}
    gone = {item[key] for item in patch if item.get("$patch") == "delete"}
    patched = [item for item in patch if item[key] not in gone]
    named = {item[key] for item in patched}
    merged = [strategic_patch(present[place[item[key]]] if item[key] in place else {}, item) for item in patched]
    kept = [item for item in present if item[key] not in named | gone]
    return _interleaved(kept, merged, place, key)


def _interleaved(kept: list[Any], merged: list[Any], place: Mapping[Any, int], key: str) -> list[Any]:
    """Merge the order of kept and merged items: a merged item follows the kept ones that preceded it on the server."""
    result: list[Any] = []
    rest = list(kept)
    for item in merged:
        at = place.get(item[key], -1)
        while rest and at >= 0 and place[rest[0][key]] < at:
            result.append(rest.pop(0))
        result.append(item)
    return result + rest


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
    """Return the keys of a list of a built-in kind; empty if the list is atomic."""
    key = LIST_KEYS.get(path[-1]) if path else None
    return (key,) if key else ()


def schema_keys(schema: Fields) -> ListKeys:
    """Return the keys of a list as a custom resource's schema declares them."""

    def keys(path: Path) -> tuple[str, ...]:
        if path == ("metadata", "ownerReferences"):
            return ("uid",)
        at: Fields = schema
        for part in path:
            at = at.get("items", {}) if isinstance(part, tuple) else _property(at, part)
        return tuple(at.get("x-kubernetes-list-map-keys") or ())

    return keys


def _property(schema: Fields, name: str) -> Fields:
    others = schema.get("additionalProperties")
    found = (schema.get("properties") or {}).get(name, others)
    return found if isinstance(found, Mapping) else {}


def leaves(value: Any, keys: ListKeys, path: Path = ()) -> dict[Path, Any]:
    """Return every leaf of the value by its path."""
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


def owners_after_write(owners: Owners, before: Object, after: Object, keys: ListKeys) -> Owners:
    """Return the owners after a write other than an apply: appliers lose the fields that it changed."""
    if not owners:
        return owners
    old, new = leaves(before, keys), leaves(after, keys)
    changed = frozenset(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)) - SERVER_OWNED
    gone = old.keys() - new.keys()
    kept = {manager: paths - changed for manager, paths in owners.items()}
    kept[FIRST] = kept.get(FIRST, frozenset()) | (changed - gone)
    return kept


def applied(current: Object, owners: Owners, config: Object, manager: str, keys: ListKeys) -> tuple[Object, Owners]:
    """Return the object and its owners after a forced apply: `manager` takes the fields that it changes."""
    present = leaves(current, keys)
    if not owners and current:
        owners = {FIRST: frozenset(present) - IDENTITY - SERVER_OWNED}
    wanted = leaves(config, keys)
    mine = frozenset(wanted) - IDENTITY
    changed = frozenset(path for path in mine if path in present and present[path] != wanted[path])
    others = {other: paths - changed for other, paths in owners.items() if other != manager}
    dropped = owners.get(manager, frozenset()) - mine - frozenset().union(*others.values())
    result = _merged(current, config, keys, ())
    for path in sorted(dropped - IDENTITY, key=lambda path: _is_key(path, keys)):
        _remove(result, path, keys)
    return result, others | {manager: mine}


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
    """Whether the leaf is the key of a list item; it must be removed last, because it identifies the item."""
    return len(path) > 2 and isinstance(path[-2], tuple) and path[-1] in keys(path[:-2])


def _has_parts(value: Any, keys: ListKeys, path: Path) -> bool:
    """Whether a former leaf (an empty map or list) now has content."""
    return bool(value) and (isinstance(value, dict) or (isinstance(value, list) and bool(keys(path))))


def _remove(value: Any, path: Path, keys: ListKeys, at: int = 0) -> None:
    """Remove one leaf from `value`, and maps and list items that become empty."""
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
