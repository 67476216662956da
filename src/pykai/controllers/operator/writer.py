"""Writes of the operator: apply what differs, delete what is no longer wanted, keep away from what is not ours.

A lease goes last: while the pods that it elects are being replaced, those that are left need it. Of a shard whose new
objects could not be written the old ones stay.
"""

from __future__ import annotations

from typing import Any, Final

import structlog

from pykai.controllers.operator.comparison import adoptable, agrees, fingerprinted, must_be_made_anew, ours
from pykai.controllers.operator.conditions import rolled_out
from pykai.controllers.operator.desired import Wanted
from pykai.controllers.operator.kinds import BY_KIND, MADE, WEBHOOKS
from pykai.controllers.operator.observation import Key, Observation
from pykai.controllers.operator.webhooks import WebhookParts
from pykai.kube.api import Api, Deletion, Patch, Propagation, Ref, Resource
from pykai.kube.errors import ApiError, Conflict, NotFound
from pykai.kube.resources import DEPLOYMENT, LEASE
from pykai.objects import names

Object = dict[str, Any]
MANAGER: Final = names.OPERATOR
_ORDER: Final = {resource.kind: place for place, resource in enumerate(MADE)}

log = structlog.get_logger("operator")


class NotOurs(Exception):  # noqa: N818 - it says what is the matter
    """An object of this name exists, and no operator made it."""


class Writer:
    """The objects of one installation."""

    def __init__(self, api: Api, seen: Observation, parts: WebhookParts, namespace: str) -> None:
        self._api = api
        self._seen = seen
        self._parts = parts
        self._namespace = namespace
        self._written: dict[Key, Object] = {}

    async def write(self, wanted: Wanted) -> dict[Key, str]:
        """Make everything wanted true; what could not be done by kind and name, and why."""
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
        """Our objects by kind and name, the last writes included."""
        return {**{key_of(item): item for _, item in self._seen.own()}, **self._written}

    async def look_up(self, resource: Resource, name: str) -> Object | None:
        """An object of the installation, whoever made it; None where there is none."""
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
            if not ours(live) and not adoptable(live):
                raise NotOurs("exists already and was not made by this operator")
            if must_be_made_anew(live, stamped):
                await self._delete(resource, live)
            elif resource in WEBHOOKS:
                stamped = self._parts.merged(stamped, live)
            if agrees(live, stamped):
                return
        written = await self._api.patch(self._ref(resource, name), Patch.apply(stamped, MANAGER))
        self._written[key_of(item)] = written
        log.info("written", kind=resource.kind, name=name, new=live is None)

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
        """Whether pods that know of this lease may still be at work; they have its labels, as their Deployment does."""
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
        log.info("deleted", kind=resource.kind, name=metadata["name"])

    def _ref(self, resource: Resource, name: str) -> Ref:
        return resource.ref(name, self._namespace if resource.namespaced else "")


def _shard_of(item: Object) -> str:
    return str((item["metadata"].get("labels") or {}).get(names.SHARD_LABEL, ""))


def key_of(item: Object) -> Key:
    """Kind and name."""
    return item["kind"], item["metadata"]["name"]
