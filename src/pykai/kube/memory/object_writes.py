"""The rules of writes, as pure functions from the old state of an object and the sent one to the new state.

If the kind has a status subresource, a write to the object ignores its status, and a write to the status ignores the
rest. A status write of a built-in kind also changes labels and annotations; one of a custom resource does not.

A deletion removes an object at once unless a grace period (pods on a node) or finalizers hold it: it then gets a
deletionTimestamp and is removed when neither holds it. A second delete can only shorten the grace period.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

from pykai.kube.api import Deletion, Object, Patch, PatchType, Propagation, Resource
from pykai.kube.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound, Unsupported
from pykai.kube.memory.patches import json_patch, merge_patch, strategic_patch
from pykai.kube.memory.served_kinds import ServedKind, pod_change_problems, pod_grace, pod_spec_problems
from pykai.objects import schema_validation
from pykai.objects.names import is_subdomain
from pykai.objects.units import rfc3339

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


def generated_name(prefix: str, random: Random) -> str:
    """Return a name with five random characters, never longer than 63."""
    return prefix[:58] + "".join(random.choices(_SUFFIX, k=5))


def new_metadata(metadata: Object, now: float, uid: str) -> Object:
    """Return the metadata of an object to be created; a resourceVersion is rejected."""
    if metadata.get("resourceVersion"):
        raise ApiError("resourceVersion should not be set on objects to be created")
    own = {name: value for name, value in metadata.items() if name not in SERVER_SET or name == "generateName"}
    return _without_empties(own) | {"uid": uid, "creationTimestamp": rfc3339(now)}


def updated_metadata(old: Object, new: Object) -> Object:
    """Return the metadata of an update; fields that only the server may set keep their values."""
    kept = {name: old[name] for name in (*SERVER_SET, "name", "namespace", "resourceVersion") if name in old}
    mine = {name: value for name, value in new.items() if name not in SERVER_SET}
    return _without_empties(mine) | kept


def _without_empties(metadata: Object) -> Object:
    return {
        name: value for name, value in metadata.items() if value not in (None, {}, [], "") and name != "managedFields"
    }


def check_metadata(resource: Resource, body: Object) -> None:
    """Raise Invalid if a name or label is malformed."""
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
    """Return the error that lists every (field, message)."""
    causes = [{"field": field, "message": message, "reason": "FieldValueInvalid"} for field, message in found]
    text = "; ".join(f"{field}: {message}" for field, message in found)
    details: Object = {"name": name, "group": resource.group, "kind": resource.kind, "causes": causes}
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return Invalid(f'{qualified} "{name}" is invalid: {text}', details=details)


def modified(resource: Resource, name: str, why: str) -> Conflict:
    """Return the error for a write that would overwrite a newer state or violates a precondition."""
    return Conflict(
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}',
        details={"name": name, "group": resource.group, "kind": resource.plural},
    )


STATUS_TAKES = ("labels", "annotations", "finalizers")


def new_object(kind: ServedKind, body: Object) -> Object:
    """Return the state of an object to be created, from a body that has its metadata and the server's additions."""
    if kind.generation:
        body["metadata"]["generation"] = 1
    body = _conformed(kind, body, None)
    check_metadata(kind.resource, body)
    return body


def without_status(kind: ServedKind, body: Object) -> Object:
    """Return a new object as sent, without the status that only the status subresource may write."""
    drop = kind.status and not kind.keeps_status
    return {name: value for name, value in body.items() if name != "status" or not drop}


def changed_object(kind: ServedKind, old: Object, sent: Object, subresource: str) -> Object:
    """Return the state of an object after an update or a patch."""
    if subresource and not (subresource == "status" and kind.status):
        raise NotFound(f"{kind.resource.qualified} has no subresource {subresource!r} to write")
    new = _status_write(kind, old, sent) if subresource == "status" else _object_write(kind, old, sent)
    new = _conformed(kind, new, old)
    if kind.generation and _content(new) != _content(old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    check_metadata(kind.resource, new)
    _check_finalizers(kind, old["metadata"], new["metadata"])
    return new


def _status_write(kind: ServedKind, old: Object, sent: Object) -> Object:
    new = {**old, "metadata": dict(old["metadata"])}
    new.pop("status", None)
    if sent.get("status") is not None:
        new["status"] = sent["status"]
    if not kind.custom:
        sent = sent.get("metadata") or {}
        taken = {name: sent.get(name) for name in STATUS_TAKES}
        new["metadata"] = updated_metadata(old["metadata"], {**old["metadata"], **taken})
    return new


def _object_write(kind: ServedKind, old: Object, sent: Object) -> Object:
    new = {**sent, "metadata": updated_metadata(old["metadata"], sent.get("metadata") or {})}
    if kind.status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    return new


def _conformed(kind: ServedKind, new: Object, old: Object | None) -> Object:
    """Return the object pruned and defaulted by its schema; Invalid lists all violations."""
    found: list[tuple[str, str]] = []
    name = new["metadata"].get("name", "")
    if kind.schema is not None:
        new = schema_validation.default(schema_validation.prune(new, kind.schema), kind.schema)
        found = list(schema_validation.violations(new, kind.schema, "", old))
    else:
        new = _without_nulls(new)
        if kind.resource.qualified == "pods":
            found = pod_spec_problems(new) if old is None else pod_change_problems(old, new)
    if found:
        raise invalid(kind.resource, name, found)
    return new


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _content(body: Object) -> Object:
    return {name: value for name, value in body.items() if name not in ("metadata", "status")}


def _check_finalizers(kind: ServedKind, old: Object, new: Object) -> None:
    added = set(new.get("finalizers") or ()) - set(old.get("finalizers") or ())
    if "deletionTimestamp" in old and added:
        why = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers"
        raise invalid(kind.resource, new["name"], [("metadata.finalizers", f"{why} {sorted(added)}")])


def check_version(kind: ServedKind, old: Object, sent: Object, patched: bool) -> None:
    """Raise Conflict if the sent resourceVersion or uid differs, Invalid if a required resourceVersion is absent."""
    mine, theirs = sent.get("metadata") or {}, old["metadata"]
    name, version = theirs["name"], mine.get("resourceVersion")
    if mine.get("uid") not in (None, "", theirs["uid"]):
        why = f"Precondition failed: UID in precondition: {mine['uid']}, UID in object meta: {theirs['uid']}"
        raise modified(kind.resource, name, why)
    if version and version != theirs["resourceVersion"]:
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise modified(kind.resource, name, why)
    if not version and not kind.blind_update and not patched:
        why = "Invalid value: 0: must be specified for an update"
        raise invalid(kind.resource, name, [("metadata.resourceVersion", why)])


def check_name(name: str, sent: Object) -> None:
    """Raise BadRequest if the body names another object than the URL does."""
    mine = (sent.get("metadata") or {}).get("name") or ""
    if mine != name:
        raise BadRequest(f"the name of the object ({mine}) does not match the name on the URL ({name})")


def patched(kind: ServedKind, old: Object, patch: Patch) -> Object:
    """Return the document after a merge, JSON or strategic patch."""
    if patch.type is PatchType.STRATEGIC and kind.custom:
        raise Unsupported(
            "the body of the request was in an unknown format: custom resources take merge, json and apply"
        )
    if patch.type is PatchType.JSON:
        if not isinstance(patch.body, list | tuple):
            raise BadRequest("a JSON patch must be a list of operations")
        return _map(json_patch(old, patch.body))
    body = patch.body
    change = strategic_patch if patch.type is PatchType.STRATEGIC else merge_patch
    return _map(change(old, body))


def _map(document: Any) -> Object:
    if not isinstance(document, dict):
        raise BadRequest("the patched document is not an object")
    return document


def check_namespace(namespace: Object | None, name: str) -> None:
    """Reject a create in a namespace that does not exist or is terminating."""
    if namespace is None:
        raise NotFound(f'namespaces "{name}" not found', details={"name": name, "kind": "namespaces"})
    if "deletionTimestamp" in namespace["metadata"]:
        raise Forbidden(f"unable to create new content in namespace {name} because it is being terminated")


ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_FINALIZER = {Propagation.ORPHAN: ORPHAN, Propagation.FOREGROUND: FOREGROUND}


def check_preconditions(kind: ServedKind, body: Object, how: Deletion) -> None:
    """Raise Conflict if uid or resourceVersion differ from the preconditions of the deletion."""
    metadata = body["metadata"]
    for name, mine, theirs in (("UID", how.uid, "uid"), ("ResourceVersion", how.version, "resourceVersion")):
        if mine and mine != metadata[theirs]:
            why = f"Precondition failed: {name} in precondition: {mine}, {name} in object meta: {metadata[theirs]}"
            raise modified(kind.resource, metadata["name"], why)


def deletion_begun(kind: ServedKind, body: Object, how: Deletion, now: float) -> Object:
    """Return the terminating object, with deletionTimestamp and grace period in seconds."""
    metadata = dict(body["metadata"])
    seconds = pod_grace(body, how.grace_seconds) if kind.resource.qualified == "pods" else 0
    finalizers = _finalizers(metadata, how)
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers
    running = metadata.get("deletionGracePeriodSeconds")
    if running is None or seconds < running:
        if running is None and "generation" in metadata:
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = rfc3339(now + seconds)
        metadata["deletionGracePeriodSeconds"] = seconds
    return {**body, "metadata": metadata}


def _finalizers(metadata: Object, how: Deletion) -> list[str]:
    present = list(metadata.get("finalizers") or [])
    if how.propagation is None:
        return present
    wanted = _FINALIZER.get(how.propagation)
    kept = [finalizer for finalizer in present if finalizer not in _FINALIZER.values() or finalizer == wanted]
    return kept if wanted is None or wanted in kept else [*kept, wanted]


def deletion_finished(body: Object) -> bool:
    """Whether the object is terminating and neither grace period nor finalizers hold it."""
    metadata = body["metadata"]
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in metadata and not held


def without_finalizer(body: Object, name: str) -> Object:
    """Return the object without one finalizer."""
    rest = [finalizer for finalizer in body["metadata"].get("finalizers") or [] if finalizer != name]
    metadata = {key: value for key, value in body["metadata"].items() if key != "finalizers"}
    return {**body, "metadata": {**metadata, "finalizers": rest} if rest else metadata}
