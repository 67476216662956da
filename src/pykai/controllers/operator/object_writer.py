"""Writes of the operator: apply objects that differ, delete unwanted ones, never touch objects of other owners.

A live object agrees if every field that we set has our value; fields of the server or of other clients are ignored.
Fields that we no longer set are detected by a fingerprint of the whole wanted object in an annotation. A lease is
deleted last, because remaining pods need it while the others are replaced. The old objects of a shard stay until its
new ones are written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import structlog

from pykai.controllers.operator.components import WebhookParts
from pykai.controllers.operator.conditions import key_of, rolled_out
from pykai.controllers.operator.desired import Wanted
from pykai.controllers.operator.observation import BY_KIND, MANAGED, WEBHOOKS, Key, Observation, ours
from pykai.kube.api import Api, Deletion, Object, Patch, Propagation, Ref, Resource
from pykai.kube.api_resources import DEPLOYMENT, LEASE
from pykai.kube.errors import ApiError, Conflict, NotFound
from pykai.objects import names, units

FINGERPRINT: Final = "kai.scheduler/applied"
_AMOUNTS = frozenset({"requests", "limits"})
_IMMUTABLE: Final = {
    "Deployment": ("spec", "selector"),
    "DaemonSet": ("spec", "selector"),
    "Service": ("spec", "clusterIP"),
    "Secret": ("type",),
    "EndpointSlice": ("addressType",),
}


def fingerprinted(wanted: Object) -> Object:
    """Return the wanted object with its fingerprint."""
    text = json.dumps(wanted, sort_keys=True, separators=(",", ":"))
    print_ = hashlib.sha256(text.encode()).hexdigest()[:16]
    metadata = wanted["metadata"]
    annotations = {**(metadata.get("annotations") or {}), FINGERPRINT: print_}
    return {**wanted, "metadata": {**metadata, "annotations": annotations}}


def agrees(live: Any, wanted: Any, key: str = "") -> bool:
    """Whether the live value has every wanted field; absent equals empty, quantities are compared by value."""
    if isinstance(wanted, Mapping):
        given = live if isinstance(live, Mapping) else {}
        if key in _AMOUNTS:
            return given.keys() == wanted.keys() and all(_same_amount(given[name], wanted[name]) for name in wanted)
        return all(agrees(given.get(name), item, name) for name, item in wanted.items())
    if isinstance(wanted, list):
        present = live if isinstance(live, list) else []
        return len(present) == len(wanted) and all(map(agrees, present, wanted))
    return bool(live == wanted) or (wanted == "" and live is None)


def _same_amount(one: Any, other: Any) -> bool:
    try:
        return units.parse_quantity(one) == units.parse_quantity(other)
    except ValueError:
        return bool(one == other)


def must_be_recreated(live: Object, wanted: Object) -> bool:
    """Whether the change is to an immutable field, so that the object must be deleted and created again."""
    path = _IMMUTABLE.get(wanted["kind"])
    if path is None:
        return False
    value = _at(wanted, path)
    return value is not None and value != _at(live, path)


def _at(item: Object, path: tuple[str, ...]) -> Any:
    value: Any = item
    for name in path:
        value = (value or {}).get(name)
    return value


MANAGER: Final = names.OPERATOR
_ORDER: Final = {resource.kind: place for place, resource in enumerate(MANAGED)}

log = structlog.get_logger("operator")


class NotOurs(Exception):  # noqa: N818 - a finding, not an error
    """An object of this name exists, and no operator created it."""


class ObjectWriter:
    """The objects of one installation."""

    def __init__(self, api: Api, seen: Observation, parts: WebhookParts, namespace: str) -> None:
        self._api = api
        self._seen = seen
        self._parts = parts
        self._namespace = namespace
        self._written: dict[Key, Object] = {}

    async def write(self, wanted: Wanted) -> dict[Key, str]:
        """Apply all wanted objects; return the failures by kind and name."""
        self._written = {}
        failures: dict[Key, str] = {}
        for item in sorted(wanted.all(), key=lambda each: _ORDER[each["kind"]]):
            try:
                await self._put(item)
            except (ApiError, NotOurs) as error:
                failures[key_of(item)] = f"{item['kind']} {item['metadata']['name']}: {error}"
        await self._remove_unwanted(wanted, failures)
        return failures

    async def remove_all(self) -> None:
        """Delete all our objects."""
        for resource, item in list(self._seen.own()):
            await self._delete(resource, item)

    def present(self) -> dict[Key, Object]:
        """Return our objects by kind and name, including our last writes."""
        return {**{key_of(item): item for _, item in self._seen.own()}, **self._written}

    async def look_up(self, resource: Resource, name: str) -> Object | None:
        """Return an object of the installation, ours or not; None if it does not exist."""
        seen = self._seen.find(resource, name)
        if seen is not None:
            return seen
        try:
            return await self._api.get(self._ref(resource, name), Object)
        except NotFound:
            return None

    async def _put(self, item: Object) -> None:
        resource = BY_KIND[item["kind"]]
        name = item["metadata"]["name"]
        stamped = fingerprinted(item)
        live = await self.look_up(resource, name)
        if live is not None:
            self_made_lease = live["kind"] == "Lease" and not live["metadata"].get("ownerReferences")
            if not ours(live) and not self_made_lease:  # replicas may have created their lease themselves
                raise NotOurs("exists already and was not made by this operator")
            if must_be_recreated(live, stamped):
                await self._delete(resource, live)
            elif resource in WEBHOOKS:
                stamped = self._parts.merged(stamped, live)
            if agrees(live, stamped):
                return
        written = await self._api.patch(self._ref(resource, name), Patch.apply(stamped, MANAGER))
        self._written[key_of(item)] = written
        log.info("object applied", kind=resource.kind, name=name, new=live is None)

    async def _remove_unwanted(self, wanted: Wanted, failures: dict[Key, str]) -> None:
        kept = {key_of(item) for item in wanted.all()}
        unsettled = {_shard_of(item) for item in wanted.all() if key_of(item) in failures} - {""}
        for resource, item in list(self._seen.own()):
            if key_of(item) in kept or (resource == LEASE and self._elects(item)):
                continue
            if _shard_of(item) in wanted.refused or _shard_of(item) in unsettled:
                continue
            try:
                await self._delete(resource, item)
            except ApiError as error:
                failures[key_of(item)] = f"{resource.kind} {item['metadata']['name']}: {error}"

    def _elects(self, lease: Object) -> bool:
        """Whether pods that use this lease may still run; they carry its labels, as their Deployment does."""
        labels = lease["metadata"]["labels"].items()
        deployments = [item for (kind, _), item in self.present().items() if kind == DEPLOYMENT.kind]
        own = [item for item in deployments if item["metadata"]["labels"].items() <= labels]
        return not all(map(rolled_out, own))

    async def _delete(self, resource: Resource, item: Object) -> None:
        metadata = item["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        ref = resource.ref(metadata["name"], metadata.get("namespace", ""))
        try:
            await self._api.delete(ref, Deletion(uid=metadata["uid"], propagation=Propagation.BACKGROUND))
        except (NotFound, Conflict):
            return
        log.info("object deleted", kind=resource.kind, name=metadata["name"])

    def _ref(self, resource: Resource, name: str) -> Ref:
        return resource.ref(name, self._namespace if resource.namespaced else "")


def _shard_of(item: Object) -> str:
    return str((item["metadata"].get("labels") or {}).get(names.SHARD_LABEL, ""))
