"""What a cycle tells Prometheus."""

from __future__ import annotations

from pykai.model.statistics import ActionStatistics, QueueFigures
from pykai.observe.metrics import Metrics
from pykai.scheduler.decision import Decision
from pykai.scheduler.search_figures import record_budgets, record_searches

_FAIR = (("queue_fair_share_cpu_cores", 1e3), ("queue_fair_share_memory_gb", 1e9), ("queue_fair_share_gpu", 1.0))
_USAGE = ("queue_cpu_usage", "queue_memory_usage", "queue_gpu_usage")


def record(decision: Decision, metrics: Metrics) -> None:
    """Set the figures of the newest cycle; queues that are gone are gone here, too."""
    timings, plan = decision.timings, decision.plan
    metrics.put("e2e_scheduling_latency_milliseconds", timings.whole)
    metrics.put("open_session_latency_milliseconds", timings.opening)
    metrics.put("close_session_latency_milliseconds", timings.closing)
    opening, closing = plan.timings.plugins_opening, plan.timings.plugins_closing
    for stage, plugins in (("OnSessionOpen", opening), ("OnSessionClose", closing)):
        for plugin, seconds in plugins.items():
            labels = {"plugin": plugin, "OnSession": stage}
            metrics.put("plugin_scheduling_latency_milliseconds", seconds * 1000, labels)
    for action, statistics in plan.actions.items():
        _record_action(action, statistics, metrics)
    metrics.add("total_preemption_attempts", plan.actions.get("preempt", ActionStatistics()).tried)
    record_budgets(decision.policy, metrics)
    record_searches(plan.searches, metrics)
    labelled = [(queue, _labels(queue)) for queue in plan.queues]
    metrics.keep((*(name for name, _ in _FAIR), *_USAGE), (labels for _, labels in labelled))
    for queue, labels in labelled:
        for (name, unit), share in zip(_FAIR, queue.fair_share, strict=True):
            metrics.put(name, share / unit, labels)
        for name, use in zip(_USAGE, queue.usage, strict=True):
            metrics.put(name, use, labels)


def _record_action(action: str, statistics: ActionStatistics, metrics: Metrics) -> None:
    labels = {"action": action}
    metrics.put("action_scheduling_latency_milliseconds", statistics.seconds * 1000, labels)
    metrics.add("podgroups_scheduled_by_action", statistics.started, labels)
    if statistics.tried:
        metrics.add("podgroups_acted_on_by_action", statistics.tried, labels)
    if statistics.budget_exhausted:
        metrics.add("scenario_search_action_budget_exhausted_total", 1, labels)


def _labels(queue: QueueFigures) -> dict[str, str]:
    return {
        "queue_name": queue.display_name,
        "queue_metadata_name": queue.name,
        "queue_display_name": queue.display_name,
    }
