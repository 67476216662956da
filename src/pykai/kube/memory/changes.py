"""What a write may change: the new state of an object from its old state and what the caller sent. Pure functions.

A write to the object leaves its status alone and a write to the status leaves the rest alone, where the kind has a
status subresource. Built-in kinds take labels and annotations along with a status write; custom resources do not.
"""

from __future__ import annotations

from typing import Any

from pykai.kube.api import Object, Patch, PatchType
from pykai.kube.errors import BadRequest, Forbidden, NotFound, Unsupported
from pykai.kube.memory import metadata, patches, pods
from pykai.kube.memory.kinds import Kind
from pykai.objects import validation

STATUS_TAKES = ("labels", "annotations", "finalizers")


def new_object(kind: Kind, body: Object) -> Object:
    """The state of an object to be created, from a body that has its metadata and the server's additions."""
    if kind.generation:
        body["metadata"]["generation"] = 1
    body = _conformed(kind, body, None)
    metadata.check(kind.resource, body)
    return body


def without_status(kind: Kind, body: Object) -> Object:
    """A new object as sent, without the status that only the status subresource may write."""
    drop = kind.status and not kind.keeps_status
    return {name: value for name, value in body.items() if name != "status" or not drop}


def changed_object(kind: Kind, old: Object, sent: Object, subresource: str) -> Object:
    """The state of an object after an update or a patch."""
    if subresource and not (subresource == "status" and kind.status):
        raise NotFound(f"{kind.resource.qualified} has no subresource {subresource!r} to write")
    new = _status_write(kind, old, sent) if subresource == "status" else _object_write(kind, old, sent)
    new = _conformed(kind, new, old)
    if kind.generation and _content(new) != _content(old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    metadata.check(kind.resource, new)
    _check_finalizers(kind, old["metadata"], new["metadata"])
    return new


def _status_write(kind: Kind, old: Object, sent: Object) -> Object:
    new = {**old, "metadata": dict(old["metadata"])}
    new.pop("status", None)
    if sent.get("status") is not None:
        new["status"] = sent["status"]
    if not kind.custom:
        wish = sent.get("metadata") or {}
        taken = {name: wish.get(name) for name in STATUS_TAKES}
        new["metadata"] = metadata.carried(old["metadata"], {**old["metadata"], **taken})
    return new


def _object_write(kind: Kind, old: Object, sent: Object) -> Object:
    new = {**sent, "metadata": metadata.carried(old["metadata"], sent.get("metadata") or {})}
    if kind.status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    return new


def _conformed(kind: Kind, new: Object, old: Object | None) -> Object:
    """The object in the shape of its schema; Invalid lists what does not fit."""
    found: list[tuple[str, str]] = []
    name = new["metadata"].get("name", "")
    if kind.schema is not None:
        new = validation.default(validation.prune(new, kind.schema), kind.schema)
        found = list(validation.violations(new, kind.schema, "", old))
    else:
        new = _without_nulls(new)
        if kind.resource.qualified == "pods":
            found = pods.spec_problems(new) if old is None else pods.change_problems(old, new)
    if found:
        raise metadata.invalid(kind.resource, name, found)
    return new


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _content(body: Object) -> Object:
    return {name: value for name, value in body.items() if name not in ("metadata", "status")}


def _check_finalizers(kind: Kind, old: Object, new: Object) -> None:
    added = set(new.get("finalizers") or ()) - set(old.get("finalizers") or ())
    if "deletionTimestamp" in old and added:
        why = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers"
        raise metadata.invalid(kind.resource, new["name"], [("metadata.finalizers", f"{why} {sorted(added)}")])


def check_version(kind: Kind, old: Object, sent: Object, patched: bool) -> None:
    """Conflict if the sent object was made from another state or another object than the stored one."""
    mine, theirs = sent.get("metadata") or {}, old["metadata"]
    name, version = theirs["name"], mine.get("resourceVersion")
    if mine.get("uid") not in (None, "", theirs["uid"]):
        why = f"Precondition failed: UID in precondition: {mine['uid']}, UID in object meta: {theirs['uid']}"
        raise metadata.modified(kind.resource, name, why)
    if version and version != theirs["resourceVersion"]:
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise metadata.modified(kind.resource, name, why)
    if not version and not kind.blind_update and not patched:
        why = "Invalid value: 0: must be specified for an update"
        raise metadata.invalid(kind.resource, name, [("metadata.resourceVersion", why)])


def check_name(name: str, sent: Object) -> None:
    """BadRequest if the body names another object than the address."""
    mine = (sent.get("metadata") or {}).get("name") or ""
    if mine != name:
        raise BadRequest(f"the name of the object ({mine}) does not match the name on the URL ({name})")


def patched(kind: Kind, old: Object, patch: Patch) -> Object:
    """The document after a merge, JSON or strategic patch."""
    if patch.type is PatchType.STRATEGIC and kind.custom:
        raise Unsupported(
            "the body of the request was in an unknown format: custom resources take merge, json and apply"
        )
    if patch.type is PatchType.JSON:
        if not isinstance(patch.body, list | tuple):
            raise BadRequest("a JSON patch must be a list of operations")
        return _map(patches.json_patch(old, patch.body))
    body = patch.body
    change = patches.strategic if patch.type is PatchType.STRATEGIC else patches.merge
    return _map(change(old, body))


def _map(document: Any) -> Object:
    if not isinstance(document, dict):
        raise BadRequest("the patched document is not an object")
    return document


def check_namespace(namespace: Object | None, name: str) -> None:
    """Refuse to create in a namespace that does not exist or is going away."""
    if namespace is None:
        raise NotFound(f'namespaces "{name}" not found', details={"name": name, "kind": "namespaces"})
    if "deletionTimestamp" in namespace["metadata"]:
        raise Forbidden(f"unable to create new content in namespace {name} because it is being terminated")
