"""The consolidation action: move running pods together so that a waiting gang fits; nobody loses (spec §16.6)."""

from __future__ import annotations

from collections import deque
from zlib import crc32

import numpy as np

from pykai.engine import evict
from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place
from pykai.engine.line import VictimLine
from pykai.engine.scenario import Cause, Scenario
from pykai.engine.search import Search
from pykai.engine.victims import VictimPool
from pykai.model.resources import GPU


def consolidate(cycle: Cycle) -> None:
    if cycle.snapshot.params.max_consolidation_victims != 0:
        evict.run(cycle, CONSOLIDATION)


def _search(cycle: Cycle, cause: Cause, pool: VictimPool) -> Search | None:
    if not _enough_free(cycle, cause.gang):
        return None
    may_go = evict.filtered(cycle, cause)
    leaves = {queue: pool.leaf(queue) for queue in pool.queues}
    most = cycle.snapshot.params.max_consolidation_victims
    if most >= 0:
        chosen = _sample(cycle, pool, most + 1)
        leaves = {queue: ([gang for gang in gangs[at:] if gang in chosen], 0) for queue, (gangs, at) in leaves.items()}
    return Search(cycle, cause, VictimLine(pool, leaves, may_go))


def _enough_free(cycle: Cycle, gang: int) -> bool:
    """Whether the cluster has the GPUs, if only they were together."""
    trial, ready = cycle.trial, cycle.snapshot.nodes.ready
    free = (trial.idle[GPU] + trial.releasing[GPU])[ready].sum()
    for node, shares in trial.shares.items():
        if ready[node]:
            capacity = float(cycle.snapshot.nodes.gpu_memory[node])
            free += sum((capacity - s.allocated + s.releasing) / capacity for s in shares.values() if s.used > 0)
    pods = pods_to_place(trial, cycle.orders, gang)
    return bool(np.round(free, 4) >= np.round(sum(trial.of_class(pod).request[GPU] for pod in pods), 4))


def _sample(cycle: Cycle, pool: VictimPool, size: int) -> set[int]:
    """A few candidates from all over the cluster, other ones for each gang that asks; nobody is moved twice.

    All candidates stand in a ring, in an order that has nothing to do with where they run; each search takes the next
    ones. The ring is the same for the same cluster.
    """
    ring: deque[int] | None = cycle.memo.get("consolidation_ring")
    if ring is None:
        title = cycle.snapshot.gangs.title
        everybody = [gang for queue in pool.queues for gang in pool.leaf(queue)[0]]
        ring = deque(sorted(everybody, key=lambda gang: (crc32(title(gang).encode()), title(gang))))
        cycle.memo["consolidation_ring"] = ring
    moved = {cycle.trial.gang[pod] for pod in cycle.trial.evicted}
    chosen: set[int] = set()
    for _ in range(len(ring)):
        if len(chosen) == size:
            break
        gang = ring.popleft()
        if gang not in moved:
            ring.append(gang)
            chosen.add(gang)
    return chosen


def _messages(cycle: Cycle, scenario: Scenario) -> dict[int, str]:
    title = cycle.snapshot.pods.title
    reason = "was preempted and rescheduled due to bin packing (resource consolidation) procedure"
    return {pod: f"Pod {title(pod)} {reason}" for pod in scenario.victims}


CONSOLIDATION = evict.Eviction(
    "consolidation", lambda cycle, gang: cycle.snapshot.gangs.preemptible[gang], _search, _messages, keep_all=True
)
