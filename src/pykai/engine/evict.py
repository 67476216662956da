"""The frame shared by the actions that evict: consolidation, reclaim and preempt (spec/scheduling.md §16.1)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pykai.engine.allocate import place_gang
from pykai.engine.budgets import ActionBudget
from pykai.engine.cycle import Cycle
from pykai.engine.failures import Failures
from pykai.engine.gang import pods_to_place, ready
from pykai.engine.order import pending_gangs
from pykai.engine.plugin_api import PodGate, VictimFilter
from pykai.engine.pool import VictimPool
from pykai.engine.quota import QueueBook
from pykai.engine.reasons import POD_ERRORS, GangError, about_pod
from pykai.engine.scenario import Cause, Scenario, commit
from pykai.engine.search import Search
from pykai.engine.shapes import ShapedWalk
from pykai.engine.victims import Passes
from pykai.engine.waiting import Waiting
from pykai.model.statistics import SearchResult, SearchStatistics
from pykai.objects.units import render_duration, rfc3339


@dataclass(frozen=True)
class Eviction:
    """What differs between the actions."""

    name: str
    may_evict_for: Callable[[Cycle, int], bool]
    """Whether a pending gang may cause evictions by this action at all."""
    search: Callable[[Cycle, Cause, VictimPool], Search | None]
    messages: Callable[[Cycle, Scenario], Mapping[int, str]]
    """What to tell each victim."""
    entitled: Callable[[Cycle, int], bool] = lambda _, __: True
    """Whether the gang may take anything from others as its queue stands; who may not says nothing about the rest."""
    may_help: Callable[[Cycle, VictimPool, Sequence[int]], bool] = lambda _, __, ___: True
    """Whether any of these gangs could be the first that the action helps. If none can, none of them needs a turn: what
    the answer depends on does not change before one is helped."""
    keep_all: bool = False
    """Whether every victim must get another place; what failed for one gang is then remembered for all queues."""
    told_apart: Callable[[Cycle, int], Hashable] = lambda _, __: None
    """Equal for gangs for which the same victims come into question: what failed for one tells only of those."""


@dataclass(frozen=True)
class Means:
    """What all searches of one run of an action share."""

    pool: VictimPool
    waiting: Waiting
    walk: ShapedWalk
    budget: ActionBudget


def run(cycle: Cycle, action: Eviction) -> None:
    """Give each waiting gang, in order, the chance to make room for itself, as long as there is time.

    What earlier evictions of the cycle left over is used before anybody else is evicted.
    """
    budget = ActionBudget(cycle.policy.budgets, action.name, cycle.clock)
    pending = pending_gangs(cycle)
    gangs = [g for g in pending if action.may_evict_for(cycle, g) and not _delayed(cycle, g)]
    pool = VictimPool(cycle)
    if not gangs or not action.may_help(cycle, pool, gangs):
        return
    apart = partial(action.told_apart, cycle)
    walk = ShapedWalk(cycle, gangs, cycle.policy.queue_depth.get(action.name), apart)
    means = Means(pool, Waiting(cycle, pending), walk, budget)
    failures = Failures(cycle, not action.keep_all, apart)
    while (gang := walk.pop()) is not None:
        cycle.tried[action.name] += 1
        pods = pods_to_place(cycle.trial, cycle.orders, gang)
        if not action.entitled(cycle, gang) or failures.hopeless(gang, pods):
            walk.give_up(gang)
        elif _refused(cycle, gang, pods) or not ready(cycle.trial, gang):
            walk.go_on(gang)
        elif (result := _make_room(cycle, action, (gang, pods), means)).ends_action:
            break
        elif result is not SearchResult.SOLVED and failures.remember(gang, pods):
            walk.give_up(gang)
        else:
            walk.go_on(gang)
    if budget.exhausted:
        cycle.out_of_time.add(action.name)


def _make_room(cycle: Cycle, action: Eviction, wish: tuple[int, Sequence[int]], means: Means) -> SearchResult:
    """Give the gang its pods: out of what earlier evictions left over, or by evicting somebody."""
    gang, pods = wish
    request = cycle.queue_request(pods, cycle.snapshot.max_gpu_memory)
    cause = Cause(action.name, gang, pods, request, _book_now(cycle), means.waiting, action.keep_all)
    search = action.search(cycle, cause, means.pool)
    if search is None:
        return SearchResult.UNSOLVED
    if cycle.trial.evicted and place_gang(cycle, gang, pods, wait_only=True):
        means.waiting.served(gang)
        means.waiting.changed((gang,))
        cycle.reasons.forget(gang)
        means.pool.changed((gang,))
        return SearchResult.SOLVED
    scenario, effort = _solved(search, means.budget)
    cycle.searches.append(effort)
    if scenario is not None:
        commit(cycle, scenario, action.messages(cycle, scenario))
        means.pool.changed({gang, *scenario.served})
        means.walk.changed(scenario.served)
        means.waiting.changed({gang, *scenario.served})
    return effort.result


def _solved(search: Search, budget: ActionBudget) -> tuple[Scenario | None, SearchStatistics]:
    """Search as long as the action's time allows."""
    deadline = budget.for_job()
    if deadline is None:
        return None, SearchStatistics(search.cause.action, SearchResult.NOT_ATTEMPTED, reduced_budget=True)
    scenario, effort = search.solve(deadline)
    if effort.result.ends_action:
        budget.note()
    return scenario, effort


def _book_now(cycle: Cycle) -> QueueBook:
    book = cycle.book
    return replace(book, allocated=list(book.allocated), held=list(book.held))


def _delayed(cycle: Cycle, gang: int) -> bool:
    """Whether the gang must wait before it may cause evictions; it is told so."""
    gangs = cycle.snapshot.gangs
    delay = gangs.preemption_delay.get(gang, 0.0)
    if delay <= 0:
        return False
    end = max(gangs.created(gang), gangs.last_eviction.get(gang, 0.0)) + delay
    if cycle.now >= end:
        return False
    message = (
        f"Workload is within its preemption delay window ({render_duration(delay)}) "
        f"and may not trigger evictions before {rfc3339(end)}"
    )
    cycle.reasons.gang(gang, GangError("PreemptionDelayNotElapsed", message))
    return True


def _refused(cycle: Cycle, gang: int, pods: Sequence[int]) -> bool:
    """Whether a gate turns a pod away for a reason no eviction can change."""
    for pod in pods:
        for gate in cycle.policy.of(PodGate):
            refusal = gate.refuse(cycle, pod)
            if refusal is not None and refusal.lasting:
                cycle.reasons.pods[pod] = refusal.message
                message = about_pod(cycle.snapshot.pods.title(pod), refusal.message)
                cycle.reasons.gang(gang, GangError(POD_ERRORS, message))
                return True
    return False


def filtered(cycle: Cycle, cause: Cause, pool: VictimPool) -> Passes | None:
    """Which gangs may be considered as victims at all, remembered per gang for this search; None: all of them."""
    filters = [f for f in cycle.policy.of(VictimFilter) if f.judges(cycle, cause.action)]
    if not filters:
        return (lambda gangs: gangs != cause.gang) if pool.has(cause.gang) else None
    known: dict[int, bool] = {}

    def may_go(gang: int) -> bool:
        if gang not in known:
            known[gang] = gang != cause.gang and all(
                f.may_evict(cycle, cause.action, cause.gang, gang) for f in filters
            )
        return known[gang]

    return lambda gangs: np.fromiter(map(may_go, gangs.tolist()), dtype=bool, count=len(gangs))
