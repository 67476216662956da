"""The only entry point of the engine: decide(snapshot, policy, now) -> Plan. Pure: equal inputs give equal plans.

With a clock, searches for victims are bounded by time (`engine/budgets.py`) and the plan reports how long its steps
took; without one, no time passes during a cycle and the plan depends on its input alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pykai.engine.allocate import allocate
from pykai.engine.background import settle_background
from pykai.engine.budgets import Clock, standing
from pykai.engine.cycle import Cycle
from pykai.engine.order import ClassWalk, pending_gangs
from pykai.engine.plan import plan_of
from pykai.engine.policy import Policy
from pykai.engine.queues import QueueBook
from pykai.engine.stale import evict_stale
from pykai.engine.strategies import consolidate, preempt, reclaim
from pykai.model.plan import ActionStatistics, Key, Plan, Timings
from pykai.model.snapshot import Snapshot

ACTIONS: Mapping[str, Callable[[Cycle], None]] = {
    "allocate": allocate,
    "consolidation": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
    "stalegangeviction": evict_stale,
}


def decide(snapshot: Snapshot, policy: Policy, now: float, clock: Clock = standing, only: Key | None = None) -> Plan:
    """Return what to bind, nominate and evict, and why the other gangs stay pending. `now`: seconds since the epoch.

    `only`: the one gang that gets a turn, to explain it; the requests of the others still count in fair shares.
    """
    began = clock()
    cycle = Cycle(snapshot, policy, now, clock, only)
    opened = clock()
    actions = _run_actions(cycle)
    settle_background(cycle)
    acted = clock()
    plan = plan_of(cycle)
    timings = Timings(opened - began, clock() - acted, cycle.opening.seconds, cycle.closing.seconds)
    return replace(plan, actions=actions, timings=timings)


def _run_actions(cycle: Cycle) -> dict[str, ActionStatistics]:
    """Run the actions of the policy in order."""
    ran: dict[str, ActionStatistics] = {}
    trial, clock = cycle.trial, cycle.clock
    placed: set[int] = set()
    for action in cycle.policy.actions:
        began, moves = clock(), len(trial.moved)
        ACTIONS[action](cycle)
        trial.settle()  # nothing is undone from here on; undo entries would keep references to the trial
        took = clock() - began
        started = {trial.gang[pod] for pod in trial.placed} - placed if len(trial.moved) > moves else set()
        placed |= started
        ran[action] = ActionStatistics(took, cycle.tried[action], len(started), action in cycle.out_of_time)
    return ran


def queue_book(snapshot: Snapshot, policy: Policy, now: float) -> QueueBook:
    """Return the queues as they are before the first action, to explain what each may take."""
    return Cycle(snapshot, policy, now).book


def service_order(snapshot: Snapshot, policy: Policy, now: float) -> list[Key]:
    """Return the pending gangs in the order in which the allocate action would try them if none could be placed."""
    cycle, gangs = Cycle(snapshot, policy, now), snapshot.gangs
    walk = ClassWalk(cycle, pending_gangs(cycle), policy.queue_depth.get("allocate"))
    found = []
    while (gang := walk.pop()) is not None:
        walk.go_on(gang)
        found.append((gangs.namespaces[gang], gangs.names[gang]))
    return found
