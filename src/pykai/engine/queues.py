"""The rules of queues: the order of queues by use, quota, limit and fair share, what a queue may take, and what reclaim
may take from it.

Amounts are triples (milli CPU, bytes of memory, GPUs). -1 is unlimited and compares larger than any amount.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import inf
from typing import NamedTuple

from pykai.model.resources import UNLIMITED

Triple = tuple[float, float, float]
ZERO: Triple = (0.0, 0.0, 0.0)
BILLION = 1e9
"""Shares are compared in billionths, so that rounding by the order of additions does not matter."""


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
    """The figures of every queue. `allocated` and `allocated_non_preemptible` are the trial's ledgers, not copies."""

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
    allocated_non_preemptible: Sequence[Triple]
    total: Triple
    priority_in_quota: bool = False
    """Whether a queue within its quota may reclaim from any queue of lower priority."""

    @cached_property
    def allocatable(self) -> list[Triple]:
        """By queue the larger of quota and fair share, capped by the limit."""
        columns = zip(self.deserved, self.fair, self.limit, strict=True)
        return [triple(map(_allocatable, *column)) for column in columns]

    @cached_property
    def bounds(self) -> list[tuple[tuple[float, float, float, float], ...]]:
        """By queue and resource: fair share, quota and allocatable share, infinite where unlimited, and the divisor of
        the dominant share (the allocatable share, or the cluster's capacity where that is unlimited)."""
        columns = zip(self.fair, self.deserved, self.allocatable, strict=True)
        return [tuple(map(_bounds, *column, self.total)) for column in columns]

    @cached_property
    def plain_bounds(self) -> list[tuple[float, ...] | None]:
        """By queue the values of `bounds` as one tuple, fair shares first; None where a divisor is not positive."""
        return [tuple(chain(*zip(*each, strict=True))) if min(b[3] for b in each) > 0 else None for each in self.bounds]

    @cached_property
    def limits(self) -> list[Bounds]:
        """By queue the limits on its path to the root."""
        return [_bounds_on_path(path, self.limit) for path in self.paths]

    @cached_property
    def quotas(self) -> list[Bounds]:
        """By queue the quotas on its path to the root."""
        return [_bounds_on_path(path, self.deserved) for path in self.paths]

    @cached_property
    def tails(self) -> list[_Tail]:
        """By queue the last part of its sort key, which does not change during a cycle."""
        ties = _Ties(self.allocatable, self.creation)
        return [_Tail(ties, queue) for queue in range(len(self.names))]

    @cached_property
    def ages(self) -> list[_Tail]:
        """By queue a sort key of age and row only."""
        ties = _Ties([ZERO] * len(self.names), self.creation)
        return [_Tail(ties, queue) for queue in range(len(self.names))]

    def copied(self) -> QueueBook:
        """Return a copy with the present contents of the ledgers. Cached properties are shared with it."""
        _ = self.allocatable
        book = object.__new__(QueueBook)
        book.__dict__.update(
            self.__dict__,
            allocated=list(self.allocated),
            allocated_non_preemptible=list(self.allocated_non_preemptible),
        )
        return book

    def level_with(self, queue: int, other: int) -> tuple[int, int]:
        """Return the first pair of ancestors, from the root down, in which two queues differ."""
        ours, theirs = self.paths[queue][::-1], self.paths[other][::-1]
        for a, b in zip(ours, theirs, strict=False):
            if a != b:
                return a, b
        return queue, other


Bounds = tuple[tuple[int, int, float], ...]
"""(queue, resource, bound) for each bound that is not unlimited."""


def _bounds_on_path(path: Sequence[int], bounds: Sequence[Triple]) -> Bounds:
    return tuple([(q, row, most) for q in path for row, most in enumerate(bounds[q]) if most != UNLIMITED])


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
    """The last part of a queue's sort key: compares by `ties`."""

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
    """Whether it would use a resource of which its allocatable share is 0."""
    share: int
    """Its dominant share with the request, in billionths."""
    share_now: int
    tail: _Tail


_as_key = tuple.__new__
"""Makes a key from a tuple in half the time of its constructor."""


def queue_key(book: QueueBook, queue: int, request: Sequence[float], victims: Sequence[float]) -> QueueKey:
    """Return the sort key of a queue among its siblings; `request` is what its first gang would take next.

    In order: not above fair share in all resources, within quota with the request, priority, no use of a resource
    with an allocatable share of 0, smaller dominant share with and without the request. Called for every turn of every
    gang, so the common case has no loops.
    """
    plain = book.plain_bounds[queue]
    if plain is None:
        return _queue_key(book, queue, request, victims)
    cpu, memory, gpus = book.allocated[queue]
    fair_cpu, fair_memory, fair_gpus, own_cpu, own_memory, own_gpus, _, _, _, most_cpu, most_memory, most_gpus = plain
    all_cpu, all_memory, all_gpus = cpu + request[0], memory + request[1], gpus + request[2]
    starved = all_cpu <= own_cpu and all_memory <= own_memory and all_gpus <= own_gpus
    over = fair_cpu < cpu and fair_memory < memory and fair_gpus < gpus and not (starved and book.priority_in_quota)
    if victims is not ZERO:
        all_cpu, all_memory, all_gpus = all_cpu - victims[0], all_memory - victims[1], all_gpus - victims[2]
    share = max(all_cpu / most_cpu, all_memory / most_memory, all_gpus / most_gpus, 0.0)
    share_now = max(cpu / most_cpu, memory / most_memory, gpus / most_gpus, 0.0)
    in_billionths = int(share * BILLION + 0.5), int(share_now * BILLION + 0.5)  # rounding takes five times as long
    return _as_key(QueueKey, (over, not starved, -book.priority[queue], False, *in_billionths, book.tails[queue]))


def _queue_key(book: QueueBook, queue: int, request: Sequence[float], victims: Sequence[float]) -> QueueKey:
    """Return the same key, computed resource by resource."""
    over, starved, penalty, share, share_now = True, True, False, 0.0, 0.0
    use = book.allocated[queue]
    for at, (fair, deserved, allocatable, bound) in enumerate(book.bounds[queue]):  # a zip of columns takes longer
        used = use[at]
        wanted = used + request[at]
        if used <= fair:
            over = False
        if wanted > deserved:
            starved = False
        if bound > 0:
            part, part_now = (wanted - victims[at]) / bound, used / bound
        elif bound == 0:
            part, part_now = (wanted - victims[at]) * 1000, used * 1000
            penalty = penalty or (allocatable == 0 and wanted > 0)
        else:
            continue
        if part > share:
            share = part
        if part_now > share_now:
            share_now = part_now
    if book.priority_in_quota and starved:
        over = False  # among queues within their quota priority comes first
    in_billionths = int(share * BILLION + 0.5), int(share_now * BILLION + 0.5)
    return QueueKey(over, not starved, -book.priority[queue], penalty, *in_billionths, book.tails[queue])


OVER_LIMIT, OVER_QUOTA = "OverLimit", "NonPreemptibleOverQuota"


@dataclass(frozen=True)
class OverCapacity:
    """A limit or quota that a request would exceed: of which queue, in which resource."""

    reason: str
    """OVER_LIMIT or OVER_QUOTA."""
    queue: int
    resource: int
    request: Triple
    used: Triple
    bound: Triple
    title: str

    @property
    def message(self) -> str:
        name, unit, scale = _UNITS[self.resource]
        bound, used, request = (human(x[self.resource], scale) for x in (self.bound, self.used, self.request))
        if self.reason == OVER_LIMIT:
            return (
                f"{self.title} quota has reached the allowable limit of {name}. "
                f"Limit is {bound} {unit}, currently {used} {unit} allocated and workload requested {request} {unit}"
            )
        what = "GB memory" if self.resource == 1 else name
        return (
            f"Non-preemptible workload is over quota. Workload requested {request} {what}, but {self.title} quota is "
            f"{bound} {unit}, while {used} {unit} are already allocated for non-preemptible pods. "
            "Use a preemptible workload to go over quota."
        )


_UNITS = (("CPU cores", "cores", 1e3), ("memory", "GB", 1e9), ("GPUs", "GPUs", 1.0))


def human(value: float, scale: float = 1.0) -> str:
    """Return a number with at most three decimals and no trailing zeros."""
    if value == UNLIMITED:
        return "Unlimited"
    return f"{round(value / scale, 3):.3f}".rstrip("0").rstrip(".")


def over_limit(book: QueueBook, queue: int, request: Triple) -> OverCapacity | None:
    """Return the first limit on the path to the root that the request would exceed."""
    return _first_over(book, book.limits[queue], request, OVER_LIMIT)


def over_non_preemptible_quota(book: QueueBook, queue: int, request: Triple) -> OverCapacity | None:
    """Return the first quota on the path to the root that non-preemptible pods would exceed with the request."""
    return _first_over(book, book.quotas[queue], request, OVER_QUOTA)


def _first_over(book: QueueBook, bounds: Bounds, request: Triple, reason: str) -> OverCapacity | None:
    limited = reason == OVER_LIMIT
    used = book.allocated if limited else book.allocated_non_preemptible
    for queue, resource, most in bounds:
        wanted = request[resource]
        if wanted > 0 and most < round(used[queue][resource] + wanted, 4):
            bound = (book.limit if limited else book.deserved)[queue]
            return OverCapacity(reason, queue, resource, request, used[queue], bound, book.titles[queue])
    return None


@dataclass(frozen=True)
class Claim:
    """A request to reclaim: the queue, the amounts, and whether the pods it is for are preemptible themselves."""

    queue: int
    request: Triple
    preemptible: bool = True


def can_reclaim(book: QueueBook, claim: Claim) -> bool:
    """Whether the queue stays within its fair share with the claim and, if non-preemptible, within its quota."""
    queue, request = claim.queue, claim.request
    if not claim.preemptible and not fits(plus(book.allocated_non_preemptible[queue], request), book.deserved[queue]):
        return False
    return fits(plus(book.allocated[queue], request), book.fair[queue])


def may_lose(book: QueueBook, claim: Claim, victim_queue: int) -> bool:
    """Whether a queue uses enough for its workloads to be victims of the claim."""
    ours, theirs = book.level_with(claim.queue, victim_queue)
    return bool(may_lose_some(book, claim, {ours: (theirs,)}))


def may_lose_some(book: QueueBook, claim: Claim, competing: Mapping[int, Iterable[int]]) -> list[int]:
    """Return which of the siblings of each queue on the claim's path use enough (`may_lose`)."""
    found: list[int] = []
    requested = [r for r in range(3) if claim.request[r] > 0]
    for ours, siblings in competing.items():
        over = exceeds_some(plus(book.allocated[ours], claim.request), book.deserved[ours])
        for theirs in siblings:
            (_, cpu, cpu_most, _), (_, memory, memory_most, _), (_, gpus, gpus_most, _) = book.bounds[theirs]
            used = book.allocated[theirs]
            if over:
                may = used[0] > cpu_most or used[1] > memory_most or used[2] > gpus_most
            else:
                quota = (cpu, memory, gpus)
                involved = [r for r in requested if quota[r] != inf]
                above = [r for r in involved if used[r] > quota[r]]
                may = bool(above) or not [r for r in involved if used[r] < quota[r]]
            if may or outranks(book, (ours, theirs), claim.request):
                found.append(theirs)
    return found


def most_losses(book: QueueBook, taking: Taking, request: Triple, block: Triple, multiplier: float = 1.0) -> Triple:
    """Return an upper bound, by resource, of what a branch of the tree may lose to a claim; infinite where there is
    none, negative where it may lose nothing at all.

    Blocks are taken while the branch is above its bound of some resource, so the last one may go below it; `block`: the
    largest one.
    """
    ours, theirs, spared = taking
    if outranks(book, (ours, theirs), minus(request, spared)):
        return inf, inf, inf
    held, floor, most = book.allocated[theirs], book.allocatable[theirs], [inf, inf, inf]
    if within_quota(book, ours, minus(request, spared)):
        floor = triple(
            min(a, b, key=lambda x: (x == UNLIMITED, x)) for a, b in zip(floor, book.deserved[theirs], strict=True)
        )
    above = [r for r in range(3) if less(floor[r], held[r])]
    if not above:
        return -inf, -inf, -inf
    if len(above) == 1:
        (r,) = above
        most[r] = held[r] - floor[r] + block[r]
    for r in range(3):
        mine = _ratio(book.allocated[ours][r] - spared[r] + request[r], book.fair[ours][r])
        if mine > 1 and book.fair[theirs][r] > 0:
            most[r] = min(most[r], max(held[r] - mine * multiplier * book.fair[theirs][r], 0.0))
    return triple(most)


Taking = tuple[int, int, Triple]
"""The reclaiming queue, the sibling it takes from, and what the reclaiming queue itself has lost by then."""


def keeps_fair_share(book: QueueBook, victim: int, remaining: Sequence[float]) -> bool:
    """Strategy "maintain fair share": whether what remains to the queue exceeds its allocatable share of a resource."""
    return exceeds_some(remaining, book.allocatable[victim])


def within_quota(book: QueueBook, queue: int, request: Sequence[float]) -> bool:
    return fits(plus(book.allocated[queue], request), book.deserved[queue])


def above_quota(book: QueueBook, victim: int, remaining: Sequence[float]) -> bool:
    return exceeds_some(remaining, book.deserved[victim])


def outranks(book: QueueBook, level: tuple[int, int], request: Sequence[float]) -> bool:
    """Strategy "priority in quota": whether the queue has a higher priority and stays within its quota."""
    ours, theirs = level
    return book.priority_in_quota and book.priority[ours] > book.priority[theirs] and within_quota(book, ours, request)


Blocks = dict[int, list[Triple]]
"""Leaf queue of victims -> the amounts it would lose, block by block."""


def reclaimable(book: QueueBook, claim: Claim, losses: Blocks, multiplier: float = 1.0) -> bool:
    """Whether the reclaim rules allow the claim to take these blocks from these queues."""
    remaining: dict[int, Triple] = {}
    for queue, blocks in losses.items():
        ours, theirs = book.level_with(claim.queue, queue)
        for block in blocks:
            left = remaining.get(theirs, book.allocated[theirs])
            quota = within_quota(book, ours, claim.request) and above_quota(book, theirs, left)
            if not (quota or keeps_fair_share(book, theirs, left) or outranks(book, (ours, theirs), claim.request)):
                return False
            for q in book.paths[queue]:
                remaining[q] = minus(remaining.get(q, book.allocated[q]), block)
    return _stays_fair(book, claim, remaining, multiplier)


def _stays_fair(book: QueueBook, claim: Claim, remaining: dict[int, Triple], multiplier: float) -> bool:
    """Whether, from the reclaimer's leaf up, no queue ends with a larger part of its fair share than a sibling that
    lost, of the resources that the sibling lost or the claim asks for."""
    for depth, queue in enumerate(book.paths[claim.queue]):
        after = plus(remaining.get(queue, book.allocated[queue]), claim.request)
        parent = book.paths[claim.queue][depth + 1 :][:1]
        siblings = [q for q in remaining if q != queue and list(book.paths[q][1:2]) == list(parent)]
        for sibling in siblings:
            lost = minus(book.allocated[sibling], remaining[sibling])
            if any(
                (lost[r] > 0 or claim.request[r] > 0)
                and _outgrows(book, (queue, after), (sibling, remaining[sibling]), (r, multiplier))
                for r in range(3)
            ):
                return False
        if not claim.preemptible and not fits(
            plus(book.allocated_non_preemptible[queue], claim.request), book.deserved[queue]
        ):
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
