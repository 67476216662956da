"""The rules for metadata that hold for every kind: names, labels, and what only the server may set."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from random import Random
from typing import Any

from pykai.kube.api import Object, Resource
from pykai.kube.errors import ApiError, Conflict, Invalid
from pykai.objects.names import is_subdomain

SERVER_SET = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
)
_LABEL_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_PATH_NAMED = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


def timestamp(seconds: float) -> str:
    """Seconds since 1970 in the server's notation, whole seconds in UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def generated(prefix: str, random: Random) -> str:
    """A name with five random characters, never longer than 63."""
    return prefix[:58] + "".join(random.choices(_SUFFIX, k=5))


def fresh(metadata: Object, now: float, uid: str) -> Object:
    """The metadata of an object to be created; refuses a resourceVersion."""
    if metadata.get("resourceVersion"):
        raise ApiError("resourceVersion should not be set on objects to be created")
    own = {name: value for name, value in metadata.items() if name not in SERVER_SET or name == "generateName"}
    return _without_empties(own) | {"uid": uid, "creationTimestamp": timestamp(now)}


def carried(old: Object, new: Object) -> Object:
    """The metadata of an update: what only the server may set stays as it was."""
    kept = {name: old[name] for name in (*SERVER_SET, "name", "namespace", "resourceVersion") if name in old}
    mine = {name: value for name, value in new.items() if name not in SERVER_SET}
    return _without_empties(mine) | kept


def _without_empties(metadata: Object) -> Object:
    return {
        name: value for name, value in metadata.items() if value not in (None, {}, [], "") and name != "managedFields"
    }


def check(resource: Resource, body: Object) -> None:
    """Invalid if a name or label is not well formed."""
    metadata = body["metadata"]
    found = list(_problems(resource, metadata))
    if found:
        raise invalid(resource, metadata.get("name", ""), found)


def _problems(resource: Resource, metadata: Object) -> list[tuple[str, str]]:
    name = metadata.get("name") or ""
    found = []
    if not name:
        found.append(("metadata.name", "Required value: name or generateName is required"))
    elif resource.plural not in _PATH_NAMED and not is_subdomain(name):
        found.append(("metadata.name", f'Invalid value: "{name}": must be a lowercase RFC 1123 subdomain'))
    for key, value in (metadata.get("labels") or {}).items():
        if not isinstance(value, str) or not _LABEL_NAME.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            found.append(("metadata.labels", f'Invalid value: "{key}={value}": not a valid label'))
    for key, value in (metadata.get("annotations") or {}).items():
        if not isinstance(value, str):
            found.append(("metadata.annotations", f"Invalid value: {key}: must be a string"))
    return found


def invalid(resource: Resource, name: str, found: list[tuple[str, str]]) -> Invalid:
    """The refusal that lists every (field, message)."""
    causes = [{"field": field, "message": message, "reason": "FieldValueInvalid"} for field, message in found]
    text = "; ".join(f"{field}: {message}" for field, message in found)
    details: dict[str, Any] = {"name": name, "group": resource.group, "kind": resource.kind, "causes": causes}
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return Invalid(f'{qualified} "{name}" is invalid: {text}', details=details)


def modified(resource: Resource, name: str, why: str) -> Conflict:
    """The refusal of a write that would overwrite a newer state or breaks a precondition."""
    return Conflict(
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}',
        details={"name": name, "group": resource.group, "kind": resource.plural},
    )
