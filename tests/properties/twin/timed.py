"""The cycle of `decide.py` with clocks: minimum run times, preemption delays and stale gangs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.objects import names
from tests.properties.small_world import Cluster, Fields
from tests.properties.twin import places, scenario
from tests.properties.twin.allocate import allocate
from tests.properties.twin.decide import Decisions, _decisions
from tests.properties.twin.evict import Evictions
from tests.properties.twin.gangs import next_pods, placed
from tests.properties.twin.order import job_key, pending, pop
from tests.properties.twin.runtimes import Runtimes, delayed, instant
from tests.properties.twin.scenario import Outcome, Preemptor
from tests.properties.twin.stale import verdict
from tests.properties.twin.world import ACTIVE_ALLOCATED, ALLOCATED, World

fair, usual = scenario._validated, places._scores


@dataclass(frozen=True)
class Clocks:
    """What the objects of a cluster say about times."""

    runtimes: Runtimes
    groups: dict[str, Fields]
    now: float

    def group(self, world: World, gang: int) -> Fields:
        return self.groups[world.gangs.names[gang]]

    def protected(self, world: World, action: str, evictor: int, victim: int) -> bool:
        if action == "consolidation":
            return False
        return self.runtimes.protected(action, self.group(world, evictor), self.group(world, victim), self.now)

    def valid(self, world: World, preemptor: Preemptor, outcome: Outcome) -> bool:
        """If protected, for each podset activeUsed - victims >= minAvailable.

        Our rule: pods that are leaving do not count, or several evictors could take everything in one cycle.
        """
        for gang in {world.gang[pod] for pod in outcome.victims}:
            if self.protected(world, preemptor.action, preemptor.gang, gang):
                stay = [pod for pod in world.having(gang, ACTIVE_ALLOCATED) if pod not in outcome.victims]
                rows = [world.podset[pod] for pod in stay]
                if any(rows.count(podset.row) < podset.min_available for podset in world.tree(gang).podsets()):
                    return False
        return True


class TimedEvictions(Evictions):
    """One run of an action by the clock."""

    def __init__(self, world: World, action: str, clocks: Clocks) -> None:
        super().__init__(world, action)
        self.clocks = clocks
        self.delayed: set[int] = set()

    def run(self) -> None:
        world, clocks = self.world, self.clocks
        jobs = [gang for gang in self.waiting if self.action != "consolidation" or self.gangs.preemptible[gang]]
        self.delayed = {gang for gang in jobs if delayed(clocks.group(world, gang), clocks.now)}
        jobs = [gang for gang in jobs if gang not in self.delayed]
        while jobs:
            gang = pop(world, jobs)
            pods = next_pods(world, gang)
            if self._entitled(gang, pods) and self._has_candidates(gang, pods) and self._make_room(gang, pods):
                self.waiting.remove(gang)

    def _is_victim(self, gang: int, pods: Sequence[int], other: int) -> bool:
        if not super()._is_victim(gang, pods, other):
            return False
        if self.action == "consolidation":
            return not self._rests(gang, other)
        return self.unprotected(gang, other)

    def unprotected(self, gang: int, other: int) -> bool:
        return not self.clocks.protected(self.world, self.action, gang, other) or self._elastic(other)

    def _has_candidates(self, gang: int, pods: Sequence[int]) -> bool:
        """Our rule: who is only protected counts here, so that what others left over is used at once."""
        if self.action == "consolidation":
            return super()._has_candidates(gang, pods)
        return any(super(TimedEvictions, self)._is_victim(gang, pods, other) for other in self.holders)

    def _elastic(self, gang: int) -> bool:
        """Some podset has more pods than its minimum. Our rule: only pods that can be taken count."""
        world = self.world
        rows = [world.podset[pod] for pod in world.having(gang, ACTIVE_ALLOCATED)]
        return any(rows.count(podset.row) > podset.min_available for podset in world.tree(gang).podsets())

    def _rests(self, gang: int, other: int) -> bool:
        """Our rule: who was evicted since the other one came is not moved for it."""
        meta = self.clocks.group(self.world, other)["metadata"]
        evicted = instant((meta.get("annotations") or {}).get(names.LAST_EVICTION_TIMESTAMP))
        had = any(self.world.had_place(pod) for pod in self.world.members[other])
        return evicted is not None and had and evicted >= self.world.gangs.created(gang)


@dataclass(frozen=True)
class Notes:
    """Annotations that change, by gang: since when it is stale (None: no longer), when it started, was evicted."""

    stale: dict[str, float | None]
    started: set[str]
    evicted: set[str]


class TimedCycle:
    """The twin of `pykai.engine.decide.decide` for a cluster at an instant."""

    def __init__(self, cluster: Cluster, snapshot: Snapshot, runtimes: Runtimes, now: float) -> None:
        self.world = World(snapshot)
        self.clocks = Clocks(runtimes, {group["metadata"]["name"]: group for group in cluster.groups}, now)
        self.stale: dict[str, float | None] = {}
        self.delayed: set[str] = set()
        """Who was told that it may not evict yet."""
        self.had = {gang for gang in self.world.members if self.world.having(gang, ALLOCATED)}

    def run(self, actions: Sequence[str]) -> tuple[Decisions, Notes]:
        with patch.object(scenario, "_validated", self._validated), patch.object(places, "_scores", self._scores):
            for action in actions:
                self._act(action)
        return _decisions(self.world), self._notes()

    def _act(self, action: str) -> None:
        if action == "allocate":
            allocate(self.world)
        elif action == "stalegangeviction":
            for gang in range(len(self.world.gangs)):
                self._judge(gang)
        else:
            evictions = TimedEvictions(self.world, action, self.clocks)
            evictions.run()
            self.delayed |= {self.world.gangs.names[gang] for gang in evictions.delayed}

    def may_evict(self, action: str, gang: int, victim: int) -> bool:
        """The filter of §16.9."""
        return TimedEvictions(self.world, action, self.clocks).unprotected(gang, victim)

    def _judge(self, gang: int) -> None:
        world, group = self.world, self.clocks.group(self.world, gang)
        world.members.setdefault(gang, [])
        found = verdict(world, gang, group, world.snapshot.params.staleness_grace, self.clocks.now)
        if found.since != instant((group["metadata"].get("annotations") or {}).get(names.STALE_TIMESTAMP)):
            self.stale[world.gangs.names[gang]] = found.since
        for pod in found.evicted:
            world.become(pod, Status.RELEASING)
            world.evicted.add(pod)

    def _notes(self) -> Notes:
        """lastStartTimestamp: of who had nothing 'allocated' before and has it now."""
        world, title = self.world, self.world.gangs.names
        started = {title[gang] for gang in world.members if gang not in self.had and world.having(gang, ALLOCATED)}
        return Notes(self.stale, started, {title[world.gang[pod]] for pod in world.evicted})

    def _validated(self, world: World, preemptor: Preemptor, outcome: Outcome) -> bool:
        return fair(world, preemptor, outcome) and self.clocks.valid(world, preemptor, outcome)

    def _scores(self, world: World, pod: int, node: int, given: Collection[int]) -> Iterator[float]:
        """§11 nominatednode beside the others."""
        yield from usual(world, pod, node, given)
        if world.snapshot.pods.objects[pod].status.nominated_node_name == world.snapshot.nodes.names[node]:
            yield 10_000_000


def turns(snapshot: Snapshot, depth: int | None) -> dict[str, Any]:
    """The pop order of the allocate action; `depth`: so many of each queue (§5.5, spec/tools.md §1.4)."""
    world = World(snapshot)
    jobs = sorted(pending(world), key=lambda gang: job_key(world, gang, placed(world, gang)))
    queues = [world.gangs.queue[gang] for gang in jobs]
    jobs = [gang for at, gang in enumerate(jobs) if depth is None or queues[:at].count(queues[at]) < depth]
    everybody, by_queue = list[Fields](), dict[str, list[Fields]]()
    while jobs:
        gang = pop(world, jobs)
        meta = world.gangs.objects[gang].metadata
        entry = {"id": f"{meta.namespace}/{meta.name}", "priority": world.gangs.priority[gang]}
        everybody.append(entry)
        by_queue.setdefault(world.gangs.objects[gang].spec.queue, []).append(entry)
    return {"global_order": everybody, "queue_order": by_queue}
