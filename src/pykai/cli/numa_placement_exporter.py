"""`kai numa-placement-exporter`: reports on which NUMA nodes the pods of its node run; a DaemonSet."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import click

from pykai.cli.component import Composition, Part, process_of, run_component
from pykai.cli.flags import LOGS, Flag, client, reported_flag_errors, takes, time_above, time_at_least, warn_ineffective
from pykai.controllers.numa_exporter import Exporter, ExporterSettings, TopologyError, kubelet, numa_of_cpus
from pykai.kube.api import Api
from pykai.kube.informer import InformerFactory
from pykai.objects import units
from pykai.observe.metrics import WorkMetrics

FLAGS = (
    Flag("node-name", "", "Name of the node; empty: the environment variable NODE_NAME."),
    Flag("podresources-socket", "/var/lib/kubelet/pod-resources/kubelet.sock", "Pod resources socket of the kubelet."),
    Flag("sysfs-root", "/sys", "Where the node's /sys is mounted."),
    Flag("poll-interval", "1s", "Interval of queries to the kubelet.", check=time_above(0.0)),
    Flag(
        "drift-resync-interval",
        "60s",
        "Interval of comparing annotations with those on the API server; 0: never.",
        check=time_at_least(0.0),
    ),
)


def settings_of(flags: dict[str, Any]) -> ExporterSettings:
    """Return the settings in the flags; an invalid value is a click.BadParameter that names the flag."""
    node = flags["node_name"] or os.environ.get("NODE_NAME", "")
    if not node:
        raise click.UsageError("node name is required: set --node-name or the NODE_NAME environment variable")
    poll, drift = (units.parse_duration(flags[flag]) for flag in ("poll_interval", "drift_resync_interval"))
    with reported_flag_errors("sysfs-root", TopologyError, OSError):
        return ExporterSettings(node, numa_of_cpus(Path(flags["sysfs_root"])), poll, drift)


def compose(
    settings: ExporterSettings, socket: str, api: Api, watches: InformerFactory, work: WorkMetrics
) -> Composition:
    """Return the exporter as a component."""
    return Composition([Part("numa-placement-exporter", Exporter(api, kubelet(socket), settings).run)])


@click.command("numa-placement-exporter")
@takes(FLAGS, client(burst=100), LOGS)
def numa_placement_exporter(**flags: Any) -> None:
    """Report on which NUMA nodes the pods of this node run."""
    process = process_of(
        "numa-placement-exporter", {**flags, "metrics_bind_address": "0", "health_probe_bind_address": "0"}
    )
    warn_ineffective(LOGS, flags)
    run_component(process, partial(compose, settings_of(flags), flags["podresources_socket"]))
