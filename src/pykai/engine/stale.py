"""Stale gang eviction: a gang that has lost its minimum gives back the rest after a grace period (spec §16.10)."""

from __future__ import annotations

from pykai.engine.cycle import Cycle
from pykai.engine.gang import active_pods
from pykai.engine.scenario import Why
from pykai.model.gangs import PodSet


def evict_stale(cycle: Cycle) -> None:
    trial, gangs = cycle.trial, cycle.snapshot.gangs
    for gang in range(len(gangs)):
        short = _short_podset(cycle, gang)
        if short is None:
            if gang in gangs.stale_since:
                cycle.stale_since[gang] = None
            continue
        since = gangs.stale_since.get(gang)
        if since is None:
            since = cycle.stale_since[gang] = cycle.now
        grace = gangs.staleness_grace.get(gang, cycle.snapshot.params.staleness_grace)
        if grace < 0 or cycle.now < since + grace:
            continue
        pods = active_pods(trial, gang)
        for pod in pods:
            trial.suppose_evicted(pod)
            cycle.tell_evicted(pod)
        trial.decide({pod: Why("stalegangeviction", None, _message(cycle, pod, short), len(pods)) for pod in pods})


def _short_podset(cycle: Cycle, gang: int) -> PodSet | None:
    """The first podset with fewer pods than its minimum, of a gang that runs and of which nothing has succeeded."""
    trial, gangs = cycle.trial, cycle.snapshot.gangs
    podsets = [gangs.first_podset[gang]] if gang not in gangs.trees else [p.row for p in gangs.trees[gang].podsets()]
    if any(trial.succeeded[row] for row in podsets) or not any(trial.active_used[row] for row in podsets):
        return None
    if all(trial.active_used[row] >= gangs.podset_min[row] for row in podsets):
        return None
    return next(p for p in gangs.tree(gang).podsets() if trial.active_used[p.row] < p.min_available)


def _message(cycle: Cycle, pod: int, short: PodSet) -> str:
    where = "" if short.name == "default" else f" in sub-group {short.name}"
    title = cycle.snapshot.pods.title(pod)
    return (
        f"Workload doesn't meet the minimum required number of pods ({short.min_available}){where}, "
        f"evicting remaining pod: {title}"
    )
