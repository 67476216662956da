"""Objects of resource.k8s.io: one form inside, that of v1, whichever version a server speaks.

| | v1, v1beta2 | v1beta1 |
|---|---|---|
| a plain request of a claim | fields below `exactly` | fields in the request itself |
| a device of a slice | fields in the device itself | fields below `basic` |

A request with `firstAvailable`, a claim's status and device classes look the same in all of them. The form is
detected from the object, not from its version: objects from lists and files carry none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

OLDER: Final = ("v1beta2", "v1beta1")
"""Supported versions beside v1, newest first."""

Spec = dict[str, Any]
_Change = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def claim_spec(spec: Spec) -> Spec:
    """The spec of a ResourceClaim in v1 form; the same object if it is."""
    return _with_requests(spec, _nested)


def slice_spec(spec: Spec) -> Spec:
    """The spec of a ResourceSlice in v1 form; the same object if it is."""
    devices = spec.get("devices") or ()
    if not any("basic" in device for device in devices):
        return spec
    return {**spec, "devices": _changed(devices, _unwrapped)}


def written(body: Spec, version: str) -> Spec:
    """A new ResourceClaim in v1 form as a server of this version reads it."""
    return {**body, "spec": _with_requests(body["spec"], _flat)} if version == "v1beta1" else body


def _with_requests(spec: Spec, change: _Change) -> Spec:
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or ()
    made = _changed(requests, change)
    if all(new is old for new, old in zip(made, requests, strict=True)):
        return spec
    return {**spec, "devices": {**devices, "requests": made}}


def _changed(items: Sequence[Mapping[str, Any]], change: _Change) -> list[Mapping[str, Any]]:
    return [change(item) for item in items]


def _nested(request: Mapping[str, Any]) -> Mapping[str, Any]:
    if "exactly" in request or "firstAvailable" in request:
        return request
    return {"name": request.get("name", ""), "exactly": _without(request, "name")}


def _flat(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_without(request, "exactly"), **request["exactly"]} if "exactly" in request else request


def _unwrapped(device: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**(device.get("basic") or {}), **_without(device, "basic")}


def _without(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {key: value for key, value in fields.items() if key != name}
