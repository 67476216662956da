"""Clocks, beside a second reading of the rules: minimum run times, preemption delays, stale gangs, gates, nominated
nodes, the order that /get-job-order tells, and which past counts for time-based fair share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pykai.config.usage_db import Window, WindowType, last_reset, parse_cron
from pykai.engine.cycle import Cycle
from pykai.engine.decide import decide
from pykai.engine.plugin_api import RunTimes
from pykai.engine.policy import Policy
from pykai.kernels.fairshare import UsageRecord, normalised_use
from pykai.model.plan import Plan
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from pykai.objects.units import rfc3339
from pykai.plugins.minruntime import MinRuntime, MinRuntimes
from pykai.plugins.registry import BUILT_IN, make_all
from pykai.scheduler.debug_server import job_order
from tests.properties.contended import contended, deep_forests, lookalikes, rivals
from tests.properties.small_world import NOW, OURS, STEP, Cluster, Fields, carried_out
from tests.properties.twin import past
from tests.properties.twin.decide import Decisions, lodging
from tests.properties.twin.runtimes import Arguments, Runtimes
from tests.properties.twin.timed import Notes, TimedCycle, turns

EVERYTHING = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
RECLAIM = ("allocate", "reclaim", "stalegangeviction")
PREEMPT = ("allocate", "preempt", "stalegangeviction")
CYCLES = 2
INSTANTS = {
    names.LAST_START_TIMESTAMP: (0, 10, 30, 60, 119, 120, None),
    names.LAST_EVICTION_TIMESTAMP: (0, 60, 2000, None, None, None),
    names.STALE_TIMESTAMP: (0, 30, 60, 120, None, None),
}
"""How many seconds ago what is noted on gangs may have been."""


def examples(times: float) -> settings:
    """So many times as many examples as other properties get, in every profile."""
    return settings(max_examples=round(times * settings().max_examples))


# ------------------------------------------------------------------------------------------------------------- clusters
Timed = tuple[Cluster, Arguments]


@st.composite
def timed(draw: st.DrawFn, clusters: st.SearchStrategy[Cluster]) -> Timed:
    """A cluster that has a past, and the arguments of the plugin."""
    found = draw(clusters)
    for queue in found.queues:
        for key in ("preemptMinRuntime", "reclaimMinRuntime"):
            queue["spec"].update(_maybe(draw, key, ["", "", "0s", "30s", "2m", "1h"]))
    for group in found.groups:
        _date(draw, group)
    for pod in found.pods:
        if pod["metadata"]["namespace"] == OURS:
            _vary(draw, pod, [node["metadata"]["name"] for node in found.nodes])
    minimums = [draw(st.sampled_from(["", "", "0s", "40s", "x", "-1m", "1d"])) for _ in range(2)]
    return found, Arguments(minimums[0], minimums[1], draw(st.sampled_from(["", "lca", "queue", "other"])))


def _maybe(draw: st.DrawFn, key: str, values: list[str]) -> Fields:
    value = draw(st.sampled_from(values))
    return {key: value} if value else {}


def _date(draw: st.DrawFn, group: Fields) -> None:
    notes = group["metadata"].setdefault("annotations", {})
    for key, ages in INSTANTS.items():
        if (age := draw(st.sampled_from(ages))) is not None:
            notes[key] = rfc3339(NOW - age)
    delays = ["", "", "", "0s", "10s", "60s", "1000s", "1001s", "2000s"]
    group["spec"].update(_maybe(draw, "preemptionDelay", delays))
    group["spec"].update(_maybe(draw, "stalenessGracePeriod", ["", "", "0s", "0s", "1m", "-1s", "1h"]))


def _vary(draw: st.DrawFn, pod: Fields, nodes: list[str]) -> None:
    """Some pods have ended, some that wait are gated, some have a nominated node."""
    shares = any(key.startswith(names.GPU_GROUP_LABEL) for key in pod["metadata"]["labels"])
    match draw(st.integers(0, 10)):
        case 0 if not shares:
            pod["status"], pod["spec"]["nodeName"] = {"phase": "Succeeded"}, nodes[0]
        case 1 if not pod["spec"].get("nodeName"):
            pod["spec"]["schedulingGates"] = [{"name": "later"}]
        case 2 | 3:
            pod["status"] = {**pod["status"], "nominatedNodeName": draw(st.sampled_from([*nodes, "gone"]))}


# ------------------------------------------------------------------------------------------------------------ decisions
def policy_of(arguments: Arguments, actions: tuple[str, ...]) -> Policy:
    plugins = [(name, arguments.plugin() if name == "minruntime" else {}) for name in BUILT_IN]
    return replace(Policy(make_all(plugins)), actions=actions)


def snapshot_of(cluster: Cluster, now: float) -> Snapshot:
    snapshot = cluster.snapshot(now)
    return replace(snapshot, params=replace(snapshot.params, use_signatures=False))


def read(plan: Plan) -> tuple[Decisions, Notes]:
    decisions = Decisions(
        binds={bind.pod[1]: lodging(bind.node, bind.gpu_groups) for bind in plan.binds},
        promises={promise.pod[1]: lodging(promise.node, promise.gpu_groups) for promise in plan.nominations},
        evictions={eviction.pod[1]: eviction.moves_to for eviction in plan.evictions},
    )
    marks = {
        what: {m.gang[1]: m.at for m in plan.timestamps if m.what == what} for what in {m.what for m in plan.timestamps}
    }
    started, evicted = (set(marks.get(what, ())) for what in ("last-start", "last-eviction"))
    return decisions, Notes(marks.get("stale", {}), started, evicted)


def written(plan: Plan, snapshot: Snapshot, policy: Policy, started: set[str]) -> set[str]:
    """Starts that are to be written: none where no run time matters, else also of those that show none."""
    if not any(plugin.run_times(snapshot) for plugin in policy.of(RunTimes)):
        return set()
    gangs = snapshot.gangs
    late = {name for row, name in enumerate(gangs.names) if gangs.last_start(row) is None}
    return started | {each.gang[1] for each in plan.timestamps if each.what == "last-start" and each.gang[1] in late}


def told_to_wait(plan: Plan) -> set[str]:
    return {v.gang[1] for v in plan.verdicts if "PreemptionDelayNotElapsed" in [reason.code for reason in v.reasons]}


def compare(case: Timed, actions: tuple[str, ...]) -> None:
    """Cycle by cycle, each of them carried out."""
    cluster, arguments = case
    policy = policy_of(arguments, actions)
    for number in range(CYCLES):
        now = NOW + number * STEP
        snapshot = snapshot_of(cluster, now)
        plan = decide(snapshot, policy, now)
        twin = TimedCycle(cluster, snapshot, Runtimes(cluster.queues, arguments), now)
        decisions, notes = twin.run(actions)
        assert read(plan) == (decisions, replace(notes, started=written(plan, snapshot, policy, notes.started)))
        pods = [*(bind.pod for bind in plan.binds), *(nomination.pod for nomination in plan.nominations)]
        served = {pod[1].split("-")[0] for pod in pods}
        assert told_to_wait(plan) | served == twin.delayed | served
        cluster = carried_out(cluster, plan)


@given(timed(contended()), st.sampled_from([EVERYTHING, RECLAIM, PREEMPT, ("stalegangeviction",)]))
@examples(0.4)
def test_the_twin_reads_the_clock_the_same_way(case: Timed, actions: tuple[str, ...]) -> None:
    compare(case, actions)


@given(timed(rivals()), st.sampled_from([EVERYTHING, RECLAIM, PREEMPT]))
@examples(0.4)
def test_the_twin_protects_the_same(case: Timed, actions: tuple[str, ...]) -> None:
    compare(case, actions)


def plugin_of(policy: Policy) -> MinRuntime:
    return next(plugin for plugin in policy.plugins if isinstance(plugin, MinRuntime))


@given(timed(st.builds(lambda queues: Cluster(queues=queues), deep_forests())))
def test_the_twin_finds_the_same_minimums(case: Timed) -> None:
    """For every queue against every other."""
    cluster, arguments = case
    queues, policy = cluster.snapshot().queues, plugin_of(policy_of(arguments, ())).policy
    found = MinRuntimes(queues.parent, queues.preempt_min_runtime, queues.reclaim_min_runtime, policy)
    twin = Runtimes(cluster.queues, arguments)
    for (ours, evictor), (theirs, victim) in product(enumerate(queues.names), repeat=2):
        assert found.reclaim_min_runtime(ours, theirs) == twin.minimum("reclaim", evictor, victim)
        assert found.preempt_min_runtime(theirs) == twin.minimum("preempt", evictor, victim)


@given(timed(contended()), st.sampled_from(["preempt", "reclaim"]))
@examples(0.5)
def test_the_twin_finds_the_same_protected(case: Timed, action: str) -> None:
    """Every gang against every other, whether it would be a victim or not."""
    cluster, arguments = case
    policy = policy_of(arguments, (action,))
    cycle = Cycle(snapshot_of(cluster, NOW), policy, NOW)
    twin = TimedCycle(cluster, cycle.snapshot, Runtimes(cluster.queues, arguments), NOW)
    gangs = list(twin.world.members)
    plugin = plugin_of(policy)
    for pair in product(gangs, gangs):
        assert plugin.may_evict(cycle, action, *pair) == twin.may_evict(action, *pair)


@given(timed(st.one_of(contended(), lookalikes())), st.sampled_from([None, 1, 2]))
@examples(0.3)
def test_the_twin_tells_the_same_order(case: Timed, depth: int | None) -> None:
    cluster, arguments = case
    depths = {} if depth is None else {"allocate": depth}
    policy = replace(policy_of(arguments, ("allocate",)), queue_depth=depths)
    snapshot = cluster.snapshot()
    assert job_order(snapshot, policy, NOW) == turns(snapshot, depth)


# ------------------------------------------------------------------------------------------------------------- past use
def _cron_field(lowest: int, highest: int) -> st.SearchStrategy[str]:
    number = st.integers(lowest, highest)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    steps = st.sampled_from(["", "", "", "/1", "/2", "/5"])
    return st.lists(st.tuples(st.just("*") | number.map(str) | span, steps).map("".join), min_size=1, max_size=2).map(
        ",".join
    )


crons = st.tuples(*(_cron_field(*limits) for limits in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6)))).map(" ".join)


@given(crons, st.integers(0, 500_000), st.sampled_from([0.0, 0.5, 59.0]))
@examples(3.0)
def test_the_twin_knows_the_last_firing(text: str, minutes: int, seconds: float) -> None:
    now = NOW - 60 * minutes + seconds
    assert parse_cron(text).last_before(now) == past.fired(text, now)


@given(st.integers(0, 10**6), st.integers(1, 10**5), st.integers(-100, 10**6))
def test_the_twin_knows_where_a_window_began(start: int, size: int, now: int) -> None:
    assume((now - start) / size < 1000)
    assert last_reset(Window(WindowType.TUMBLING, float(size), float(start)), now) == past.tumbled(start, size, now)


held = st.tuples(st.integers(1, 9), st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)))


@given(st.lists(held), st.integers(0, 30), st.sampled_from([None, 1.0, 5.0, 100.0]))
def test_the_twin_counts_the_same_use(
    steps: list[tuple[int, Mapping[str, int]]], window: int, half_life: float | None
) -> None:
    """Samples in equal steps, as a database has them."""
    now = float(len(steps))
    samples = [(float(at), float(capacity), queues) for at, (capacity, queues) in enumerate(steps)]
    records = [
        UsageRecord(at, (0.0, 1.0, capacity), {queue: (0.0, 0.0, float(gpus)) for queue, gpus in queues.items()})
        for at, capacity, queues in samples
    ]
    found = normalised_use(records, now - window, now, half_life)
    expected = past.use(samples, now - window, now, half_life)
    assert set(found) <= set(expected)
    assert all(math.isclose(found.get(queue, (0, 0, 0))[2], x, abs_tol=1e-9) for queue, x in expected.items())
