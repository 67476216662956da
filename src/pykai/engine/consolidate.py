"""The consolidation action: move running pods together so that a waiting gang fits; nobody loses (spec §16.6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from pykai.engine import evict
from pykai.engine.cycle import Cycle
from pykai.engine.line import VictimLine
from pykai.engine.order import runs
from pykai.engine.pool import VictimPool
from pykai.engine.scenario import Cause, Scenario
from pykai.engine.search import Search
from pykai.engine.victims import Passes
from pykai.model.resources import GPU, Rows
from pykai.model.status import IS_ACTIVE_USED


def consolidate(cycle: Cycle) -> None:
    if cycle.snapshot.params.max_consolidation_victims != 0:
        evict.run(cycle, CONSOLIDATION)


def _search(cycle: Cycle, cause: Cause, pool: VictimPool) -> Search | None:
    if not _enough_free(cycle, cause.pods):
        return None
    passes = _movable(cycle, cause)
    most = cycle.snapshot.params.max_consolidation_victims
    if most < 0:
        return Search(cycle, cause, VictimLine(pool, {queue: pool.leaf(queue) for queue in pool.queues}, passes))
    sample: dict[int, list[int]] = {}
    for gang in sorted(_sample(cycle, pool, most + 1), key=cycle.gang_key, reverse=True):
        sample.setdefault(cycle.snapshot.gangs.queue[gang], []).append(gang)
    return Search(cycle, cause, VictimLine(pool, {queue: np.array(mine) for queue, mine in sample.items()}, passes))


def _movable(cycle: Cycle, cause: Cause) -> Passes:
    """Which gangs may be moved: not who was evicted since the other one came, or it could go in circles.

    Who is evicted is made anew and placed by the ordinary rules, which may lead it back to where it was. As long as it
    has no more than the promise of such a place, nobody needs to leave for it to be moved.
    """
    passes, gangs, before = evict.filtered(cycle, cause), cycle.snapshot.gangs, cycle.snapshot.pods.status
    evicted, came = gangs.last_eviction, gangs.creation[cause.gang]

    def rests(gang: int) -> bool:
        return gang in evicted and evicted[gang] >= came and any(IS_ACTIVE_USED[before[p]] for p in gangs.pods(gang))

    if not evicted:
        return passes
    return lambda rows: passes(rows) & np.array([not rests(gang) for gang in rows.tolist()], dtype=bool)


def _enough_free(cycle: Cycle, pods: Sequence[int]) -> bool:
    """Whether the cluster has the GPUs, if only they were together."""
    trial, ready = cycle.trial, cycle.snapshot.nodes.ready
    free = (trial.idle[GPU] + trial.releasing[GPU])[ready].sum()
    for node, shares in trial.shares.items():
        if ready[node]:
            capacity = float(cycle.snapshot.nodes.gpu_memory[node])
            free += sum((capacity - s.allocated + s.releasing) / capacity for s in shares.values() if s.used > 0)
    return bool(np.round(free, 4) >= np.round(sum(trial.of_class(pod).request[GPU] for pod in pods), 4))


def _sample(cycle: Cycle, pool: VictimPool, size: int) -> list[int]:
    """A few candidates from all over the cluster, other ones for each gang that asks; nobody is moved twice.

    All candidates stand in a ring, in an order that has nothing to do with where they run; each search takes the next
    ones. The ring is the same for the same cluster.
    """
    ring: deque[int] | None = cycle.memo.get("consolidation_ring")
    if ring is None:
        ring = cycle.memo["consolidation_ring"] = deque(_scattered(cycle, pool.rows()))
    moved = {cycle.trial.gang[pod] for pod in cycle.trial.evicted}
    chosen: list[int] = []
    for _ in range(len(ring)):
        if len(chosen) == size:
            break
        gang = ring.popleft()
        if gang not in moved:
            ring.append(gang)
            chosen.append(gang)
    return chosen


def _scattered(cycle: Cycle, rows: Rows) -> list[int]:
    """Gangs by a hash of when they were made, then by name: no node or queue is favoured, and input order is not."""
    created = cycle.snapshot.gangs.columns.creation[rows].astype(np.int64).astype(np.uint64)
    mixed = created * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    order = np.argsort(mixed, kind="stable")
    result: list[int] = rows[order].tolist()
    ranked = mixed[order]
    for start, end in runs(np.flatnonzero(ranked[1:] == ranked[:-1]).tolist()):
        result[start:end] = sorted(result[start:end], key=cycle.snapshot.gangs.title)
    return result


def _messages(cycle: Cycle, scenario: Scenario) -> dict[int, str]:
    title = cycle.snapshot.pods.title
    reason = "was preempted and rescheduled due to bin packing (resource consolidation) procedure"
    return {pod: f"Pod {title(pod)} {reason}" for pod in scenario.victims}


CONSOLIDATION = evict.Eviction(
    "consolidation", lambda cycle, gang: cycle.snapshot.gangs.preemptible[gang], _search, _messages, keep_all=True
)
