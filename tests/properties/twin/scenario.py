"""§16.5 Simulation: suppose that some pods are evicted, and see who gets which place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pykai.model.status import Status
from tests.properties.twin.allocate import allocate_job, hold_back, start_at_once
from tests.properties.twin.gangs import intact, pods_to_return, whole
from tests.properties.twin.order import Batch, pop
from tests.properties.twin.queues import Claim, over_capacity
from tests.properties.twin.world import ACTIVE_ALLOCATED, Amount, World, plus, total


@dataclass(frozen=True)
class Preemptor:
    """Who evicts, by which action, for which pods; the queues as they were when its search began."""

    action: str
    gang: int
    pods: tuple[int, ...]
    claim: Claim
    waiting: tuple[int, ...]
    """Who else waits: they get no turn, but count in the order of queues."""


@dataclass(frozen=True)
class Outcome:
    """What became of the victims."""

    released: tuple[int, ...]
    """Victims that lose their place."""
    moved: tuple[int, ...]
    """Victims that get another place; who gets its own one back is no victim any more."""

    @property
    def victims(self) -> tuple[int, ...]:
        return self.released + self.moved


def simulate(world: World, preemptor: Preemptor, prefix: Sequence[int], batches: Sequence[Batch]) -> Outcome | None:
    """On success the world keeps it; otherwise (None) it is as before."""
    saved = world.save()
    for batch in batches:
        for pod in batch.pods:
            world.put(pod, replace(world.pods[pod], status=Status.RELEASING, before=world.status(pod)))
    if _serve(world, preemptor, prefix, {batch.gang for batch in batches}):
        gone = [pod for batch in batches for pod in batch.pods]
        outcome = Outcome(
            tuple(pod for pod in gone if world.status(pod) is Status.RELEASING),
            tuple(pod for pod in gone if world.status(pod) is Status.PIPELINED and world.pods[pod] != saved[0][pod]),
        )
        if (outcome.victims or not whole(world, preemptor.gang)) and _validated(world, preemptor, outcome):
            return outcome
    world.restore(saved)
    return None


def _serve(world: World, preemptor: Preemptor, prefix: Sequence[int], losers: set[int]) -> bool:
    """Pending jobs in queue order, but only victims' jobs and the preemptor are handled.

    Our rules: a victim is served until it has all it can get. One that goes before the preemptor stays where it is;
    in consolidation it must find a place again. The limits of its queues may forbid both.
    """
    turns = {preemptor.gang, *losers}
    line = list(dict.fromkeys([*preemptor.waiting, *turns]))
    while turns and line:
        gang = pop(world, line)
        if gang not in turns:
            continue
        turns.discard(gang)
        if gang == preemptor.gang:
            if not allocate_job(world, gang, prefix, pipeline_only=True):
                return False
            continue
        again = pods_to_return(world, gang)
        if preemptor.gang in turns and preemptor.action != "consolidation":
            if _stays(world, gang, again):
                line.append(gang)
                turns.add(gang)
            continue
        placed = allocate_job(world, gang, again, pipeline_only=True)
        if again and not placed and preemptor.gang in turns and not _over(world, gang, again):
            return False
        if placed and pods_to_return(world, gang):
            line.append(gang)
            turns.add(gang)
    return True


def _stays(world: World, gang: int, pods: Sequence[int]) -> bool:
    mine = [pod for pod in pods if world.pods[pod].before is not None]
    if not mine or _over(world, gang, mine):
        return False
    for pod in mine:
        before = world.pods[pod].before
        assert before is not None
        world.put(pod, replace(world.pods[pod], status=before, before=None))
    return True


def _over(world: World, gang: int, pods: Sequence[int]) -> bool:
    return over_capacity(world, gang, world.request(pods, world.snapshot.max_gpu_memory))


# --------------------------------------------------------------------------------------------------------- Validators
def _validated(world: World, preemptor: Preemptor, outcome: Outcome) -> bool:
    """Our rule: victims of a prefix are judged by what the whole gang takes, not by what the prefix does."""
    if _tears_a_gang(world, outcome.released):
        return False
    if preemptor.action == "consolidation":
        return not outcome.released and not _moves_a_part(world, outcome.moved)
    if preemptor.action == "reclaim":
        request = world.request(preemptor.pods, world.snapshot.max_gpu_memory)
        return preemptor.claim.validated(request, _losses(world, outcome.released))
    return True


def _tears_a_gang(world: World, released: Sequence[int]) -> bool:
    """Our rule: nobody who had its minimum is left with a part that is less."""
    for gang in {world.gang[pod] for pod in released}:
        left = world.having(gang, ACTIVE_ALLOCATED)
        had = left + [pod for pod in released if world.gang[pod] == gang]
        if intact(world, gang, had) and not intact(world, gang, left):
            return True
    return False


def _moves_a_part(world: World, moved: Sequence[int]) -> bool:
    """Our rule: who misses pods does not move for others; its pods could not start again."""
    gangs = {world.gang[pod] for pod in moved}
    return not all(intact(world, gang, world.having(gang, ACTIVE_ALLOCATED)) for gang in gangs)


def _losses(world: World, released: Sequence[int]) -> dict[int, list[Amount]]:
    """Per gang and podset the first minAvailable pods in task order are the core, the others are elastic.

    Our rule: elastic pods go before the core.
    """
    losses: dict[int, list[Amount]] = {}
    for gang in dict.fromkeys(world.gang[pod] for pod in released):
        core, elastic = total(()), list[Amount]()
        by_podset = dict.fromkeys(world.podset[pod] for pod in world.members[gang] if pod in released)
        for row in by_podset:
            gone = [pod for pod in world.members[gang] if pod in released and world.podset[pod] == row]
            amounts = [world.accepted(pod, world.pods[pod].node) for pod in gone]
            minimum = world.gangs.podset_min[row]
            core = plus(core, total(amounts[:minimum]))
            elastic += amounts[minimum:]
        losses.setdefault(world.gangs.queue[gang], []).extend([*elastic, *([core] if any(core) else [])])
    return losses


# ------------------------------------------------------------------------------------------------------------- Commit
def commit(world: World, preemptor: Preemptor, outcome: Outcome) -> None:
    """Our rules: who was only promised its place in this cycle is not evicted, but waits again; where that takes the
    minimum of a gang, all that it got in this cycle waits."""
    for pod in outcome.victims:
        if world.had_place(pod):
            world.evicted.add(pod)
            if world.status(pod) is Status.RELEASING:
                world.put(pod, replace(world.start[pod], status=Status.RELEASING))
        elif world.status(pod) is Status.RELEASING:
            world.put(pod, replace(world.start[pod], groups=world.pods[pod].groups))
    for pod, now in enumerate(world.pods):
        leaves = now.leaves[:1] if world.had_place(pod) else ()
        world.put(pod, replace(now, before=None, leaves=leaves))
    losers = list(dict.fromkeys(world.gang[pod] for pod in outcome.victims))
    for gang in losers:
        hold_back(world, gang, world.members[gang])
    if not world.evicted & set(outcome.victims):
        start_at_once(world, [preemptor.gang, *losers])
