"""Fair shares: how much of the cluster each queue of the tree is entitled to.

A *pool* is one resource of one parent (or of the cluster): its children divide it, independently of every other pool.
Each child first takes its quota, as far as it wants it; the surplus goes to the children that want more, priority by
priority, in proportion to their over-quota weight shifted by their past usage. Shares of the surplus are whole units;
what the rounding leaves over goes, unit by unit, to the largest fractions.

All pools of one tree level are divided at once, so the cost follows the number of levels, priorities and rounds, not
the number of parents. The result does not depend on the order of the rows: sums run in rank order, ties end with rank.

Units: CPU in millicores, memory in bytes, GPU in devices; rows of a [3, Q] array come in this order.

Past usage: which part of its capacity each queue held while a window of the past lasted.

The past is a list of records in order of time; what a record says holds until the next one, so it does not matter how
often it was written down. A stretch of time counts by its length, and where use decays, less for every moment that it
lies back: the weight of [a, b) at `now` is the integral of 0.5^((now - t) / half life) over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RESOURCES = 3
UNLIMITED = -1.0
# A share this close (relatively) to a whole number of units is that number: the difference is rounding error.
ROUNDING = 1e-12
# Fractions of a unit are compared to this many decimals, so that rounding error does not overrule age.
DECIMALS = 9


@dataclass(frozen=True)
class QueueColumns:
    """What the division reads of each queue; -1 is unlimited in `deserved` and `limit`.

    Rows of `usage` are normalised to the cluster (0..1); `creation` is in seconds; `rank` is the unique position of
    the queue in UID order.
    """

    deserved: Floats
    limit: Floats
    weight: Floats
    request: Floats
    usage: Floats
    priority: Ints
    creation: Floats
    rank: Ints

    def __post_init__(self) -> None:
        count = len(self.rank)
        for column in fields(self):
            shape = getattr(self, column.name).shape
            if shape not in {(RESOURCES, count), (count,)} or (len(shape) == 1) != (column.name in _PER_QUEUE):
                raise ValueError(f"queue column {column.name}: shape {shape} does not fit {count} queues")
        if len(set(self.rank.tolist())) != count:
            raise ValueError("queue column rank: two queues have the same rank")

    def take(self, rows: Ints) -> QueueColumns:
        """The columns of these queues only, in this order."""
        return QueueColumns(*(getattr(self, column.name)[..., rows] for column in fields(self)))

    @property
    def requestable(self) -> Floats:
        """The request of a queue, capped by its limit."""
        return np.where(self.limit == UNLIMITED, self.request, np.minimum(self.limit, self.request))


_PER_QUEUE = frozenset({"priority", "creation", "rank"})


@dataclass(frozen=True)
class _Claims:
    """Every (resource, queue) pair as one row of flat columns, queues in rank order."""

    pool: Ints
    requestable: Floats
    weight: Floats
    usage: Floats
    priority: Ints
    creation: Floats
    rank: Ints


@dataclass
class _Division:
    """The division under way: what each pool still holds; what each claim has, was rounded off and if it waits."""

    amount: Floats
    shares: Floats
    fraction: Floats
    waiting: Ints


def fair_shares(parent: Ints, total: Floats, columns: QueueColumns, k: float) -> Floats:
    """The fair share [3, Q] of every queue of the tree; `parent` is a row, or -1 for a top-level queue."""
    fair = np.zeros((RESOURCES, len(parent)))
    for rows in _levels(parent, columns.rank):
        parents, group = np.unique(parent[rows], return_inverse=True)
        pools = np.asarray(total, np.float64)[:, None] if parents[0] < 0 else fair[:, parents]
        fair[:, rows] = _divide(pools, group, columns.take(rows), k, fair[:, rows])
    return fair


def divide_level(total: Floats, columns: QueueColumns, k: float, before: Floats | None = None) -> Floats:
    """The fair share [3, Q] of sibling queues that divide `total` [3]: quota first, then over quota.

    `before` [3, Q]: shares that queues have from elsewhere, to which theirs of the total are added; None: nothing.
    """
    rows = np.argsort(columns.rank)
    fair = np.zeros(columns.request.shape) if before is None else before.copy()
    pools, group = np.asarray(total, np.float64)[:, None], np.zeros_like(rows)
    fair[:, rows] = _divide(pools, group, columns.take(rows), k, fair[:, rows])
    return fair


def divide_over_quota(surplus: Floats, fair: Floats, columns: QueueColumns, k: float) -> Floats:
    """`fair` [3, Q] increased by the queues' parts of the `surplus` [3] that their quotas left."""
    rows = np.argsort(columns.rank)
    result = np.empty(columns.request.shape)
    pools = np.asarray(surplus, np.float64)[:, None]
    result[:, rows] = _share_surplus(pools, fair[:, rows], _claims(np.zeros_like(rows), 1, columns.take(rows)), k)
    return result


def _levels(parent: Ints, rank: Ints) -> Iterator[Ints]:
    """The rows of each level, top first, each in rank order; refuses a parent that no root reaches."""
    order = np.argsort(rank)
    depth = np.where(parent < 0, 0, -1)
    level = 0
    while (rows := order[depth[order] == level]).size:
        yield rows
        below = (depth < 0) & np.isin(parent, rows)
        level += 1
        depth[below] = level
    if (depth < 0).any():
        raise ValueError(f"queue column parent: rows {np.flatnonzero(depth < 0).tolist()} hang on no top-level queue")


def _divide(pools: Floats, group: Ints, columns: QueueColumns, k: float, before: Floats) -> Floats:
    """Fair shares [3, n] on top of `before`: queue i takes from column group[i] of `pools` [3, P]; in rank order."""
    claims = _claims(group, pools.shape[1], columns)
    deserved = np.where(columns.deserved == UNLIMITED, pools[:, group], columns.deserved)
    quota = np.minimum(deserved, columns.requestable)
    taken = np.bincount(claims.pool, quota.ravel(), pools.size).reshape(pools.shape)
    return _share_surplus(pools - taken, before + quota, claims, k)


def _claims(group: Ints, groups: int, columns: QueueColumns) -> _Claims:
    pool = np.arange(RESOURCES)[:, None] * groups + group
    return _Claims(
        pool=pool.ravel(),
        requestable=columns.requestable.ravel(),
        weight=columns.weight.ravel(),
        usage=columns.usage.ravel(),
        priority=np.tile(columns.priority, RESOURCES),
        creation=np.tile(columns.creation, RESOURCES),
        rank=np.tile(columns.rank, RESOURCES),
    )


def _share_surplus(pools: Floats, fair: Floats, claims: _Claims, k: float) -> Floats:
    """`fair` [3, n] plus the surplus of `pools` [3, P] by priority and weight, then the left-over units."""
    state = _Division(np.maximum(pools.ravel(), 0.0), fair.ravel().copy(), np.zeros(fair.size), np.empty(0, np.int64))
    hungry = (claims.requestable > state.shares) & (claims.weight != 0)
    for priority in np.unique(claims.priority[hungry])[::-1]:
        state.waiting = np.flatnonzero(hungry & (claims.priority == priority) & (state.amount[claims.pool] > 0))
        while state.waiting.size:
            _serve_round(state, claims, k)
    _serve_fractions(state, claims)
    return state.shares.reshape(fair.shape)


def _serve_round(state: _Division, claims: _Claims, k: float) -> None:
    """Serve the unsatisfied claims once; another round follows where a sibling requested less than its share."""
    rows, share = _proportional(state, claims, k)
    pool, want = claims.pool[rows], claims.requestable[rows] - state.shares[rows]
    satisfied = want <= share
    units = _whole_units(share)
    state.shares[rows] = np.where(satisfied, claims.requestable[rows], state.shares[rows] + units)
    rest = np.where(share - units > ROUNDING * share, share - units, state.fraction[rows])
    state.fraction[rows] = np.where(satisfied, 0.0, rest)
    given = np.bincount(pool, np.where(satisfied, want, units), state.amount.size)
    state.amount = np.maximum(state.amount - given, 0.0)
    again = np.bincount(pool, want < share, state.amount.size) > 0
    state.waiting = rows[again[pool] & (state.amount[pool] > 0) & ~satisfied]


def _proportional(state: _Division, claims: _Claims, k: float) -> tuple[Ints, Floats]:
    """The waiting claims that weigh anything in their pool, and each one's part of the pool's amount."""
    rows, pools = state.waiting, state.amount.size
    weights = np.bincount(claims.pool[rows], claims.weight[rows], pools)
    rows = rows[weights[claims.pool[rows]] != 0]
    pool = claims.pool[rows]
    part = claims.weight[rows] / weights[pool]
    strength = np.maximum(0.0, part + k * (part - claims.usage[rows]))
    strengths = np.bincount(pool, strength, pools)
    strong = strengths[pool] > 0
    rows, pool = rows[strong], pool[strong]
    return rows, state.amount[pool] * strength[strong] / strengths[pool]


def _whole_units(share: Floats) -> Floats:
    nearest = np.rint(share)
    return np.where(np.abs(share - nearest) <= ROUNDING * share, nearest, np.floor(share))


def _serve_fractions(state: _Division, claims: _Claims) -> None:
    """Give what is left of each pool, at most a unit each: priority, largest fraction, oldest, lowest rank first."""
    rows = np.flatnonzero((state.fraction > 0) & (state.amount[claims.pool] > 0))
    keys = (claims.rank, claims.creation, -state.fraction.round(DECIMALS), -claims.priority, claims.pool)
    rows = rows[np.lexsort([key[rows] for key in keys])]
    pool = claims.pool[rows]
    position = np.arange(len(rows)) - np.searchsorted(pool, pool)
    state.shares[rows] += np.clip(state.amount[pool] - position, 0.0, 1.0)


Amounts = tuple[float, float, float]
"""(cpu, memory, gpu), in any unit that held and capacity share."""
NOTHING: Amounts = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class UsageRecord:
    """What queues held of which capacity from an instant on (seconds since 1970)."""

    at: float
    capacity: Amounts
    allocated: Mapping[str, Amounts] = field(default_factory=dict)


def stretch_weights(begins: Floats, since: float, now: float, half_life: float | None) -> Floats:
    """How much each record counts in the window from `since` to `now`; `half_life` in seconds, None: no decay.

    `begins` rise; a record ends where the next begins, the last at `now`. Units do not matter: only ratios do.
    """
    edges = np.clip(np.append(begins, now), since, now)
    if half_life is None:
        return np.diff(edges)
    return np.diff(0.5 ** ((now - edges) / half_life))


def normalised_use(
    records: Sequence[UsageRecord], since: float, now: float, half_life: float | None
) -> dict[str, Amounts]:
    """Each queue's part (0..1) of the capacity in the window; queues that held nothing are left out."""
    weights = stretch_weights(np.array([record.at for record in records]), since, now, half_life)
    counted = np.flatnonzero(weights)
    if not counted.size:
        return {}
    kept, weights = [records[row] for row in counted.tolist()], weights[counted]
    capacity = weights @ np.array([record.capacity for record in kept])
    queues = sorted({queue for record in kept for queue in record.allocated})
    held = {queue: weights @ np.array([record.allocated.get(queue, NOTHING) for record in kept]) for queue in queues}
    return {queue: _parts(amounts, capacity) for queue, amounts in held.items() if amounts.any()}


def _parts(held: Floats, capacity: Floats) -> Amounts:
    """What was held as parts of the capacity; 0 of a resource the cluster does not have."""
    cpu, memory, gpu = np.divide(held, capacity, out=np.zeros(len(held)), where=capacity > 0).tolist()
    return cpu, memory, gpu
