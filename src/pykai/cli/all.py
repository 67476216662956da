"""`kai all`: every component in one process with one client and shared informers, for small clusters.

Each component is composed as by its own command, except that no informer has a selector: the informers are shared, and
the scheduler needs every object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import click

from pykai.admission.pod_rules import PodSettings
from pykai.admission.registration import PodSelection
from pykai.admission.resize import ResizeSettings
from pykai.admission.review import AdmissionRules
from pykai.cli import binder, node_scale_adjuster, podgroup_controller, podgrouper, queue_controller, scheduler
from pykai.cli.admission import (
    POD_GROUPS,
    PODS,
    QUEUES,
    WEBHOOK,
    Webhooks,
    WebhookSettings,
    quota_facts,
    watched_priority_classes,
    watched_queues,
    webhook_settings,
)
from pykai.cli.component import Composition, Part, own_namespace, process_of, reported_errors, run_component
from pykai.cli.flags import (
    BY_CONFIG_MAP,
    CLIENT,
    ELECTION,
    LOGS,
    SERVERS,
    SHARING_MODE,
    Flag,
    metric_prefix,
    port,
    takes,
    warn_ineffective,
)
from pykai.cli.install import install
from pykai.cli.queue_controller import QueueControllerSettings
from pykai.cli.scheduler import SchedulerSettings, check_config, config_of
from pykai.controllers.binder.bind_reconciler import BindRules
from pykai.controllers.binder.binder import BinderSettings
from pykai.controllers.binder.plugins import DEFAULTS, HAMI, NVFRACTIONS, SHARING
from pykai.controllers.binder.reservations import ReservationTemplate
from pykai.controllers.node_scale import NodeScalerSettings, ScalingPodTemplate
from pykai.controllers.node_scale import ScalingSettings as ScalingSettings
from pykai.controllers.pod_group_status import PodGroupStatusSettings
from pykai.controllers.podgrouper.grouper import PodGrouperSettings
from pykai.controllers.podgrouper.rules.workload import GroupingSettings as GroupingSettings
from pykai.kube.api import Api
from pykai.kube.api_resources import POD_GROUP
from pykai.kube.auth import find_access
from pykai.kube.client import HttpApi
from pykai.kube.informer import InformerFactory
from pykai.kube.workqueue import Pace
from pykai.objects import names
from pykai.observe.metrics import WorkMetrics
from pykai.scheduler.group_membership import ExpectedGroups
from pykai.scheduler.scheduler import Colocated

LEASE = "kai-all"
BUSY_WORKERS = 32
"""Workers of the binder and the pod grouper, which pods wait for: a worker mostly waits for the API server."""
LOW_PRIORITY_KINDS = frozenset({POD_GROUP.plural})
"""Kinds whose creation yields to binds: the scheduler in this process knows these objects before they are written."""
PATHS = (*PODS, *QUEUES, *POD_GROUPS)
FLAGS = (
    Flag("scheduler-name", names.SCHEDULER_NAME, "Only schedule pods with this spec.schedulerName."),
    Flag("scheduler-conf", "", "File with actions and plugins; empty: the built-in ones."),
    Flag("queue-label-key", names.QUEUE_LABEL, "Label of pods and workloads that names their queue."),
    Flag("nodepool-label-key", names.NODE_POOL_LABEL, "Label that names the node pool."),
    Flag("gpu-sharing-enabled", False, "Admit pods that request a fraction of a GPU."),
    SHARING_MODE,
    Flag("block-nvidia-visible-devices", False, "Reject pods that set NVIDIA_VISIBLE_DEVICES."),
    Flag("gpu-fraction-runtime-class-name", "nvidia", "Runtime class of pods that share a GPU; empty: none."),
    Flag("runtime-class-name", "nvidia", "Runtime class of reservation pods; empty: none."),
    Flag("cluster-autoscaling", False, "Also make waiting GPU shares visible to a cluster autoscaler."),
    Flag("scaling-pod-image", "registry/local/kai-scheduler/scalingpod", "Image of scaling pods."),
    Flag("metrics-namespace", "kai", "Prefix of metric names.", check=metric_prefix),
    Flag("plugin-server-port", 8082, "Port on loopback for /get-snapshot and /get-job-order.", check=port),
    Flag("always-bind-requests", False, "Bind plain pods through a BindRequest as well, not directly."),
    Flag("install", False, "First create what the chart would: CRDs, namespaces, priority classes, queues."),
)


@dataclass(frozen=True)
class AllSettings:
    """The settings of every component; without node scale adjuster or webhooks if `scaling` or `webhook` is None."""

    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    binder: BinderSettings = field(default_factory=BinderSettings)
    grouper: PodGrouperSettings = field(default_factory=PodGrouperSettings)
    groups: PodGroupStatusSettings = field(default_factory=PodGroupStatusSettings)
    queues: QueueControllerSettings = field(default_factory=QueueControllerSettings)
    scaling: NodeScalerSettings | None = None
    pods: PodSettings = field(default_factory=PodSettings)
    webhook: WebhookSettings | None = None
    always_requests: bool = False
    """Whether plain pods are bound through a BindRequest as well (docs/adr/0009)."""


def compose(settings: AllSettings, api: Api, watches: InformerFactory, work: WorkMetrics) -> Composition:
    """Return all components as one composition."""
    options = replace(settings.scheduler.options, selective=False)
    pod_binder = binder.make(settings.binder, api, watches, work)
    expected = ExpectedGroups()
    colocated = Colocated(None if settings.always_requests else pod_binder.direct, expected)
    compositions = [
        scheduler.compose(replace(settings.scheduler, options=options), api, watches, work, colocated),
        Composition([binder.part(pod_binder)]),
        podgrouper.compose(settings.grouper, api, watches, work, expected),
        podgroup_controller.compose(settings.groups, None, api, watches, work),
        queue_controller.compose(settings.queues, api, watches, work),
    ]
    if settings.scaling is not None:
        compositions.append(node_scale_adjuster.compose(settings.scaling, api, watches, work))
    if settings.webhook is not None:
        rules = AdmissionRules(
            settings.pods,
            watched_queues(watches),
            settings.queues.compare_quotas,
            priority_classes=watched_priority_classes(watches),
            resize=ResizeSettings(settings.pods.scheduler_name),
            quota_facts=partial(quota_facts, api),
        )
        webhooks = Webhooks(api, rules, settings.webhook)
        compositions.append(Composition([Part("admission", webhooks.run, elected=False)]))
    return _merged(compositions)


def _merged(compositions: Sequence[Composition]) -> Composition:
    return Composition(
        [part for each in compositions for part in each.parts],
        [source for each in compositions for source in each.metrics],
        {path: handler for each in compositions for path, handler in each.pages.items()},
    )


def settings_for(scheduler_name: str, pods: PodSettings, webhook: WebhookSettings | None) -> AllSettings:
    """Default settings for a scheduler of this name, with these settings of the pod webhooks."""
    defaults = SchedulerSettings()
    params = replace(defaults.options.params, scheduler_name=scheduler_name)
    return AllSettings(
        scheduler=replace(defaults, options=replace(defaults.options, params=params)),
        binder=BinderSettings(BindRules(scheduler_name), pace=Pace(BUSY_WORKERS, 1.0, 60.0)),
        grouper=PodGrouperSettings(GroupingSettings(scheduler_name), workers=BUSY_WORKERS),
        groups=PodGroupStatusSettings(scheduler_name),
        pods=pods,
        webhook=webhook,
    )


def with_sharing_mode(settings: AllSettings, mode: str) -> AllSettings:
    """Return the settings with admission, scheduler and binder in a GPU sharing mode."""
    fractions, hami = mode == names.NVFRACTIONS, mode == names.HAMI_CORE
    on = {SHARING: mode in BY_CONFIG_MAP, NVFRACTIONS: fractions, HAMI: hami}
    plugins = {name: replace(plugin, enabled=on.get(name, plugin.enabled)) for name, plugin in DEFAULTS.items()}
    params = replace(settings.scheduler.options.params, nvfractions=fractions)
    options = replace(settings.scheduler.options, params=params)
    return replace(
        settings,
        scheduler=replace(settings.scheduler, options=options),
        binder=replace(settings.binder, plugins=plugins),
        pods=replace(
            settings.pods.in_mode(mode),
            # The binder writes devices in the binding, which no webhook sees; any other write of them is rejected.
            binder_account=f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:binder" if fractions else "",
        ),
    )


def settings_of(flags: dict[str, Any]) -> AllSettings:
    """Return the settings in the flags; an invalid value is a click.BadParameter that names the flag."""
    name = flags["scheduler_name"]
    pods = PodSettings(
        name,
        flags["gpu_sharing_enabled"],
        block_visible_devices=flags["block_nvidia_visible_devices"],
        fraction_runtime_class=flags["gpu_fraction_runtime_class_name"],
    )
    selection = PodSelection(name, own_namespace(), guards_devices=pods.block_visible_devices, checks_resizes=True)
    defaults = settings_for(name, pods, webhook_settings(flags, PATHS, selection))
    scaling = ScalingSettings(ScalingPodTemplate(flags["scaling_pod_image"]), name)
    reservations = ReservationTemplate(runtime_class=flags["runtime_class_name"])
    settings = replace(
        defaults,
        scheduler=_scheduler_settings(defaults.scheduler, flags),
        binder=replace(defaults.binder, reservations=reservations),
        grouper=replace(
            defaults.grouper, grouping=GroupingSettings(name, flags["queue_label_key"], flags["nodepool_label_key"])
        ),
        queues=QueueControllerSettings(metrics_namespace=flags["metrics_namespace"]),
        scaling=NodeScalerSettings(scaling) if flags["cluster_autoscaling"] else None,
        always_requests=flags["always_bind_requests"],
    )
    return with_sharing_mode(settings, flags["gpu_sharing_mode"]) if flags["gpu_sharing_mode"] else settings


def _scheduler_settings(defaults: SchedulerSettings, flags: dict[str, Any]) -> SchedulerSettings:
    pools = flags["nodepool_label_key"]
    params = replace(
        defaults.options.params,
        queue_label_key=flags["queue_label_key"],
        node_pool_key=pools,
        partitioned=bool(pools),
    )
    options = replace(defaults.options, params=params, metrics_namespace=flags["metrics_namespace"])
    return replace(
        defaults,
        options=options,
        config=config_of(flags["scheduler_conf"]),
        takes_over=flags["leader_elect"],
        plugin_port=flags["plugin_server_port"],
    )


async def _install(kubeconfig: str) -> None:
    async with HttpApi(find_access(kubeconfig)) as api:
        await install(api)


@click.command("all")
@takes(FLAGS, ELECTION, SERVERS, WEBHOOK, CLIENT, LOGS)
def all(**flags: Any) -> None:  # noqa: A001 - the command's name
    """Every component in one process, for small clusters."""
    process = process_of("all", flags, LEASE)
    process = replace(process, client=replace(process.client, low_priority_kinds=LOW_PRIORITY_KINDS))
    warn_ineffective(LOGS, flags)
    settings = settings_of(flags)
    check_config(settings.scheduler.config)
    if flags["install"]:
        with reported_errors():
            asyncio.run(_install(flags["kubeconfig"]))
    run_component(process, partial(compose, settings))
