"""`kai admission`: the webhooks of pods and topologies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from pykai.admission.pods import PodSettings, fraction_runtime_class
from pykai.admission.registration import PodSelection
from pykai.admission.resize import ResizeSettings
from pykai.admission.review import AdmissionRules
from pykai.cli.component import Composition, Part, own_namespace, process_of, run_component
from pykai.cli.flags import BY_CONFIG_MAP, CLIENT, LOGS, SERVERS, SHARING_MODE, Flag, takes, warn_ineffective
from pykai.cli.webhooks import (
    PODS,
    WEBHOOK,
    Webhooks,
    WebhookSettings,
    quota_facts,
    watched_priority_classes,
    webhook_settings,
)
from pykai.kube.api import Api
from pykai.kube.informer import InformerFactory
from pykai.objects import names
from pykai.observe.metrics import WorkMetrics

_PURE = "admission keeps no queue of work"
FLAGS = (
    Flag("scheduler-name", names.SCHEDULER_NAME, "Whose pods are looked at (spec.schedulerName)."),
    Flag("gpu-sharing-enabled", False, "Admit pods that ask for part of a GPU."),
    SHARING_MODE,
    Flag(
        "binder-service-account-username",
        "",
        "User name of the binder, who alone may write the devices of a share (mode NvFractions).",
    ),
    Flag("hami-core-enabled", False, "Give such pods a limit of GPU memory that HAMi-core enforces."),
    Flag("block-nvidia-visible-devices", False, "Refuse pods that set NVIDIA_VISIBLE_DEVICES themselves."),
    Flag(
        "gpu-fraction-runtime-class-name", "nvidia", "Runtime class of pods that share a GPU; empty: none.", unset=True
    ),
    Flag("gpu-pod-runtime-class-name", "nvidia", "Older name of --gpu-fraction-runtime-class-name.", unset=True),
    Flag("validate-resize-quota", True, "Check resizes of running pods against the quotas of their queues."),
    Flag(
        "block-upsize-on-bounded-queues", False, "Refuse every upsize of a pod in a queue with a finite limit or quota."
    ),
    Flag("leader-elect", False, "", ineffective="every replica serves"),
    Flag("rate-limiter-base-delay", 1, "", ineffective=_PURE),
    Flag("rate-limiter-max-delay", 60, "", ineffective=_PURE),
    Flag("fake-gpu-nodes", False, "", ineffective="admission does not look at nodes"),
    Flag("feature-gates", "", "", ineffective="admission has no gated features"),
)


def pod_settings(given: dict[str, Any]) -> PodSettings:
    """The switches that the flags describe."""
    return PodSettings(
        scheduler_name=given["scheduler_name"],
        gpu_sharing=given["gpu_sharing_enabled"] or given["gpu_sharing_mode"] in BY_CONFIG_MAP,
        nvfractions=given["gpu_sharing_mode"] == names.NVFRACTIONS,
        binder_account=given["binder_service_account_username"],
        hami_core=given["hami_core_enabled"],
        block_visible_devices=given["block_nvidia_visible_devices"],
        fraction_runtime_class=fraction_runtime_class(
            given["gpu_fraction_runtime_class_name"], given["gpu_pod_runtime_class_name"]
        ),
    )


def compose(
    admission: AdmissionRules, webhook: WebhookSettings, api: Api, watches: InformerFactory, work: WorkMetrics
) -> Composition:
    """The webhooks as a component."""
    checked = partial(quota_facts, api) if webhook.pods.checks_resizes else None
    rules = replace(admission, priority_classes=watched_priority_classes(watches), quota_facts=checked)
    return Composition([Part("admission", Webhooks(api, rules, webhook).run, elected=False)])


@click.command("admission")
@takes(FLAGS, SERVERS, WEBHOOK, CLIENT, LOGS)
def admission(**given: Any) -> None:
    """Serve the webhooks of pods and topologies."""
    process = process_of("admission", {**given, "leader_elect": False})
    warn_ineffective((*FLAGS, *LOGS), given)
    settings = pod_settings(given)
    selection = PodSelection(
        settings.scheduler_name,
        own_namespace(),
        guards_devices=settings.block_visible_devices,
        checks_resizes=given["validate_resize_quota"],
    )
    rules = AdmissionRules(
        settings, resize=ResizeSettings(settings.scheduler_name, given["block_upsize_on_bounded_queues"])
    )
    run_component(process, partial(compose, rules, webhook_settings(given, PODS, selection)))
