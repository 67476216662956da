"""One scheduling cycle: from a copy of the cache to the decision to write. It runs in its own thread.

Invariant: nothing here accesses state that the event loop owns.
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
"""Queue name -> normalised historical usage of cpu, memory and GPUs."""


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
