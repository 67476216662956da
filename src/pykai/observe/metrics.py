"""Prometheus metrics, declared as tables from which registration and documentation are generated.

Names are KAI's. The client library appends `_total` to every counter; it is removed from the exposition where KAI's
name has no such suffix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_COUNTER_SUFFIX = "_total"


class MetricKind(Enum):
    """The type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """One row: the name without its namespace; `buckets` are the upper bounds of a histogram."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def doubling(first: float, count: int) -> tuple[float, ...]:
    """Exponential bucket bounds, each twice the previous one."""
    return tuple(first * 2**power for power in range(count))


_G, _C, _H = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM
_QUEUE = ("queue_name", "queue_metadata_name", "queue_display_name")
_LATENCY_BUCKETS = doubling(5.0, 10)

SCHEDULER: tuple[Metric, ...] = (
    Metric(
        "e2e_scheduling_latency_milliseconds",
        _G,
        "E2e scheduling latency in milliseconds (scheduling algorithm + binding), as a gauge",
    ),
    Metric("open_session_latency_milliseconds", _G, "Open session latency in milliseconds, including all plugins"),
    Metric("close_session_latency_milliseconds", _G, "Close session latency in milliseconds, including all plugins"),
    Metric(
        "plugin_scheduling_latency_milliseconds",
        _G,
        "Plugin scheduling latency in milliseconds: time of a plugin when a cycle opens (fair shares, state of "
        "devices and zones) and when it closes (details of binds); 0 if it does nothing then",
        ("plugin", "OnSession"),
    ),
    Metric("action_scheduling_latency_milliseconds", _G, "Action scheduling latency in milliseconds", ("action",)),
    Metric(
        "task_scheduling_latency_milliseconds",
        _H,
        "Task scheduling latency in milliseconds (pod creation to bind decision)",
        buckets=_LATENCY_BUCKETS,
    ),
    Metric(
        "task_bind_latency_milliseconds",
        _H,
        "Task bind latency in milliseconds (creation of the BindRequest)",
        buckets=_LATENCY_BUCKETS,
    ),
    Metric("podgroups_scheduled_by_action", _C, "Count of podgroups scheduled per action", ("action",)),
    Metric("podgroups_acted_on_by_action", _C, "Count of podgroups tried per action", ("action",)),
    Metric("scenarios_simulation_by_action", _C, "Count of scenarios simulated per action", ("action",)),
    Metric(
        "scenarios_filtered_by_action",
        _C,
        "Count of scenarios filtered per action: bounds prove that they cannot free enough capacity",
        ("action",),
    ),
    Metric(
        "scenario_search_jobs_total",
        _C,
        "Count of podgroups for which victims were searched, by how it ended: solved, unsolved, validator_rejected, "
        "generators_exhausted, no_generator, deadline_exhausted, not_attempted. The budget is reduced where the action "
        "has less time left than a podgroup may search",
        ("action", "result", "reduced_budget"),
    ),
    Metric(
        "scenario_search_action_budget_configured_seconds",
        _G,
        "Configured action scenario search budget in seconds; 0 is unlimited",
        ("action",),
    ),
    Metric(
        "scenario_search_job_budget_configured_seconds",
        _G,
        "Configured scenario search budget of one podgroup in seconds; 0 is unlimited",
    ),
    Metric(
        "scenario_search_generator_budget_configured_seconds",
        _G,
        "Configured generator scenario search budget in seconds; 0 is unlimited",
        ("generator",),
    ),
    Metric(
        "scenario_search_action_budget_exhausted_total",
        _C,
        "Count of runs of an action that used up its scenario search budget",
        ("action",),
    ),
    Metric(
        "scenario_search_duration_seconds",
        _H,
        "Elapsed time of one generator in one search, in seconds",
        ("action", "generator", "result"),
        doubling(0.001, 16),
    ),
    Metric(
        "scenario_search_scenarios_total",
        _C,
        "Count of scenarios by state: filtered by figures; emitted, which is duplicate or simulated; of the simulated "
        "validator_rejected",
        ("action", "generator", "state"),
    ),
    Metric("total_preemption_attempts", _C, "Total preemption attempts in the cluster till now"),
    Metric(
        "preemption_failures_total",
        _C,
        "Preemption attempts that evicted no pod, by the reason in the conditions of the podgroup; in every cycle anew",
        ("reason",),
    ),
    Metric(
        "pod_group_first_start_wait_seconds",
        _H,
        "Time from the creation of a podgroup to its first bind; neither restarts nor growth count",
        _QUEUE,
        doubling(0.1, 20),
    ),
    Metric("queue_fair_share_cpu_cores", _G, "CPU fair share of queue", _QUEUE),
    Metric("queue_fair_share_memory_gb", _G, "Memory fair share of queue", _QUEUE),
    Metric("queue_fair_share_gpu", _G, "GPU fair share of queue", _QUEUE),
    Metric("queue_cpu_usage", _G, "CPU usage of queue over time", _QUEUE),
    Metric("queue_memory_usage", _G, "Memory usage of queue over time", _QUEUE),
    Metric("queue_gpu_usage", _G, "GPU usage of queue over time", _QUEUE),
    Metric(
        "pod_group_evicted_pods_total",
        _C,
        "Total number of pods evicted per pod group",
        ("podgroup", "namespace", "uid", "nodepool", "action"),
    ),
    Metric("refused_plans_total", _C, "Plans that broke a rule and were not carried out"),
    Metric("failed_cycles_total", _C, "Cycles that ended in an error"),
)
"""Metrics of the scheduler."""

_EVICTED = ("podgroup", "namespace", "nodepool", "action", "owner_group", "owner_kind", "owner_name", "owner_uid")
WORKLOAD_EVICTIONS: tuple[Metric, ...] = (
    Metric(
        "pod_group_evicted_pods_total",
        _C,
        "Total number of pods evicted per pod group and sub-group, with the workload that owns it",
        (*_EVICTED, "subgroup"),
    ),
    Metric("pod_group_eviction_events_total", _C, "Decisions that evicted pods of a pod group", _EVICTED),
)
"""Added by `--enable-workload-eviction-metrics`; the first one replaces the metric of the same name."""

PROCESS: tuple[Metric, ...] = (
    Metric("process_cpu_seconds_total", _C, "Processor time used, user and system, in seconds"),
    Metric("process_resident_memory_bytes", _G, "Memory held in bytes"),
    Metric("process_virtual_memory_bytes", _G, "Address space in bytes"),
    Metric("process_start_time_seconds", _G, "When the process began, in seconds since the epoch"),
    Metric("process_open_fds", _G, "Open file descriptors"),
    Metric("process_max_fds", _G, "Most file descriptors it may open"),
)
"""Process metrics of the client library, on systems with /proc (`Metrics.add_process`)."""


class Metrics:
    """The metrics of one process under one namespace; an unknown name is a KeyError."""

    def __init__(self, rows: Iterable[Metric], namespace: str = "kai") -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._rows = {row.name: row for row in rows}
        self._namespace = namespace
        self._series: dict[str, Any] = {name: self._register(row) for name, row in self._rows.items()}
        self._labelled: dict[tuple[Any, ...], Any] = {}

    def _register(self, row: Metric) -> Counter | Gauge | Histogram:
        shared: dict[str, Any] = {"namespace": self._namespace, "registry": self._registry}
        if row.kind is MetricKind.HISTOGRAM:
            return Histogram(row.name, row.help, row.labels, buckets=row.buckets, **shared)
        metric_class = Counter if row.kind is MetricKind.COUNTER else Gauge
        return metric_class(row.name, row.help, row.labels, **shared)

    def add_process(self) -> None:
        """Also expose the metrics of PROCESS."""
        ProcessCollector(registry=self._registry)

    def put(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Set a gauge."""
        self._series_of(name, labels).set(value)

    def add(self, name: str, by: float = 1.0, labels: Mapping[str, str] | None = None) -> None:
        """Increment a counter."""
        self._series_of(name, labels).inc(by)

    def observe(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Observe a value in a histogram."""
        self._series_of(name, labels).observe(value)

    def reset(self, *names: str) -> None:
        """Remove every labelled series of these metrics."""
        for name in names:
            self._series[name].clear()
        self._labelled = {key: series for key, series in self._labelled.items() if key[0] not in names}

    def keep(self, names: Iterable[str], labels: Iterable[Mapping[str, str]]) -> None:
        """Remove the series of these metrics whose labels are none of the given ones."""
        kept = {tuple(each.items()) for each in labels}
        for name in names:
            self.prune(name, lambda shown: tuple(shown.items()) in kept)

    def prune(self, name: str, exists: Callable[[Mapping[str, str]], bool]) -> None:
        """Remove the series of a metric whose labels name an object that no longer exists."""
        series = [(key, dict(key[1:])) for key in self._labelled if key[0] == name]
        for key, labels in [(key, labels) for key, labels in series if not exists(labels)]:
            self._series[name].remove(*(labels[label] for label in self._rows[name].labels))
            del self._labelled[key]

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        exposition = generate_latest(self._registry).decode()
        for row in self._rows.values():
            if row.kind is MetricKind.COUNTER and not row.name.endswith(_COUNTER_SUFFIX):
                full = f"{self._namespace}_{row.name}" if self._namespace else row.name
                exposition = exposition.replace(f"{full}{_COUNTER_SUFFIX}", full)
        return exposition.encode()

    def _series_of(self, name: str, labels: Mapping[str, str] | None) -> Any:
        if not labels:
            return self._series[name]
        key = (name, *labels.items())
        series = self._labelled.get(key)
        if series is None:
            series = self._labelled[key] = self._series[name].labels(**labels)
        return series


_QUEUE_SECONDS = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
_WORK_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)

CONTROLLERS: tuple[Metric, ...] = (
    Metric("workqueue_depth", _G, "Keys that wait for a worker", ("name",)),
    Metric("workqueue_queue_duration_seconds", _H, "How long keys wait for a worker", ("name",), _QUEUE_SECONDS),
    Metric("workqueue_work_duration_seconds", _H, "How long runs take", ("name",), _WORK_SECONDS),
    Metric("controller_runtime_active_workers", _G, "Runs under way", ("controller",)),
    Metric("controller_runtime_reconcile_total", _C, "Runs by result", ("controller", "result")),
    Metric("controller_runtime_reconcile_errors_total", _C, "Runs that failed", ("controller",)),
    Metric("controller_runtime_reconcile_time_seconds", _H, "How long runs take", ("controller",), _WORK_SECONDS),
)
"""The metrics of reconcile loops, with controller-runtime's names."""


class WorkMetrics:
    """The metrics of all reconcile loops of a process; `meter` returns that of one loop."""

    def __init__(self) -> None:
        self._metrics = Metrics(CONTROLLERS, namespace="")
        self._metrics.add_process()

    def meter(self, name: str) -> LoopMeter:
        """Return the meter of the loop of this name."""
        return LoopMeter(name, self._metrics)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return self._metrics.text()


@dataclass(frozen=True)
class LoopMeter:
    """A `Meter` of one reconcile loop."""

    name: str
    metrics: Metrics

    def depth(self, ready: int, running: int) -> None:
        """See `Meter.depth`."""
        self.metrics.put("workqueue_depth", ready, {"name": self.name})
        self.metrics.put("controller_runtime_active_workers", running, {"controller": self.name})

    def started(self, waited_seconds: float) -> None:
        """See `Meter.started`."""
        self.metrics.observe("workqueue_queue_duration_seconds", waited_seconds, {"name": self.name})

    def finished(self, took_seconds: float, result: str) -> None:
        """See `Meter.finished`."""
        own = {"controller": self.name}
        self.metrics.observe("workqueue_work_duration_seconds", took_seconds, {"name": self.name})
        self.metrics.observe("controller_runtime_reconcile_time_seconds", took_seconds, own)
        self.metrics.add("controller_runtime_reconcile_total", labels={**own, "result": result})
        if result == "error":
            self.metrics.add("controller_runtime_reconcile_errors_total", labels=own)
