"""Stale gang eviction: the remaining pods of a gang below its minimum are evicted after a grace period."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.gang import active_in_order
from pykai.engine.scenario import Why
from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.resources import Mask


def evict_stale(cycle: Cycle) -> None:
    """Record since when gangs are stale, and evict the remaining pods of those whose grace period is over."""
    gangs = cycle.snapshot.gangs
    broken = set(broken_gangs(cycle))
    for gang in sorted(set(gangs.stale_since) - broken):
        cycle.stale_since[gang] = None
    for gang in sorted(broken):
        since = gangs.stale_since.get(gang)
        if since is None or since > cycle.now:  # a time in the future was written by a clock that is ahead
            since = cycle.stale_since[gang] = cycle.now
        grace = gangs.staleness_grace.get(gang, cycle.snapshot.params.staleness_grace)
        if grace >= 0 and cycle.now >= since + grace:
            _evict(cycle, gang)


def broken_gangs(cycle: Cycle) -> list[int]:
    """Return the gangs that run with fewer pods than they need and have no succeeded pod."""
    trial, gangs = cycle.trial, cycle.snapshot.gangs
    active, minimum = np.asarray(trial.active_used, dtype=np.int64), gangs.columns.podset_min

    def some(mask: Mask) -> Mask:
        """Return the gangs with a podset in the mask."""
        found = np.zeros(len(gangs), dtype=bool)
        found[gangs.podset_gang[mask]] = True
        return found

    broken = some(active < minimum) & some(active > 0) & ~some(np.asarray(trial.succeeded, dtype=np.int64) > 0)
    trees = gangs.trees
    return [g for g in map(int, np.flatnonzero(broken)) if g not in trees or not _enough(trees[g], trial.active_used)]


def _enough(member: PodSet | SubGroupSet, active: Sequence[int]) -> bool:
    """Whether at least the minimum of pods or sub-groups of the member runs."""
    if isinstance(member, PodSet):
        return active[member.row] >= member.min_available
    return sum(_enough(child, active) for child in member.children) >= member.threshold


def _evict(cycle: Cycle, gang: int) -> None:
    trial = cycle.trial
    short = next(p for p in cycle.snapshot.gangs.tree(gang).podsets() if trial.active_used[p.row] < p.min_available)
    pods = active_in_order(trial, cycle.orders, gang)
    for pod in pods:
        trial.suppose_evicted(pod)
        cycle.resources.release(pod)
    trial.decide({pod: Why("stalegangeviction", None, _message(cycle, pod, short), len(pods)) for pod in pods})


def _message(cycle: Cycle, pod: int, short: PodSet) -> str:
    where = "" if short.name == "default" else f" in sub-group {short.name}"
    title = cycle.snapshot.pods.title(pod)
    return (
        f"Workload doesn't meet the minimum required number of pods ({short.min_available}){where}, "
        f"evicting remaining pod: {title}"
    )
