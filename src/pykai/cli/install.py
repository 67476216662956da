"""`kai upgrade`, and the objects components need: CRDs, namespaces, service accounts, priority classes, default queues.

The chart creates them in an installation; `kai local` and `kai all --install` create the same objects here. CRDs are
applied, so that an upgrade adds new fields; everything else is created once and then belongs to the administrator. The
chart runs `kai upgrade` before every upgrade.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import click
import structlog

from pykai.cli.component import reported_errors, set_up_logs
from pykai.cli.flags import CLIENT, LOGS, Flag, at_least, takes, warn_ineffective
from pykai.kube.api import Api, Object, Resource
from pykai.kube.api_resources import CRD, NAMESPACE, PRIORITY_CLASS, QUEUE, SERVICE_ACCOUNT, TOPOLOGY
from pykai.kube.auth import find_access
from pykai.kube.client import HttpApi
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.kube.operations import define
from pykai.kube.transport import Settings
from pykai.objects import names
from pykai.objects.crds import manifests

_SHARE: Final = {"quota": 0, "limit": -1, "overQuotaWeight": 1}

MIGRATED_FROM: Final = "kai.scheduler/migrated-from"
KUEUE_TOPOLOGY: Final = Resource("kueue.x-k8s.io", "v1beta1", "topologies", "Topology", False)

log = structlog.get_logger("install")


def objects() -> list[tuple[Resource, Object]]:
    """Return all objects but the CRDs, in the order of creation."""
    namespaces = (names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE, names.SCALING_NAMESPACE)
    accounts = ((names.RESERVATION_NAMESPACE, names.RESERVATION_APP), (names.SCALING_NAMESPACE, names.SCALING_APP))
    return [
        *((NAMESPACE, _object(space)) for space in namespaces),
        *((SERVICE_ACCOUNT, {"metadata": {"name": name, "namespace": space}}) for space, name in accounts),
        *((PRIORITY_CLASS, {**_object(name), "value": value}) for name, value in names.PRIORITY_CLASSES.items()),
        (QUEUE, _queue(names.PARENT_QUEUE)),
        (QUEUE, _queue(names.DEFAULT_QUEUE, parentQueue=names.PARENT_QUEUE)),
    ]


def _object(name: str) -> Object:
    return {"metadata": {"name": name}}


def _queue(name: str, **spec: Any) -> Object:
    resources = {resource: dict(_SHARE) for resource in ("cpu", "gpu", "memory")}
    return {**_object(name), "spec": {**spec, "resources": resources}}


async def install(api: Api) -> None:
    """Apply the CRDs, wait until they are established, and create all missing objects."""
    await define(api, manifests())
    for resource, body in objects():
        await _create_missing(api, resource, body)
    log.info("installed", objects=len(objects()))


async def _create_missing(api: Api, resource: Resource, body: Object) -> None:
    """Create an object unless it exists: a get comes first, because a create fails while our webhook is not serving."""
    metadata = body["metadata"]
    try:
        await api.get(resource.ref(metadata["name"], metadata.get("namespace", "")), Object)
    except NotFound:
        with contextlib.suppress(AlreadyExists):
            await api.create(resource, body)


async def copy_topologies(api: Api) -> list[str]:
    """Copy Kueue's Topologies that have no Topology of the same name here; return the names of the copies.

    An existing Topology is never changed: after the first copy its administrator owns it.
    """
    try:
        definition = await api.get(CRD.ref(KUEUE_TOPOLOGY.qualified), Object)
    except NotFound:  # Kueue is not installed
        return []
    versions = definition["spec"]["versions"]
    version = next((each["name"] for each in versions if each.get("storage")), KUEUE_TOPOLOGY.version)
    stored = Resource(KUEUE_TOPOLOGY.group, version, KUEUE_TOPOLOGY.plural, KUEUE_TOPOLOGY.kind, False)
    copied = []
    for found in (await api.list(stored, Object)).items:
        name = found["metadata"]["name"]
        levels = [{"nodeLabel": level["nodeLabel"]} for level in (found.get("spec") or {}).get("levels") or ()]
        metadata = {"name": name, "annotations": {MIGRATED_FROM: KUEUE_TOPOLOGY.group}}
        try:
            await api.create(TOPOLOGY, {"metadata": metadata, "spec": {"levels": levels}})
        except AlreadyExists:
            continue
        copied.append(name)
        log.info("topology copied", name=name, levels=len(levels))
    return copied


FLAGS = (
    Flag("migrate-topologies", True, "Also copy Kueue topologies unless a topology of that name exists."),
    Flag("timeout-seconds", 60.0, "How long to wait until a CRD is established.", check=at_least(0)),
)


async def _upgrade(flags: dict[str, Any]) -> None:
    client = Settings(qps=max(flags["qps"], 0.0), burst=flags["burst"])
    async with HttpApi(find_access(flags["kubeconfig"]), client) as api:
        await define(api, manifests(), flags["timeout_seconds"])
        if flags["migrate_topologies"]:
            await copy_topologies(api)


@click.command("upgrade")
@takes(FLAGS, CLIENT, LOGS)
def upgrade(**flags: Any) -> None:
    """Apply the CRDs of this version and copy topologies of Kueue."""
    set_up_logs(flags)
    warn_ineffective(LOGS, flags)
    with reported_errors():
        asyncio.run(_upgrade(flags))
