"""Metrics of queues, one row each, computed from the watched queues at every scrape.

A deleted queue, or one whose labels changed, therefore leaves no series behind. Names and units are those that
dashboards and time-based fair share expect: cores, bytes, devices; -1 is unlimited and stays -1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pykai.objects import kinds, units
from pykai.observe.metrics import Metric, MetricKind, Metrics

Value = Callable[[kinds.Queue], float]
LABELS = ("queue_name", "queue_metadata_name", "queue_display_name")
UNLIMITED = -1.0
_MILLI, _MEGA = 1000.0, 1_000_000.0


def _quota(queue: kinds.Queue, resource: str, times: float = 1.0, per: float = 1.0) -> float:
    return _bound(queue, (resource, "quota"), times, per)


def _limit(queue: kinds.Queue, resource: str, times: float = 1.0, per: float = 1.0) -> float:
    return _bound(queue, (resource, "limit"), times, per)


def _bound(queue: kinds.Queue, which: tuple[str, str], times: float, per: float) -> float:
    resources = queue.spec.resources
    bound: float = getattr(getattr(resources, which[0]), which[1]) if resources else 0.0
    return bound if bound == UNLIMITED else bound * times / per


def _sum(amounts: Mapping[str, str | int | float] | None, counts: Callable[[str], bool]) -> float:
    return round(sum(units.amount(text) for name, text in (amounts or {}).items() if counts(name)), 4)


def _allocated(queue: kinds.Queue, counts: Callable[[str], bool]) -> float:
    return _sum(queue.status.allocated, counts)


_GPUS, _CPU, _MEMORY = (lambda name: name.endswith("/gpu")), "cpu".__eq__, "memory".__eq__

TABLE: tuple[tuple[str, str, Value], ...] = (
    ("queue_info", "Queues info", lambda queue: 1.0),
    ("queue_deserved_gpus", "Queue deserved GPUs", lambda queue: _quota(queue, "gpu")),
    ("queue_quota_cpu_cores", "Queue quota CPU", lambda queue: _quota(queue, "cpu", per=_MILLI)),
    ("queue_quota_memory_bytes", "Queue quota memory", lambda queue: _quota(queue, "memory", times=_MEGA)),
    ("queue_allocated_gpus", "Queue allocated GPUs", lambda q: _allocated(q, lambda name: name.endswith("/gpu"))),
    ("queue_allocated_cpu_cores", "Queue allocated CPUs", lambda q: _allocated(q, lambda name: name == "cpu")),
    ("queue_allocated_memory_bytes", "Queue allocated memory", lambda q: _allocated(q, lambda name: name == "memory")),
    ("queue_limit_gpus", "Queue limit of GPUs", lambda queue: _limit(queue, "gpu")),
    ("queue_limit_cpu_cores", "Queue limit of CPU", lambda queue: _limit(queue, "cpu", per=_MILLI)),
    ("queue_limit_memory_bytes", "Queue limit of memory", lambda queue: _limit(queue, "memory", times=_MEGA)),
    ("queue_requested_gpus", "Queue requested GPUs", lambda q: _sum(q.status.requested, _GPUS)),
    ("queue_requested_cpu_cores", "Queue requested CPUs", lambda q: _sum(q.status.requested, _CPU)),
    ("queue_requested_memory_bytes", "Queue requested memory", lambda q: _sum(q.status.requested, _MEMORY)),
    (
        "queue_allocated_non_preemptible_gpus",
        "Queue GPUs allocated to non-preemptible work",
        lambda q: _sum(q.status.allocated_non_preemptible, _GPUS),
    ),
    (
        "queue_allocated_non_preemptible_cpu_cores",
        "Queue CPUs allocated to non-preemptible work",
        lambda q: _sum(q.status.allocated_non_preemptible, _CPU),
    ),
    (
        "queue_allocated_non_preemptible_memory_bytes",
        "Queue memory allocated to non-preemptible work",
        lambda q: _sum(q.status.allocated_non_preemptible, _MEMORY),
    ),
)
ROWS = tuple(Metric(name, MetricKind.GAUGE, text, LABELS) for name, text, _ in TABLE)


@dataclass(frozen=True)
class QueueLabels:
    """Further labels of the metrics: metric labels by queue label, and the defaults for missing ones."""

    names: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)

    def values(self, queue: kinds.Queue) -> dict[str, str]:
        """The labels of a queue's series, by the metric's label; ordered by the queue's label."""
        own = queue.metadata.labels or {}
        return {self.names[key]: own.get(key, self.defaults.get(key, "")) for key in sorted(self.names)}


class QueueMetrics:
    """The metrics of the queues that `queues()` returns."""

    def __init__(
        self, queues: Callable[[], Iterable[kinds.Queue]], labels: QueueLabels | None = None, namespace: str = "kai"
    ) -> None:
        self._queues = queues
        self._labels = labels or QueueLabels()
        shown = (*LABELS, *(self._labels.names[key] for key in sorted(self._labels.names)))
        self._metrics = Metrics([replace(row, labels=shown) for row in ROWS], namespace)

    def text(self) -> bytes:
        """All series in the text format of Prometheus."""
        self._metrics.reset(*(name for name, _, _ in TABLE))
        for queue in self._queues():
            labels = self._series(queue)
            for name, _, value in TABLE:
                self._metrics.put(name, value(queue), labels)
        return self._metrics.text()

    def _series(self, queue: kinds.Queue) -> dict[str, str]:
        name = queue.metadata.name
        return dict(zip(LABELS, (name, name, queue.spec.display_name), strict=True)) | self._labels.values(queue)
