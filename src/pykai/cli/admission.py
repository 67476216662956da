"""The webhook server of a component, and `kai admission`, the component that serves the pod and topology webhooks.

A webhook server needs a serving certificate and a webhook configuration. In an installation the operator issues the
certificate into a Secret, which is mounted as a directory, and registers the webhooks. Elsewhere (`kai local`, a
developer's machine) the component does both itself: with `--webhook-own-host` it issues a certificate for that host and
registers its webhooks before it becomes ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
import structlog

from pykai.admission import registration as rules
from pykai.admission.certificates import ca_bundle, renew
from pykai.admission.pod_rules import PodSettings, fraction_runtime_class
from pykai.admission.registration import PodSelection
from pykai.admission.resize import QuotaFacts, ResizeSettings
from pykai.admission.review import (
    MUTATE_POD,
    VALIDATE_POD,
    VALIDATE_POD_GROUP,
    VALIDATE_QUEUE,
    VALIDATE_RESIZE,
    VALIDATE_TOPOLOGY,
    AdmissionRules,
)
from pykai.admission.webhook_server import SERVING_CERTIFICATES, Listen, WebhookServer
from pykai.cache.podgroups import SEMI_PREEMPTIBLE, effective_preemptibility
from pykai.cli.component import Composition, Part, own_host, own_namespace, process_of, run_component
from pykai.cli.flags import BY_CONFIG_MAP, CLIENT, LOGS, SERVERS, SHARING_MODE, Flag, port, takes, warn_ineffective
from pykai.controllers.operator.object_writer import agrees
from pykai.controllers.unstructured import UnstructuredView
from pykai.kube.api import Api, Object, Resource
from pykai.kube.api_resources import MUTATING_WEBHOOK, POD_GROUP, PRIORITY_CLASS, QUEUE, VALIDATING_WEBHOOK
from pykai.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from pykai.kube.informer import InformerFactory
from pykai.objects import kinds, names
from pykai.observe.metrics import WorkMetrics

_MAX_ATTEMPTS = 10
log = structlog.get_logger("webhook")

PODS = (MUTATE_POD, VALIDATE_POD, VALIDATE_RESIZE, VALIDATE_TOPOLOGY)
QUEUES = (VALIDATE_QUEUE,)
POD_GROUPS = (VALIDATE_POD_GROUP,)

Register = Callable[[rules.Client, rules.PodSelection], rules.Configuration]
REGISTRATIONS: Mapping[str, tuple[Resource, Register]] = {
    MUTATE_POD: (MUTATING_WEBHOOK, rules.mutating_pods),
    VALIDATE_POD: (VALIDATING_WEBHOOK, rules.validating_pods),
    VALIDATE_QUEUE: (VALIDATING_WEBHOOK, lambda client, pods: rules.validating_queues(client)),
    VALIDATE_POD_GROUP: (VALIDATING_WEBHOOK, lambda client, pods: rules.validating_pod_groups(client)),
}
"""The webhook configuration for each path; that of pods also covers topologies and resizes."""


@dataclass(frozen=True)
class WebhookSettings:
    """The served paths, the listen address and the certificate directory; port 0 picks a free port.

    `own_host`: the host at which the API server reaches this server, which then manages its own certificate and
    registration; if empty, the operator does.
    """

    paths: Sequence[str]
    pods: rules.PodSelection = rules.PodSelection()
    host: str = "0.0.0.0"
    port: int = 9443
    certificates: Path = SERVING_CERTIFICATES
    own_host: str = ""


class Webhooks:
    """The webhook server of one component."""

    def __init__(self, api: Api, admission: AdmissionRules, settings: WebhookSettings) -> None:
        self._api = api
        self._settings = settings
        listen = Listen(
            settings.host,
            settings.port,
            settings.paths,
            settings.certificates,
            renew=self._renew_certificate if settings.own_host else None,
        )
        self._server = WebhookServer(admission, listen)

    async def run(self, ready: asyncio.Event) -> None:
        """Serve until cancelled. With `own_host`, register the webhooks first; then set `ready`."""
        async with self._server:
            if self._settings.own_host:
                await self._register(ca_bundle(self._settings.certificates))
            ready.set()
            await asyncio.Event().wait()

    async def _renew_certificate(self) -> None:
        names = [self._settings.own_host]
        reason = await renew(self._settings.certificates, names, datetime.now(UTC), self._register_bundle)
        if reason:
            log.info("serving certificate issued", why=reason, host=self._settings.own_host)

    async def _register_bundle(self, bundle: bytes) -> None:
        """Register the webhooks with a new CA bundle; before the server listens, `run` does that later."""
        if self._server.port:
            await self._register(bundle)

    async def _register(self, bundle: bytes) -> None:
        url = f"https://{self._settings.own_host}:{self._server.port}"
        client = rules.url_client(url, bundle)
        for resource, configuration in configurations(self._settings, client):
            await put_configuration(self._api, resource, configuration)
        log.info("webhooks registered", url=url, paths=sorted(self._settings.paths))


def configurations(settings: WebhookSettings, client: rules.Client) -> list[tuple[Resource, rules.Configuration]]:
    """Return the webhook configurations for the served paths."""
    rows = [REGISTRATIONS[path] for path in settings.paths if path in REGISTRATIONS]
    return [(resource, register(client, settings.pods)) for resource, register in rows]


async def put_configuration(api: Api, resource: Resource, wanted: rules.Configuration) -> None:
    """Create or update a webhook configuration and keep what other writers added; no write if it is up to date."""
    ref = resource.ref(wanted["metadata"]["name"])
    for _ in range(_MAX_ATTEMPTS):
        try:
            live = await api.get(ref, Object)
            merged = rules.merged(wanted, live)
            if not agrees(live, merged):
                version = {"resourceVersion": live["metadata"]["resourceVersion"]}
                await api.update(ref, {**merged, "metadata": {**merged["metadata"], **version}})
            return
        except NotFound:
            try:
                await api.create(resource, wanted)
                return
            except AlreadyExists:
                continue
        except Conflict:
            continue
    raise Conflict(f"{resource.kind} {ref.name} is being written by others: {_MAX_ATTEMPTS} attempts failed")


def watched_queues(watches: InformerFactory) -> Callable[[], Mapping[str, Any]]:
    """Return a function that returns the queues by name, unstructured, as the queue webhook reads them."""
    view: UnstructuredView[str] = UnstructuredView(watches.of(QUEUE, kinds.Queue), lambda name: ("", name))
    return lambda: view


def watched_priority_classes(watches: InformerFactory) -> Callable[[], Collection[str]]:
    """Return a function that returns the names of the priority classes."""
    watch = watches.of(PRIORITY_CLASS, kinds.PriorityClass)
    return lambda: [name for (_, name), _ in watch.items()]


async def quota_facts(api: Api, pod: Mapping[str, Any]) -> QuotaFacts:
    """Return the pod group and queues that a resize is validated against; admit if they cannot be read."""
    metadata = pod.get("metadata") or {}
    name = (metadata.get("annotations") or {}).get(names.POD_GROUP_ANNOTATION) or ""
    try:
        group = await api.get(POD_GROUP.ref(name, metadata.get("namespace") or ""), Object) if name else {}
        queues = await _with_ancestors(api, (group.get("spec") or {}).get("queue") or "")
        non_preemptible = await _is_non_preemptible(api, group, metadata.get("name") or "") if queues else False
    except ApiError as error:
        log.warning("resize not checked", pod=metadata.get("name"), error=error.message)
        return QuotaFacts()
    return QuotaFacts(name, non_preemptible, queues)


async def _with_ancestors(api: Api, name: str) -> list[Object]:
    """Return a queue and its ancestors; empty if one of them does not exist."""
    chain: dict[str, Object] = {}
    while name and name not in chain:
        try:
            chain[name] = await api.get(QUEUE.ref(name), Object)
        except NotFound:
            return []
        name = (chain[name].get("spec") or {}).get("parentQueue") or ""
    return list(chain.values())


async def _is_non_preemptible(api: Api, group: Object, pod: str) -> bool:
    """Whether the pod is non-preemptible: by its group, or as a core pod of a semi-preemptible group."""
    spec, status = group.get("spec") or {}, group.get("status") or {}
    preemptibility = spec.get("preemptibility") or ""
    if preemptibility == SEMI_PREEMPTIBLE:
        return pod in ((status.get("schedulingState") or {}).get("corePods") or ())
    if preemptibility:
        return not effective_preemptibility(preemptibility, 0)
    try:
        priority_class = await api.get(PRIORITY_CLASS.ref(spec.get("priorityClassName") or ""), kinds.PriorityClass)
    except NotFound:
        return False
    return not effective_preemptibility("", priority_class.value)


WEBHOOK = (
    Flag("webhook-addr", 9443, "Port on which webhooks are served.", check=port),
    Flag("webhook-cert-dir", str(SERVING_CERTIFICATES), "Directory of tls.crt and tls.key."),
    Flag(
        "webhook-own-host",
        "",
        "Host at which the API server reaches this process, which then issues its own certificate and registers its "
        "webhooks itself. For use outside an installation.",
    ),
)


def webhook_settings(
    flags: Mapping[str, Any], paths: Sequence[str], pods: rules.PodSelection | None = None
) -> WebhookSettings:
    """Return the settings in the flags for a server of these paths."""
    return WebhookSettings(
        paths,
        pods or rules.PodSelection(),
        host=own_host() or WebhookSettings.host,
        port=flags["webhook_addr"],
        certificates=Path(flags["webhook_cert_dir"]),
        own_host=flags["webhook_own_host"],
    )


_NO_WORKQUEUE = "admission keeps no queue of work"
FLAGS = (
    Flag("scheduler-name", names.SCHEDULER_NAME, "Only handle pods with this spec.schedulerName."),
    Flag("gpu-sharing-enabled", False, "Admit pods that request a fraction of a GPU."),
    SHARING_MODE,
    Flag(
        "binder-service-account-username",
        "",
        "User name of the binder, the only one allowed to write the devices of a GPU share (mode NvFractions).",
    ),
    Flag("hami-core-enabled", False, "Set a GPU memory limit on such pods, which HAMi-core enforces."),
    Flag("block-nvidia-visible-devices", False, "Reject pods that set NVIDIA_VISIBLE_DEVICES."),
    Flag(
        "gpu-fraction-runtime-class-name", "nvidia", "Runtime class of pods that share a GPU; empty: none.", unset=True
    ),
    Flag("gpu-pod-runtime-class-name", "nvidia", "Older name of --gpu-fraction-runtime-class-name.", unset=True),
    Flag("validate-resize-quota", True, "Validate resizes of running pods against the quotas of their queues."),
    Flag(
        "block-upsize-on-bounded-queues", False, "Reject every upsize of a pod in a queue with a finite limit or quota."
    ),
    Flag("leader-elect", False, "", ineffective="every replica serves"),
    Flag("rate-limiter-base-delay", 1, "", ineffective=_NO_WORKQUEUE),
    Flag("rate-limiter-max-delay", 60, "", ineffective=_NO_WORKQUEUE),
    Flag("fake-gpu-nodes", False, "", ineffective="admission does not look at nodes"),
    Flag("feature-gates", "", "", ineffective="admission has no gated features"),
)


def pod_settings(flags: dict[str, Any]) -> PodSettings:
    """Return the settings of the pod webhooks in the flags."""
    return PodSettings(
        scheduler_name=flags["scheduler_name"],
        gpu_sharing=flags["gpu_sharing_enabled"] or flags["gpu_sharing_mode"] in BY_CONFIG_MAP,
        nvfractions=flags["gpu_sharing_mode"] == names.NVFRACTIONS,
        binder_account=flags["binder_service_account_username"],
        hami_core=flags["hami_core_enabled"],
        block_visible_devices=flags["block_nvidia_visible_devices"],
        fraction_runtime_class=fraction_runtime_class(
            flags["gpu_fraction_runtime_class_name"], flags["gpu_pod_runtime_class_name"]
        ),
    )


def compose(
    admission: AdmissionRules, webhook: WebhookSettings, api: Api, watches: InformerFactory, work: WorkMetrics
) -> Composition:
    """Return the webhooks as a component."""
    checked = partial(quota_facts, api) if webhook.pods.checks_resizes else None
    rules = replace(admission, priority_classes=watched_priority_classes(watches), quota_facts=checked)
    return Composition([Part("admission", Webhooks(api, rules, webhook).run, elected=False)])


@click.command("admission")
@takes(FLAGS, SERVERS, WEBHOOK, CLIENT, LOGS)
def admission(**flags: Any) -> None:
    """Serve the webhooks of pods and topologies."""
    process = process_of("admission", {**flags, "leader_elect": False})
    warn_ineffective((*FLAGS, *LOGS), flags)
    settings = pod_settings(flags)
    selection = PodSelection(
        settings.scheduler_name,
        own_namespace(),
        guards_devices=settings.block_visible_devices,
        checks_resizes=flags["validate_resize_quota"],
    )
    rules = AdmissionRules(
        settings, resize=ResizeSettings(settings.scheduler_name, flags["block_upsize_on_bounded_queues"])
    )
    run_component(process, partial(compose, rules, webhook_settings(flags, PODS, selection)))
