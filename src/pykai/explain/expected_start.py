"""When a pending workload starts if nothing else changes, as far as running workloads state their ends."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from pykai.explain.changes import Delete
from pykai.explain.freed_capacity import running
from pykai.explain.remedies import helped
from pykai.explain.source import Decided
from pykai.explain.why import STARTS, VICTIMS, Start, explain
from pykai.model.plan import Category, Key
from pykai.objects import kinds, names
from pykai.objects.units import rfc3339
from pykai.observe.wording import many


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
