"""What a cycle tells Prometheus."""

from __future__ import annotations

from pykai.observe.metrics import Metrics
from pykai.scheduler.decision import Decision

_FAIR = (("queue_fair_share_cpu_cores", 1e3), ("queue_fair_share_memory_gb", 1e9), ("queue_fair_share_gpu", 1.0))
_EFFORTS = {"tried": "podgroups_acted_on_by_action", "simulated": "scenarios_simulation_by_action"}
_USAGE = ("queue_cpu_usage", "queue_memory_usage", "queue_gpu_usage")


def record(decision: Decision, metrics: Metrics) -> None:
    """Set the figures of the newest cycle; queues that are gone are gone here, too."""
    timings = decision.timings
    metrics.put("e2e_scheduling_latency_milliseconds", timings.whole)
    metrics.put("open_session_latency_milliseconds", timings.opening)
    metrics.put("close_session_latency_milliseconds", timings.closing)
    for action, took in timings.actions.items():
        metrics.put("action_scheduling_latency_milliseconds", took, {"action": action})
    for action, gangs in decision.started_by.items():
        metrics.add("podgroups_scheduled_by_action", gangs, {"action": action})
    for (what, action), count in decision.efforts.items():
        if what in _EFFORTS:
            metrics.add(_EFFORTS[what], count, {"action": action})
        else:
            labels = {"action": action, "result": what, "reduced_budget": "false"}
            metrics.add("scenario_search_jobs_total", count, labels)
    metrics.add("total_preemption_attempts", decision.efforts.get(("tried", "preempt"), 0))
    metrics.reset(*(name for name, _ in _FAIR), *_USAGE)
    for queue in decision.queues:
        labels = {
            "queue_name": queue.display_name,
            "queue_metadata_name": queue.name,
            "queue_display_name": queue.display_name,
        }
        for (name, unit), share in zip(_FAIR, queue.fair_share, strict=True):
            metrics.put(name, share / unit, labels)
        for name, use in zip(_USAGE, queue.usage, strict=True):
            metrics.put(name, use, labels)
