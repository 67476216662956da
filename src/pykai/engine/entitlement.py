"""Who may take from whom, and how much: the rules of reclaim (spec/scheduling.md §16.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from pykai.engine.quota import QueueBook, Triple, exceeds_some, fits, less, minus, plus, triple
from pykai.model.resources import GPU, UNLIMITED


@dataclass(frozen=True)
class Claim:
    """Who wants to reclaim: its queue, what it would take, and whether it could be evicted itself."""

    queue: int
    request: Triple
    preemptible: bool = True


def can_reclaim(book: QueueBook, claim: Claim) -> bool:
    """Whether the queue would stay within its fair share, and within quota for non-preemptible work."""
    queue, request = claim.queue, claim.request
    if not claim.preemptible and not fits(plus(book.held[queue], request), book.deserved[queue]):
        return False
    return fits(plus(book.allocated[queue], request), book.fair[queue])


def may_lose(book: QueueBook, claim: Claim, victim_queue: int) -> bool:
    """Whether a queue uses enough for the claim to look at its workloads at all."""
    ours, theirs = book.level_with(claim.queue, victim_queue)
    allocated, deserved = book.allocated[theirs], book.deserved[theirs]
    if exceeds_some(plus(book.allocated[ours], claim.request), book.deserved[ours]):
        return exceeds_some(allocated, book.allocatable[theirs])
    involved = [r for r in range(3) if claim.request[r] > 0 and deserved[r] != UNLIMITED]
    above = any(allocated[r] > deserved[r] for r in involved)
    return above or not any(allocated[r] < deserved[r] for r in involved)


def most_gpus(book: QueueBook, taking: Taking, request: Triple, block: float, multiplier: float = 1.0) -> float:
    """What a branch of the tree may lose to a claim stays below this many GPUs; infinite where figures do not tell.

    Blocks are taken while the branch is above its bound, so the last one may pass it; `block` is the biggest.
    """
    ours, theirs, spared = taking
    held, floor = book.allocated[theirs], book.allocatable[theirs]
    if within_quota(book, ours, minus(request, spared)):
        floor = triple(
            min(a, b, key=lambda x: (x == UNLIMITED, x)) for a, b in zip(floor, book.deserved[theirs], strict=True)
        )
    most = inf
    if not any(less(floor[r], held[r]) for r in (0, 1)):
        most = held[GPU] - floor[GPU] + block if less(floor[GPU], held[GPU]) else 0.0
    mine = _ratio(book.allocated[ours][GPU] - spared[GPU] + request[GPU], book.fair[ours][GPU])
    if mine > 1 and book.fair[theirs][GPU] > 0:
        most = min(most, held[GPU] - mine * multiplier * book.fair[theirs][GPU])
    return most


Taking = tuple[int, int, Triple]
"""The queue that takes, the sibling that it takes from, and what the former has lost itself by then."""


def keeps_fair_share(book: QueueBook, victim: int, remaining: Sequence[float]) -> bool:
    """Strategy "maintain fair share": before losing more, the queue is above its allocatable share somewhere."""
    return exceeds_some(remaining, book.allocatable[victim])


def within_quota(book: QueueBook, queue: int, request: Sequence[float]) -> bool:
    return fits(plus(book.allocated[queue], request), book.deserved[queue])


def above_quota(book: QueueBook, victim: int, remaining: Sequence[float]) -> bool:
    return exceeds_some(remaining, book.deserved[victim])


Blocks = dict[int, list[Triple]]
"""Victim leaf queue -> what it would lose, block by block."""


def reclaimable(book: QueueBook, claim: Claim, losses: Blocks, multiplier: float = 1.0) -> bool:
    """Whether taking these blocks from these queues is fair."""
    remaining: dict[int, Triple] = {}
    involved = [claim.request[r] > 0 for r in range(3)]
    for queue, blocks in losses.items():
        ours, theirs = book.level_with(claim.queue, queue)
        for block in blocks:
            left = remaining.get(theirs, book.allocated[theirs])
            quota = within_quota(book, ours, claim.request) and above_quota(book, theirs, left)
            if not quota and not keeps_fair_share(book, theirs, left):
                return False
            involved = [x or block[r] > 0 for r, x in enumerate(involved)]
            for q in book.paths[queue]:
                remaining[q] = minus(remaining.get(q, book.allocated[q]), block)
    return _stays_fair(book, claim, remaining, (involved, multiplier))


def _stays_fair(book: QueueBook, claim: Claim, remaining: dict[int, Triple], rule: tuple[list[bool], float]) -> bool:
    """From the reclaimer's leaf up: nobody ends up relatively richer than the sibling that lost."""
    involved, multiplier = rule
    for depth, queue in enumerate(book.paths[claim.queue]):
        after = plus(remaining.get(queue, book.allocated[queue]), claim.request)
        parent = book.paths[claim.queue][depth + 1 :][:1]
        siblings = [q for q in remaining if q != queue and list(book.paths[q][1:2]) == list(parent)]
        for sibling in siblings:
            if any(
                involved[r] and _outgrows(book, (queue, after), (sibling, remaining[sibling]), (r, multiplier))
                for r in range(3)
            ):
                return False
        if not claim.preemptible and not fits(plus(book.held[queue], claim.request), book.deserved[queue]):
            return False
    return True


Standing = tuple[int, Triple]


def _outgrows(book: QueueBook, ours: Standing, theirs: Standing, rule: tuple[int, float]) -> bool:
    resource, multiplier = rule
    our_fair, their_fair = book.fair[ours[0]][resource], book.fair[theirs[0]][resource]
    mine = _ratio(ours[1][resource], our_fair)
    return mine > 1 and their_fair > 0 and mine * multiplier >= _ratio(theirs[1][resource], their_fair)


def _ratio(value: float, fair: float) -> float:
    if fair == UNLIMITED:
        return 0.0
    if fair == 0:
        return inf if value > 0 else 0.0
    return value / fair
