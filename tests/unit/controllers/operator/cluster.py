"""An operator on an API server in memory, with plain stand-ins for what the webhook package contributes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pykai.controllers.operator import controller
from pykai.controllers.operator.components import Endpoint, WebhookParts
from pykai.controllers.operator.controller import OperatorSettings
from pykai.controllers.operator.desired import desired
from pykai.controllers.operator.installation import Facts, Installation, OperatorEnvironment, read_config
from pykai.kube.api import Object, Patch, Resource, Selection
from pykai.kube.api_resources import CONFIG, NAMESPACE, SHARD
from pykai.objects.config_kinds import Config
from tests.unit.controllers.live import DiaryApi, eventually, running

ENVIRONMENT = OperatorEnvironment(registry="reg.example/kai", tag="v1")
SERVICES = ("admission", "queue-controller", "podgroup-controller")
OWNER = {"apiVersion": "kai.scheduler/v1", "kind": "Config", "name": "kai-config", "uid": "u", "controller": True}
MINE = Selection(labels="app.kubernetes.io/managed-by=kai-operator")


def issue(service: str, namespace: str, present: Mapping[str, str] | None) -> Mapping[str, str]:
    return present or {"ca.crt": "Y2E=", "tls.crt": "Y3J0", "tls.key": "a2V5"}


def registration(kind: str, name: str, at: Endpoint, **more: Any) -> Object:
    service = {"namespace": at.namespace, "name": at.service, "port": at.port}
    hook = {
        "name": f"{at.service}.example.com",
        "clientConfig": {"service": service},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
    return {**body, "webhooks": [{**hook, **more}]}


def pods(at: Endpoint, config: Config, called: tuple[str, str]) -> list[Object]:
    selector = {"objectSelector": {"matchLabels": dict(config.shared.pod_label_selector)}}
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    return [registration(kind, name, at, **selector) for kind, name in zip(kinds, called, strict=True)]


PARTS = WebhookParts(
    issue=issue,
    pods=pods,
    queues=lambda at, prefix: [registration("ValidatingWebhookConfiguration", f"{prefix}v2", at)],
    pod_groups=lambda at, prefix: [registration("ValidatingWebhookConfiguration", f"{prefix}v2alpha2", at)],
    merged=lambda wanted, live: wanted,
)


def installation(spec: Object | None = None, **facts: Any) -> Installation:
    """An installation of a Config with this spec, in a cluster like that."""
    given = {"certificates": {name: issue(name, "", None) for name in SERVICES}, **facts}
    return Installation(read_config(spec or {}), ENVIRONMENT, Facts(**given))


def wanted(
    spec: Object | None = None, shards: Mapping[str, Object] | None = None, **facts: Any
) -> dict[tuple[str, str], Object]:
    """All desired objects by kind and name."""
    made = desired(installation(spec, **facts), shards or {}, PARTS, OWNER)
    return {(item["kind"], item["metadata"]["name"]): item for item in made.all()}


def container_of(item: Object) -> Object:
    """The one container of a workload."""
    (container,) = item["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def flags_of(item: Object) -> dict[str, str]:
    """The flags of a workload's container."""
    return dict(flag.removeprefix("--").split("=", 1) for flag in container_of(item)["args"])


class Bench:
    """An operator at work."""

    def __init__(self, api: DiaryApi) -> None:
        self.api = api

    async def configure(self, **spec: Any) -> Object:
        """Make or change the Config."""
        body = {"metadata": {"name": "kai-config"}, "spec": spec}
        return await self.api.patch(CONFIG.ref("kai-config"), Patch.apply(body, "user"))

    async def shard(self, name: str, **spec: Any) -> Object:
        """Make or change a shard."""
        return await self.api.patch(SHARD.ref(name), Patch.apply({"metadata": {"name": name}, "spec": spec}, "user"))

    async def names(self, resource: Resource) -> set[str]:
        """The names of the operator's objects of a kind."""
        page = await self.api.list(resource, Object, MINE)
        return {item["metadata"]["name"] for item in page.items}

    async def conditions(self, resource: Resource = CONFIG, name: str = "kai-config") -> dict[str, Object]:
        """The conditions of an object by type."""
        found = await self.api.get(resource.ref(name), Object)
        return {row["type"]: row for row in (found.get("status") or {}).get("conditions") or ()}

    async def settled(self) -> None:
        """Return when the operator has dealt with the Config as it is now."""

        async def told() -> bool:
            found = await self.api.get(CONFIG.ref("kai-config"), Object)
            rows = await self.conditions()
            row = rows.get("Reconciling", {})
            return (row.get("status"), row.get("observedGeneration")) == ("False", found["metadata"]["generation"])

        await eventually(told)


@contextlib.asynccontextmanager
async def operating(*definitions: Object, **settings: Any) -> AsyncIterator[Bench]:
    """An operator, and the namespace it works in."""
    api = DiaryApi(definitions)
    await api.create(NAMESPACE, {"metadata": {"name": ENVIRONMENT.namespace}})
    given = {"environment": ENVIRONMENT, "gather_seconds": 0.01, **settings}
    async with running(api, controller.run, OperatorSettings(PARTS, **given)):
        yield Bench(api)
