"""proportion: fair shares over the tree of queues, limits and quotas (spec/scheduling.md §5.4, §8, §9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykai.engine import quota
from pykai.engine.cycle import Cycle
from pykai.engine.quota import Claim, OverCapacity, QueueBook, Triple
from pykai.kernels.fairshare import QueueColumns, fair_shares
from pykai.model.resources import Column


@dataclass(frozen=True)
class Proportion:
    """`k`: how strongly past use counts; `saturation`: how much richer than its victims a reclaimer may become."""

    k: float = 1.0
    saturation: float = 1.0

    def fair_shares(self, cycle: Cycle) -> Column:
        queues = cycle.snapshot.queues
        if not len(queues):
            return np.zeros((3, 0))
        columns = QueueColumns(
            deserved=queues.deserved,
            limit=queues.limit,
            weight=queues.weight,
            request=np.array(cycle.trial.queue_requested).T.copy(),
            usage=queues.usage,
            priority=np.array(queues.priority, dtype=np.int64),
            creation=np.array(queues.creation),
            rank=np.arange(len(queues)),
        )
        return fair_shares(np.array(queues.parent, dtype=np.int64), cycle.cluster, columns, max(self.k, 0.0))

    def queue_key(self, book: QueueBook, queue: int, request: Sequence[float], victims: Sequence[float]) -> Any:
        return quota.queue_key(book, queue, request, victims)

    def over_capacity(self, cycle: Cycle, gang: int, request: Triple) -> OverCapacity | None:
        """The first limit or quota on the way to the root that the gang would break."""
        gangs = cycle.snapshot.gangs
        over = quota.over_limit(cycle.book, gangs.queue[gang], request)
        if over is None and not gangs.preemptible[gang]:
            over = quota.over_held_quota(cycle.book, gangs.queue[gang], request)
        return over

    def can_reclaim(self, cycle: Cycle, gang: int, request: Triple) -> bool:
        return quota.can_reclaim(cycle.book, self._claim(cycle, gang, request))

    def _claim(self, cycle: Cycle, gang: int, request: Triple) -> Claim:
        gangs = cycle.snapshot.gangs
        return Claim(gangs.queue[gang], request, gangs.preemptible[gang])
