"""Metrics of a cycle: step timings, victim searches and their budgets, queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np

from pykai.engine.budgets import SEARCHING
from pykai.engine.plugin_api import VictimChoice
from pykai.engine.policy import Policy
from pykai.engine.reasons import SearchToken
from pykai.model.gangs import GangTable
from pykai.model.params import SchedulerParams
from pykai.model.plan import ActionStatistics, Plan, ScenarioState, SearchStatistics
from pykai.model.status import IS_ALLOCATED
from pykai.objects.kinds import OwnerReference, PodGroup
from pykai.observe.metrics import Metrics
from pykai.scheduler.decision import Decision

_FAIR = (("queue_fair_share_cpu_cores", 1e3), ("queue_fair_share_memory_gb", 1e9), ("queue_fair_share_gpu", 1.0))
_NOT_TRIED = {
    f"Preempt{token}"
    for token in (SearchToken.NOT_ATTEMPTED, SearchToken.BACKOFF, SearchToken.DELAYED, SearchToken.DISABLED)
}
_HOLDS = np.array(IS_ALLOCATED)
_USAGE = ("queue_cpu_usage", "queue_memory_usage", "queue_gpu_usage")


def record(decision: Decision, metrics: Metrics) -> None:
    """Record the metrics of the latest cycle; series of deleted queues are removed."""
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
    _record_preemption_failures(plan, metrics)
    if decision.snapshot.params.workload_eviction_metrics:
        _record_evictions(decision, metrics)
    labelled = [(queue, queue_labels(queue.name, queue.display_name)) for queue in plan.queues]
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
    return row is not None and labels.get("uid", gangs.objects[row].metadata.uid) == gangs.objects[row].metadata.uid


def _record_preemption_failures(plan: Plan, metrics: Metrics) -> None:
    failed = Counter([each.code for verdict in plan.verdicts for each in verdict.actions if each.action == "preempt"])
    for code, count in failed.items():
        if code not in _NOT_TRIED:
            metrics.add("preemption_failures_total", count, {"reason": code})


def workload_labels(group: PodGroup, action: str, params: SchedulerParams) -> dict[str, str]:
    """Return the labels of eviction metrics: action, PodGroup and its owner."""
    meta = group.metadata
    owner = next(iter(meta.owner_references or ()), OwnerReference())
    return {
        "podgroup": meta.name,
        "namespace": meta.namespace,
        "nodepool": params.pool_title,
        "action": action,
        "owner_group": owner.api_version.rpartition("/")[0],
        "owner_kind": owner.kind,
        "owner_name": owner.name,
        "owner_uid": owner.uid,
    }


def _record_evictions(decision: Decision, metrics: Metrics) -> None:
    """Count the decisions that evict pods of a group; groups that hold resources get their series at zero first."""
    snapshot, name = decision.snapshot, "pod_group_eviction_events_total"
    metrics.prune(name, partial(_exists, snapshot.gangs))
    evicting = [action for action in decision.policy.actions if action != "allocate"]
    holding = {gang for gang in snapshot.pods.gang[_HOLDS[snapshot.pods.status]].tolist() if gang >= 0}
    for gang in sorted(holding):
        for action in evicting:
            metrics.add(name, 0, workload_labels(snapshot.gangs.objects[gang], action, snapshot.params))
    decisions = {(each.evict.gang, each.evict.action, each.evict.evictor): each.group for each in decision.evictions}
    for (_, action, _), group in decisions.items():
        metrics.add(name, 1, workload_labels(group, action, snapshot.params))


def _record_action(action: str, statistics: ActionStatistics, metrics: Metrics) -> None:
    labels = {"action": action}
    metrics.put("action_scheduling_latency_milliseconds", statistics.seconds * 1000, labels)
    metrics.add("podgroups_scheduled_by_action", statistics.started, labels)
    if statistics.tried:
        metrics.add("podgroups_acted_on_by_action", statistics.tried, labels)
    if statistics.budget_exhausted:
        metrics.add("scenario_search_action_budget_exhausted_total", 1, labels)


def queue_labels(name: str, title: str) -> dict[str, str]:
    """Return the labels of a queue; `title` is its display name."""
    return {"queue_name": title, "queue_metadata_name": name, "queue_display_name": title}


_BY_ACTION = {
    ScenarioState.SIMULATED: "scenarios_simulation_by_action",
    ScenarioState.FILTERED: "scenarios_filtered_by_action",
}


def record_budgets(policy: Policy, metrics: Metrics) -> None:
    """Record the configured search budgets, in seconds; 0 is unlimited."""
    budgets = policy.budgets
    for action in (action for action in policy.actions if action in SEARCHING):
        metrics.put("scenario_search_action_budget_configured_seconds", budgets.of_action(action), {"action": action})
    metrics.put("scenario_search_job_budget_configured_seconds", budgets.job)
    for choice in policy.of(VictimChoice):
        labels = {"generator": choice.generator}
        seconds = budgets.of_generator(choice.generator)
        metrics.put("scenario_search_generator_budget_configured_seconds", seconds, labels)


def record_searches(searches: Iterable[SearchStatistics], metrics: Metrics) -> None:
    """Count the victim searches of a cycle."""
    for search in searches:
        labels = {
            "action": search.action,
            "result": search.result,
            "reduced_budget": str(search.reduced_budget).lower(),
        }
        metrics.add("scenario_search_jobs_total", 1, labels)
        for part in search.generators:
            labels = {"action": search.action, "generator": part.generator}
            metrics.observe("scenario_search_duration_seconds", part.seconds, {**labels, "result": part.result})
            for state, count in part.states.items():
                metrics.add("scenario_search_scenarios_total", count, {**labels, "state": state})
                if state in _BY_ACTION:
                    metrics.add(_BY_ACTION[state], count, {"action": search.action})
