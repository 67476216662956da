"""proportion: fair shares over the tree of queues, limits and quotas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pykai.engine import queues as rules
from pykai.engine.cycle import Cycle
from pykai.engine.queues import Claim, OverCapacity, QueueBook, Taking, Triple
from pykai.engine.scenario import Scenario
from pykai.kernels.fairshare import QueueColumns, fair_shares
from pykai.model.resources import GPU, Column


@dataclass(frozen=True)
class Proportion:
    """`k`: how strongly past use counts; `saturation`: how much richer than its victims a reclaimer may become;
    `priority_in_quota`: whether a queue within its quota may reclaim from any queue of lower priority."""

    k: float = 1.0
    saturation: float = 1.0
    priority_in_quota: bool = False

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
        shares = fair_shares(np.array(queues.parent, dtype=np.int64), cycle.cluster, columns, max(self.k, 0.0))
        shares[GPU] = np.round(shares[GPU], 4)  # as exact as the ledgers: a share must not miss what is held by 2e-16
        return shares

    queue_key = staticmethod(rules.queue_key)

    def over_capacity(self, cycle: Cycle, gang: int, request: Triple) -> OverCapacity | None:
        """The first limit or quota on the way to the root that the gang would break."""
        gangs = cycle.snapshot.gangs
        over = rules.over_limit(cycle.book, gangs.queue[gang], request)
        if over is None and not cycle.trial.adds_preemptible(gang):
            over = rules.over_non_preemptible_quota(cycle.book, gangs.queue[gang], request)
        return over

    def bounded(self, cycle: Cycle, gang: int) -> bool:
        queue, book = cycle.snapshot.gangs.queue[gang], cycle.book
        return queue >= 0 and bool(
            book.limits[queue] or (book.quotas[queue] and not cycle.snapshot.gangs.preemptible[gang])
        )

    def can_reclaim(self, cycle: Cycle, gang: int, request: Triple) -> bool:
        return rules.can_reclaim(cycle.book, self._claim(cycle, gang, request))

    def most_losses(self, book: QueueBook, taking: Taking, request: Triple, block: Triple) -> Triple:
        return rules.most_losses(book, taking, request, block, self.saturation)

    def justified(self, cycle: Cycle, scenario: Scenario) -> bool:
        """A reclaim must leave every queue that loses, and the one that gains, at a fair level; also where only some
        of the gang's pods are placed yet: it is all of them that the victims go for."""
        cause = scenario.cause
        if cause.action != "reclaim":
            return True
        claim = self._claim(cycle, cause.gang, cause.request)
        return rules.reclaimable(cause.book, claim, _losses(cycle, scenario), self.saturation)

    def _claim(self, cycle: Cycle, gang: int, request: Triple) -> Claim:
        gangs = cycle.snapshot.gangs
        return Claim(gangs.queue[gang], request, cycle.trial.adds_preemptible(gang))


def _losses(cycle: Cycle, scenario: Scenario) -> rules.Blocks:
    """What each queue would lose: of every gang the minimum as one block, pods beyond it one by one."""
    trial, gangs = cycle.trial, cycle.snapshot.gangs
    gone = scenario.released
    if not cycle.snapshot.params.allow_consolidating_reclaim:
        gone = scenario.victims
    by_podset: dict[tuple[int, int], list[Triple]] = {}
    for pod in _in_order(cycle, gone):
        before = int(cycle.snapshot.pods.node[pod])
        node = before if before >= 0 else trial.node[pod]  # promised in this cycle
        amount = trial.quota_amounts(trial.of_class(pod), node)
        by_podset.setdefault((trial.gang[pod], trial.podset[pod]), []).append(amount)
    core: dict[int, Triple] = {}
    elastic: dict[int, list[Triple]] = {}
    for (gang, podset), amounts in by_podset.items():
        minimum = gangs.podset_min[podset]
        core[gang] = rules.plus(core.get(gang, rules.ZERO), rules.total(amounts[:minimum]))
        elastic.setdefault(gang, []).extend(amounts[minimum:])
    losses: rules.Blocks = {}
    for gang, block in core.items():
        blocks = losses.setdefault(gangs.queue[gang], [])
        blocks.extend(elastic[gang])
        blocks.extend([block] if any(block) else [])
    return losses


def _in_order(cycle: Cycle, pods: Sequence[int]) -> list[int]:
    """The pods gang by gang, those that would be placed first in front: the last ones are the surplus."""
    gone, gang_of = set(pods), cycle.trial.gang
    gangs = dict.fromkeys(gang_of[pod] for pod in pods)
    return [pod for gang in gangs for pod in cycle.orders.pods(cycle.trial, gang) if pod in gone]
