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
from pykai.controllers.operator.installation import topologies
from pykai.kube.api import Api, Object, Resource
from pykai.kube.api_resources import NAMESPACE, PRIORITY_CLASS, QUEUE, SERVICE_ACCOUNT
from pykai.kube.auth import find_access
from pykai.kube.client import HttpApi
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.kube.operations import define
from pykai.kube.transport import Settings
from pykai.objects import names
from pykai.objects.crds import manifests

PRIORITY_CLASSES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
PARENT_QUEUE: Final = "default-parent-queue"
_SHARE: Final = {"quota": 0, "limit": -1, "overQuotaWeight": 1}

log = structlog.get_logger("install")


def objects() -> list[tuple[Resource, Object]]:
    """All objects but the CRDs, in the order of creation."""
    namespaces = (names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE, names.SCALING_NAMESPACE)
    accounts = ((names.RESERVATION_NAMESPACE, names.RESERVATION_APP), (names.SCALING_NAMESPACE, names.SCALING_APP))
    return [
        *((NAMESPACE, _object(space)) for space in namespaces),
        *((SERVICE_ACCOUNT, {"metadata": {"name": name, "namespace": space}}) for space, name in accounts),
        *((PRIORITY_CLASS, {**_object(name), "value": value}) for name, value in PRIORITY_CLASSES.items()),
        (QUEUE, _queue(PARENT_QUEUE)),
        (QUEUE, _queue(names.DEFAULT_QUEUE, parentQueue=PARENT_QUEUE)),
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


FLAGS = (
    Flag("migrate-topologies", True, "Also copy Kueue topologies unless a topology of that name exists."),
    Flag("timeout-seconds", 60.0, "How long to wait until a CRD is established.", check=at_least(0)),
)


async def _upgrade(flags: dict[str, Any]) -> None:
    client = Settings(qps=max(flags["qps"], 0.0), burst=flags["burst"])
    async with HttpApi(find_access(flags["kubeconfig"]), client) as api:
        await define(api, manifests(), flags["timeout_seconds"])
        if flags["migrate_topologies"]:
            await topologies(api)


@click.command("upgrade")
@takes(FLAGS, CLIENT, LOGS)
def upgrade(**flags: Any) -> None:
    """Apply the CRDs of this version and copy topologies of Kueue."""
    set_up_logs(flags)
    warn_ineffective(LOGS, flags)
    with reported_errors():
        asyncio.run(_upgrade(flags))
