"""Converts objects of resource.k8s.io between v1, the only form used inside, and the version a server has.

| | v1, v1beta2 | v1beta1 |
|---|---|---|
| a plain request of a claim | fields below `exactly` | fields in the request itself |
| a device of a slice | fields in the device itself | fields below `basic` |

Requests with `firstAvailable`, the status of claims, and device classes are the same in all versions. The form is
detected from the object's fields, because items of lists and files carry no version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

OLDER: Final = ("v1beta2", "v1beta1")
"""Supported versions beside v1, newest first."""

Spec = dict[str, Any]
_Conversion = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def claim_spec(spec: Spec) -> Spec:
    """Convert the spec of a ResourceClaim to v1; returns the argument if it is v1."""
    return _with_requests(spec, _with_exactly)


def slice_spec(spec: Spec) -> Spec:
    """Convert the spec of a ResourceSlice to v1; returns the argument if it is v1."""
    devices = spec.get("devices") or ()
    if not any("basic" in device for device in devices):
        return spec
    return {**spec, "devices": [{**(each.get("basic") or {}), **_without(each, "basic")} for each in devices]}


def written(body: Spec, version: str) -> Spec:
    """Convert a ResourceClaim from v1 to the version of the server that creates it."""
    return {**body, "spec": _with_requests(body["spec"], _without_exactly)} if version == "v1beta1" else body


def _with_requests(spec: Spec, change: _Conversion) -> Spec:
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or ()
    changed = [change(request) for request in requests]
    if all(new is old for new, old in zip(changed, requests, strict=True)):
        return spec
    return {**spec, "devices": {**devices, "requests": changed}}


def _with_exactly(request: Mapping[str, Any]) -> Mapping[str, Any]:
    if "exactly" in request or "firstAvailable" in request:
        return request
    return {"name": request.get("name", ""), "exactly": _without(request, "name")}


def _without_exactly(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_without(request, "exactly"), **request["exactly"]} if "exactly" in request else request


def _without(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {key: value for key, value in fields.items() if key != name}
