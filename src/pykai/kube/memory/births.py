"""What the server adds to a new object of some built-in kinds, one row per kind. Pure functions."""

from __future__ import annotations

from collections.abc import Callable

from pykai.kube import resources as known
from pykai.kube.api import Object, Resource


def _namespace(body: Object) -> Object:
    metadata = body["metadata"]
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    return {**body, "metadata": {**metadata, "labels": labels}, "status": {"phase": "Active"}}


def _claim(body: Object) -> Object:
    return {**body, "spec": {"volumeMode": "Filesystem", **(body.get("spec") or {})}, "status": {"phase": "Pending"}}


def _volume(body: Object) -> Object:
    return {**body, "status": {"phase": "Available"}}


def _priority_class(body: Object) -> Object:
    return {"preemptionPolicy": "PreemptLowerPriority", **body}


def _definition(body: Object) -> Object:
    spec = body["spec"]
    names = {"listKind": spec["names"]["kind"] + "List", "singular": spec["names"]["kind"].lower(), **spec["names"]}
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    established = {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}
    status = {"conditions": [established], "acceptedNames": names, "storedVersions": stored}
    return {**body, "spec": {**spec, "names": names}, "status": status}


BIRTHS: dict[Resource, Callable[[Object], Object]] = {
    known.NAMESPACE: _namespace,
    known.PERSISTENT_VOLUME_CLAIM: _claim,
    known.PERSISTENT_VOLUME: _volume,
    known.PRIORITY_CLASS: _priority_class,
    known.CRD: _definition,
}
