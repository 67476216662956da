"""The metrics of a cycle: its steps, its searches for victims and their budgets, the queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from pykai.engine.budgets import SEARCHING
from pykai.engine.plugin_api import VictimChoice
from pykai.engine.policy import Policy
from pykai.model.gangs import GangTable
from pykai.model.plan import ActionStatistics, GeneratorStatistics, QueueFigures, ScenarioState, SearchStatistics
from pykai.observe.metrics import Metrics
from pykai.scheduler.decision import Decision

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
    metrics.prune("pod_group_evicted_pods_total", partial(_exists, decision.snapshot.gangs))
    labelled = [(queue, _labels(queue)) for queue in plan.queues]
    metrics.keep((*(name for name, _ in _FAIR), *_USAGE), (labels for _, labels in labelled))
    for queue, labels in labelled:
        for (name, unit), share in zip(_FAIR, queue.fair_share, strict=True):
            metrics.put(name, share / unit, labels)
        for name, use in zip(_USAGE, queue.usage, strict=True):
            metrics.put(name, use, labels)


def _exists(gangs: GangTable, labels: Mapping[str, str]) -> bool:
    """Whether the PodGroup of these labels still exists."""
    key = (labels["namespace"], labels["podgroup"])
    row = gangs.rows_of([key]).get(key)
    return row is not None and gangs.objects[row].metadata.uid == labels["uid"]


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


_BY_ACTION = {
    ScenarioState.SIMULATED: "scenarios_simulation_by_action",
    ScenarioState.FILTERED: "scenarios_filtered_by_action",
}


def record_budgets(policy: Policy, metrics: Metrics) -> None:
    """Set what is configured, in seconds; 0 is unlimited."""
    budgets = policy.budgets
    for action in (action for action in policy.actions if action in SEARCHING):
        metrics.put("scenario_search_action_budget_configured_seconds", budgets.of_action(action), {"action": action})
    metrics.put("scenario_search_job_budget_configured_seconds", budgets.job)
    for choice in policy.of(VictimChoice):
        labels = {"generator": choice.generator}
        seconds = budgets.of_generator(choice.generator)
        metrics.put("scenario_search_generator_budget_configured_seconds", seconds, labels)


def record_searches(searches: Iterable[SearchStatistics], metrics: Metrics) -> None:
    """Count the searches of a cycle."""
    for search in searches:
        labels = {
            "action": search.action,
            "result": search.result,
            "reduced_budget": str(search.reduced_budget).lower(),
        }
        metrics.add("scenario_search_jobs_total", 1, labels)
        for part in search.generators:
            _record_part(search.action, part, metrics)


def _record_part(action: str, part: GeneratorStatistics, metrics: Metrics) -> None:
    labels = {"action": action, "generator": part.generator}
    metrics.observe("scenario_search_duration_seconds", part.seconds, {**labels, "result": part.result})
    for state, count in part.states.items():
        metrics.add("scenario_search_scenarios_total", count, {**labels, "state": state})
        if state in _BY_ACTION:
            metrics.add(_BY_ACTION[state], count, {"action": action})
