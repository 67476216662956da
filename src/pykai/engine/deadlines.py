"""The next instant at which time alone may change a decision, and the start times that such instants count from.

The start of a gang is written only if a plugin needs it (`RunTimes`): otherwise it would cost one more write per gang,
and where each pod is a gang of its own, per pod. A gang that runs without a start time gets the present one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.gang import has_allocated
from pykai.engine.plugin_api import RunTimes
from pykai.model.status import Status

RETRY_SECONDS = 1.0
"""Pause before searches that ran out of time are continued."""


def run_times(cycle: Cycle) -> set[float]:
    """Return the seconds after a gang's start at which a decision about it may change."""
    plugins = cycle.policy.of(RunTimes)
    return {seconds for plugin in plugins for seconds in plugin.run_times(cycle.snapshot)}


def start_times_to_write(cycle: Cycle) -> dict[int, float]:
    """Return the gangs whose start is to be written -> when they started."""
    if not run_times(cycle):
        return {}
    gangs, trial = cycle.snapshot.gangs, cycle.trial
    started = {gang: at for gang, at in cycle.started.items() if has_allocated(trial, gang)}
    for gang in range(len(gangs)):
        if gang not in cycle.started and has_allocated(trial, gang) and gangs.last_start(gang) is None:
            started[gang] = cycle.now
    return started


def next_deadline(cycle: Cycle, waiting: bool) -> float | None:
    """Return the earliest instant after this cycle (seconds since the epoch) at which time alone may change a decision;
    None: no decision depends on time. `waiting`: whether pods are pending or pipelined."""
    instants = list(_staleness(cycle))
    if waiting:
        instants += [*_preemption_delays(cycle), *_protections(cycle), *_stuck_pods(cycle), *_unfinished(cycle)]
        instants += cycle.snapshot.search_backoff.values()
    return min((instant for instant in instants if instant > cycle.now), default=None)


def _staleness(cycle: Cycle) -> Iterator[float]:
    """Yield the ends of the grace periods of stale gangs."""
    gangs, params = cycle.snapshot.gangs, cycle.snapshot.params
    for gang, since in {**gangs.stale_since, **cycle.stale_since}.items():
        grace = gangs.staleness_grace.get(gang, params.staleness_grace)
        if since is not None and grace >= 0:
            yield since + grace


def _preemption_delays(cycle: Cycle) -> Iterator[float]:
    """Yield the ends of the delays before which gangs may not cause evictions."""
    gangs = cycle.snapshot.gangs
    for gang, delay in gangs.preemption_delay.items():
        if delay > 0:
            yield max(gangs.created(gang), gangs.last_eviction.get(gang, 0.0)) + delay


def _protections(cycle: Cycle) -> Iterator[float]:
    """Yield the ends of all minimum run times of each gang, whichever of them applies to it."""
    spans = run_times(cycle)
    for gang in range(len(cycle.snapshot.gangs)) if spans else ():
        started = cycle.snapshot.gangs.last_start(gang)
        if started is not None:
            yield from (started + seconds for seconds in spans)


def _stuck_pods(cycle: Cycle) -> Iterator[float]:
    """Yield when terminating pods will count as stuck in releasing."""
    pods, threshold = cycle.snapshot.pods, cycle.snapshot.params.stuck_in_releasing
    for pod in np.flatnonzero(pods.status == Status.RELEASING).tolist():
        deleted = pods.objects[pod].metadata.deletion_timestamp
        if deleted is not None:
            yield deleted.timestamp() + threshold


def _unfinished(cycle: Cycle) -> Iterator[float]:
    """Yield when to continue searches that ran out of time."""
    if any(search.result.ends_action for search in cycle.searches):
        yield cycle.now + RETRY_SECONDS
