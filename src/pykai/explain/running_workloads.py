"""Running workloads: what they hold, which of them must end so that a gang fits, and when they end.

The estimate of freed capacity counts one resource and ignores all rules; it only orders the changes that the search for
remedies decides on. The expected start of a gang is decided again, as far as running workloads state their ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from pykai.explain.changes import Delete, helped
from pykai.explain.source import Decided
from pykai.explain.why import STARTS, VICTIMS, Start, explain
from pykai.model.plan import Category, Key
from pykai.model.pods import PodClass
from pykai.model.resources import CPU, GPU, Column, Rows
from pykai.model.snapshot import Snapshot
from pykai.model.status import IS_ACTIVE_USED
from pykai.objects import kinds, names
from pykai.objects.units import rfc3339
from pykai.observe.wording import many


class FreedCapacity:
    """Free GPUs by node (CPU if the gang requests no GPUs), and the amounts that running gangs hold."""

    def __init__(self, snapshot: Snapshot, gang: int, needed: Sequence[PodClass]) -> None:
        self._snapshot, self._gang = snapshot, gang
        requests = [max(float(c.request[GPU]), float(c.devices)) for c in needed]
        self._resource = GPU if any(requests) else CPU
        self._request = min(requests if any(requests) else [float(c.request[CPU]) for c in needed]) or 1.0
        self._count = len(needed)

    @cached_property
    def running(self) -> list[tuple[Key, float]]:
        """Return other gangs that hold GPUs (any gangs if none does) and their GPUs, oldest first."""
        found = running(self._snapshot, self._gang)
        return [each for each in found if each[1] > 0] or found

    def most_promising(self) -> list[tuple[Key, float]]:
        """Return the same gangs: first those whose end alone frees enough, smallest first."""
        pods, nodes, all_pods = self._pods, max(len(self._snapshot.nodes), 1), self._snapshot.pods
        pairs, at = np.unique(all_pods.gang[pods] * nodes + all_pods.node[pods], return_inverse=True)
        freed = np.bincount(at, weights=self._held(pods), minlength=len(pairs))
        free = self._free[pairs % nodes]
        gained = self._pods_that_fit(free + freed) - self._pods_that_fit(free)
        by_gang = np.bincount(pairs // nodes, weights=gained, minlength=len(self._snapshot.gangs))
        enough = by_gang[self._rows] + self._pods_that_fit(self._free).sum() >= self._count
        keyed = [(not each, gang[1], at) for at, (each, gang) in enumerate(zip(enough, self.running, strict=True))]
        return [self.running[at] for _, _, at in sorted(keyed)]

    def ends_needed(self) -> int:
        """Return how many gangs, oldest first, must end to free enough."""
        places = np.full(len(self._snapshot.gangs), len(self._rows))
        places[self._rows] = np.arange(len(self._rows))
        pods = self._pods
        place, node, held = places[self._snapshot.pods.gang[pods]], self._snapshot.pods.node[pods], self._held(pods)
        low, high = 1, max(len(self._rows), 1)
        while low < high:
            middle = (low + high) // 2
            over = place < middle
            freed = np.bincount(node[over], weights=held[over], minlength=len(self._free))
            low, high = (
                (low, middle) if self._pods_that_fit(self._free + freed).sum() >= self._count else (middle + 1, high)
            )
        return low

    @cached_property
    def _rows(self) -> Rows:
        rows = self._snapshot.gangs.rows_of([key for key, _ in self.running])
        return np.fromiter(rows.values(), dtype=np.int64)

    @cached_property
    def _pods(self) -> Rows:
        """Return the allocated pods of gangs."""
        pods = self._snapshot.pods
        return np.flatnonzero(_active(self._snapshot) & (pods.gang >= 0))

    def _held(self, pods: Rows) -> Column:
        classes = self._snapshot.pods.classes
        amounts = np.array([float(c.request[self._resource]) for c in classes] or [0.0])
        return np.asarray(amounts[self._snapshot.pods.klass[pods]])

    @cached_property
    def _free(self) -> Column:
        nodes, pods = self._snapshot.nodes, self._snapshot.pods
        active = np.flatnonzero(_active(self._snapshot))
        used = np.bincount(pods.node[active], weights=self._held(active), minlength=len(nodes))
        return np.asarray(np.where(nodes.ready, nodes.allocatable[self._resource] - used, 0.0))

    def _pods_that_fit(self, free: Column) -> Column:
        return np.floor(np.maximum(free, 0.0) / self._request + 1e-6)


def running(snapshot: Snapshot, but: int = -1) -> list[tuple[Key, float]]:
    """Return the gangs, except one, that have allocations, and their GPUs; oldest first."""
    gangs, pods = snapshot.gangs, snapshot.pods
    rows = np.flatnonzero(_active(snapshot) & (pods.gang >= 0) & (pods.gang != but))
    amounts = np.array([float(c.request[GPU]) + c.dra_gpus for c in pods.classes] or [0.0])
    used = np.bincount(pods.gang[rows], weights=amounts[pods.klass[rows]], minlength=len(gangs))
    found = sorted(np.unique(pods.gang[rows]).tolist(), key=lambda row: (gangs.created(row), row))
    return [((gangs.namespaces[row], gangs.names[row]), round(float(used[row]), 4)) for row in found]


def _active(snapshot: Snapshot) -> Rows:
    """Return which pods are placed on a node."""
    pods = snapshot.pods
    return np.asarray((pods.node >= 0) & np.array(IS_ACTIVE_USED)[pods.status])


# ------------------------------------------------------------------------------------------------------ expected start
def expected_start(decided: Decided, gang: Key) -> Start:
    """Return when a gang starts if nothing else changes; unknown unless enough running workloads state their ends."""
    found = explain(decided, gang, with_position=False)
    if found.state == STARTS:
        return Start(rfc3339(decided.now), "it is bound in the next cycle")
    if found.state == VICTIMS:
        pods = decided.snapshot.pods
        keys = [(each.split("/", 1)[0], each.split("/", 1)[1]) for each in found.waits_for]
        ends = [pods.objects[row].metadata.deletion_timestamp for row in pods.rows_of(keys).values()]
        if not ends or None in ends:
            return Start("", "once the pods that it evicts have terminated")
        last = max(at.timestamp() for at in ends)
        return Start(rfc3339(last), "at the latest, when the evicted pods have terminated")
    if found.reason is None or found.reason.category not in (Category.SHORTAGE, Category.QUEUE_POLICY):
        return Start("", "" if found.reason is None else "not until the workload or the cluster changes")
    return _after_ends(decided, gang)


def _after_ends(decided: Decided, gang: Key) -> Start:
    """Return the earliest known end of running workloads after which the gang is placed."""
    ends = known_ends(decided)
    ends.pop(gang, None)
    instants = sorted(set(ends.values()))

    def starts(at: int) -> bool:
        over = tuple(key for key, end in ends.items() if end <= instants[at])
        later = replace(decided, now=max(decided.now, instants[at]))
        return helped(later, gang, [Delete(over)]) is not None

    if not instants or not starts(len(instants) - 1):
        others = running(decided.snapshot, but=decided.snapshot.gangs.rows_of([gang])[gang])
        unknown = len([key for key, _ in others if key not in ends])
        say = "does not say when it ends" if unknown == 1 else "do not say when they end"
        return Start("", f"{many(unknown, 'running workload')} {say}")
    first = bisect_left(range(len(instants) - 1), True, key=starts)
    return Start(rfc3339(instants[first]), "if no other workload arrives or ends before")


def known_ends(decided: Decided) -> dict[Key, float]:
    """Return the ends of running gangs whose pods all have activeDeadlineSeconds or the run time annotation."""
    ends: dict[Key, float] = {}
    for key, pod in decided.cache.of(kinds.Pod).items():
        seconds = pod.spec.active_deadline_seconds
        text = (pod.metadata.annotations or {}).get(names.RUN_SECONDS, "")
        stated = float(text) if seconds is None and text.replace(".", "", 1).isdigit() else seconds
        if stated is not None and pod.status.start_time is not None:
            ends[key] = pod.status.start_time.timestamp() + stated
    if not ends:
        return {}
    snapshot = decided.snapshot
    found: dict[Key, float] = {}
    rows = snapshot.gangs.rows_of([key for key, _ in running(snapshot)])
    for gang, row in rows.items():
        keys = [snapshot.pods.objects[pod].metadata.key for pod in snapshot.gangs.pods(row)]
        if all(key in ends for key in keys):
            found[gang] = max(ends[key] for key in keys)
    return found
