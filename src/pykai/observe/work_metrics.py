"""What reconcile loops measure, under the names that dashboards of Kubernetes controllers already know.

Every process has one `WorkMetrics`, so the metrics of the process itself are shown here, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykai.observe.metrics import Metric, MetricKind, Metrics

_G, _C, _H = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM
_QUEUED = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
_WORKED = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)

TABLE: tuple[Metric, ...] = (
    Metric("workqueue_depth", _G, "Keys that wait for a worker", ("name",)),
    Metric("workqueue_queue_duration_seconds", _H, "How long keys wait for a worker", ("name",), _QUEUED),
    Metric("workqueue_work_duration_seconds", _H, "How long runs take", ("name",), _WORKED),
    Metric("controller_runtime_active_workers", _G, "Runs under way", ("controller",)),
    Metric("controller_runtime_reconcile_total", _C, "Runs by result", ("controller", "result")),
    Metric("controller_runtime_reconcile_errors_total", _C, "Runs that failed", ("controller",)),
    Metric("controller_runtime_reconcile_time_seconds", _H, "How long runs take", ("controller",), _WORKED),
)


class WorkMetrics:
    """The metrics of all loops of a process; `meter` gives the one of a loop."""

    def __init__(self) -> None:
        self._metrics = Metrics(TABLE, namespace="")
        self._metrics.tell_process()

    def meter(self, name: str) -> LoopMeter:
        """What a loop of this name tells about itself."""
        return LoopMeter(name, self._metrics)

    def text(self) -> bytes:
        """All series in the text format of Prometheus."""
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
