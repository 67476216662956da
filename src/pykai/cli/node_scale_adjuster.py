"""`kai node-scale-adjuster`: makes waiting GPU shares visible to a cluster autoscaler."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from pykai.cli.component import Composition, Part, process_of, run_component
from pykai.cli.flags import CLIENT, ELECTION, LOGS, SERVERS, Flag, takes, warn_ineffective
from pykai.controllers import node_scale
from pykai.controllers.node_scale import NodeScalerSettings, ScalingPodTemplate, ScalingSettings
from pykai.kube.api import Api
from pykai.kube.informer import InformerFactory
from pykai.objects import names
from pykai.observe.metrics import WorkMetrics

FLAGS = (
    Flag("scaling-pod-image", "registry/local/kai-scheduler/scalingpod", "Image of scaling pods."),
    Flag("scale-adjust-namespace", names.SCALING_NAMESPACE, "Namespace of scaling pods."),
    Flag("scheduler-name", names.SCHEDULER_NAME, "Only handle pods with this spec.schedulerName."),
    Flag("scaling-pod-app-label", names.SCALING_APP, "Value of label `app` of scaling pods."),
    Flag("scaling-pod-service-account", names.SCALING_APP, "Service account of scaling pods."),
    Flag("gpu-memory-to-fraction-ratio", 0.1, "GPU fraction assumed for a pod that requests GPU memory."),
)


def settings_of(flags: dict[str, Any]) -> NodeScalerSettings:
    """Return the settings in the flags; a ratio outside (0, 1] is a click.BadParameter."""
    ratio = flags["gpu_memory_to_fraction_ratio"]
    if not 0 < ratio <= 1:
        raise click.BadParameter(f"{ratio} is not in (0, 1]", param_hint="--gpu-memory-to-fraction-ratio")
    template = ScalingPodTemplate(
        flags["scaling_pod_image"],
        flags["scale_adjust_namespace"],
        flags["scaling_pod_app_label"],
        flags["scaling_pod_service_account"],
    )
    return NodeScalerSettings(ScalingSettings(template, flags["scheduler_name"], ratio))


def compose(settings: NodeScalerSettings, api: Api, watches: InformerFactory, work: WorkMetrics) -> Composition:
    """Return the node scale adjuster as a component."""
    metered = replace(settings, meters=work.meter)
    return Composition([Part("node-scale-adjuster", partial(node_scale.run, api, watches, metered))])


@click.command("node-scale-adjuster")
@takes(FLAGS, ELECTION, SERVERS, CLIENT, LOGS)
def node_scale_adjuster(**flags: Any) -> None:
    """Make waiting GPU shares visible to a cluster autoscaler."""
    process = process_of("node-scale-adjuster", flags, names.NODE_SCALE_ADJUSTER_LEASE)
    warn_ineffective(LOGS, flags)
    run_component(process, partial(compose, settings_of(flags)))
