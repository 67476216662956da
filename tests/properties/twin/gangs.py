"""§5.3 order of sub-groups, §7.1 which pods come next, §7.2 readiness, §16.4 which pods go first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cmp_to_key

from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.status import Status
from tests.properties.twin.world import ACTIVE_ALLOCATED, World

Member = PodSet | SubGroupSet
Held = Callable[[int], int]
"""Podset row -> how many pods of it count."""


def threshold(member: Member) -> int:
    return member.min_available if isinstance(member, PodSet) else member.threshold


def podsets_of(member: Member) -> list[PodSet]:
    return [member] if isinstance(member, PodSet) else list(member.podsets())


def count(member: Member, held: Held) -> int:
    """Members of a podset, satisfied children of a set."""
    if isinstance(member, PodSet):
        return held(member.row)
    return sum(satisfied(child, held) for child in member.children)


def satisfied(member: Member, held: Held) -> bool:
    return count(member, held) >= threshold(member)


def placed(world: World, gang: int) -> Held:
    return lambda row: world.in_podset(gang, row, ACTIVE_ALLOCATED)


def among(world: World, pods: Iterable[int]) -> Held:
    rows = [world.podset[pod] for pod in pods]
    return rows.count


# ------------------------------------------------------------------------------------------------ §5.3 Subgroup order
def in_order(group: SubGroupSet, held: Held) -> list[Member]:
    def compared(left: Member, right: Member) -> int:
        return _compared(left, right, held)

    return sorted(group.children, key=cmp_to_key(compared))


def _compared(left: Member, right: Member, held: Held) -> int:
    have, need = (count(left, held), count(right, held)), (threshold(left), threshold(right))
    met = [h >= n for h, n in zip(have, need, strict=True)]
    if met[0] != met[1]:
        return 1 if met[0] else -1
    if all(met):
        if (need[0] > 0) != (need[1] > 0):
            return -1 if need[0] > 0 else 1
        ratio = have if need[0] == 0 else (have[0] / need[0], have[1] / need[1])
        if ratio[0] != ratio[1]:
            return -1 if ratio[0] < ratio[1] else 1
    return -1 if left.name < right.name else 1


# ---------------------------------------------------------------------------------- §7.1 Which tasks to allocate next
def waiting(world: World, gang: int) -> list[int]:
    """ "should allocate", virtual mode included, in task order."""
    return [p for p in world.members[gang] if world.status(p) is Status.PENDING or world.pods[p].before is not None]


def next_pods(world: World, gang: int) -> list[int]:
    return _collect(world.tree(gang), placed(world, gang), _Waiting(world, waiting(world, gang)))


def pods_to_return(world: World, gang: int) -> list[int]:
    """Our rule: a victim of which too few pods exist gets back what it had, and nothing new."""
    everybody = _Waiting(world, waiting(world, gang))
    if not everybody.complete(world.tree(gang), placed(world, gang)):
        everybody = _Waiting(world, [pod for pod in everybody.pods if world.pods[pod].before is not None])
    return _collect(world.tree(gang), placed(world, gang), everybody)


class _Waiting:
    """The pods that could be placed."""

    def __init__(self, world: World, pods: list[int]) -> None:
        self.world, self.pods = world, pods

    def of(self, row: int) -> list[int]:
        return [pod for pod in self.pods if self.world.podset[pod] == row]

    def complete(self, member: Member, held: Held) -> bool:
        """Whether the member would be satisfied with all of them."""
        return satisfied(member, lambda row: held(row) + len(self.of(row)))


def _collect(group: SubGroupSet, held: Held, pods: _Waiting) -> list[int]:
    """Our rule: sub-groups that can be completed come before those that cannot."""
    children = in_order(group, held)
    able = [child for child in children if pods.complete(child, held)]
    if not satisfied(group, held):
        first = (able if len(able) >= group.threshold else children)[: group.threshold]
        return [pod for child in first if not satisfied(child, held) for pod in _wanted(child, held, pods)]
    return next((found for child in able if (found := _wanted(child, held, pods))), [])


def _wanted(member: Member, held: Held, pods: _Waiting) -> list[int]:
    if isinstance(member, SubGroupSet):
        return _collect(member, held, pods)
    missing = member.min_available - held(member.row)
    return pods.of(member.row)[: missing if missing > 0 else 1]


# --------------------------------------------------------------------------------------------------- §7.2 Readiness
def ready(world: World, gang: int) -> bool:
    alive = ACTIVE_ALLOCATED | {Status.PENDING}
    return satisfied(world.tree(gang), lambda row: world.in_podset(gang, row, alive))


def whole(world: World, gang: int) -> bool:
    return satisfied(world.tree(gang), placed(world, gang))


def should_pipeline(world: World, gang: int) -> bool:
    """§7.3 ShouldPipeline"""
    for podset in world.tree(gang).podsets():
        pipelined = world.in_podset(gang, podset.row, {Status.PIPELINED})
        if pipelined and placed(world, gang)(podset.row) - pipelined < podset.min_available:
            return True
    return False


# ------------------------------------------------------------------------------------------ §16.4 Victims of one gang
def first_to_go(world: World, gang: int, present: Collection[int]) -> list[int]:
    """Of the pods that are present: a surplus pod, a surplus sub-group, or all."""
    here = [pod for pod in world.members[gang] if pod in present]
    return _surplus(world, world.tree(gang), here) or here


def _surplus(world: World, group: SubGroupSet, here: list[int]) -> list[int]:
    held = among(world, here)
    for member in reversed(in_order(group, held)):
        mine = _pods_below(world, member, here)
        if not mine:
            continue
        if isinstance(member, PodSet):
            if len(mine) > member.min_available:
                return mine[:1]
        elif found := _surplus(world, member, here):
            return found
        if count(group, held) > group.threshold:
            return mine
    return []


def _pods_below(world: World, member: Member, here: list[int]) -> list[int]:
    """Podset by podset, in reverse task order."""
    return [pod for podset in podsets_of(member) for pod in reversed(here) if world.podset[pod] == podset.row]


def intact(world: World, gang: int, left: Collection[int]) -> bool:
    """Our rule: what a gang may be left with is nothing, or its minimum and that of every sub-group it is left with."""
    held = among(world, left)
    parts = all(held(p.row) >= p.min_available for p in world.tree(gang).podsets() if held(p.row))
    return not left or (parts and satisfied(world.tree(gang), held))
