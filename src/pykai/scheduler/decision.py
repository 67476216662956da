"""One scheduling cycle: from a copy of the cache to the decision to write. It runs in its own thread.

Invariant: nothing here accesses state that the event loop owns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pykai.cache.cluster import ClusterCache
from pykai.engine.budgets import SEARCHING, Clock, SearchBudgets
from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.engine.reasons import SearchToken
from pykai.kube.clock import steady
from pykai.model.plan import Key, Plan
from pykai.model.snapshot import Snapshot
from pykai.objects.kinds import BindRequest, Pod
from pykai.scheduler import bind_requests
from pykai.scheduler.bind_requests import Binding, PodDeletion, targets_missing_node
from pykai.scheduler.plan_conditions import Conditions, conditions
from pykai.scheduler.process_memory import gc_disabled

Judge = Callable[[Snapshot, Plan], Sequence[object]]
"""The violations of a plan; empty for a valid plan."""
Usage = Mapping[str, tuple[float, float, float]]
"""Queue name -> normalised historical usage of cpu, memory and GPUs."""

Searched = tuple[Key, str]
"""A gang and the action that searched for it."""
_FAILED = {action: f"{action.capitalize()}{SearchToken.NO_SOLUTION}" for action in SEARCHING}


def no_judge(_: Snapshot, __: Plan) -> Sequence[object]:
    """Accept every plan."""
    return ()


class RefusedPlanError(RuntimeError):
    """The judge rejected a plan, so it is not written."""


@dataclass
class StepTimings:
    """Milliseconds of the steps around `decide`; the plan has the timings of `decide` itself.

    `opening` includes the snapshot, `closing` includes the judge.
    """

    snapshot: float = 0.0
    judging: float = 0.0
    opening: float = 0.0
    closing: float = 0.0
    whole: float = 0.0


@dataclass(frozen=True)
class Decision:
    """The decision of a cycle, ready to write."""

    snapshot: Snapshot
    policy: Policy
    plan: Plan
    bindings: Sequence[Binding]
    evictions: Sequence[PodDeletion]
    conditions: Conditions
    pods: Mapping[Key, Pod]
    cache: ClusterCache
    """The objects the decision is based on; they no longer change."""
    missing_node: Sequence[BindRequest]
    """Bind requests of this partition for nodes that do not exist."""
    timings: StepTimings


@gc_disabled()
def make_decision(  # noqa: PLR0913 - what one cycle is made of
    view: ClusterCache,
    policy: Policy,
    judge: Judge,
    now: float,
    usage: Usage | None = None,
    *,
    backoff: Mapping[tuple[Key, str], float] | None = None,
    clock: Clock = steady,
) -> Decision:
    """Decide on the objects of `view` within the time budgets; raise RefusedPlanError if the judge rejects the plan.

    `backoff`: see `Snapshot.search_backoff`. `clock` measures search budgets and step timings.
    """
    watch, timings = _Stopwatch(clock), StepTimings()
    snapshot = view.snapshot(now, usage)
    if backoff:
        snapshot = replace(snapshot, search_backoff=backoff)
    timings.snapshot = watch.read()
    plan = decide(snapshot, policy, now, clock)
    watch.read()
    faults = judge(snapshot, plan)
    timings.judging = watch.read()
    if faults:
        raise RefusedPlanError("; ".join(map(str, faults)))
    decision = Decision(
        snapshot=snapshot,
        policy=policy,
        plan=plan,
        bindings=bind_requests.bindings(snapshot, plan, view),
        evictions=list(bind_requests.evictions(plan, view)),
        conditions=conditions(snapshot, plan),
        pods=view.of(Pod),
        cache=view,
        missing_node=[request for request in view.of(BindRequest).values() if targets_missing_node(request, view)],
        timings=timings,
    )
    timings.opening = timings.snapshot + plan.timings.opening * 1000
    timings.closing = plan.timings.closing * 1000 + timings.judging + watch.read()
    timings.whole = timings.opening + sum(action.seconds for action in plan.actions.values()) * 1000 + timings.closing
    return decision


class _Stopwatch:
    """Measures milliseconds between readings."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock()

    def read(self) -> float:
        """Return the milliseconds since the last reading."""
        before, self._last = self._last, self._clock()
        return (self._last - before) * 1000


class _Failures(NamedTuple):
    """Consecutive searches without solution, and the instant until which the next is held back."""

    searches: int
    until: float


class SearchBackoff:
    """Failed searches by gang and action: after one without solution, the action skips the gang for a while.

    Any change may make the next search succeed, so this is off unless `minFailedSearchBackoff` is configured: it trades
    eviction latency for shorter cycles in a cluster with a backlog. Gangs that are no longer pending are forgotten.
    """

    def __init__(self, budgets: SearchBudgets) -> None:
        self._budgets = budgets
        self._actions = [action for action in SEARCHING if budgets.backoff(action, 1) > 0]
        self._failures: dict[Searched, _Failures] = {}

    def held(self, now: float) -> Mapping[Searched, float]:
        """Return the searches held back at `now`, and until when."""
        return {searched: failed.until for searched, failed in self._failures.items() if failed.until > now}

    def note(self, plan: Plan, now: float) -> float | None:
        """Record the results of a cycle; return when the first held search is due, None without one.

        A search that exceeded its budget, or that the feasibility bound ruled out, neither extends nor ends a backoff.
        """
        if not self._actions:
            return None
        kept: dict[Searched, _Failures] = {}
        for verdict in plan.verdicts:
            for found in verdict.actions:
                searched, action = (verdict.gang, found.action), found.action
                known = self._failures.get(searched)
                if action in self._actions and found.code == _FAILED[action]:
                    count = known.searches + 1 if known else 1
                    known = _Failures(count, now + self._budgets.backoff(action, count))
                if known is not None:
                    kept[searched] = known
        self._failures = kept
        return min((failed.until for failed in kept.values() if failed.until > now), default=None)
