"""The preempt action: within a queue, higher priority may take the place of lower (spec/scheduling.md §16.8)."""

from __future__ import annotations

from collections.abc import Sequence

from pykai.engine import evict
from pykai.engine.capacity import over_held_quota
from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place
from pykai.engine.line import VictimLine
from pykai.engine.pool import VictimPool
from pykai.engine.scenario import Cause, Scenario
from pykai.engine.search import Search


def preempt(cycle: Cycle) -> None:
    evict.run(cycle, PREEMPT)


def _may(cycle: Cycle, gang: int) -> bool:
    """Whether the gang stays within the quota of its queues where it could not be evicted again."""
    gangs = cycle.snapshot.gangs
    if cycle.quota is None or gangs.preemptible[gang]:
        return True
    request = cycle.queue_request(pods_to_place(cycle.trial, cycle.orders, gang), cycle.snapshot.max_gpu_memory)
    return over_held_quota(cycle.book, gangs.queue[gang], request) is None


def _may_help(cycle: Cycle, pool: VictimPool, gangs: Sequence[int]) -> bool:
    table = cycle.snapshot.gangs
    return any(table.priority[gang] > pool.lowest_priority(table.queue[gang]) for gang in gangs)


def _search(cycle: Cycle, cause: Cause, pool: VictimPool) -> Search | None:
    gangs = cycle.snapshot.gangs
    queue, priority = gangs.queue[cause.gang], gangs.priority[cause.gang]
    if pool.lowest_priority(queue) >= priority:
        return None
    passes = evict.filtered(cycle, cause, pool)
    below = pool.leaf(queue)
    leaves = {queue: below[pool.priority[below] < priority]}
    return Search(cycle, cause, VictimLine(pool, leaves, passes, cause.request))


def _messages(cycle: Cycle, scenario: Scenario) -> dict[int, str]:
    title, evictor = cycle.snapshot.pods.title, cycle.snapshot.gangs.title(scenario.cause.gang)
    return {pod: f"Pod {title(pod)} was preempted by higher priority workload {evictor}" for pod in scenario.victims}


PREEMPT = evict.Eviction("preempt", lambda _, __: True, _search, _messages, _may, _may_help)
