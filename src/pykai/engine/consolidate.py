"""The consolidation action: move running pods together so that a waiting gang fits; nobody loses (spec §16.6)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from pykai.engine import evict
from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place
from pykai.engine.line import VictimLine
from pykai.engine.pool import VictimPool
from pykai.engine.ring import Ring
from pykai.engine.scenario import Cause, Scenario
from pykai.engine.search import Search
from pykai.engine.victims import Passes
from pykai.model.resources import GPU, Mask, Rows
from pykai.model.status import IS_ACTIVE_USED


def consolidate(cycle: Cycle) -> None:
    if cycle.snapshot.params.max_consolidation_victims != 0:
        evict.run(cycle, CONSOLIDATION)


def _may_help(cycle: Cycle, _: VictimPool, gangs: Sequence[int]) -> bool:
    free = _free_gpus(cycle)
    return any(_gpus(cycle, pods_to_place(cycle.trial, cycle.orders, gang)) <= free for gang in gangs)


def _search(cycle: Cycle, cause: Cause, pool: VictimPool) -> Search | None:
    if _gpus(cycle, cause.pods) > _free_gpus(cycle):
        return None
    passes = _movable(cycle, cause, pool)
    most = cycle.snapshot.params.max_consolidation_victims
    if most < 0:
        return Search(cycle, cause, VictimLine(pool, {queue: pool.leaf(queue) for queue in pool.queues}, passes))
    sample: dict[int, list[int]] = {}
    for gang in sorted(_sample(cycle, pool, most + 1), key=cycle.gang_key, reverse=True):
        sample.setdefault(cycle.snapshot.gangs.queue[gang], []).append(gang)
    return Search(cycle, cause, VictimLine(pool, {queue: np.array(mine) for queue, mine in sample.items()}, passes))


def _movable(cycle: Cycle, cause: Cause, pool: VictimPool) -> Passes | None:
    """Which gangs may be moved: not who was evicted since the other one came, or it could go in circles.

    Who is evicted is made anew and placed by the ordinary rules, which may lead it back to where it was. As long as it
    has no more than the promise of such a place, nobody needs to leave for it to be moved.
    """
    passes, gangs, before = evict.filtered(cycle, cause, pool), cycle.snapshot.gangs, cycle.snapshot.pods.status
    evicted, came = gangs.last_eviction, gangs.created(cause.gang)

    def rests(gang: int) -> bool:
        return gang in evicted and evicted[gang] >= came and any(IS_ACTIVE_USED[before[p]] for p in gangs.pods(gang))

    if not evicted:
        return passes

    def may_move(rows: Rows) -> Mask:
        rested = np.array([not rests(gang) for gang in rows.tolist()], dtype=bool)
        return rested if passes is None else rested & passes(rows)

    return may_move


def _rested(cycle: Cycle, gang: int) -> int:
    """How many were evicted since a gang came: where as many were, it is the same ones that rest."""
    times = cycle.state(_eviction_times)
    return len(times) - bisect_left(times, cycle.snapshot.gangs.created(gang)) if times else 0


def _eviction_times(cycle: Cycle) -> list[float]:
    return sorted(cycle.snapshot.gangs.last_eviction.values())


def _gpus(cycle: Cycle, pods: Sequence[int]) -> float:
    """GPUs that pods request together, without errors of floating point."""
    classes, klass = cycle.snapshot.pods.classes, cycle.trial.klass
    return round(sum(float(classes[klass[pod]].request[GPU]) for pod in pods), 4)


def _free_gpus(cycle: Cycle) -> float:
    """What would be enough if only it were together."""
    trial, ready = cycle.trial, cycle.snapshot.nodes.ready
    free = (trial.idle[GPU] + trial.releasing[GPU])[ready].sum()
    for node, shares in trial.shares.items():
        if ready[node]:
            capacity = float(cycle.snapshot.nodes.gpu_memory[node])
            free += sum((capacity - s.allocated + s.releasing) / capacity for s in shares.values() if s.used > 0)
    return round(float(free), 4)


def _sample(cycle: Cycle, pool: VictimPool, size: int) -> list[int]:
    """A few candidates from all over the cluster, other ones for each gang that asks; nobody is moved twice."""
    rings = cycle.state(_rings)
    if not rings:
        rings.append(Ring(cycle, pool))
    return rings[0].take(size, {cycle.trial.gang[pod] for pod in cycle.trial.evicted})


def _rings(_: Cycle) -> list[Ring]:
    """The ring of the cycle, made with the pool of the first gang that asks."""
    return []


def _messages(cycle: Cycle, scenario: Scenario) -> dict[int, str]:
    title = cycle.snapshot.pods.title
    reason = "was preempted and rescheduled due to bin packing (resource consolidation) procedure"
    return {pod: f"Pod {title(pod)} {reason}" for pod in scenario.victims}


CONSOLIDATION = evict.Eviction(
    "consolidation",
    lambda cycle, gang: cycle.snapshot.gangs.preemptible[gang],
    _search,
    _messages,
    may_help=_may_help,
    keep_all=True,
    told_apart=_rested,
)
