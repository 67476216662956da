"""§5.4 order of queues, §8 capacity, §16.7 what may be reclaimed. -1 is unlimited: larger than anything."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.properties.twin.world import NOTHING, Amount, World, plus

RESOURCES = range(3)
UNLIMITED = -1.0


def below(a: float, b: float) -> bool:
    """a < b"""
    return a != UNLIMITED and (b == UNLIMITED or a < b)


def within(amount: Sequence[float], bound: Sequence[float]) -> bool:
    """amount ≤ bound in all resources"""
    return not any(below(bound[r], amount[r]) for r in RESOURCES)


def allocatable(world: World, queue: int) -> list[float]:
    """allocatableShare"""
    found = []
    for r in RESOURCES:
        deserved, fair, limit = (x[queue][r] for x in (world.book.deserved, world.book.fair, world.book.limit))
        share = max(deserved, fair)
        capped = share if limit == UNLIMITED else min(share, limit)
        found.append(limit if UNLIMITED in (deserved, fair) else capped)
    return found


# --------------------------------------------------------------------------------------------------- §5.4 Queue order
class Contender:
    """A queue among its siblings, with what its best gang asks for, or with what it would have lost."""

    def __init__(self, world: World, queue: int, request: Amount = NOTHING, victims: Amount = NOTHING) -> None:
        self.book, self.queue = world.book, queue
        self.allocated = world.queue_use()[queue]
        self.wanted = plus(self.allocated, request)
        self.after = [w - v for w, v in zip(self.wanted, victims, strict=True)]
        self.allocatable = allocatable(world, queue)

    def key(self) -> tuple[bool, bool, int, bool, int, int]:
        """Rules 1 to 6, smaller first."""
        fair, deserved = self.book.fair[self.queue], self.book.deserved[self.queue]
        over_utilised = all(below(fair[r], self.allocated[r]) for r in RESOURCES)
        starved = within(self.wanted, deserved)
        penalty = any(self.allocatable[r] == 0 and self.wanted[r] > 0 for r in RESOURCES)
        shares = self._dominant(self.after), self._dominant(self.allocated)
        return over_utilised, not starved, -self.book.priority[self.queue], penalty, *shares

    def _dominant(self, amount: Sequence[float]) -> int:
        """In billionths."""
        most = 0.0
        for r in RESOURCES:
            bound = self.book.total[r] if self.allocatable[r] == UNLIMITED else self.allocatable[r]
            most = max(most, amount[r] / bound if bound else amount[r] * 1000)
        return math.floor(most * 1e9 + 0.5)

    def goes_before(self, other: Contender) -> bool:
        mine, theirs = self.key(), other.key()
        if mine != theirs:
            return mine < theirs
        for first, second in ((self, other), (other, self)):
            smaller = any(below(first.allocatable[r], second.allocatable[r]) for r in RESOURCES)
            if smaller and within(first.allocatable, second.allocatable):
                return first is self
        return self._age() < other._age()

    def _age(self) -> tuple[float, int]:
        return self.book.creation[self.queue], self.queue


# ------------------------------------------------------------------------------------------------ §8 Capacity policy
def over_limit(world: World, queue: int, request: Amount) -> bool:
    return _over(world.book.limit, world.queue_use(), world.queues.paths[queue], request)


def over_quota(world: World, queue: int, request: Amount) -> bool:
    """With what is not preemptible."""
    return _over(world.book.deserved, world.held_use(), world.queues.paths[queue], request)


def _over(bounds: Sequence[Amount], use: Sequence[Amount], path: Sequence[int], request: Amount) -> bool:
    return any(
        request[r] > 0 and below(bounds[queue][r], round(use[queue][r] + request[r], 4))
        for queue in path
        for r in RESOURCES
    )


def over_capacity(world: World, gang: int, request: Amount) -> bool:
    queue = world.gangs.queue[gang]
    return over_limit(world, queue, request) or (
        not world.gangs.preemptible[gang] and over_quota(world, queue, request)
    )


# ------------------------------------------------------------------------------------- §16.7 Reclaim (between queues)
class Claim:
    """A gang that reclaims; the queues as they were when its search began."""

    def __init__(self, world: World, gang: int) -> None:
        self.world, self.book, self.queue = world, world.book, world.gangs.queue[gang]
        self.preemptible = world.gangs.preemptible[gang]
        self.allocated, self.held = world.queue_use(), world.held_use()

    def can_reclaim(self, request: Amount) -> bool:
        return self._keeps_to_quota(self.queue, request) and within(
            plus(self.allocated[self.queue], request), self.book.fair[self.queue]
        )

    def _keeps_to_quota(self, queue: int, request: Amount) -> bool:
        return self.preemptible or within(plus(self.held[queue], request), self.book.deserved[queue])

    def levelled(self, victim: int) -> tuple[int, int]:
        """The first pair that differs on the paths from the root."""
        paths = self.book.paths[self.queue][::-1], self.book.paths[victim][::-1]
        return next((pair for pair in zip(*paths, strict=False) if pair[0] != pair[1]), (self.queue, victim))

    def may_look_at(self, victim: int, request: Amount) -> bool:
        """The filter of victims by their queue."""
        ours, theirs = self.levelled(victim)
        allocated, deserved = self.allocated[theirs], self.book.deserved[theirs]
        if not within(plus(self.allocated[ours], request), self.book.deserved[ours]):
            return not within(allocated, allocatable(self.world, theirs))
        compared = [r for r in RESOURCES if request[r] > 0 and deserved[r] != UNLIMITED]
        above = any(allocated[r] > deserved[r] for r in compared)
        return above or not any(allocated[r] < deserved[r] for r in compared)

    def validated(self, request: Amount, losses: dict[int, list[Amount]]) -> bool:
        """The validator; `losses`: victim queue -> block after block."""
        remaining: dict[int, Amount] = {}
        for victim, blocks in losses.items():
            ours, theirs = self.levelled(victim)
            for block in blocks:
                left = remaining.get(theirs, self.allocated[theirs])
                in_quota = within(plus(self.allocated[ours], request), self.book.deserved[ours])
                maintain_fair_share = not within(left, allocatable(self.world, theirs))
                guarantee_quota = in_quota and not within(left, self.book.deserved[theirs])
                if not maintain_fair_share and not guarantee_quota:
                    return False
                for queue in self.book.paths[victim]:
                    remaining[queue] = plus(remaining.get(queue, self.allocated[queue]), block, -1)
        return all(
            self._stays_fair(queue, request, remaining) and self._keeps_to_quota(queue, request)
            for queue in self.book.paths[self.queue]
        )

    def _stays_fair(self, queue: int, request: Amount, remaining: dict[int, Amount]) -> bool:
        after = plus(remaining.get(queue, self.allocated[queue]), request)
        parent = self.world.queues.parent
        siblings = [s for s in remaining if s != queue and parent[s] == parent[queue]]
        for sibling in siblings:
            lost = plus(self.allocated[sibling], remaining[sibling], -1)
            for r in (r for r in RESOURCES if request[r] > 0 or lost[r] > 0):
                fair, theirs = self.book.fair[queue][r], self.book.fair[sibling][r]
                if fair == UNLIMITED and theirs == UNLIMITED:
                    continue
                ours = _ratio(after[r], fair)
                if ours > 1 and theirs > 0 and ours >= _ratio(remaining[sibling][r], theirs):
                    return False
        return True


def _ratio(amount: float, fair: float) -> float:
    if fair == UNLIMITED:
        return 0.0
    if fair == 0:
        return math.inf if amount > 0 else 0.0
    return amount / fair
