"""One cycle, from a copy of the cache to everything that is to be written. It runs in a thread of its own.

Nothing here touches what the event loop owns. Also how the process treats memory while it decides cycle after cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pykai.cache.cluster import ClusterCache
from pykai.engine.budgets import Clock
from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.kube.clock import steady
from pykai.model.plan import Key, Plan
from pykai.model.snapshot import Snapshot
from pykai.objects.kinds import BindRequest, Pod
from pykai.scheduler import bind_requests
from pykai.scheduler.bind_requests import Binding, PodDeletion, targets_missing_node
from pykai.scheduler.process_memory import gc_disabled
from pykai.scheduler.status import Conditions, conditions

Judge = Callable[[Snapshot, Plan], Sequence[object]]
"""The violations of a plan; empty for a valid plan."""
Usage = Mapping[str, tuple[float, float, float]]
"""Queue name -> normalised use over time of cpu, memory and GPUs."""


def no_judge(_: Snapshot, __: Plan) -> Sequence[object]:
    """Every plan is right."""
    return ()


class RefusedPlanError(RuntimeError):
    """The judge found fault with a plan: it is not carried out."""


@dataclass
class StepTimings:
    """Milliseconds of the steps around `decide`, whose own ones the plan has. The snapshot is a part of the opening,
    the judge one of the closing."""

    snapshot: float = 0.0
    judging: float = 0.0
    opening: float = 0.0
    closing: float = 0.0
    whole: float = 0.0


@dataclass(frozen=True)
class Decision:
    """The decision of a cycle, ready to be written."""

    snapshot: Snapshot
    policy: Policy
    plan: Plan
    bindings: Sequence[Binding]
    evictions: Sequence[PodDeletion]
    conditions: Conditions
    pods: Mapping[Key, Pod]
    cache: ClusterCache
    """The objects that were decided on; nothing changes them any more."""
    missing_node: Sequence[BindRequest]
    """Requests of this partition for nodes that are not there."""
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
    """Decide on the objects of `view` within the budgets of time; RefusedPlanError if the judge does not agree.

    `backoff`: see `Snapshot.search_backoff`. `clock`: what bounds searches and times the steps.
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
    """Milliseconds since the last reading."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock()

    def read(self) -> float:
        """The time since the last reading."""
        before, self._last = self._last, self._clock()
        return (self._last - before) * 1000
