"""One cycle, from a copy of the cache to everything that is to be written. It runs in a thread of its own.

The steps are those of `engine.decide`, taken one by one because each is timed and because what is told to users and to
Prometheus is read off the cycle. Nothing here touches what the event loop owns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pykai.cache.cluster import ClusterCache
from pykai.engine.budgets import Clock
from pykai.engine.cycle import Cycle
from pykai.engine.decide import ACTIONS
from pykai.engine.efforts import SearchEffort
from pykai.engine.plugin_times import PluginTimes
from pykai.engine.policy import Policy
from pykai.engine.quota import Triple
from pykai.engine.record import plan_of
from pykai.kube.clock import steady
from pykai.model.plan import GangMark, Plan
from pykai.model.snapshot import Snapshot
from pykai.objects.kinds import BindRequest, Pod
from pykai.scheduler import collector, orders
from pykai.scheduler.homeless import is_homeless
from pykai.scheduler.marks import marks_to_write
from pykai.scheduler.notices import Notices, notices
from pykai.scheduler.orders import Binding, Eviction
from pykai.scheduler.wakes import next_wake

Key = tuple[str, str]
Judge = Callable[[Snapshot, Plan], Sequence[object]]
"""What is wrong with a plan, one item each that can be shown; nothing where it is right."""
Usage = Mapping[str, tuple[float, float, float]]
"""Queue name -> normalised use over time of cpu, memory and GPUs."""


def no_judge(_: Snapshot, __: Plan) -> Sequence[object]:
    """Every plan is right."""
    return ()


class RefusedPlanError(RuntimeError):
    """The judge found fault with a plan: it is not carried out."""


@dataclass
class Timings:
    """Milliseconds; of plugins by their configured name. The snapshot is a part of the opening, the judge one of the
    closing."""

    snapshot: float = 0.0
    opening: float = 0.0
    plugins_opening: Mapping[str, float] = field(default_factory=dict)
    plugins_closing: Mapping[str, float] = field(default_factory=dict)
    actions: dict[str, float] = field(default_factory=dict)
    judging: float = 0.0
    closing: float = 0.0
    whole: float = 0.0


@dataclass(frozen=True)
class QueueFigures:
    """A queue in this cycle: cpu (milli), memory (bytes), gpu (devices)."""

    name: str
    display_name: str
    fair_share: Triple
    usage: Triple


@dataclass(frozen=True)
class Decision:
    """What a cycle decided, ready to be written. `wake`: when time alone may change it; None never."""

    snapshot: Snapshot
    policy: Policy
    plan: Plan
    bindings: Sequence[Binding]
    evictions: Sequence[Eviction]
    notices: Notices
    marks: tuple[GangMark, ...]
    pods: Mapping[Key, Pod]
    homeless: Sequence[BindRequest]
    """Requests of this partition for nodes that are not there."""
    queues: Sequence[QueueFigures]
    started_by: Mapping[str, int]
    """Action -> PodGroups it gave a place."""
    efforts: Mapping[tuple[str, str], int]
    """(What, action) -> how many, as in `Cycle.efforts`."""
    searches: Sequence[SearchEffort]
    wake: float | None
    timings: Timings


@collector.at_rest()
def make_decision(  # noqa: PLR0913 - what one cycle is made of
    view: ClusterCache,
    policy: Policy,
    judge: Judge,
    now: float,
    usage: Usage | None = None,
    *,
    clock: Clock = time.perf_counter,
) -> Decision:
    """Decide on the objects of `view` within the budgets of time; RefusedPlanError if the judge does not agree.

    `clock`: what the steps are timed by.
    """
    watch, timings = _Stopwatch(clock), Timings()
    snapshot = view.snapshot(now, usage)
    timings.snapshot = watch.read()
    cycle = Cycle(snapshot, policy, now, steady)
    timings.opening = timings.snapshot + watch.read()
    started_by = dict(_act(cycle, timings, watch))
    plan = plan_of(cycle)
    planning = watch.read()
    faults = judge(snapshot, plan)
    timings.judging = watch.read()
    if faults:
        raise RefusedPlanError("; ".join(map(str, faults)))
    decision = Decision(
        snapshot=snapshot,
        policy=policy,
        plan=plan,
        bindings=orders.bindings(snapshot, plan, view),
        evictions=list(orders.evictions(plan, view)),
        notices=notices(cycle, plan),
        marks=marks_to_write(cycle, plan),
        pods=view.of(Pod),
        homeless=[request for request in view.of(BindRequest).values() if is_homeless(request, view)],
        queues=list(_queues(cycle)),
        started_by=started_by,
        efforts=cycle.efforts,
        searches=cycle.searches,
        wake=next_wake(cycle, plan),
        timings=timings,
    )
    timings.plugins_opening, timings.plugins_closing = _milliseconds(cycle.opening), _milliseconds(cycle.closing)
    timings.closing = planning + timings.judging + watch.read()
    timings.whole = timings.opening + sum(timings.actions.values()) + timings.closing
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


def _milliseconds(times: PluginTimes) -> dict[str, float]:
    return {plugin: seconds * 1000 for plugin, seconds in times.seconds.items()}


def _act(cycle: Cycle, timings: Timings, watch: _Stopwatch) -> Iterator[tuple[str, int]]:
    """Run the actions; for each, how many gangs got a place by it."""
    served: set[int] = set()
    for action in cycle.policy.actions:
        ACTIONS[action](cycle)
        timings.actions[action] = watch.read()
        gangs = {cycle.trial.gang[pod] for pod in cycle.trial.placed} - served
        served |= gangs
        yield action, len(gangs)


def _queues(cycle: Cycle) -> Iterator[QueueFigures]:
    queues = cycle.snapshot.queues
    for row, name in enumerate(queues.names):
        cpu, memory, gpus = queues.usage[:, row].tolist()
        yield QueueFigures(name, queues.titles[row], cycle.book.fair[row], (cpu, memory, gpus))
