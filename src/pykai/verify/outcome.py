"""A plan applied to its snapshot, as rows: placements, evictions, and use before and after.

Part of the judge (`verify/judge.py`): read from the tables and the plan in the most obvious way, with nothing of the
engine. A decision that names an unknown object or contradicts another is a violation, and ignored by the other checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.plan import Bind, Evict, Key, Nomination, Plan
from pykai.model.resources import Mask, Rows
from pykai.model.snapshot import Snapshot
from pykai.model.status import IS_ACTIVE_ALLOCATED, IS_ACTIVE_USED, IS_ALLOCATED, Status


@dataclass(frozen=True)
class Violation:
    """A rule a plan breaks: which one, for which object, and the figures."""

    rule: str
    about: str
    figures: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.about}: {self.figures}"


@dataclass(frozen=True)
class PodPlacement:
    """A pod row and the node row it is given."""

    pod: int
    node: int
    decision: Bind | Nomination

    @property
    def waits(self) -> bool:
        """Whether the pod is pipelined: other pods have to leave first."""
        return isinstance(self.decision, Nomination)

    @property
    def groups(self) -> tuple[str, ...]:
        return self.decision.gpu_groups


@dataclass(frozen=True, eq=False)
class PlanOutcome:
    """The snapshot after the plan. Masks and counts are over pod rows and podset rows."""

    snapshot: Snapshot
    placements: list[PodPlacement]
    evicted: dict[int, Evict]
    gang_rows: Mapping[Key, int]
    """Rows of the gangs the plan names."""
    everything: bool = True
    """Whether all nodes and queues are added up, or those the plan puts something into."""
    violations: list[Violation] = field(default_factory=list)
    """Violations found while reading the plan."""

    @cached_property
    def on_changed_nodes(self) -> Mask:
        """Pods on nodes that are given something; all where everything counts."""
        nodes = np.full(len(self.snapshot.nodes) + 1, self.everything)
        nodes[[p.node for p in self.placements]] = True
        return nodes[self.snapshot.pods.node]

    @cached_property
    def in_changed_queues(self) -> Mask:
        """Pods of queues in a branch that the plan changes; all pods if `everything`."""
        pods, gangs, paths = self.snapshot.pods, self.snapshot.gangs, self.snapshot.queues.paths
        changed = [*(p.pod for p in self.placements), *self.evicted]
        concerned = {*(int(pods.gang[row]) for row in changed), *self.gang_rows.values()} - {-1}
        roots = {paths[gangs.queue[row]][-1] for row in concerned if gangs.queue[row] >= 0}
        leaves = np.array([*(self.everything or path[-1] in roots for path in paths), False])
        return np.asarray(leaves[np.append(gangs.columns.queue, -1)[pods.gang]])

    @cached_property
    def present(self) -> Mask:
        """Pods that hold something of a node now, those on their way out included."""
        pods = self.snapshot.pods
        return np.asarray(np.array(IS_ACTIVE_USED)[pods.status] & (pods.node >= 0))

    @cached_property
    def staying(self) -> Mask:
        """Pods that still hold it once everything that leaves has left; a stuck one is not counted on to leave."""
        return np.asarray(self.present & (self.snapshot.pods.status != Status.RELEASING) & ~self.leaving)

    @cached_property
    def leaving(self) -> Mask:
        """Pods the plan evicts."""
        mask = np.zeros(len(self.snapshot.pods), dtype=bool)
        mask[list(self.evicted)] = True
        return mask

    @cached_property
    def allocated(self) -> Mask:
        """Pods that count against their queue now."""
        return np.array(IS_ALLOCATED)[self.snapshot.pods.status]

    @cached_property
    def by_gang(self) -> dict[int, list[PodPlacement]]:
        """Gang -> its placements."""
        found: dict[int, list[PodPlacement]] = {}
        for placement in self.placements:
            found.setdefault(int(self.snapshot.pods.gang[placement.pod]), []).append(placement)
        return found

    @cached_property
    def placed_gangs(self) -> set[Key]:
        """The gangs with placements."""
        gangs = self.snapshot.gangs
        metas = [gangs.objects[gang].metadata for gang in self.by_gang if gang >= 0]
        return {meta.key for meta in metas}

    @cached_property
    def members(self) -> tuple[Rows, Rows, Rows]:
        """Pods with a place by podset: before the plan, after it, and after it without pipelined pods.

        Counted are gangs that are given or lose something; all gangs if `everything`.
        """
        pods, gangs = self.snapshot.pods, self.snapshot.gangs
        size, counted = len(gangs.podset_min), np.arange(len(pods))
        if not self.everything:
            touched = {*self.by_gang, *(int(pods.gang[row]) for row in self.evicted)} - {-1}
            counted = np.array([row for gang in sorted(touched) for row in gangs.pods(gang)], dtype=np.int64)
        active = counted[np.array(IS_ACTIVE_ALLOCATED)[pods.status[counted]]]

        def count(rows: Rows) -> Rows:
            return np.bincount(rows[rows >= 0], minlength=size)

        before, kept = count(pods.podset[active]), count(pods.podset[active[~self.leaving[active]]])
        placed = pods.podset[[p.pod for p in self.placements]]
        now = pods.podset[[p.pod for p in self.placements if not p.waits]]
        return before, kept + count(placed), kept + count(now)


def with_descendants(group: PodSet | SubGroupSet) -> Iterator[PodSet | SubGroupSet]:
    """Yield a group and all groups below it, parents first."""
    yield group
    for child in group.children if isinstance(group, SubGroupSet) else ():
        yield from with_descendants(child)


def outcome(snapshot: Snapshot, plan: Plan, everything: bool = True) -> PlanOutcome:
    """The plan as rows, with the violations found while reading it."""
    reader = _Reader(snapshot, plan)
    for eviction in plan.evictions:
        reader.evict(eviction)
    for bind in plan.binds:
        reader.place(bind)
    for pipeline in plan.nominations:
        reader.place(pipeline)
    reader.names(plan)
    reader.moves()
    placed, named = list(reader.placed.values()), reader.gangs
    return PlanOutcome(snapshot, placed, reader.evicted, named, everything, reader.violations)


def _named_pods(plan: Plan) -> Iterator[Key]:
    yield from (decision.pod for decisions in (plan.binds, plan.nominations, plan.evictions) for decision in decisions)
    yield from (pod for verdict in plan.verdicts for pod in verdict.pods)


def _named_gangs(plan: Plan) -> Iterator[Key]:
    yield from (mark.gang for mark in plan.timestamps)
    yield from (verdict.gang for verdict in plan.verdicts)
    yield from (key for eviction in plan.evictions for key in (eviction.evictor, eviction.heir) if key is not None)


class _Reader:
    """Turns names into rows, one decision after the other."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self.snapshot = snapshot
        losers = (eviction.gang for eviction in plan.evictions)
        self.pods: Mapping[Key, int] = snapshot.pods.rows_of(_named_pods(plan))
        self.gangs: Mapping[Key, int] = snapshot.gangs.rows_of({*_named_gangs(plan), *losers})
        self.placed: dict[int, PodPlacement] = {}
        self.evicted: dict[int, Evict] = {}
        self.violations: list[Violation] = []

    def _wrong(self, rule: str, about: Key | str, figures: str) -> None:
        self.violations.append(Violation(rule, about if isinstance(about, str) else "/".join(about), figures))

    def evict(self, eviction: Evict) -> None:
        row = self.pods.get(eviction.pod)
        if row is None:
            self._wrong("unknown name", eviction.pod, "an eviction of a pod that does not exist")
            return
        if row in self.evicted:
            self._wrong("one decision per pod", eviction.pod, "evicted twice")
        status = Status(self.snapshot.pods.status[row])
        if not IS_ALLOCATED[status]:
            self._wrong("only what runs is evicted", eviction.pod, f"its status is {status.title}")
        if self.gangs.get(eviction.gang, -2) != self.snapshot.pods.gang[row]:
            self._wrong("unknown name", eviction.pod, f"it is not a pod of the gang {'/'.join(eviction.gang)}")
        self.evicted[row] = eviction

    def place(self, decision: Bind | Nomination) -> None:
        row, node = self.pods.get(decision.pod), self.snapshot.nodes.rows.get(decision.node)
        if row is None or node is None:
            self._wrong("unknown name", decision.pod, f"the pod or its node {decision.node!r} does not exist")
            return
        if row in self.placed:
            self._wrong("one decision per pod", decision.pod, "placed twice")
        if row in self.evicted and isinstance(decision, Bind):
            self._wrong("one decision per pod", decision.pod, "both bound and evicted")
        status = Status(self.snapshot.pods.status[row])
        if status is not Status.PENDING and row not in self.evicted:
            self._wrong("only pending pods are placed", decision.pod, f"its status is {status.title}")
        if self.snapshot.pods.podset[row] < 0:
            self._wrong("only pending pods are placed", decision.pod, "it belongs to no sub-group of a gang of ours")
        self.placed[row] = PodPlacement(row, node, decision)

    def names(self, plan: Plan) -> None:
        """All other names in the plan exist; a pod with a verdict has no place."""
        for gang in (key for key in _named_gangs(plan) if key not in self.gangs):
            self._wrong("unknown name", gang, "there is no such gang")
        for verdict in plan.verdicts:
            for pod in verdict.pods:
                row = self.pods.get(pod)
                if row is None or row in self.placed:
                    self._wrong("verdicts are for pending pods", pod, "unknown" if row is None else "it has a place")

    def moves(self) -> None:
        """A pod that is evicted in order to move has a place, and it is the one the eviction names."""
        names = self.snapshot.nodes.names
        for row, eviction in self.evicted.items():
            there = names[self.placed[row].node] if row in self.placed else ""
            if there != eviction.moves_to:
                figures = f"it is to move to {eviction.moves_to!r} and has a place on {there!r}"
                self._wrong("a moved pod has a place", eviction.pod, figures)
