"""The judge: verify(snapshot, plan) -> violations. It shares no code with the engine.

It knows the tables of `model` and the objects behind them, and works everything out again in the most obvious way, so
a mistake of the engine cannot hide in code both use. It runs in tests, in the simulator and before each live write.
A live scheduler has it add up only the nodes and queues that the plan puts something into: all that can be wrong with a
plan is there, and an empty plan costs nothing.
Not checked: scores and order (a plan may be valid and unwise), and rules that need more than the tables:
claims, volumes, NUMA zones, ports, affinity to other pods, minimum run times.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

import numpy as np

from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.plan import Evict, Plan
from pykai.model.resources import UNLIMITED, Rows
from pykai.model.snapshot import Snapshot
from pykai.model.status import ACTIVE_USED, Status
from pykai.verify.capacity import (
    devices_as_requested,
    devices_of_one_mode,
    most_used,
    nodes_hold,
    places_allowed,
    queues_hold,
    topology_kept,
)
from pykai.verify.outcome import PlanOutcome, Violation, outcome, with_descendants

__all__ = ["Violation", "verify"]


def verify(
    snapshot: Snapshot, plan: Plan, plugins: Container[str] | None = None, *, everything: bool = True
) -> list[Violation]:
    """The violations of a plan for this snapshot; empty for a valid plan.

    `plugins`: names of the active plugins; rules of inactive ones are skipped. None: all rules apply.
    `everything`: add up all nodes and queues, not only those the plan touches; the answer is the same.
    """
    out = outcome(snapshot, plan, everything)
    rules = [rule for rule, needs in RULES.items() if not needs or plugins is None or needs in plugins]
    return [*out.violations, *(violation for rule in rules for violation in rule(out))]


# --------------------------------------------------------------------------------------------------------------- gangs
def gangs_whole(out: PlanOutcome) -> Iterator[Violation]:
    """A gang that gets pods placed has its minimum afterwards; one that loses pods keeps its minimum or loses all."""
    gangs, pods = out.snapshot.gangs, out.snapshot.pods
    if not out.placements and not out.evicted:
        return
    before, after, now = out.members
    for gang in _gangs_to_check(out):
        tree, came = gangs.tree(gang), [p for p in out.by_gang[gang] if p.pod not in out.evicted]
        yield from _complete(out, gang, (tree, after), {int(pods.podset[p.pod]) for p in came})
        yield from _complete(out, gang, (tree, now), {int(pods.podset[p.pod]) for p in came if not p.waits})
    for gang in sorted({int(pods.gang[row]) for row in out.evicted} - {-1}):
        below = None if _below_minimum(gangs.tree(gang), before) else _below_minimum(gangs.tree(gang), after)
        if below is not None:
            about = f"{gangs.title(gang)} {below.name}".strip()
            yield Violation("a gang goes whole or keeps its minimum", about, _figures(below, after))


def _gangs_to_check(out: PlanOutcome) -> list[int]:
    """Gangs that were given something, without those with a single podset that has its minimum at once."""
    gangs, pods = out.snapshot.gangs, out.snapshot.pods
    rows = np.array([p.pod for p in out.placements], dtype=np.int64)
    short = out.members[2][pods.podset[rows]] < gangs.columns.podset_min[pods.podset[rows]]
    return sorted((set(pods.gang[rows[short]].tolist()) | (gangs.trees.keys() & out.by_gang.keys())) - {-1})


def _below_minimum(tree: SubGroupSet, count: Rows) -> PodSet | SubGroupSet | None:
    """The part of a gang with pods, but less than its minimum; None where it is whole, or has nothing."""
    parts: list[PodSet | SubGroupSet] = [podset for podset in tree.podsets() if count[podset.row]]
    return next((part for part in (*parts, tree) if not _satisfied(part, count)), None) if parts else None


def _complete(out: PlanOutcome, gang: int, holding: tuple[SubGroupSet, Rows], podsets: set[int]) -> Iterator[Violation]:
    """Every sub-group with one of the podsets has its minimum, up to the whole gang."""
    group, count = holding
    for member in with_descendants(group):
        rows = {member.row} if isinstance(member, PodSet) else {podset.row for podset in member.podsets()}
        if rows & podsets and not _satisfied(member, count):
            about = f"{out.snapshot.gangs.title(gang)} {member.name}".strip()
            yield Violation("a gang gets its minimum", about, _figures(member, count))


def _served(group: PodSet | SubGroupSet, count: Rows) -> int:
    if isinstance(group, PodSet):
        return int(count[group.row])
    return sum(_satisfied(child, count) for child in group.children)


def _satisfied(group: PodSet | SubGroupSet, count: Rows) -> bool:
    return _served(group, count) >= (group.min_available if isinstance(group, PodSet) else group.threshold)


def _figures(group: PodSet | SubGroupSet, count: Rows) -> str:
    if isinstance(group, PodSet):
        return f"{count[group.row]} of {group.min_available} pods"
    return f"{_served(group, count)} of {group.threshold} sub-groups have their minimum"


# ----------------------------------------------------------------------------------------------------------- evictions
def evictions_justified(out: PlanOutcome) -> Iterator[Violation]:
    """Only preemptible pods are evicted, for an evictor that gets a place; or the rest of a stale gang."""
    snapshot = out.snapshot
    gangs = snapshot.gangs
    for row, eviction in out.evicted.items():
        about, gang, taker = snapshot.pods.title(row), int(snapshot.pods.gang[row]), eviction.heir or eviction.evictor
        if eviction.action == "backgroundpods":
            node = int(snapshot.pods.node[row])
            if all(placement.node != node for placement in out.placements):
                yield Violation("a background pod leaves for a workload on its node", about, "nothing is placed there")
            continue
        if taker is None:
            if not _stale(out, gang):
                yield Violation("only stale gangs go without an evictor", about, f"action {eviction.action}")
            continue
        if not gangs.preemptible[gang] and not _elastic(out, gang):
            yield Violation("non-preemptible work stays", about, f"evicted by {eviction.action}")
        if taker not in out.placed_gangs:
            yield Violation("an eviction makes a place", about, f"{'/'.join(taker)} gets none")
        yield from _evictable_by(out, (about, gang, eviction))
    yield from _quotas_respected(out)


def _elastic(out: PlanOutcome, gang: int) -> bool:
    """Whether a semi-preemptible gang still has its minimum without its pods that are evicted. One with sub-groups that
    had not before is not judged: which of them are to stay depends on the order of pods."""
    gangs, pods = out.snapshot.gangs, out.snapshot.pods
    if gang not in gangs.semi_preemptible:
        return False
    rows = [row for row in gangs.pods(gang) if pods.status[row] in ACTIVE_USED and pods.podset[row] >= 0]
    left = [row for row in rows if row not in out.evicted]
    before, after = (np.bincount(pods.podset[some], minlength=len(gangs.podset_min)) for some in (rows, left))
    tree = gangs.tree(gang)
    return _satisfied(tree, after) or (gang in gangs.trees and not _satisfied(tree, before))


def _stale(out: PlanOutcome, gang: int) -> bool:
    """Whether the gang has fewer pods than its minimum, since long enough, and none has succeeded."""
    gangs, pods, rows = out.snapshot.gangs, out.snapshot.pods, out.snapshot.gangs.pods(gang)
    podset, status = pods.podset[rows], pods.status[rows]
    grace = gangs.staleness_grace.get(gang, out.snapshot.params.staleness_grace)
    if (status == Status.SUCCEEDED).any() or grace < 0 or (grace > 0 and gang not in gangs.stale_since):
        return False
    used = podset[np.isin(status, [int(s) for s in ACTIVE_USED]) & (podset >= 0)]
    return not _satisfied(gangs.tree(gang), np.bincount(used, minlength=len(gangs.podset_min)))


def _evictable_by(out: PlanOutcome, case: tuple[str, int, Evict]) -> Iterator[Violation]:
    """The victims each action may evict."""
    gangs, (about, gang, eviction) = out.snapshot.gangs, case
    by = out.gang_rows.get(eviction.evictor or ("", ""), -1)
    if by < 0:
        return
    same = gangs.queue[by] == gangs.queue[gang]
    ranks = f"priority {gangs.priority[gang]} in {gangs.queue_name(gang)}"
    ranks += f", evictor {gangs.priority[by]} in {gangs.queue_name(by)}"
    if by == gang:
        yield Violation("no gang evicts itself", about, eviction.action)
    if eviction.action == "preempt" and not (same and gangs.priority[gang] < gangs.priority[by]):
        yield Violation("preemption goes down in a queue", about, ranks)
    if eviction.action == "reclaim" and same:
        yield Violation("reclaim goes between queues", about, ranks)
    if eviction.action == "consolidation" and not eviction.moves_to:
        yield Violation("consolidation moves", about, "it has no new place")


def _quotas_respected(out: PlanOutcome) -> Iterator[Violation]:
    """A queue that never has more than its quota loses nothing to the queues beside it, unless of higher priority,
    where a policy may say so."""
    snapshot = out.snapshot
    gangs, queues = snapshot.gangs, snapshot.queues
    lost = [(row, e) for row, e in out.evicted.items() if e.action == "reclaim" and not e.moves_to]
    most = most_used(out) if lost else np.zeros((3, 0))
    for row, eviction in lost:
        by = out.gang_rows.get(eviction.evictor or ("", ""), -1)
        if by < 0:
            continue
        ours, theirs = gangs.queue[by], gangs.queue[int(snapshot.pods.gang[row])]
        both = zip(_down(out, theirs), _down(out, ours), strict=False)
        level, above = next(((a, b) for a, b in both if a != b), (theirs, ours))
        if queues.priority[above] > queues.priority[level]:
            continue
        quota, limit = queues.deserved[:, level], queues.limit[:, level]
        quota = np.where((limit != UNLIMITED) & ((quota == UNLIMITED) | (limit < quota)), limit, quota)
        if ((quota == UNLIMITED) | (most[:, level] <= quota)).all() and snapshot.pods.of_class(row).request[:3].any():
            figures = f"{queues.names[level]} has {most[:, level].tolist()} and a quota of {quota.tolist()}"
            yield Violation("quotas are safe from reclaim", snapshot.pods.title(row), figures)


def _down(out: PlanOutcome, queue: int) -> tuple[int, ...]:
    """From the root to the queue."""
    return out.snapshot.queues.paths[queue][::-1]


RULES: dict[Callable[[PlanOutcome], Iterator[Violation]], str] = {
    nodes_hold: "",
    devices_as_requested: "",
    devices_of_one_mode: "",
    places_allowed: "predicates",
    topology_kept: "topology",
    queues_hold: "proportion",
    gangs_whole: "",
    evictions_justified: "",
}
"""The rules, and the plugin that sees to each; empty: the engine itself."""
