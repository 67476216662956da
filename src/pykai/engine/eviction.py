"""The frame of the actions that evict: consolidation, reclaim and preempt run it with a strategy of their own.

Every pending gang gets one search, in the order of service. What failed for one gang holds for every gang of the cycle
that is not easier to place (`FailedSignatures`), so equivalent gangs cost one search.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pykai.engine.allocate import place_gang
from pykai.engine.budgets import ActionBudget
from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place, ready
from pykai.engine.order import ClassWalk, Distinguish, pending_gangs
from pykai.engine.pending import PendingOrder
from pykai.engine.plugin_api import PodGate, VictimFilter
from pykai.engine.queues import QueueBook
from pykai.engine.reasons import POD_ERRORS, GangError, about_pod
from pykai.engine.scenario import Cause, Scenario, commit
from pykai.engine.solver import Search
from pykai.engine.victims import Passes, VictimPool
from pykai.model.statistics import SearchResult, SearchStatistics
from pykai.objects.units import render_duration, rfc3339


@dataclass(frozen=True)
class Eviction:
    """A strategy: what differs between the actions."""

    name: str
    may_evict_for: Callable[[Cycle, int], bool]
    """Whether a pending gang may cause evictions by this action at all."""
    search: Callable[[Cycle, Cause, VictimPool], Search | None]
    messages: Callable[[Cycle, Scenario], Mapping[int, str]]
    """The message of each victim."""
    entitled: Callable[[Cycle, int], bool] = lambda _, __: True
    """Whether the gang may take anything from others as its queue stands; a refusal says nothing about other gangs."""
    may_help: Callable[[Cycle, VictimPool, Sequence[int]], bool] = lambda _, __, ___: True
    """Whether any of these gangs could be the first that the action helps. If none can, none of them needs a turn: what
    the answer depends on does not change before one is helped."""
    keep_all: bool = False
    """Whether every victim must get another place; what failed for one gang is then remembered for all queues."""
    distinguish: Callable[[Cycle, int], Hashable] = lambda _, __: None
    """Equal for gangs with the same potential victims: what failed for one holds only for those."""


@dataclass(frozen=True)
class EvictionContext:
    """What all searches of one run of an action share."""

    pool: VictimPool
    waiting: PendingOrder
    walk: ClassWalk
    budget: ActionBudget


def run(cycle: Cycle, action: Eviction) -> None:
    """Search victims for each pending gang, in the order of service, as long as there is time.

    What earlier evictions of the cycle left over is used before anything else is evicted.
    """
    budget = ActionBudget(cycle.policy.budgets, action.name, cycle.clock)
    pending = pending_gangs(cycle)
    gangs = [g for g in pending if action.may_evict_for(cycle, g) and not _delayed(cycle, g)]
    pool = VictimPool(cycle)
    if not gangs or not action.may_help(cycle, pool, gangs):
        return
    distinguish = partial(action.distinguish, cycle)
    walk = ClassWalk(cycle, gangs, cycle.policy.queue_depth.get(action.name), distinguish)
    context = EvictionContext(pool, PendingOrder(cycle, pending), walk, budget)
    failures = FailedSignatures(cycle, not action.keep_all, distinguish)
    while (gang := walk.pop()) is not None:
        cycle.tried[action.name] += 1
        pods = pods_to_place(cycle.trial, cycle.orders, gang)
        if not action.entitled(cycle, gang) or failures.known_to_fail(gang, pods):
            walk.give_up(gang)
        elif _refused(cycle, gang, pods) or not ready(cycle.trial, gang):
            walk.go_on(gang)
        elif (result := _make_room(cycle, action, (gang, pods), context)).ends_action:
            break
        elif result is not SearchResult.SOLVED and failures.remember(gang, pods):
            walk.give_up(gang)
        else:
            walk.go_on(gang)
    if budget.exhausted:
        cycle.out_of_time.add(action.name)


def _make_room(
    cycle: Cycle, action: Eviction, pending: tuple[int, Sequence[int]], context: EvictionContext
) -> SearchResult:
    """Give the gang its pods: out of what earlier evictions left over, or by evicting others."""
    gang, pods = pending
    request = cycle.queue_request(pods, cycle.snapshot.max_gpu_memory)
    cause = Cause(action.name, gang, pods, request, _book_now(cycle), context.waiting, action.keep_all)
    search = action.search(cycle, cause, context.pool)
    if search is None:
        return SearchResult.UNSOLVED
    if cycle.trial.evicted and place_gang(cycle, gang, pods, wait_only=True):
        context.waiting.served(gang)
        context.waiting.changed((gang,))
        cycle.reasons.forget(gang)
        context.pool.changed((gang,))
        return SearchResult.SOLVED
    scenario, statistics = _solved(search, context.budget)
    cycle.searches.append(statistics)
    if scenario is not None:
        commit(cycle, scenario, action.messages(cycle, scenario))
        context.pool.changed({gang, *scenario.served})
        context.walk.changed(scenario.served)
        context.waiting.changed({gang, *scenario.served})
    return statistics.result


def _solved(search: Search, budget: ActionBudget) -> tuple[Scenario | None, SearchStatistics]:
    """Search as long as the action's time allows."""
    deadline = budget.for_job()
    if deadline is None:
        return None, SearchStatistics(search.cause.action, SearchResult.NOT_ATTEMPTED, reduced_budget=True)
    scenario, statistics = search.solve(deadline)
    if statistics.result.ends_action:
        budget.note()
    return scenario, statistics


def _book_now(cycle: Cycle) -> QueueBook:
    book = cycle.book
    return replace(book, allocated=list(book.allocated), allocated_non_preemptible=list(book.allocated_non_preemptible))


def _delayed(cycle: Cycle, gang: int) -> bool:
    """Whether the gang must wait before it may cause evictions; the reason says so."""
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


Request = tuple[float, ...]
Requests = dict[str, list[Request]]
"""What pods demand of a node -> what each of those that demand it asks for, in order."""


class FailedSignatures:
    """Signatures for which no victims helped: a gang that is not easier to place need not be tried."""

    def __init__(self, cycle: Cycle, per_queue: bool, distinguish: Distinguish) -> None:
        self.cycle = cycle
        self.per_queue = per_queue
        self.distinguish = distinguish
        self._known: dict[object, Requests] = {}
        self._constraints: dict[int, str] = {}

    def known_to_fail(self, gang: int, pods: Sequence[int]) -> bool:
        if not self._known:
            return False
        requests = self._requests(pods)
        known = self._known.get(self._signature(gang, requests))
        return known is not None and not any(_easier(requests[demand], known[demand]) for demand in known)

    def remember(self, gang: int, pods: Sequence[int]) -> bool:
        """Record that no victims helped this gang; whether that holds for others of its class."""
        if not self.cycle.snapshot.params.use_signatures:
            return False
        if self.per_queue or not self._queue_is_full(gang, pods):
            self._note(gang, pods)
        return True

    def _queue_is_full(self, gang: int, pods: Sequence[int]) -> bool:
        """Whether the gang's own queue has no place for it: that says nothing about gangs of other queues."""
        quota, request = self.cycle.quota, self.cycle.queue_request(pods, self.cycle.snapshot.max_gpu_memory)
        return quota is not None and quota.over_capacity(self.cycle, gang, request) is not None

    def _note(self, gang: int, pods: Sequence[int]) -> None:
        requests = self._requests(pods)
        signature = self._signature(gang, requests)
        known = self._known.get(signature)
        if known is None or all(_no_more(requests[demand], known[demand]) for demand in known):
            self._known[signature] = requests

    def _signature(self, gang: int, requests: Requests) -> object:
        """Constraints without amounts: topology, and what the pods demand of nodes."""
        gangs = self.cycle.snapshot.gangs
        queue = gangs.queue[gang] if self.per_queue else -1
        shape = gangs.trees.get(gang)
        return queue, gangs.priority[gang], self.distinguish(gang), repr(shape) if shape else "", frozenset(requests)

    def _demand(self, pod: int) -> str:
        c = self.cycle.trial.of_class(pod)
        known = self._constraints.get(c.row)
        if known is None:
            t = c.template
            sidecars = [container for container in t.init_containers if container.restart_policy == "Always"]
            ports = [port for container in (*t.containers, *sidecars) for port in container.ports or ()]
            shared = (c.gpu_kind, c.devices) if c.shared else ()
            named = (c.namespace, c.labels) if c.labels or t.volumes or t.claims else ()
            known = self._constraints[c.row] = repr(
                (t.node_selector, t.affinity, t.tolerations, t.volumes, t.claims, ports, shared, named)
            )
        return known

    def _requests(self, pods: Sequence[int]) -> Requests:
        found: Requests = {}
        for pod in pods:
            found.setdefault(self._demand(pod), []).append(self._request(pod))
        return {demand: sorted(requests) for demand, requests in found.items()}

    def _request(self, pod: int) -> Request:
        """Amounts, and the memory of a shared device, which they do not tell."""
        c = self.cycle.trial.of_class(pod)
        return (*c.request.tolist(), float(c.memory_mib))


def _within(a: Request, b: Request) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True))


def _no_more(requests: Sequence[Request], known: Sequence[Request]) -> bool:
    return len(requests) <= len(known) and all(_within(a, b) for a, b in zip(requests, known, strict=False))


def _easier(requests: Sequence[Request], known: Sequence[Request]) -> bool:
    if len(known) > len(requests):
        return True
    differing = next(((a, b) for a, b in zip(requests, known, strict=False) if a != b), None)
    return differing is not None and _within(*differing)
