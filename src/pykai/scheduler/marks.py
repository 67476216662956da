"""Which instants are noted on PodGroups. When a gang started is only written where somebody may ask for it.

Minimum run times alone ask for it. Without any of them the note would be one more write for every gang, and where each
pod is a gang of its own, for every pod. Gangs that run when a minimum is configured are noted then, and it counts from
then on.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykai.engine.cycle import Cycle
from pykai.engine.gang import has_allocated
from pykai.model.plan import GangMark, Plan
from pykai.plugins.minruntime import MinRuntime

_START = "last-start"


def marks_to_write(cycle: Cycle, plan: Plan) -> tuple[GangMark, ...]:
    """The marks of a plan that are worth a write, and those that were not when the gang started and are now."""
    if minimum_runtimes(cycle):
        return (*plan.marks, *_late_starts(cycle))
    return tuple(mark for mark in plan.marks if mark.what != _START)


def minimum_runtimes(cycle: Cycle) -> set[float]:
    """Every minimum run time (seconds) that protects a gang in some case: of queues, and the plugin's own."""
    queues = cycle.snapshot.queues
    minimums = {value for value in [*queues.preempt_min_runtime, *queues.reclaim_min_runtime] if value}
    for plugin in cycle.policy.plugins:
        if isinstance(plugin, MinRuntime):
            minimums |= {value for value in (plugin.policy.preempt, plugin.policy.reclaim) if value > 0}
    return minimums


def _late_starts(cycle: Cycle) -> Iterator[GangMark]:
    gangs = cycle.snapshot.gangs
    for row in range(len(gangs)):
        if row not in cycle.started and has_allocated(cycle.trial, row) and gangs.last_start(row) is None:
            yield GangMark((gangs.namespaces[row], gangs.names[row]), _START, cycle.now)
