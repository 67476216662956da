"""What a cycle tells Prometheus about its searches for victims and the time they may take."""

from __future__ import annotations

from collections.abc import Iterable

from pykai.engine.budgets import SEARCHING
from pykai.engine.plugin_api import VictimChoice
from pykai.engine.policy import Policy
from pykai.model.statistics import GeneratorStatistics, ScenarioState, SearchStatistics
from pykai.observe.metrics import Metrics

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
