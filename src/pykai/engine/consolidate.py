"""The consolidation action: move running pods together so that a waiting gang fits; nobody loses (spec §16.6)."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from pykai.engine import evict
from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place
from pykai.engine.scenario import Cause, Scenario
from pykai.engine.search import Search
from pykai.engine.victims import VictimPool, VictimWalk
from pykai.model.resources import GPU


def consolidate(cycle: Cycle) -> None:
    if cycle.snapshot.params.max_consolidation_victims != 0:
        evict.run(cycle, CONSOLIDATION)


def _search(cycle: Cycle, cause: Cause, pool: VictimPool) -> Search | None:
    if not _enough_free(cycle, cause.gang):
        return None
    may_go = evict.filtered(cycle, cause)
    leaves = {queue: pool.leaf(queue) for queue in pool.queues()}
    most = cycle.snapshot.params.max_consolidation_victims
    if most >= 0:
        chosen = _sample(cycle, [gang for gangs in leaves.values() for gang in gangs if may_go(gang)], most + 1)
        leaves = {queue: [gang for gang in gangs if gang in chosen] for queue, gangs in leaves.items()}
    return Search(cycle, cause, lambda: VictimWalk(cycle, leaves, may_go))


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


def _sample(cycle: Cycle, gangs: list[int], size: int) -> set[int]:
    """A few candidates from all over the cluster: by a hash of their names, so that no node is favoured."""
    title = cycle.snapshot.gangs.title
    ranked = sorted(gangs, key=lambda gang: blake2b(title(gang).encode(), digest_size=8).digest())
    return set(ranked[:size])


def _message(cycle: Cycle, _: Scenario, pod: int) -> str:
    who = cycle.snapshot.pods.title(pod)
    return f"Pod {who} was preempted and rescheduled due to bin packing (resource consolidation) procedure"


CONSOLIDATION = evict.Eviction(
    "consolidation", lambda cycle, gang: cycle.snapshot.gangs.preemptible[gang], _search, _message, keep_all=True
)
