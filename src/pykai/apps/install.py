"""What a cluster needs before components can work: definitions, namespaces, priority classes, default queues.

A chart does this in an installation; `kai local` and `kai all --install` do it here, with the same objects. Definitions
are applied, so that an upgrade brings new fields; everything else is made once and then belongs to the administrator.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import structlog

from pykai.kube.api import Api, Object, Patch, Ref, Resource
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.kube.resources import CRD, NAMESPACE, PRIORITY_CLASS, QUEUE, SERVICE_ACCOUNT
from pykai.objects import names
from pykai.objects.crds import manifests

MANAGER = "kai-install"
ESTABLISHED_SECONDS = 30.0
PRIORITY_CLASSES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
PARENT_QUEUE: Final = "default-parent-queue"
_SHARE: Final = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
_LOOK_SECONDS = 0.05

log = structlog.get_logger("install")


def objects() -> list[tuple[Resource, Object]]:
    """Everything but the definitions, in the order of creation."""
    spaces = (names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE, names.SCALING_NAMESPACE)
    accounts = ((names.RESERVATION_NAMESPACE, names.RESERVATION_APP), (names.SCALING_NAMESPACE, names.SCALING_APP))
    return [
        *((NAMESPACE, _named(space)) for space in spaces),
        *((SERVICE_ACCOUNT, {"metadata": {"name": name, "namespace": space}}) for space, name in accounts),
        *((PRIORITY_CLASS, {**_named(name), "value": value}) for name, value in PRIORITY_CLASSES.items()),
        (QUEUE, _queue(PARENT_QUEUE)),
        (QUEUE, _queue(names.DEFAULT_QUEUE, parentQueue=PARENT_QUEUE)),
    ]


def _named(name: str) -> Object:
    return {"metadata": {"name": name}}


def _queue(name: str, **spec: Any) -> Object:
    resources = {resource: dict(_SHARE) for resource in ("cpu", "gpu", "memory")}
    return {**_named(name), "spec": {**spec, "resources": resources}}


async def install(api: Api) -> None:
    """Make everything that is missing; returns when the definitions are in force."""
    refs = [CRD.ref(manifest["metadata"]["name"]) for manifest in manifests()]
    for ref, manifest in zip(refs, manifests(), strict=True):
        await api.patch(ref, Patch.apply(manifest, MANAGER))
    for ref in refs:
        await _established(api, ref)
    for resource, body in objects():
        await _created(api, resource, body)
    log.info("installed", definitions=len(refs), objects=len(objects()))


async def _created(api: Api, resource: Resource, body: Object) -> None:
    """Create what is not there. A webhook of ours that is not up yet would refuse even what is there already."""
    metadata = body["metadata"]
    try:
        await api.get(resource.ref(metadata["name"], metadata.get("namespace", "")), Object)
    except NotFound:
        with contextlib.suppress(AlreadyExists):
            await api.create(resource, body)


async def _established(api: Api, ref: Ref) -> None:
    async with asyncio.timeout(ESTABLISHED_SECONDS):
        while not await _is_established(api, ref):
            await asyncio.sleep(_LOOK_SECONDS)


async def _is_established(api: Api, ref: Ref) -> bool:
    try:
        definition = await api.get(ref, Object)
    except NotFound:
        return False
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
