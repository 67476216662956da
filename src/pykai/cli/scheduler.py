"""`kai scheduler`: schedules the pods of one node pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
import structlog

from pykai import __version__
from pykai.cli.component import Composition, Part, Process, own_host, run_component
from pykai.cli.flags import (
    CLIENT,
    ELECTION,
    SHARING_MODE,
    Flag,
    address,
    at_least,
    metric_prefix,
    port,
    reported_flag_errors,
    takes,
    warn_ineffective,
)
from pykai.config import scheduler_config as configuration
from pykai.config.fields import FieldError
from pykai.config.scheduler_config import SchedulerConfig, remarks
from pykai.config.usage_db import UsageConfig, read_usage_config
from pykai.controllers.past_usage import QUERY_LATENCY, UsageLister, UsageSource, source_of
from pykai.engine.policy import Policy
from pykai.kube.api import Api
from pykai.kube.clock import wall
from pykai.kube.informer import InformerFactory
from pykai.kube.lease import scheduler_lease
from pykai.kube.transport import Settings as ClientSettings
from pykai.kube.workqueue import Pace, ReconcileLoop
from pykai.objects import names, units
from pykai.observe import logs
from pykai.observe.http import listening
from pykai.observe.metrics import WorkMetrics
from pykai.plugins import registry
from pykai.scheduler.debug_server import SnapshotContext, debug_routes, job_order, may_read, write_snapshot
from pykai.scheduler.decision import Decision
from pykai.scheduler.process_memory import keep_freed_memory, release_freed_memory
from pykai.scheduler.queueing_hints import Debounce
from pykai.scheduler.scheduler import ALONE, Colocated, Policies, Scheduler, SchedulerOptions, unobserved
from pykai.verify.judge import verify

CONFIG = "scheduler-conf"
_NO_PROFILER = "profile the process with a sampling profiler from outside, such as py-spy"
FLAGS = (
    Flag("scheduler-name", names.SCHEDULER_NAME, "Only schedule pods with this spec.schedulerName."),
    Flag("namespace", names.SYSTEM_NAMESPACE, "Namespace of the leader election lease."),
    Flag(CONFIG, "", "File with actions and plugins; empty: the built-in ones."),
    Flag("schedule-period", "1s", "Maximum time from a relevant change to the next cycle."),
    Flag("partition-label-value", "", "Node pool to schedule; empty: objects without the node pool label."),
    Flag("nodepool-label-key", names.NODE_POOL_LABEL, "Label that names the node pool; empty: no node pools."),
    Flag("queue-label-key", names.QUEUE_LABEL, "Label that names the queue of a shared claim."),
    Flag("restrict-node-scheduling", False, "Place GPU pods only on GPU workers, others only on CPU workers."),
    Flag("cpu-worker-node-label-key", names.CPU_WORKER_LABEL, "Label of CPU workers."),
    Flag("gpu-worker-node-label-key", names.GPU_WORKER_LABEL, "Label of GPU workers."),
    Flag("mig-worker-node-label-key", names.MIG_WORKER_LABEL, "Label of nodes with MIG devices."),
    SHARING_MODE,
    Flag("resource-reservation-app-label", names.RESERVATION_APP, "Value of label `app` of reservation pods."),
    Flag(
        "max-consolidation-preemptees",
        16,
        "Maximum number of workloads that consolidation moves for one workload; -1: unlimited, 0: none.",
        check=at_least(-1),
    ),
    Flag("allow-consolidating-reclaim", True, "Let reclaim move victims to other nodes."),
    Flag("full-hierarchy-fairness", True, "Compute fair shares on every level of queues, not only among leaves."),
    Flag("use-scheduling-signatures", True, "Skip workloads equivalent to one that failed in the cycle."),
    Flag(
        "default-staleness-grace-period",
        "60s",
        "How long a running gang may have fewer pods than its minimum; negative: for ever.",
    ),
    Flag("stuck-in-releasing-threshold", "2m", "How long a terminating pod counts as releasing its resources."),
    Flag("schedule-csi-storage", False, "Take CSI storage capacity into account."),
    Flag("detailed-fit-errors", False, "Report for every node why a pod does not fit."),
    Flag("update-pod-eviction-condition", True, "Set the condition DisruptionTarget on evicted pods."),
    Flag(
        "enable-workload-eviction-metrics",
        False,
        "Label eviction metrics with the workload that owns the pod group, and with the sub-group.",
    ),
    Flag("num-of-status-recording-workers", 5, "Maximum number of concurrent status writes.", check=at_least(1)),
    Flag("listen-address", ":8080", "Address of /metrics, /healthz and /readyz; 0 disables it.", check=address),
    Flag("plugin-server-port", 8081, "Port on loopback for /get-snapshot and /get-job-order.", check=port),
    Flag("metrics-namespace", "kai", "Prefix of metric names.", check=metric_prefix),
    Flag("v", logs.DEFAULT_VERBOSITY, "Log verbosity: 1 warnings, 3 actions taken, 4 and more also considered ones."),
    Flag("log-json", False, "Log JSON lines."),
    Flag("version", True, "Log the version at the start."),
    Flag("log-flush-frequency", "5s", "", ineffective="lines are written immediately"),
    Flag("feature-gates", "", "", ineffective="the APIs that the cluster serves decide"),
    Flag("enable-profiler", False, "", ineffective=_NO_PROFILER),
    Flag("profiler-port", 8182, "", ineffective=_NO_PROFILER),
    Flag("pyroscope-address", "", "", ineffective=_NO_PROFILER),
    Flag("pyroscope-mutex-profiler-rate", 5, "", ineffective=_NO_PROFILER),
    Flag("pyroscope-block-profiler-rate", 5, "", ineffective=_NO_PROFILER),
)
BIND_SHARE = 4
"""The rate limit of binds as a multiple of --qps."""

log = structlog.get_logger(component="scheduler")


@dataclass(frozen=True)
class SchedulerSettings:
    """The settings of a scheduler. `plugin_port`: without a debug server if None."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    config: SchedulerConfig = field(default_factory=SchedulerConfig)
    status_workers: int = 5
    plugin_port: int | None = 8081
    takes_over: bool = False
    """Whether another replica may have been the leader before."""
    observe: Callable[[Decision], None] = unobserved
    usage_source: Callable[[UsageConfig], UsageSource] = source_of


def settings_of(flags: dict[str, Any]) -> SchedulerSettings:
    """Return the settings in the flags; an invalid value is a click.BadParameter that names the flag."""
    period = _duration(flags, "schedule-period")
    if period <= 0:
        raise click.BadParameter("must be positive", param_hint="--schedule-period")
    try:
        params = configuration.params_of_flags({name.replace("_", "-"): value for name, value in flags.items()})
    except FieldError as error:
        raise click.BadParameter(error.message, param_hint=f"--{error.path}") from error
    return SchedulerSettings(
        options=SchedulerOptions(
            params=params,
            debounce=replace(Debounce(), period=period),
            metrics_namespace=flags["metrics_namespace"],
        ),
        config=config_of(flags["scheduler_conf"]),
        status_workers=flags["num_of_status_recording_workers"],
        plugin_port=flags["plugin_server_port"],
        takes_over=flags["leader_elect"],
    )


def _duration(flags: dict[str, Any], flag: str) -> float:
    with reported_flag_errors(flag, units.DurationError):
        return units.parse_duration(flags[flag.replace("-", "_")])


def config_of(path: str) -> SchedulerConfig:
    """Load the configuration file; the built-in configuration if the path is empty."""
    with reported_flag_errors(CONFIG, FieldError):
        return configuration.load(Path(path)) if path else SchedulerConfig()


def policy_of(config: SchedulerConfig) -> Policy:
    """Return the policy of a configuration: its actions and plugins."""
    with reported_flag_errors(CONFIG, FieldError):
        return configuration.policy(config, registry.make, registry.BUILT_IN)


def usage_config_of(config: SchedulerConfig) -> UsageConfig | None:
    """Return the configuration of the usage database; None if there is none."""
    with reported_flag_errors(CONFIG, FieldError):
        return read_usage_config(config.usage_db, wall()) if config.usage_db else None


def check_config(config: SchedulerConfig) -> None:
    """Validate the configuration before anything starts, and log what in it has no effect."""
    policy_of(config)
    usage = usage_config_of(config)
    with reported_flag_errors(CONFIG, ValueError):
        source_of(usage) if usage else None
    for line in remarks(config, registry.make):
        log.warning("note on the configuration", note=line)


def compose(
    settings: SchedulerSettings, api: Api, watches: InformerFactory, work: WorkMetrics, colocated: Colocated = ALONE
) -> Composition:
    """Return the scheduler as a component; `colocated` is what it shares with other components in the process."""
    keep_freed_memory()
    policy, usage_config = policy_of(settings.config), usage_config_of(settings.config)
    loop = ReconcileLoop[Hashable]("scheduler-status", Pace(settings.status_workers), work.meter("scheduler-status"))
    listers: list[UsageLister] = []
    plugins = configuration.plugin_names(settings.config, registry.BUILT_IN)
    judge = partial(verify, plugins=plugins, everything=False)
    policies = Policies(policy, judge, lambda: listers[0].current() if listers else {}, settings.observe)
    params = configuration.params_for(policy, settings.options.params)
    options = replace(settings.options, params=params, more_metrics=(QUERY_LATENCY,) if usage_config else ())
    live = Scheduler(api, watches, policies, loop, options, colocated)
    usage_fetched = asyncio.Event()
    parts = [
        Part("scheduler", partial(_run_scheduler, live, usage_fetched, settings.takes_over)),
        Part("memory", _release_memory, elected=False),
    ]
    if usage_config is None:
        usage_fetched.set()
    else:
        latency = partial(live.metrics.observe, QUERY_LATENCY.name)
        listers.append(UsageLister(settings.usage_source(usage_config), usage_config, latency=latency))
        parts.append(Part("scheduler-usage", partial(_run_usage_lister, listers[0], usage_fetched), elected=False))
    if settings.plugin_port is not None:
        parts.append(Part("debug-server", partial(_debug_server, settings, api, live, policy), elected=False))
    return Composition(parts, [live.metrics.text])


async def _run_scheduler(live: Scheduler, usage_fetched: asyncio.Event, takes_over: bool, ready: asyncio.Event) -> None:
    """Run the scheduler after the first fetch of usage, or its timeout."""
    await usage_fetched.wait()
    await live.run(ready, takes_over)


async def _release_memory(ready: asyncio.Event) -> None:
    ready.set()
    await release_freed_memory()


async def _run_usage_lister(lister: UsageLister, usage_fetched: asyncio.Event, ready: asyncio.Event) -> None:
    ready.set()
    await lister.run(usage_fetched)


async def _debug_server(
    settings: SchedulerSettings, api: Api, live: Scheduler, policy: Policy, ready: asyncio.Event
) -> None:
    """Serve the debug routes of the configured plugins (snapshot, reflectjoborder) on loopback."""
    choices = settings.config.plugins
    plugins = set(registry.BUILT_IN) if choices is None else {choice.name for choice in choices}
    context = SnapshotContext(
        settings.config, registry.BUILT_IN, settings.options.debounce.period, settings.status_workers
    )

    async def snapshot(with_env: bool) -> IO[bytes]:
        return await write_snapshot(api, live.params, context, with_env)

    def order() -> dict[str, Any] | None:
        last = live.last
        return None if last is None else job_order(last.snapshot, policy, last.snapshot.observed_at)

    app = debug_routes(
        snapshot if "snapshot" in plugins else None,
        order if "reflectjoborder" in plugins else None,
        partial(may_read, api),
    )
    assert settings.plugin_port is not None
    host = own_host() or "127.0.0.1"
    async with listening(app, settings.plugin_port, host) as port:
        log.info(
            "debug server started", address=f"{host}:{port}", plugins=sorted(plugins & {"snapshot", "reflectjoborder"})
        )
        ready.set()
        await asyncio.Event().wait()


def process_of(flags: dict[str, Any]) -> Process:
    """Return the process settings of the scheduler, whose flags differ from those of other components."""
    pool, qps, burst = flags["partition_label_value"], max(flags["qps"], 0.0), flags["burst"]
    limits = ClientSettings(qps=qps, burst=burst, bind_qps=BIND_SHARE * qps, bind_burst=burst)
    lease = scheduler_lease(flags["scheduler_name"], pool)
    return Process(
        "scheduler",
        limits,
        flags["kubeconfig"],
        metrics_address=flags["listen_address"],
        health_address="0",
        lease=lease if flags["leader_elect"] else "",
        namespace=flags["namespace"],
    )


@click.command()
@takes(FLAGS, ELECTION, CLIENT)
def scheduler(**flags: Any) -> None:
    """Schedule the pods of one node pool."""
    logs.set_up(flags["v"], flags["log_json"])
    if flags["version"]:
        log.info("pykai scheduler", version=__version__)
    for flag in (*FLAGS, *ELECTION, *CLIENT):
        log.info(f'FLAG: --{flag.name}="{flags[flag.parameter]}"')
    warn_ineffective(FLAGS, flags)
    settings = settings_of(flags)
    check_config(settings.config)
    run_component(process_of(flags), partial(compose, settings))
