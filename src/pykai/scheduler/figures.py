"""What a cycle tells Prometheus."""

from __future__ import annotations

from pykai.observe.metrics import Metrics
from pykai.scheduler.decision import Decision, QueueFigures
from pykai.scheduler.search_figures import record_budgets, record_searches

_FAIR = (("queue_fair_share_cpu_cores", 1e3), ("queue_fair_share_memory_gb", 1e9), ("queue_fair_share_gpu", 1.0))
_EFFORTS = {
    "tried": "podgroups_acted_on_by_action",
    "exhausted": "scenario_search_action_budget_exhausted_total",
}
_USAGE = ("queue_cpu_usage", "queue_memory_usage", "queue_gpu_usage")


def record(decision: Decision, metrics: Metrics) -> None:
    """Set the figures of the newest cycle; queues that are gone are gone here, too."""
    timings = decision.timings
    metrics.put("e2e_scheduling_latency_milliseconds", timings.whole)
    metrics.put("open_session_latency_milliseconds", timings.opening)
    metrics.put("close_session_latency_milliseconds", timings.closing)
    for action, took in timings.actions.items():
        metrics.put("action_scheduling_latency_milliseconds", took, {"action": action})
    for stage, plugins in (("OnSessionOpen", timings.plugins_opening), ("OnSessionClose", timings.plugins_closing)):
        for plugin, took in plugins.items():
            labels = {"plugin": plugin, "OnSession": stage}
            metrics.put("plugin_scheduling_latency_milliseconds", took, labels)
    for action, gangs in decision.started_by.items():
        metrics.add("podgroups_scheduled_by_action", gangs, {"action": action})
    for (what, action), count in decision.efforts.items():
        metrics.add(_EFFORTS[what], count, {"action": action})
    record_budgets(decision.policy, metrics)
    record_searches(decision.searches, metrics)
    metrics.add("total_preemption_attempts", decision.efforts.get(("tried", "preempt"), 0))
    labelled = [(queue, _labels(queue)) for queue in decision.queues]
    metrics.keep((*(name for name, _ in _FAIR), *_USAGE), (labels for _, labels in labelled))
    for queue, labels in labelled:
        for (name, unit), share in zip(_FAIR, queue.fair_share, strict=True):
            metrics.put(name, share / unit, labels)
        for name, use in zip(_USAGE, queue.usage, strict=True):
            metrics.put(name, use, labels)


def _labels(queue: QueueFigures) -> dict[str, str]:
    return {
        "queue_name": queue.display_name,
        "queue_metadata_name": queue.name,
        "queue_display_name": queue.display_name,
    }
