"""The cycle on one screen: decide(snapshot, policy, now) -> Plan. Pure: the same input always gives the same plan.

Only who gives a clock, too, has searches for victims bounded by time (`engine/budgets.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from pykai.engine.allocate import allocate
from pykai.engine.budgets import Clock, standing
from pykai.engine.consolidate import consolidate
from pykai.engine.cycle import Cycle
from pykai.engine.policy import Policy
from pykai.engine.preempt import preempt
from pykai.engine.reclaim import reclaim
from pykai.engine.record import plan_of
from pykai.engine.stale import evict_stale
from pykai.model.plan import Plan
from pykai.model.snapshot import Snapshot

ACTIONS: dict[str, Callable[[Cycle], None]] = {
    "allocate": allocate,
    "consolidation": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
    "stalegangeviction": evict_stale,
}


def decide(snapshot: Snapshot, policy: Policy, now: float, clock: Clock = standing) -> Plan:
    """What to bind, evict and wait for, and why the rest waits. `now`: seconds since the epoch."""
    cycle = Cycle(snapshot, policy, now, clock)
    for action in policy.actions:
        ACTIONS[action](cycle)
    return plan_of(cycle)
