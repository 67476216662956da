"""What Prometheus is told about a cycle: its plugins, its searches for victims, and the time they may take."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from pykai.cache.cluster import Change, ClusterCache
from pykai.config.scheduler_config import PluginChoice, SchedulerConfig, policy
from pykai.engine.budgets import SearchBudgets
from pykai.model.params import SchedulerParams
from pykai.model.plan import GeneratorStatistics, ScenarioState, SearchResult, SearchStatistics
from pykai.objects import kinds, names
from pykai.observe.metrics import SCHEDULER, WORKLOAD_EVICTIONS, Metrics
from pykai.plugins import registry
from pykai.scheduler.binds import SPARE_STARTS, MeasuredStarts
from pykai.scheduler.cycle_metrics import record
from pykai.scheduler.decision import Decision, make_decision, no_judge
from tests.unit.engine.test_deadlines import NOW, made, running

from . import rig

USUAL = SearchBudgets()
GENERATORS = ("sg-nodelocalgreedy", "sg-multinodegang")


def decision(without: tuple[str, ...] = (), budgets: SearchBudgets = USUAL) -> Decision:
    """A pod of low priority holds the only GPU, another one of high priority asks for it."""
    cache = ClusterCache(SchedulerParams())
    cache.load([made(rig.node("node-0", gpus=1), kinds.Node), made(rig.queue("test"), kinds.Queue)])
    for name, priority in (("train", 50), ("build", 100)):
        cache.load([made({"metadata": {"name": name}, "value": priority}, kinds.PriorityClass)])
        cache.load([made(rig.group(name, priorityClassName=name), kinds.PodGroup)])
    cache.load([running("train", "train"), made(rig.pod("build"), kinds.Pod)])
    chosen = tuple(PluginChoice("", name) for name in registry.BUILT_IN if name not in without)
    config = SchedulerConfig(plugins=chosen, budgets=budgets)
    return make_decision(cache, policy(config, registry.make, ()), no_judge, NOW)


def shown(made_by: Decision) -> list[str]:
    metrics = Metrics(SCHEDULER)
    record(made_by, metrics)
    return metrics.text().decode().splitlines()


def figure(lines: list[str], name: str, **labels: str) -> float | None:
    """The value of a series; None where it does not exist."""
    text = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    head = f"kai_{name}{{{text}}} " if labels else f"kai_{name} "
    return next((float(line.removeprefix(head)) for line in lines if line.startswith(head)), None)


def test_a_search_that_finds_a_victim() -> None:
    found = decision()
    assert len(found.plan.evictions) == 1
    lines = shown(found)
    where = {"action": "preempt", "generator": "NodeLocalGreedy"}
    assert figure(lines, "scenario_search_jobs_total", action="preempt", reduced_budget="false", result="solved") == 1
    assert figure(lines, "scenario_search_duration_seconds_count", **where, result="solved") == 1
    spent = figure(lines, "scenario_search_duration_seconds_sum", **where, result="solved")
    assert spent is not None
    assert 0 < spent < 60
    assert figure(lines, "scenario_search_duration_seconds_bucket", **where, le="32.768", result="solved") == 1
    assert figure(lines, "scenario_search_scenarios_total", **where, state="emitted") == 1
    assert figure(lines, "scenario_search_scenarios_total", **where, state="simulated") == 1
    assert figure(lines, "scenarios_simulation_by_action", action="preempt") == 1
    assert figure(lines, "scenarios_filtered_by_action", action="preempt") == 0
    assert figure(lines, "scenario_search_action_budget_exhausted_total", action="preempt") is None


def test_without_generators_nobody_is_evicted_and_that_is_told() -> None:
    found = decision(without=GENERATORS)
    assert not found.plan.evictions
    lines = shown(found)
    labels = {"action": "preempt", "reduced_budget": "false", "result": "no_generator"}
    assert figure(lines, "scenario_search_jobs_total", **labels) == 1
    assert figure(lines, "scenario_search_generator_budget_configured_seconds", generator="NodeLocalGreedy") is None


def test_a_live_search_keeps_to_its_budget_of_time() -> None:
    found = decision(budgets=SearchBudgets({"preempt": 1e-9}))
    assert not found.plan.evictions
    lines = shown(found)
    labels = {"action": "preempt", "reduced_budget": "true", "result": "not_attempted"}
    assert figure(lines, "scenario_search_jobs_total", **labels) == 1
    assert figure(lines, "scenario_search_action_budget_exhausted_total", action="preempt") == 1


def test_configured_budgets() -> None:
    budgets = SearchBudgets({"default": 60.0, "reclaim": 0.0}, 12.0, generators={"MultiNodeGang": 7.0})
    lines = shown(decision(budgets=budgets))
    name = "scenario_search_action_budget_configured_seconds"
    assert [figure(lines, name, action=action) for action in ("preempt", "reclaim", "allocate")] == [60, 0, None]
    assert figure(lines, "scenario_search_job_budget_configured_seconds") == 12
    name = "scenario_search_generator_budget_configured_seconds"
    assert [figure(lines, name, generator=each) for each in ("NodeLocalGreedy", "MultiNodeGang")] == [30, 7]


def test_scenarios_of_all_searches_add_up() -> None:
    part = GeneratorStatistics(
        "G", SearchResult.DEADLINE_EXHAUSTED, 3.0, {ScenarioState.FILTERED: 5, ScenarioState.SIMULATED: 2}
    )
    search = SearchStatistics("reclaim", SearchResult.DEADLINE_EXHAUSTED, True, (part, replace(part, generator="H")))
    found = decision()
    lines = shown(replace(found, plan=replace(found.plan, searches=(search, search))))
    assert figure(lines, "scenarios_filtered_by_action", action="reclaim") == 20
    assert figure(lines, "scenarios_simulation_by_action", action="reclaim") == 8
    assert figure(lines, "scenario_search_scenarios_total", action="reclaim", generator="H", state="filtered") == 10
    labels = {"action": "reclaim", "generator": "H", "result": "deadline_exhausted"}
    assert figure(lines, "scenario_search_duration_seconds_sum", **labels) == 6.0
    labels = {"action": "reclaim", "reduced_budget": "true", "result": "deadline_exhausted"}
    assert figure(lines, "scenario_search_jobs_total", **labels) == 2


def test_times_of_plugins() -> None:
    lines = shown(decision())
    name = "plugin_scheduling_latency_milliseconds"
    opening = {plugin: figure(lines, name, OnSession="OnSessionOpen", plugin=plugin) for plugin in registry.BUILT_IN}
    assert opening["snapshot"] is None
    assert opening["priority"] == 0
    assert opening["proportion"] is not None
    assert 0 < opening["proportion"] < 10_000
    assert figure(lines, name, OnSession="OnSessionClose", plugin="proportion") == 0


def test_series_of_groups_that_are_gone_are_dropped() -> None:
    found, metrics = decision(), Metrics(SCHEDULER)
    group = found.snapshot.gangs.objects[0].metadata
    for name, uid in ((group.name, group.uid), (group.name, "an older one"), ("gone", "u")):
        labels = {
            "podgroup": name,
            "namespace": group.namespace,
            "uid": uid,
            "nodepool": "default",
            "action": "preempt",
        }
        metrics.add("pod_group_evicted_pods_total", 1.0, labels)
    record(found, metrics)
    lines = [
        line for line in metrics.text().decode().splitlines() if line.startswith("kai_pod_group_evicted_pods_total{")
    ]
    assert len(lines) == 1
    assert f'uid="{group.uid}"' in lines[0]


def test_preemption_that_helps_nobody_is_counted_by_reason() -> None:
    assert not [line for line in shown(decision()) if line.startswith("kai_preemption_failures_total{")]
    lines = shown(decision(without=GENERATORS))
    assert figure(lines, "preemption_failures_total", reason="PreemptNoSolutionFound") == 1
    lines = shown(decision(budgets=SearchBudgets({"preempt": 1e-9})))
    assert figure(lines, "preemption_failures_total", reason="PreemptSearchBudgetSpent") == 1


def test_evictions_of_workloads_are_counted_where_that_is_asked_for() -> None:
    found, metrics = decision(), Metrics((*SCHEDULER, *WORKLOAD_EVICTIONS))
    params = replace(found.snapshot.params, workload_eviction_metrics=True)
    record(replace(found, snapshot=replace(found.snapshot, params=params)), metrics)
    lines = metrics.text().decode().splitlines()
    labels = dict.fromkeys(("owner_group", "owner_kind", "owner_name", "owner_uid"), "")
    labels |= {"podgroup": "train", "namespace": "team", "nodepool": "default"}
    name = "pod_group_eviction_events_total"
    assert figure(lines, name, **labels, action="preempt") == 1
    assert figure(lines, name, **labels, action="reclaim") == 0
    assert figure(lines, name, **{**labels, "podgroup": "build"}, action="preempt") is None, "it holds nothing"


def test_only_the_first_start_of_a_group_is_measured() -> None:
    cache = ClusterCache(SchedulerParams())
    cache.load([made(rig.node("node-0", gpus=8), kinds.Node), made(rig.queue("test"), kinds.Queue)])
    cache.load([made(rig.group(name), kinds.PodGroup) for name in ("new", "grows", "evicted")])
    cache.load([running("grown-0", "grows")])
    cache.load([made(rig.pod(f"{name}-1", gang=name), kinds.Pod) for name in ("new", "grows", "evicted")])
    evicted = cache.of(kinds.PodGroup)["team", "evicted"]
    note = {names.LAST_START_TIMESTAMP: "2026-01-01T00:00:00Z"}
    cache.apply(Change(structs.replace(evicted, metadata=structs.replace(evicted.metadata, annotations=note))))
    found = make_decision(cache, policy(SchedulerConfig(), registry.make, registry.BUILT_IN), no_judge, NOW)
    firsts = {binding.bind.pod[1]: binding.first for binding in found.bindings}
    assert {name for name, first in firsts.items() if first is not None} == {"new-1"}
    assert firsts.keys() == {"new-1", "grows-1", "evicted-1"}


def test_measured_starts_of_groups_that_are_gone_are_forgotten() -> None:
    starts = MeasuredStarts()
    assert [starts.add(uid) for uid in ("a", "b", "a")] == [True, True, False]
    for number in range(SPARE_STARTS):
        starts.add(str(number))
    staying = [kinds.PodGroup(metadata=kinds.ObjectMeta(uid=uid)) for uid in ("a", "new")]
    starts.forget_gone([*staying, kinds.PodGroup(metadata=kinds.ObjectMeta(uid="more"))])
    assert len(starts) == SPARE_STARTS + 2
    starts.add("c")
    starts.add("d")
    starts.add("e")
    starts.forget_gone(staying)
    assert (len(starts), starts.add("a"), starts.add("b")) == (1, False, True)
