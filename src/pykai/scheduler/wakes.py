"""When time alone can change a decision: the next instant at which a cycle is worth its while without any event."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.model.plan import Plan
from pykai.model.status import Status
from pykai.scheduler.marks import minimum_runtimes

AGAIN = 1.0
"""Seconds until those who were not searched for, for want of time, get another chance."""


def next_wake(cycle: Cycle, plan: Plan) -> float | None:
    """The earliest such instant after this cycle (seconds since the epoch); None where nothing depends on time."""
    instants = list(_staleness(cycle))
    if plan.pending or plan.pipelines:
        instants += [*_delays(cycle), *_protections(cycle), *_stuck(cycle), *_cut_short(cycle)]
    return min((instant for instant in instants if instant > cycle.now), default=None)


def _staleness(cycle: Cycle) -> Iterator[float]:
    """Ends of the grace of gangs that have lost their minimum."""
    gangs, params = cycle.snapshot.gangs, cycle.snapshot.params
    since = {**gangs.stale_since, **cycle.stale_since}
    for row, begun in since.items():
        grace = gangs.staleness_grace.get(row, params.staleness_grace)
        if begun is not None and grace >= 0:
            yield begun + grace


def _delays(cycle: Cycle) -> Iterator[float]:
    """Ends of the delays before which gangs may not evict others."""
    gangs = cycle.snapshot.gangs
    for row, delay in gangs.preemption_delay.items():
        if delay > 0:
            yield max(gangs.created(row), gangs.last_eviction.get(row, 0.0)) + delay


def _protections(cycle: Cycle) -> Iterator[float]:
    """Ends of minimum run times, whichever of them it is that protects a gang."""
    gangs, minimums = cycle.snapshot.gangs, minimum_runtimes(cycle)
    if not minimums:
        return
    for row in range(len(gangs)):
        started = gangs.last_start(row)
        if started is not None:
            yield from (started + minimum for minimum in minimums)


def _stuck(cycle: Cycle) -> Iterator[float]:
    """When pods on their way out will have been so for too long to be waited for."""
    pods, patience = cycle.snapshot.pods, cycle.snapshot.params.stuck_in_releasing
    for row in np.flatnonzero(pods.status == Status.RELEASING).tolist():
        deleted = pods.objects[row].metadata.deletion_timestamp
        if deleted is not None:
            yield deleted.timestamp() + patience


def _cut_short(cycle: Cycle) -> Iterator[float]:
    """When to go on with searches that met the end of their time."""
    if any(search.result.ends_action for search in cycle.searches):
        yield cycle.now + AGAIN
