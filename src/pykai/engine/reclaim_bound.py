"""What a reclaim could gain from victims in other queues: arithmetic on queues, before anything is simulated.

After a supposed eviction all gangs are served again in order. A victim whose queue, at the level at which the two
compete, goes before the evictor's takes its place back; where no other node has a place for it, evicting it is in vain.
How much a branch of the tree can lose is bounded twice: by the order of service, because losses bring it to the front,
and by the rules of reclaim. Both follow from the use of the queues alone. What the evictor's own branch loses brings
the evictor to the front instead, so that is bounded by what can be lost there together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import ceil, floor, log2
from typing import Any

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.feasibility import cumulated
from pykai.engine.order import next_request, queue_key
from pykai.engine.pending import PendingOrder, Turn, largest
from pykai.engine.queues import BILLION, ZERO, QueueKey, Triple, plus
from pykai.engine.victims import VictimPool
from pykai.model.resources import GPU, Column, Mask, Rows

_SLACK = 1e-7
FEW = 16
"""Up to so many victims are judged one by one: columns take longer."""
_STEP = 1e-6
"""Beyond the amount at which two queues are equal, so that one of them goes first."""


@dataclass(frozen=True)
class VictimLosses:
    """Pods that could be evicted: their leaf queue, [resource, pod] what it would lose, and the GPUs of all the pods
    that go together with each."""

    queues: Rows
    losses: Column
    blocks: Column

    def take(self, which: Rows) -> VictimLosses:
        return VictimLosses(self.queues[which], self.losses[:, which], self.blocks[which])

    def only(self, mask: Mask) -> VictimLosses:
        """The same, where only some of them lose anything."""
        return VictimLosses(self.queues, np.where(mask, self.losses, 0.0), np.where(mask, self.blocks, 0.0))


class ReclaimBound:
    """What one pending gang can expect of victims in other queues."""

    def __init__(self, pool: VictimPool, waiting: PendingOrder, gang: int) -> None:
        self.cycle: Cycle = pool.cycle
        self._pool = pool
        self._waiting = waiting
        self._gang = gang
        self._path = self.cycle.snapshot.queues.paths[self.cycle.snapshot.gangs.queue[gang]]
        self._levels, self._branches = pool.branches(self._path[0])
        """By queue: the depth on the gang's path at which the two compete, and the ancestor that does."""
        self._most: dict[tuple[tuple[int, float], Triple, Triple], float] = {}
        self._most_of_one: dict[tuple[int, Triple, Triple], float] = {}
        self._alone: dict[Triple, dict[int, tuple[int, bool, float]]] = {}
        """By request and leaf queue what holds for a victim that goes alone (`_of_one`)."""

    # -------------------------------------------------------------------------------------------------- one by one
    def judge(
        self, request: Triple, taken: VictimLosses, victims: VictimLosses, nodes: Rows | None
    ) -> tuple[Mask, Mask]:
        """Which victims are served after the gang, and of those which it could take something from if it takes
        `request` of its queues, besides those already taken. `nodes`: where each is, if only victims of one node are
        ever evicted together."""
        if nodes is None and len(victims.queues) <= FEW:
            return self._judged_few(request, taken, victims)
        queues, losses = victims.queues, victims.losses
        mask, spared = np.zeros(len(queues), dtype=bool), np.zeros_like(losses)
        after = mask.copy()
        level, branch = self._levels[queues], self._branches[queues]
        for depth in range(len(self._path)):
            here = np.flatnonzero(level == depth)
            if not len(here):
                continue
            some = queues[here], branch[here], victims.blocks[here]
            before = np.array([self._spared(taken, depth)]).T
            after[here], mask[here] = self._could_lose((depth, request), some, spared[:, here] + before)
            lost = np.where(after, losses, 0.0)
            if nodes is None:
                spared = np.repeat(_rounded(lost.sum(axis=1))[:, None], len(queues), axis=1)
            else:
                spared = np.array([np.bincount(nodes, weights=row)[nodes] for row in lost])
        return after, mask

    def any_useful(self, request: Triple, pods: Sequence[int]) -> bool:
        """Whether the gang could gain from one of a few pods; True where they compete with it at several levels."""
        trial, queue_of, known = self.cycle.trial, self.cycle.snapshot.gangs.queue, self._alone.setdefault(request, {})
        depths = set[int]()
        for pod in pods:  # thousands are asked for in a search: a call for each is most of the time of this
            queue = queue_of[trial.gang[pod]]
            found = known.get(queue)
            if found is None:
                found = known[queue] = self._of_one(request, queue)
            depth, after, most = found
            depths.add(depth)
            gpus = trial.quota_amounts(trial.of_class(pod), trial.node[pod])[GPU]
            if len(depths) > 1 or (after and _lost(gpus, most)):
                return True
        return False

    def _of_one(self, request: Triple, queue: int) -> tuple[int, bool, float]:
        """For a victim of a leaf queue that goes alone: the depth at which it competes, whether it is served after the
        gang, and what it must stay below in GPUs then."""
        depth = int(self._levels[queue])
        if self._turn_of(queue, depth).key < self._key(depth, ZERO):
            return depth, False, 0.0
        return depth, True, self._gpus_of_one((depth, request), int(self._branches[queue]), ZERO)

    def _spared(self, taken: VictimLosses, depth: int) -> Triple:
        """What the gang's own branch at a depth loses by victims already taken."""
        return _summed(taken.losses[:, self._levels[taken.queues] < depth].T.tolist())

    def _judged_few(self, request: Triple, taken: VictimLosses, victims: VictimLosses) -> tuple[Mask, Mask]:
        """The same for victims that all go together, one by one."""
        queues, losses, blocks = victims.queues.tolist(), victims.losses.T.tolist(), victims.blocks.tolist()
        after, useful = [False] * len(queues), [False] * len(queues)
        lost = ZERO
        for depth in range(len(self._path)):
            here = [at for at, queue in enumerate(queues) if self._levels[queue] == depth]
            if not here:
                continue
            spared = plus(lost, self._spared(taken, depth))
            ours = self._key(depth, spared)
            for at in here:
                if self._turn_of(queues[at], depth).key < ours:
                    continue
                most = self._gpus_of_one((depth, request), int(self._branches[queues[at]]), spared)
                after[at], useful[at] = True, _lost(blocks[at], most)
            lost = _summed([loss for loss, goes in zip(losses, after, strict=True) if goes])
        return np.array(after, dtype=bool), np.array(useful, dtype=bool)

    def _could_lose(
        self, claim: tuple[int, Triple], some: tuple[Rows, Rows, Column], spared: Column
    ) -> tuple[Mask, Mask]:
        """Which victims are served after the gang, and may be taken from, if its own branch loses so much."""
        (depth, request), (queues, branch, blocks) = claim, some
        mask = np.zeros(len(queues), dtype=bool)
        after = mask.copy()
        turns = [(leaf, self._turn_of(leaf, depth).key) for leaf in np.unique(queues).tolist()]
        last = np.zeros(len(self._levels), dtype=bool)
        for gpus in np.unique(spared[GPU]).tolist():
            alike = np.flatnonzero(spared[GPU] == gpus)
            cpu, memory, _ = spared[:, alike].max(axis=1).tolist()
            ours = self._key(depth, (cpu, memory, gpus))
            last[[leaf for leaf, _ in turns]] = [not turn < ours for _, turn in turns]
            alike = alike[last[queues[alike]]]
            after[alike] = True
            losers, of_loser = np.unique(branch[alike], return_inverse=True)
            most = [self._gpus_of_one((depth, request), loser, (cpu, memory, gpus)) for loser in losers.tolist()]
            most_of = np.array(most)[of_loser]
            mask[alike] = (blocks[alike] < most_of - _SLACK) | ((blocks[alike] <= 0) & (most_of >= 0))
        return after, mask

    # ------------------------------------------------------------------------------------------------------ together
    def obtainable(self, request: Triple, taken: VictimLosses, victims: VictimLosses) -> Column:
        """How many GPUs could be had at most when the victims go one after the other, besides those already taken;
        negative where those are more than could be had."""
        queues = np.concatenate((taken.queues, victims.queues))
        losses = np.concatenate((taken.losses, victims.losses), axis=1)
        blocks = np.concatenate((taken.blocks, victims.blocks))
        level, branch = self._levels[queues], self._branches[queues]
        total, spared = np.zeros(len(queues)), ZERO
        for depth in range(len(self._path)):
            here = np.flatnonzero(level == depth)
            if len(here):
                total[here] = self._growth((depth, request), (branch[here], losses[GPU, here], blocks[here]), spared)
            cpu, memory, gpus = _rounded(losses[:, level <= depth].sum(axis=1)).tolist()
            spared = (cpu, memory, gpus)
        return np.asarray(np.cumsum(total)[len(taken.queues) :] - taken.losses[GPU].sum())

    def obtainable_on_node(self, request: Triple, taken: VictimLosses, useful: VictimLosses, nodes: Rows) -> Column:
        """The same, without those already taken, when of useful victims only those of one node go.

        As long as these compete at one level, nothing they lose brings the gang to the front, and that bounds them
        further.
        """
        losses = useful.losses[GPU]
        level, branch = self._levels[useful.queues], self._branches[useful.queues]
        alone, most = np.zeros(len(nodes), dtype=bool), np.zeros(len(nodes))
        for depth in np.unique(level).tolist():
            here = np.flatnonzero(level == depth)
            some = useful.queues[here], branch[here], useful.blocks[here]
            before = np.array([self._spared(taken, depth)]).T.repeat(len(here), axis=1)
            alone[here] = self._could_lose((depth, request), some, before)[1]
            most[here] = self._most_left((depth, request), branch[here], useful.blocks[here], taken)
        lost = np.where(alone, losses, 0.0)
        by_branch = cumulated(branch * (int(nodes.max(initial=0)) + 1) + nodes, lost)
        bounded = np.minimum(by_branch, most) - np.minimum(by_branch - lost, most)
        _, first, of_node = np.unique(nodes, return_index=True, return_inverse=True)
        mixed = cumulated(nodes, (level != level[first][of_node]).astype(np.float64)) > 0
        return np.asarray(np.where(mixed, cumulated(nodes, losses), cumulated(nodes, bounded)))

    def _most_left(self, claim: tuple[int, Triple], branch: Rows, blocks: Column, taken: VictimLosses) -> Column:
        """By victim: how many GPUs can be had of its branch at most besides those already taken."""
        level, of_branch = self._levels[taken.queues], self._branches[taken.queues]
        spared = self._spared(taken, claim[0])
        groups, of_group = np.unique(branch, return_inverse=True)
        largest_block = np.zeros(len(groups))
        np.maximum.at(largest_block, of_group, blocks)
        left = []
        for group, block in zip(groups.tolist(), largest_block.tolist(), strict=True):
            mine = (level == claim[0]) & (of_branch == group)
            most = self._most_gpus(claim, (group, max(block, taken.blocks[mine].max(initial=0.0))), spared)
            left.append(max(most - _SLACK - float(taken.losses[GPU, mine].sum()), 0.0))
        return np.array(left)[of_group]

    def obtainable_together(self, request: Triple, taken: VictimLosses, victims: VictimLosses) -> float:
        """The same when all of a few victims go."""
        queues = [*taken.queues.tolist(), *victims.queues.tolist()]
        losses = [*taken.losses.T.tolist(), *victims.losses.T.tolist()]
        blocks = [*taken.blocks.tolist(), *victims.blocks.tolist()]
        levels, branches = self._levels[queues].tolist(), self._branches[queues].tolist()
        total, spared = 0.0, ZERO
        for depth in range(len(self._path)):
            lost: dict[int, tuple[float, float]] = {}
            for level, branch, loss, block in zip(levels, branches, losses, blocks, strict=True):
                if level == depth:
                    sums, largest_block = lost.get(branch, (0.0, 0.0))
                    lost[branch] = sums + loss[GPU], max(largest_block, block)
            for branch, (sums, block) in lost.items():
                total += min(sums, max(self._most_gpus((depth, request), (branch, block), spared) - _SLACK, 0.0))
            spared = _summed([loss for loss, level in zip(losses, levels, strict=True) if level <= depth])
        return total - float(taken.losses[GPU].sum())

    def _growth(self, claim: tuple[int, Triple], some: tuple[Rows, Column, Column], spared: Triple) -> Column:
        """What each of the victims adds to what can be had of its branch, those before it included."""
        branch, losses, blocks = some
        groups, of_group = np.unique(branch, return_inverse=True)
        largest_block = np.zeros(len(groups))
        np.maximum.at(largest_block, of_group, blocks)
        pairs = zip(groups.tolist(), largest_block.tolist(), strict=True)
        most = np.array([max(self._most_gpus(claim, pair, spared) - _SLACK, 0.0) for pair in pairs])[of_group]
        after = cumulated(of_group, losses)
        return np.asarray(np.minimum(after, most) - np.minimum(after - losses, most))

    def enough(self, request: Triple, leaves: Collection[int], gpus: float) -> bool:
        """Whether the gang could take so many GPUs from these leaf queues at all."""
        held = np.array([self.cycle.book.allocated[leaf] for leaf in leaves]).reshape(-1, 3).T
        blocks = np.array([self._pool.largest_gpus(leaf) for leaf in leaves])
        rows = np.array(list(leaves), dtype=np.int64)
        level, branch, had, spared = self._levels[rows], self._branches[rows], 0.0, ZERO
        for depth in range(len(self._path)):
            here = level == depth
            for queue in np.unique(branch[here]).tolist():
                mine = here & (branch == queue)
                most = self._most_gpus((depth, request), (queue, float(blocks[mine].max())), spared)
                had += min(float(held[GPU, mine].sum()), max(most - _SLACK, 0.0))
                if had >= gpus:
                    return True
            cpu, memory, lost = _rounded(held[:, level <= depth].sum(axis=1)).tolist()
            spared = (cpu, memory, lost)
        return had >= gpus

    def _gpus_of_one(self, claim: tuple[int, Triple], branch: int, spared: Triple) -> float:
        """What a victim of a branch must stay below in GPUs for the branch to lose it first, if the gang's own branch
        has lost so much; negative where the branch may lose nothing.

        Without the victim, and with it as a request, the branch is keyed as it is now. If that is before the gang, only
        a bystander with a larger request can hold the victim back.
        """
        depth, request = claim
        known = self._most_of_one.get((branch, request, spared))
        if known is None:
            quota = self.cycle.quota
            assert quota is not None
            known = quota.most_gpus(self.cycle.book, (self._path[depth], branch, spared), request, np.inf)
            if known > 0 and queue_key(self.cycle, branch, ZERO) < self._key(depth, spared):
                known = min(known, self._until_first((depth, branch), self._bystanders(depth, branch), spared))
            self._most_of_one[branch, request, spared] = known
        return known

    def _most_gpus(self, claim: tuple[int, Triple], loser: tuple[int, float], spared: Triple) -> float:
        """Of one branch that loses blocks of at most so many GPUs, if the gang's own has lost so much."""
        (depth, request), (branch, block) = claim, loser
        known = self._most.get((loser, request, spared))
        if known is None:
            quota = self.cycle.quota
            assert quota is not None
            known = quota.most_gpus(self.cycle.book, (self._path[depth], branch, spared), request, block)
            if known > 0:
                behind = self._until_first((depth, branch), self._bystanders(depth, branch), spared)
                known = min(known, max(behind, self._until_first((depth, branch), (0.0, 0.0, block), spared)))
            known = self._most[loser, request, spared] = max(known, 0.0)
        return known

    def _until_first(self, at: tuple[int, int], request: Triple, spared: Triple) -> float:
        """How many GPUs a branch can lose before it is served, with this request, before the gang; infinite where that
        never happens."""
        depth, branch = at
        ours, held = self._key(depth, spared), self.cycle.book.allocated[branch][GPU]

        def first(lost: float) -> bool:
            return queue_key(self.cycle, branch, (request[0], request[1], request[2] - lost)) < ours

        if first(0.0):
            return 0.0
        most = held + request[2]
        if not first(most):
            return np.inf
        _, quota, _, bound = self.cycle.book.bounds[branch][GPU]
        step = max(_STEP, 2 * bound / BILLION)
        equal = sorted((most - quota, most - ours.share / BILLION * bound))
        return next((lost for at in equal if first(lost := min(at + step, most))), most)

    def _bystanders(self, depth: int, branch: int) -> Triple:
        """The largest requests of those in a branch that may be popped before its victims."""
        known, key = self._known_turns(branch), (branch, "requests")
        if key not in known:
            known[key] = reduce(largest, (self._turn_of(leaf, depth).most for leaf in self._leaves(branch)), ZERO)
        most: Triple = known[key]
        return most

    def _known_turns(self, queue: int) -> dict[Hashable, Any]:
        """What is known of the turns below the root of a queue."""
        return self._pool.turns.setdefault(self.cycle.snapshot.queues.paths[queue][-1], {})

    def _leaves(self, branch: int) -> Sequence[int]:
        """The leaf queues of a branch in which anybody could lose anything."""
        return self._pool.below(self._path[0]).get(branch, ())

    # --------------------------------------------------------------------------------------------------------- turns
    def _turn_of(self, leaf: int, depth: int) -> Turn:
        """When the last victim of a leaf queue is served at the latest: the more is lost, the sooner."""
        of_root = self._known_turns(leaf)
        turns: Sequence[Turn] | None = of_root.get(leaf)
        if turns is None:
            last = self._pool.last_key(leaf)
            at = bisect_left(self._waiting.leaf(leaf).keys, last) if last is not None else 0
            turns = of_root[leaf] = self._waiting.turn(leaf, at, ZERO)
        return turns[depth - len(self._path)]

    def _key(self, depth: int, spared: Triple) -> QueueKey:
        """The smallest key with which the gang can be popped from its ancestor at a depth, which loses so much."""
        if spared == ZERO:
            return self._turn[depth].key
        request = next_request(self.cycle, self._gang)
        less = (request[0] - spared[0], request[1] - spared[1], request[2] - spared[2])
        return queue_key(self.cycle, self._path[depth], less)._replace(over=False, share_now=-1)

    @cached_property
    def _turn(self) -> Sequence[Turn]:
        leaf, key = self._path[0], self.cycle.gang_key(self._gang)
        at = bisect_left(self._waiting.leaf(leaf).keys, key)
        return self._waiting.turn(leaf, at, next_request(self.cycle, self._gang))


def _lost(gpus: float, most: float) -> bool:
    """Whether a queue would lose first what goes together with a victim, if it must stay below so many GPUs; negative:
    it may lose nothing."""
    return gpus < most - _SLACK or (gpus <= 0 <= most)


def _summed(amounts: Sequence[Sequence[float]]) -> Triple:
    """The sum of some amounts, rounded as `_rounded` does."""
    if not amounts:
        return ZERO
    cpu, memory, gpus = (_round(sum(column)) for column in zip(*amounts, strict=True))
    return cpu, memory, gpus


def _round(amount: float) -> float:
    step = 2.0 ** (floor(log2(max(amount, 1e-6))) - 4)
    return ceil(amount / step) * step


def _rounded(amounts: Column) -> Column:
    """Amounts rounded up to steps of a sixteenth, so that few different ones have to be looked at."""
    step = np.exp2(np.floor(np.log2(np.maximum(amounts, 1e-6))) - 4)
    return np.asarray(np.ceil(amounts / step) * step)
