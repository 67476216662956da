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
from pykai.engine.order import ClassWalk, Distinguish, EquivalenceClasses, pending_gangs
from pykai.engine.pending import PendingOrder
from pykai.engine.plugin_api import PodGate, VictimBlockers, VictimColumn, VictimFilter, VictimProtection
from pykai.engine.reasons import POD_ERRORS, PREEMPTION_DELAY, GangError, Outcome, SearchToken, about_pod
from pykai.engine.scenario import Cause, Scenario, commit
from pykai.engine.solver import Search
from pykai.engine.victims import Passes, VictimPool
from pykai.model.plan import SearchResult, SearchStatistics
from pykai.model.resources import Mask, Rows
from pykai.objects.units import render_duration, rfc3339

_NO_TURN = "the action considers only the first workloads of a queue (queueDepthPerAction), and this is not among them"
_SERVED = Outcome("", "")
"""What is found for a gang that got pods; there is nothing to say about it."""
_REFUSED = "no eviction can change what speaks against the pod"
_UNKNOWN = -1
_NOBODY = np.zeros(0, dtype=np.int8)
_OUT_OF_TIME = "the time that the action has for searches was spent before this workload's turn was over; it goes on"


@dataclass(frozen=True)
class Eviction:
    """A strategy: what differs between the actions."""

    name: str
    may_evict_for: Callable[[Cycle, int], bool]
    """Whether a pending gang may cause evictions by this action at all."""
    search: Callable[[Cycle, Cause, VictimPool], Search | None]
    messages: Callable[[Cycle, Scenario], Mapping[int, str]]
    """Return the message of each victim."""
    unentitled: Callable[[Cycle, int], Outcome | None] = lambda _, __: None
    """Return why the gang may take nothing from others as its queue stands, which says nothing about other gangs; None:
    it may."""
    may_help: Callable[[Cycle, VictimPool, Sequence[int]], bool] = lambda _, __, ___: True
    """Whether any of these gangs could be the first that the action helps. If none can, none of them needs a turn: what
    the answer depends on does not change before one is helped."""
    may_help_entitled: bool = False
    """Whether `may_help` asks nothing but whether one of them is not `unentitled`."""
    keep_all: bool = False
    """Whether every victim must get another place; what failed for one gang is then remembered for all queues."""
    distinguish: Callable[[Cycle, int], Hashable] = lambda _, __: None
    """Return a key that is equal for gangs with the same potential victims; a failed search holds for equal keys."""
    barred: tuple[SearchToken, str] = (SearchToken.NO_VICTIMS, "the workload may not cause evictions")
    """The token and message for a gang that `may_evict_for` excludes."""
    no_victims: tuple[SearchToken, str] = (SearchToken.NO_VICTIMS, "no workload may be evicted for it")
    """The token and message if there are no victims, or all of them together are not enough."""
    ruled_out: Callable[[Cycle, int], tuple[SearchToken, str]] | None = None
    """Return the token and message of a gang for which a bound rules out all victims; None: `no_victims`."""

    def outcome(self, token: SearchToken, message: str) -> Outcome:
        """Return an outcome of the action, its token prefixed with the action's name."""
        return Outcome(self.name.capitalize() + token, message)


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
    pending, reasons = pending_gangs(cycle), cycle.reasons
    gangs = _may_cause_evictions(cycle, action, pending)
    pool = VictimPool(cycle)
    reasons.passed_over[action.name] = action.outcome(*action.no_victims)
    if not gangs or not action.may_help(cycle, pool, gangs):
        _note_unhelped(cycle, action, gangs)
        return
    reasons.passed_over[action.name] = action.outcome(SearchToken.NOT_ATTEMPTED, _NO_TURN)
    distinguish = partial(action.distinguish, cycle)
    walk = ClassWalk(cycle, gangs, cycle.policy.queue_depth.get(action.name), distinguish)
    context = EvictionContext(pool, PendingOrder(cycle, pending), walk, budget)
    failures = FailedSignatures(cycle, not action.keep_all, distinguish)
    while (gang := walk.pop()) is not None:
        cycle.tried[action.name] += 1
        pods = pods_to_place(cycle.trial, cycle.orders, gang)
        known = action.unentitled(cycle, gang) or failures.known_to_fail(gang, pods)
        if known is not None:
            reasons.found(action.name, (gang, *walk.give_up(gang)), known)
        elif _refused(cycle, gang, pods) or not ready(cycle.trial, gang):
            reasons.found(action.name, (gang,), action.outcome(SearchToken.NOT_ATTEMPTED, _REFUSED))
            walk.go_on(gang)
        elif (result := _make_room(cycle, action, (gang, pods), context)).ends_action:
            reasons.passed_over[action.name] = action.outcome(SearchToken.BUDGET_SPENT, _OUT_OF_TIME)
            break
        elif result is SearchResult.SOLVED:
            reasons.found(action.name, (gang,), _SERVED)
            walk.go_on(gang)
        else:
            outcome = _unsolved(cycle, action, gang, result)
            reasons.found(action.name, (gang,), outcome)
            if failures.remember(gang, pods, outcome):
                reasons.found(action.name, walk.give_up(gang), outcome)
            else:
                walk.go_on(gang)
    if budget.exhausted:
        cycle.out_of_time.add(action.name)


def _may_cause_evictions(cycle: Cycle, action: Eviction, pending: Sequence[int]) -> list[int]:
    """The gangs that may cause evictions by the action now; why the others may not is noted."""
    gangs = [g for g in pending if action.may_evict_for(cycle, g)]
    if cycle.snapshot.gangs.preemption_delay:
        gangs = [g for g in gangs if not _delayed(cycle, g)]
    _note_barred(cycle, action, set(pending).difference(gangs))
    if cycle.snapshot.search_backoff:
        gangs = [g for g in gangs if not _backs_off(cycle, action, g)]
    return gangs


def _make_room(
    cycle: Cycle, action: Eviction, pending: tuple[int, Sequence[int]], context: EvictionContext
) -> SearchResult:
    """Give the gang its pods: out of what earlier evictions left over, or by evicting others."""
    gang, pods = pending
    request = cycle.queue_request(pods, cycle.snapshot.max_gpu_memory)
    cause = Cause(action.name, gang, pods, request, cycle.book.copied(), context.waiting, action.keep_all)
    result = _search(cycle, action, cause, context)
    if result is not SearchResult.SOLVED and not result.ends_action and _preferences(cycle, action.name):
        result = _search(cycle, action, replace(cause, relaxed=True), context)
    return result


def _preferences(cycle: Cycle, action: str) -> bool:
    """Whether some victim filter or validator of the action is only a preference."""
    filters = cycle.policy.of(VictimFilter)
    return any(getattr(each, "preference", False) and each.judges(cycle, action) for each in filters)


def _search(cycle: Cycle, action: Eviction, cause: Cause, context: EvictionContext) -> SearchResult:
    """Look for victims, as the cause heeds preferences among them or not; what is found is decided."""
    gang, pods = cause.gang, cause.pods
    search = action.search(cycle, cause, context.pool)
    if search is None:
        return SearchResult.UNSOLVED
    if cycle.trial.evicted and pods and search.room.holds and place_gang(cycle, gang, pods, wait_only=True):
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


def _unsolved(cycle: Cycle, action: Eviction, gang: int, result: SearchResult) -> Outcome:
    """What a search found that found no victims."""
    blocking = [name for each in cycle.policy.of(VictimBlockers) for name in each.blocking(cycle, gang)]
    if blocking:
        return action.outcome(SearchToken.PROTECTED, f"no victims: {', '.join(blocking)} allows no more disruptions")
    protected = np.flatnonzero(cycle.state(_judged).get(gang, _NOBODY) == 0).tolist()
    if protected:
        filters = cycle.policy.of(VictimProtection)
        ends = [f.protected_until(cycle, action.name, gang, victim) for f in filters for victim in protected]
        until = min((end for end in ends if end is not None), default=None)
        when = "" if until is None else f", the first of them until {rfc3339(until)}"
        return action.outcome(SearchToken.PROTECTED, f"{len(protected)} workload(s) are protected from eviction{when}")
    if result is SearchResult.UNSOLVED:
        return action.outcome(*(action.no_victims if action.ruled_out is None else action.ruled_out(cycle, gang)))
    if result is SearchResult.VALIDATOR_REJECTED:
        return action.outcome(
            SearchToken.NO_SOLUTION, "evictions would make enough room, but none of them is justified"
        )
    return action.outcome(SearchToken.NO_SOLUTION, "no evictions that are allowed make enough room")


def _judged(_: Cycle) -> dict[int, np.ndarray]:
    """Gang -> by potential victim whether it may be evicted for the gang, or _UNKNOWN, of the gang's last search."""
    return {}


def _note_unhelped(cycle: Cycle, action: Eviction, gangs: Sequence[int]) -> None:
    """Note why an action that helps only entitled gangs helps none: equivalent ones for the same reason."""
    if action.may_help_entitled:
        for same in EquivalenceClasses.of(cycle).alike(cycle, gangs):
            if (why := action.unentitled(cycle, same[0])) is not None:
                cycle.reasons.found(action.name, same, why)


def _note_barred(cycle: Cycle, action: Eviction, gangs: set[int]) -> None:
    """Note why gangs cannot cause evictions by the action at all."""
    delayed = {gang for gang in gangs if _delay_ends(cycle, gang) is not None}
    cycle.reasons.found(action.name, gangs - delayed, action.outcome(*action.barred))
    for gang in delayed:
        message = f"the workload may not cause evictions before {rfc3339(_delay_ends(cycle, gang) or 0.0)}"
        cycle.reasons.found(action.name, (gang,), action.outcome(SearchToken.DELAYED, message))


def _delayed(cycle: Cycle, gang: int) -> bool:
    """Whether the gang must wait before it may cause evictions; the reason says so."""
    end = _delay_ends(cycle, gang)
    if end is None:
        return False
    delay = cycle.snapshot.gangs.preemption_delay[gang]
    message = (
        f"Workload is within its preemption delay window ({render_duration(delay)}) "
        f"and may not trigger evictions before {rfc3339(end)}"
    )
    cycle.reasons.gang(gang, GangError(PREEMPTION_DELAY, message))
    return True


def _backs_off(cycle: Cycle, action: Eviction, gang: int) -> bool:
    """Whether earlier searches for the gang found nothing and the next one is not due yet; the reason says so."""
    gangs = cycle.snapshot.gangs
    key = (gangs.namespaces[gang], gangs.names[gang])
    until = cycle.snapshot.search_backoff.get((key, action.name), cycle.now)
    if until <= cycle.now:
        return False
    message = f"the last search found no evictions that help, the next one is made at {rfc3339(until)}"
    cycle.reasons.found(action.name, (gang,), action.outcome(SearchToken.BACKOFF, message))
    return True


def _delay_ends(cycle: Cycle, gang: int) -> float | None:
    """Until when the gang may not cause evictions; None: it may."""
    gangs = cycle.snapshot.gangs
    delay = gangs.preemption_delay.get(gang, 0.0)
    end = max(gangs.created(gang), gangs.last_eviction.get(gang, 0.0)) + delay if delay > 0 else cycle.now
    return end if cycle.now < end else None


def _refused(cycle: Cycle, gang: int, pods: Sequence[int]) -> bool:
    """Whether a gate refuses a pod for a reason that no eviction can change."""
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
    filters = [f for f in cycle.policy.of(VictimFilter) if cause.heeds(f) and f.judges(cycle, cause.action)]
    if not filters:
        return (lambda gangs: gangs != cause.gang) if pool.has(cause.gang) else None
    judges = [_judge(each, cycle, cause) for each in filters]
    may_go = cycle.state(_judged)[cause.gang] = np.full(len(cycle.snapshot.gangs), _UNKNOWN, dtype=np.int8)

    def passes(gangs: Rows) -> Mask:
        unknown = gangs[may_go[gangs] == _UNKNOWN]
        if len(unknown):
            may_go[unknown] = True
            for judge in judges:
                may_go[unknown] &= judge(unknown)
        return np.asarray((may_go[gangs] > 0) & (gangs != cause.gang))

    return passes


def _judge(victim_filter: VictimFilter, cycle: Cycle, cause: Cause) -> Passes:
    """What a filter says of gangs: of all at once if it can, or one by one."""
    if isinstance(victim_filter, VictimColumn):
        return partial(victim_filter.may_evict_column, cycle, cause.action, cause.gang)
    may_evict = partial(victim_filter.may_evict, cycle, cause.action, cause.gang)
    return lambda gangs: np.array([may_evict(each) for each in gangs.tolist()], dtype=bool)


Request = tuple[float, ...]
Requests = dict[str, list[Request]]
"""What pods demand of a node -> what each of those that demand it asks for, in order."""


class FailedSignatures:
    """Signatures for which no victims helped, with what was asked for: a gang that asks for as much of everything, or
    more, need not be tried."""

    def __init__(self, cycle: Cycle, per_queue: bool, distinguish: Distinguish) -> None:
        self.cycle = cycle
        self.per_queue = per_queue
        self.distinguish = distinguish
        self._known: dict[object, list[tuple[Requests, Outcome]]] = {}
        """Without those that ask for no less than another one."""
        self._constraints: dict[int, str] = {}

    def known_to_fail(self, gang: int, pods: Sequence[int]) -> Outcome | None:
        """Return the outcome of a failed search for a gang that requested no more; None: there was none."""
        if not self._known:
            return None
        requests = self._requests(pods)
        known = self._known.get(self._signature(gang, requests), ())
        return next((outcome for failed, outcome in known if _no_more(failed, requests)), None)

    def remember(self, gang: int, pods: Sequence[int], outcome: Outcome) -> bool:
        """Record that no victims helped this gang; whether that holds for others of its class."""
        if not self.cycle.snapshot.params.use_signatures:
            return False
        if self.per_queue or not self._queue_is_full(gang, pods):
            self._note(gang, pods, outcome)
        return True

    def _queue_is_full(self, gang: int, pods: Sequence[int]) -> bool:
        """Whether the gang's own queue has no place for it: that says nothing about gangs of other queues."""
        quota, request = self.cycle.quota, self.cycle.queue_request(pods, self.cycle.snapshot.max_gpu_memory)
        return quota is not None and quota.over_capacity(self.cycle, gang, request) is not None

    def _note(self, gang: int, pods: Sequence[int], outcome: Outcome) -> None:
        requests = self._requests(pods)
        known = self._known.setdefault(self._signature(gang, requests), [])
        known[:] = [each for each in known if not _no_more(requests, each[0])]
        known.append((requests, outcome))

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
            shared = (c.gpu_kind, c.devices, c.compute_mode) if c.shared else ()
            named = (c.namespace, c.labels) if c.labels or t.spread or t.volumes or t.claims else ()
            known = self._constraints[c.row] = repr(
                (t.node_selector, t.affinity, t.tolerations, t.spread, t.volumes, c.claims, ports, shared, named)
            )
        return known

    def _requests(self, pods: Sequence[int]) -> Requests:
        found: Requests = {}
        for pod in pods:
            found.setdefault(self._demand(pod), []).append(self._request(pod))
        return {demand: sorted(requests) for demand, requests in found.items()}

    def _request(self, pod: int) -> Request:
        """Amounts, and the memory of a shared device, which they do not include."""
        c = self.cycle.trial.of_class(pod)
        return (*c.request.tolist(), float(c.memory_mib))


def _no_more(asked: Requests, others: Requests) -> bool:
    """Whether for each demand as many pods ask, or fewer, and each in order for no more of anything."""
    return all(
        len(requests) <= len(others[demand])
        and all(x <= y for a, b in zip(requests, others[demand], strict=False) for x, y in zip(a, b, strict=True))
        for demand, requests in asked.items()
    )
