"""The patch formats as pure functions: a document and a patch in, a new document out; the inputs stay as they are.

Strategic merge knows from `LIST_KEYS` which lists of the built-in kinds merge by key; every other list is replaced.
In a merged list, items that only the patch names go before the ones it does not, and the server's order is kept among
the rest: this is what the server does, and readers of `conditions` see it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

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


def merge(document: Any, patch: Any) -> Any:
    """RFC 7386: maps merge, None removes, everything else replaces."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


# ------------------------------------------------------------------------------------------------------ RFC 6902
def json_patch(document: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """RFC 6902; Invalid if an operation cannot be carried out, and then nothing changed."""
    result = copy.deepcopy(document)
    for number, operation in enumerate(operations):
        try:
            result = _operate(result, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            name = f"operation {number} ({operation.get('op')} {operation.get('path')})"
            raise Invalid(f"the JSON patch cannot be applied: {name}: {error}") from error
    return result


def _operate(document: Any, operation: Mapping[str, Any]) -> Any:
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
def strategic(document: Any, patch: Any) -> Any:
    """Strategic merge of maps; lists named in LIST_KEYS merge by key, `$patch: delete|replace` is honoured."""
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
            result[name] = strategic(result.get(name), value)
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
    merged = [strategic(present[place[item[key]]] if item[key] in place else {}, item) for item in patched]
    kept = [item for item in present if item[key] not in named | gone]
    return _interleaved(kept, merged, place, key)


def _interleaved(kept: list[Any], merged: list[Any], place: Mapping[Any, int], key: str) -> list[Any]:
    """Kept and merged items; a merged one waits only for kept ones that stood before it on the server."""
    result: list[Any] = []
    rest = list(kept)
    for item in merged:
        at = place.get(item[key], -1)
        while rest and at >= 0 and place[rest[0][key]] < at:
            result.append(rest.pop(0))
        result.append(item)
    return result + rest
