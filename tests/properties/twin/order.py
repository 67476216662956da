"""§5.1 order of gangs within a queue, §5.5 which gang has its turn, §16.4 which one loses pods first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from pykai.model.status import Status
from tests.properties.twin.gangs import Held, among, first_to_go, next_pods, placed, ready
from tests.properties.twin.queues import Contender
from tests.properties.twin.world import ACTIVE_ALLOCATED, NOTHING, Amount, World, plus, total

JobKey = tuple[int, int, float, str]


# ----------------------------------------------------------------------------------------------------- §5.1 Job order
def job_key(world: World, gang: int, held: Held) -> JobKey:
    surplus = [held(podset.row) - podset.min_available for podset in world.tree(gang).podsets()]
    state = 0 if min(surplus) < 0 else 2 if max(surplus) > 0 else 1
    return -world.gangs.priority[gang], state, world.gangs.created(gang), world.gangs.names[gang]


# --------------------------------------------------------------------------------------- §5.5 Jobs-by-queue iteration
def pending(world: World) -> list[int]:
    """Which jobs enter."""
    return [
        gang
        for gang in world.members
        if (queue := world.gangs.queue[gang]) >= 0
        and not world.queues.children[queue]
        and world.having(gang, {Status.PENDING})
        and ready(world, gang)
    ]


def pop(world: World, gangs: list[int]) -> int:
    """Takes the gang out of the list whose turn it is."""

    def contender(queue: int, gang: int) -> Contender:
        return Contender(world, queue, request=world.request(next_pods(world, gang), world.snapshot.min_gpu_memory))

    def first(mine: Collection[int]) -> int:
        return min(mine, key=lambda gang: job_key(world, gang, placed(world, gang)))

    best = chosen(world, gangs, Turn(contender, first, Contender.goes_before))
    gangs.remove(best)
    return best


@dataclass(frozen=True)
class Turn:
    """How a gang is chosen: a queue competes with its best gang, a leaf names that gang."""

    contender: Callable[[int, int], Contender]
    of_leaf: Callable[[Collection[int]], int]
    beats: Callable[[Contender, Contender], bool]


def chosen(world: World, gangs: Collection[int], turn: Turn) -> int:
    """From the root always to the best child."""

    def best(queue: int) -> int:
        mine = [gang for gang in gangs if world.gangs.queue[gang] == queue]
        if mine:
            return turn.of_leaf(mine)
        below = [q for q in range(len(world.queues)) if world.queues.parent[q] == queue and _has(world, q, gangs)]
        winner, *others = [(turn.contender(child, gang := best(child)), gang) for child in below]
        for other in others:
            if turn.beats(other[0], winner[0]):
                winner = other
        return winner[1]

    return best(-1)


def _has(world: World, queue: int, gangs: Collection[int]) -> bool:
    return any(queue in world.queues.paths[world.gangs.queue[gang]] for gang in gangs)


# ------------------------------------------------------------------------------------------ §16.4 Victims, in order
@dataclass(frozen=True, eq=False)
class Batch:
    """Pods of a gang that would go together."""

    gang: int
    pods: tuple[int, ...]


def victims(world: World, gangs: Collection[int]) -> Iterator[Batch]:
    """Batches of pods of these gangs, the first to go in front.

    Our rule: when queues are compared all losses below them count, not only those of the leaf that is next.
    """
    present = {gang: world.having(gang, ACTIVE_ALLOCATED) for gang in gangs}
    lost: dict[int, Amount] = {}
    while present:
        gang = _next_victim(world, present, lost)
        gone = first_to_go(world, gang, present[gang])
        for queue in world.queues.paths[world.gangs.queue[gang]]:
            lost[queue] = plus(lost.get(queue, NOTHING), _held(world, gone))
        present[gang] = [pod for pod in present[gang] if pod not in gone]
        if not present[gang]:
            del present[gang]
        yield Batch(gang, tuple(gone))


def _held(world: World, pods: Sequence[int]) -> Amount:
    return total(world.accepted(pod, world.pods[pod].node) for pod in pods)


def _next_victim(world: World, present: dict[int, list[int]], lost: dict[int, Amount]) -> int:
    """Order functions negated."""

    def contender(queue: int, gang: int) -> Contender:
        return Contender(world, queue, victims=plus(lost.get(queue, NOTHING), _held(world, present[gang])))

    def last(mine: Collection[int]) -> int:
        return max(mine, key=lambda gang: job_key(world, gang, among(world, present[gang])))

    return chosen(world, present, Turn(contender, last, lambda one, other: other.goes_before(one)))
