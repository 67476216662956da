"""What queues have and may have, and which of them is next (spec/scheduling.md §5.4).

Amounts are triples (cpu milli, memory bytes, gpu devices). -1 means unlimited and is larger than anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

from pykai.model.resources import UNLIMITED

Triple = tuple[float, float, float]
ZERO: Triple = (0.0, 0.0, 0.0)
BILLION = 1e9
"""Shares are compared in billionths, so that the order of additions cannot matter."""


def plus(a: Sequence[float], b: Sequence[float]) -> Triple:
    return a[0] + b[0], a[1] + b[1], round(a[2] + b[2], 4)


def minus(a: Sequence[float], b: Sequence[float]) -> Triple:
    return a[0] - b[0], a[1] - b[1], round(a[2] - b[2], 4)


def total(items: Iterable[Sequence[float]]) -> Triple:
    result = ZERO
    for item in items:
        result = plus(result, item)
    return result


def less(a: float, b: float) -> bool:
    return a != UNLIMITED and (b == UNLIMITED or a < b)


def fits(amount: Sequence[float], bound: Sequence[float]) -> bool:
    """Whether the amount is within the bound in every resource."""
    return all(not less(limit, value) for value, limit in zip(amount, bound, strict=True))


def exceeds_some(amount: Sequence[float], bound: Sequence[float]) -> bool:
    return not fits(amount, bound)


@dataclass(frozen=True)
class QueueBook:
    """What the rules know of every queue. `allocated` and `held` (non-preemptible) are the trial's own ledgers."""

    names: Sequence[str]
    titles: Sequence[str]
    paths: Sequence[Sequence[int]]
    """The queue itself, its parent, ... up to the root."""
    priority: Sequence[int]
    creation: Sequence[float]
    deserved: Sequence[Triple]
    limit: Sequence[Triple]
    fair: Sequence[Triple]
    allocated: Sequence[Triple]
    held: Sequence[Triple]
    total: Triple

    @cached_property
    def allocatable(self) -> list[Triple]:
        """Per queue the larger of quota and fair share, cut at the limit."""
        columns = zip(self.deserved, self.fair, self.limit, strict=True)
        return [triple(map(_allocatable, *column)) for column in columns]

    @cached_property
    def bounds(self) -> list[tuple[tuple[float, float, float, float], ...]]:
        """Per queue and resource fair share, quota and allocatable share, infinite where unlimited, and what the use of
        the resource is compared with."""
        columns = zip(self.fair, self.deserved, self.allocatable, strict=True)
        return [tuple(map(_bounds, *column, self.total)) for column in columns]

    @cached_property
    def tails(self) -> list[_Tail]:
        """What decides between queues that are equal in everything that changes."""
        ties = _Ties(self.allocatable, self.creation)
        return [_Tail(ties, queue) for queue in range(len(self.names))]

    @cached_property
    def ages(self) -> list[_Tail]:
        """What decides where nothing but age does."""
        ties = _Ties([ZERO] * len(self.names), self.creation)
        return [_Tail(ties, queue) for queue in range(len(self.names))]

    def level_with(self, queue: int, other: int) -> tuple[int, int]:
        """The first pair of ancestors, from the root down, in which two queues differ."""
        ours, theirs = self.paths[queue][::-1], self.paths[other][::-1]
        for a, b in zip(ours, theirs, strict=False):
            if a != b:
                return a, b
        return queue, other


def triple(values: Iterable[float]) -> Triple:
    a, b, c = values
    return a, b, c


def _allocatable(deserved: float, fair: float, limit: float) -> float:
    if UNLIMITED in (deserved, fair):
        return limit
    share = max(deserved, fair)
    return share if limit == UNLIMITED else min(share, limit)


def _bounds(fair: float, deserved: float, allocatable: float, cluster: float) -> tuple[float, float, float, float]:
    limits = [inf if bound == UNLIMITED else bound for bound in (fair, deserved, allocatable)]
    return limits[0], limits[1], limits[2], cluster if allocatable == UNLIMITED else allocatable


class _Ties(dict[tuple[int, int], bool]):
    """Pairs of queues -> whether the first goes first: the smaller allocatable share, the older one, the first row."""

    def __init__(self, allocatable: Sequence[Triple], creation: Sequence[float]) -> None:
        self._allocatable, self._creation = allocatable, creation

    def __missing__(self, pair: tuple[int, int]) -> bool:
        known = self[pair] = self._goes_first(*pair)
        return known

    def _goes_first(self, a: int, b: int) -> bool:
        mine = _smaller(self._allocatable[a], self._allocatable[b])
        if mine or _smaller(self._allocatable[b], self._allocatable[a]):
            return mine
        return (self._creation[a], a) < (self._creation[b], b)


class _Tail:
    """The end of the queue order."""

    __slots__ = ("queue", "ties")

    def __init__(self, ties: _Ties, queue: int) -> None:
        self.ties, self.queue = ties, queue

    def __lt__(self, other: _Tail) -> bool:
        return self.ties[self.queue, other.queue]


def _smaller(a: Triple, b: Triple) -> bool:
    return fits(a, b) and any(less(x, y) for x, y in zip(a, b, strict=True))


class QueueKey(NamedTuple):
    """Sort key of a queue among its siblings; the smallest is served first and loses last."""

    over: bool
    """Whether it uses more than its fair share of every resource."""
    over_quota: bool
    """Whether it would exceed its quota of some resource."""
    priority: int
    """Negated: the highest goes first."""
    penalty: bool
    """Whether it would use a resource of which it may have nothing."""
    share: int
    """Its dominant share with the request, in billionths."""
    share_now: int
    tail: _Tail


def queue_key(book: QueueBook, queue: int, request: Sequence[float], victims: Sequence[float]) -> QueueKey:
    """Sort key among siblings, the most deserving first; `request` is what its best gang would take next.

    In order: not above fair share in everything, within quota with the request, priority, no use of what it may not
    use, smaller dominant share with and without the request. One loop, because every turn of every gang asks.
    """
    over, starved, penalty, share, share_now = True, True, False, 0.0, 0.0
    columns = zip(book.bounds[queue], book.allocated[queue], request, victims, strict=True)
    for (fair, deserved, allocatable, bound), used, more, lost in columns:
        wanted = used + more
        over = over and fair < used
        starved = starved and wanted <= deserved
        if bound > 0:
            part, part_now = (wanted - lost) / bound, used / bound
        elif bound == 0:
            part, part_now = (wanted - lost) * 1000, used * 1000
            penalty = penalty or (allocatable == 0 and wanted > 0)
        else:
            continue
        share = part if part > share else share
        share_now = part_now if part_now > share_now else share_now
    tail = book.tails[queue]
    in_billionths = int(share * BILLION + 0.5), int(share_now * BILLION + 0.5)  # rounding takes five times as long
    return QueueKey(over, not starved, -book.priority[queue], penalty, *in_billionths, tail)
