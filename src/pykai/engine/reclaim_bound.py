"""Upper bounds of what a reclaim can take from other queues: arithmetic on queues, before anything is simulated.

After a supposed eviction all gangs are served again in order. A victim whose queue, at the level at which the two
compete, goes before the evictor's takes its place back; where no other node has a place for it, evicting it is in vain.
How much a branch of the tree can lose is bounded twice: by the order of service, because losses bring it to the front,
and by the rules of reclaim. Both follow from the use of the queues alone. What the evictor's own branch loses brings
the evictor to the front instead, so that is bounded by what can be lost there together.

The bounds hold for each resource by itself. They are worked out for those that a search is short of: in most clusters
GPUs, for workloads without GPUs cores and memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import ceil, floor, inf, log2
from typing import Any

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.node_room import cumulated
from pykai.engine.order import next_request, queue_key
from pykai.engine.pending import PendingOrder, Turn, largest
from pykai.engine.queues import BILLION, ZERO, QueueKey, Triple, plus, triple
from pykai.engine.victims import VictimPool
from pykai.model.resources import GPU, QUEUE_RESOURCES, Column, Mask, Rows

SLACKS = (1e-4, 1.0, 1e-7)
"""By resource of queues: amounts (millicores, bytes, GPUs) that differ by no more count as equal."""
FEW = 16
"""Up to so many victims are judged one by one: columns take longer."""
_STEPS = (1e-3, 1.0, 1e-6)
"""By resource of queues: so far beyond the amount at which two queues are equal one of them goes first."""
_TINY = 1e-9
"""What sums of amounts differ by that are equal."""
_ANY: Triple = (inf, inf, inf)
Place = tuple[int, int]
"""Of a victim in the order of service: its leaf queue, and behind how many pending gangs of that it is served."""


@dataclass(frozen=True)
class VictimLosses:
    """Pods that could be evicted: their gang and leaf queue, [resource, pod] what that would lose, and [resource, pod]
    the block that each belongs to: what all pods that go together count."""

    gangs: Rows
    queues: Rows
    losses: Column
    blocks: Column

    def take(self, which: Rows) -> VictimLosses:
        return VictimLosses(self.gangs[which], self.queues[which], self.losses[:, which], self.blocks[:, which])

    def only(self, mask: Mask) -> VictimLosses:
        """The same, where only some of them lose anything."""
        return VictimLosses(self.gangs, self.queues, np.where(mask, self.losses, 0.0), np.where(mask, self.blocks, 0.0))


class ReclaimBound:
    """What one pending gang can gain from victims in other queues, of some resources of queues: of the others all that
    victims lose counts as gained."""

    def __init__(self, pool: VictimPool, waiting: PendingOrder, gang: int, resources: Sequence[int]) -> None:
        self.cycle: Cycle = pool.cycle
        self._resources = resources
        self._pool = pool
        self._waiting = waiting
        self._gang = gang
        self._path = self.cycle.snapshot.queues.paths[self.cycle.snapshot.gangs.queue[gang]]
        self._levels, self._branches = pool.branches(self._path[0])
        """By queue: the depth on the gang's path at which the two compete, and the ancestor that does."""
        self._most: dict[tuple[tuple[int, Triple], Triple, Triple], Triple] = {}
        self._most_of_one: dict[tuple[int, Triple, Triple], Triple] = {}
        self._keys: dict[Triple, Sequence[QueueKey]] = {}
        """By what the gang's ancestors lose: its keys in them, from its leaf queue up."""
        self._alone: dict[Triple, dict[int, tuple[int, bool, Triple]]] = {}
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
            some = (*self._places(victims.take(here)), branch[here], victims.blocks[:, here])
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
            amounts = trial.quota_amounts(trial.of_class(pod), trial.node[pod])
            if len(depths) > 1 or (after and self._lost_first(amounts, most)):
                return True
        return False

    def _of_one(self, request: Triple, queue: int) -> tuple[int, bool, Triple]:
        """For a victim of a leaf queue that goes alone: the depth at which it competes, whether it is served after the
        gang, and what it must stay below then."""
        depth = int(self._levels[queue])
        if self._returns_first((queue, self._position(queue)), depth, self._key(depth, ZERO)):
            return depth, False, ZERO
        return depth, True, self._bound_of_one((depth, request), int(self._branches[queue]), ZERO)

    def _lost_first(self, block: Sequence[float], most: Triple) -> bool:
        """Whether a queue would lose a block first, if it must stay below an amount of each resource; negative: it may
        lose nothing."""
        for r in self._resources:  # noqa: SIM110 - called for thousands of victims: a generator takes twice as long
            if not (block[r] < most[r] - SLACKS[r] or block[r] <= 0 <= most[r]):
                return False
        return True

    def _spared(self, taken: VictimLosses, depth: int) -> Triple:
        """What the gang's own branch at a depth loses by victims already taken."""
        return _summed(taken.losses[:, self._levels[taken.queues] < depth].T.tolist())

    def _judged_few(self, request: Triple, taken: VictimLosses, victims: VictimLosses) -> tuple[Mask, Mask]:
        """The same for victims that all go together, one by one."""
        queues, losses, blocks = victims.queues.tolist(), victims.losses.T.tolist(), victims.blocks.T.tolist()
        positions = [self._position_of(leaf, gang) for leaf, gang in zip(queues, victims.gangs.tolist(), strict=True)]
        after, useful = [False] * len(queues), [False] * len(queues)
        lost = ZERO
        for depth in range(len(self._path)):
            here = [at for at, queue in enumerate(queues) if self._levels[queue] == depth]
            if not here:
                continue
            spared = plus(lost, self._spared(taken, depth))
            ours = self._key(depth, spared)
            for at in here:
                if self._returns_first((queues[at], positions[at]), depth, ours):
                    continue
                most = self._bound_of_one((depth, request), int(self._branches[queues[at]]), spared)
                after[at], useful[at] = True, self._lost_first(blocks[at], most)
            lost = _summed([loss for loss, goes in zip(losses, after, strict=True) if goes])
        return np.array(after, dtype=bool), np.array(useful, dtype=bool)

    def _could_lose(
        self, claim: tuple[int, Triple], some: tuple[Sequence[Place], Rows, Rows, Column], spared: Column
    ) -> tuple[Mask, Mask]:
        """Which victims are served after the gang, and may be taken from, if its own branch loses so much."""
        (depth, request), (places, of_place, branch, blocks) = claim, some
        mask = np.zeros(len(branch), dtype=bool)
        after = mask.copy()
        steps = spared[GPU] if spared[GPU].any() else _rounded(spared[0])
        for step in np.unique(steps).tolist():
            alike = np.flatnonzero(steps == step)
            cpu, memory, gpus = spared[:, alike].max(axis=1).tolist()
            ours = self._key(depth, (cpu, memory, gpus))
            last = np.array([not self._returns_first(place, depth, ours) for place in places])
            alike = alike[last[of_place[alike]]]
            after[alike] = mask[alike] = True
            losers, of_loser = np.unique(branch[alike], return_inverse=True)
            bounds = [self._bound_of_one((depth, request), loser, (cpu, memory, gpus)) for loser in losers.tolist()]
            for r in self._resources:
                most, block = np.array([bound[r] for bound in bounds])[of_loser], blocks[r, alike]
                mask[alike] &= (block < most - SLACKS[r]) | ((block <= 0) & (most >= 0))
        return after, mask

    # ------------------------------------------------------------------------------------------------------ together
    def obtainable(self, request: Triple, taken: VictimLosses, victims: VictimLosses) -> Column:
        """[resource, victim]: how much could be had at most when the victims go one after the other, besides those
        already taken; negative where those are more than could be had."""
        queues = np.concatenate((taken.queues, victims.queues))
        losses = np.concatenate((taken.losses, victims.losses), axis=1)
        blocks = np.concatenate((taken.blocks, victims.blocks), axis=1)
        level, branch = self._levels[queues], self._branches[queues]
        total, spared = losses.copy(), ZERO
        for depth in range(len(self._path)):
            here = np.flatnonzero(level == depth)
            if len(here):
                some = branch[here], losses[:, here], blocks[:, here]
                total[:, here] = self._growth((depth, request), some, spared)
            cpu, memory, gpus = _rounded(losses[:, level <= depth].sum(axis=1)).tolist()
            spared = (cpu, memory, gpus)
        return np.asarray(np.cumsum(total, axis=1)[:, len(taken.queues) :] - taken.losses.sum(axis=1, keepdims=True))

    def obtainable_on_node(self, request: Triple, taken: VictimLosses, useful: VictimLosses, nodes: Rows) -> Column:
        """The same, without those already taken, when of useful victims only those of one node go.

        As long as these compete at one level, nothing they lose brings the gang to the front, and that bounds them
        further.
        """
        level, branch = self._levels[useful.queues], self._branches[useful.queues]
        alone, most = np.zeros(len(nodes), dtype=bool), np.full_like(useful.losses, inf)
        for depth in np.unique(level).tolist():
            here = np.flatnonzero(level == depth)
            some = (*self._places(useful.take(here)), branch[here], useful.blocks[:, here])
            before = np.array([self._spared(taken, depth)]).T.repeat(len(here), axis=1)
            alone[here] = self._could_lose((depth, request), some, before)[1]
            most[:, here] = self._most_left((depth, request), branch[here], useful.blocks[:, here], taken)
        lost, by_branch = np.where(alone, useful.losses, 0.0), branch * (int(nodes.max(initial=0)) + 1) + nodes
        _, first, of_node = np.unique(nodes, return_index=True, return_inverse=True)
        mixed = cumulated(nodes, (level != level[first][of_node]).astype(np.float64)) > 0
        found = []
        for r in range(QUEUE_RESOURCES):
            if r in self._resources:
                sums = cumulated(by_branch, lost[r])
                bounded = np.minimum(sums, most[r]) - np.minimum(sums - lost[r], most[r])
                found.append(np.where(mixed, cumulated(nodes, useful.losses[r]), cumulated(nodes, bounded)))
            else:
                found.append(cumulated(nodes, useful.losses[r]))
        return np.array(found)

    def _most_left(self, claim: tuple[int, Triple], branch: Rows, blocks: Column, taken: VictimLosses) -> Column:
        """[resource, victim]: how much can be had of its branch at most besides those already taken."""
        level, of_branch = self._levels[taken.queues], self._branches[taken.queues]
        spared = self._spared(taken, claim[0])
        groups, of_group = np.unique(branch, return_inverse=True)
        left = []
        for group, block in zip(groups.tolist(), self._largest(of_group, blocks, len(groups)), strict=True):
            mine = (level == claim[0]) & (of_branch == group)
            largest_taken = taken.blocks[:, mine].max(axis=1, initial=0.0).tolist()
            most = self._bound((claim, (group, self._larger(block, largest_taken))), spared)
            gone = taken.losses[:, mine].sum(axis=1).tolist()
            left.append([max(most[r] - SLACKS[r] - gone[r], 0.0) for r in range(QUEUE_RESOURCES)])
        return np.array(left)[of_group].T

    def obtainable_together(self, request: Triple, taken: VictimLosses, victims: VictimLosses) -> Triple:
        """The same when all of a few victims go."""
        found = [-float(lost) for lost in taken.losses.sum(axis=1)]
        for members, most in self._together(request, taken, victims):
            for r in range(QUEUE_RESOURCES):
                found[r] += min(sum([losses[r] for _, losses in members]), max(most[r] - SLACKS[r], 0.0))
        return triple(found)

    def returning(self, request: Triple, taken: VictimLosses, victims: VictimLosses) -> list[int]:
        """If all of a few victims go, besides those already taken: those with the fewest GPUs of each branch, as many
        as it may not lose. Those taken have negative numbers, from the last one on."""
        found = list[int]()
        for members, most in self._together(request, taken, victims) if GPU in self._resources else ():
            sizes = sorted([(losses[GPU], at - len(taken.queues)) for at, losses in members if losses[GPU] > 0])
            excess, count = sum([size for size, _ in sizes]) - max(most[GPU] - SLACKS[GPU], 0.0), 0
            while excess > _TINY:
                excess, count = excess - sizes[-1 - count][0], count + 1
            found += [at for _, at in sizes[:count]]
        return found

    def _together(
        self, request: Triple, taken: VictimLosses, victims: VictimLosses
    ) -> Iterator[tuple[list[tuple[int, Triple]], Triple]]:
        """If all of a few victims go, besides those already taken: by branch each with its number and what it loses,
        and what the branch may lose."""
        queues = [*taken.queues.tolist(), *victims.queues.tolist()]
        losses = [*taken.losses.T.tolist(), *victims.losses.T.tolist()]
        blocks = [*taken.blocks.T.tolist(), *victims.blocks.T.tolist()]
        levels, branches = self._levels[queues].tolist(), self._branches[queues].tolist()
        spared = ZERO
        for depth in range(len(self._path)):
            members: dict[int, list[int]] = {}
            for at, (level, branch) in enumerate(zip(levels, branches, strict=True)):
                if level == depth:
                    members.setdefault(branch, []).append(at)
            for branch, mine in members.items():
                block = reduce(self._larger, [blocks[at] for at in mine], ZERO)
                yield [(at, losses[at]) for at in mine], self._bound(((depth, request), (branch, block)), spared)
            spared = _summed([loss for loss, level in zip(losses, levels, strict=True) if level <= depth])

    def lost(self, victims: VictimLosses) -> Mask:
        """Which of a few victims of whole gangs, in the order of victims, could lose their place if all of them go.

        Of a leaf queue those come first that are served last: each is served when its queue still lacks what those
        before it lose. Once that brings its branch before the gang, it stays, and so do all behind it.
        """
        level, found, spared = self._levels[victims.queues], np.ones(len(victims.queues), dtype=bool), ZERO
        for depth in range(len(self._path)):
            ours = self._key(depth, spared)
            for branch in np.unique(self._branches[victims.queues[level == depth]]).tolist():
                of_branch = np.flatnonzero((level == depth) & (self._branches[victims.queues] == branch))
                leaves = np.unique(victims.queues[of_branch]).tolist()
                for leaf in filter(self._pool.may_return, leaves):
                    mine = of_branch[victims.queues[of_branch] == leaf]
                    found[mine[self._first_to_stay((leaf, depth), leaves, victims.take(mine), ours) :]] = False
            spared = _summed(victims.losses[:, level <= depth].T.tolist())
        return found

    def _first_to_stay(self, at: tuple[int, int], leaves: Sequence[int], victims: VictimLosses, ours: QueueKey) -> int:
        """The first of the victims of a leaf queue that is served before the gang, if other leaf queues of its branch
        lose something, too."""
        leaf, depth = at
        bystanders = [self._turns_of(each, self._position(each))[0].most for each in leaves if each != leaf]
        others, blocks, gangs = reduce(largest, bystanders, ZERO), victims.blocks.T.tolist(), victims.gangs.tolist()
        lost = _rounded_down(np.cumsum(victims.losses, axis=1)).T.tolist()

        def stays(number: int) -> bool:
            request = largest(triple(blocks[number]), others)
            position = self._position_of(leaf, gangs[number])
            turns = self._waiting.latest_turn(leaf, position, request, triple(lost[number]))
            return turns[depth - len(self._path)].key < ours

        return bisect_left(range(len(lost)), True, key=stays)

    def _growth(self, claim: tuple[int, Triple], some: tuple[Rows, Column, Column], spared: Triple) -> Column:
        """[resource, victim]: what each adds to what can be had of its branch, those before it included."""
        branch, losses, blocks = some
        groups, of_group = np.unique(branch, return_inverse=True)
        pairs = zip(groups.tolist(), self._largest(of_group, blocks, len(groups)), strict=True)
        bounds = [self._bound((claim, pair), spared) for pair in pairs]
        found = losses.copy()
        for r in self._resources:
            most = np.array([max(bound[r] - SLACKS[r], 0.0) for bound in bounds])[of_group]
            after = cumulated(of_group, losses[r])
            found[r] = np.minimum(after, most) - np.minimum(after - losses[r], most)
        return found

    def _largest(self, of_group: Rows, blocks: Column, groups: int) -> list[Triple]:
        """By group: the largest amounts of its blocks."""
        found = np.zeros((groups, QUEUE_RESOURCES))
        for r in self._resources:
            np.maximum.at(found[:, r], of_group, blocks[r])
        return [triple(row) for row in found.tolist()]

    def _larger(self, a: Sequence[float], b: Sequence[float]) -> Triple:
        """The larger amounts of two blocks, of the resources that are bounded."""
        return triple(max(a[r], b[r]) if r in self._resources else 0.0 for r in range(QUEUE_RESOURCES))

    def enough(self, request: Triple, leaves: Collection[int], need: Triple) -> bool:
        """Whether the gang could take so much from these leaf queues at all."""
        held = np.array([self.cycle.book.allocated[leaf] for leaf in leaves]).reshape(-1, QUEUE_RESOURCES).T
        blocks = np.array([self._pool.largest(leaf) for leaf in leaves]).reshape(-1, QUEUE_RESOURCES).T
        rows = np.array(list(leaves), dtype=np.int64)
        level, branch, missing, spared = self._levels[rows], self._branches[rows], [*need], ZERO
        if all(missing[r] <= 0 for r in self._resources):
            return True
        for depth in range(len(self._path)):
            here = level == depth
            for queue in np.unique(branch[here]).tolist():
                mine = here & (branch == queue)
                block = self._larger(ZERO, blocks[:, mine].max(axis=1).tolist())
                most, sums = self._bound(((depth, request), (queue, block)), spared), held[:, mine].sum(axis=1).tolist()
                for r in self._resources:
                    missing[r] -= min(sums[r], max(most[r] - SLACKS[r], 0.0))
                if all(missing[r] <= 0 for r in self._resources):
                    return True
            cpu, memory, gpus = _rounded(held[:, level <= depth].sum(axis=1)).tolist()
            spared = (cpu, memory, gpus)
        return False

    # ------------------------------------------------------------------------------------------------------ branches
    def _bound_of_one(self, claim: tuple[int, Triple], branch: int, spared: Triple) -> Triple:
        """What a victim of a branch must stay below for the branch to lose it first, if the gang's own branch has lost
        so much; negative where the branch may lose nothing.

        Without the victim, and with it as a request, the branch is keyed as it is now. If that is before the gang, only
        a bystander with a larger request can hold the victim back.
        """
        depth, request = claim
        known = self._most_of_one.get((branch, request, spared))
        if known is None:
            quota = self.cycle.quota
            assert quota is not None
            known = quota.most_losses(self.cycle.book, (self._path[depth], branch, spared), request, _ANY)
            if self._all_return(branch) and queue_key(self.cycle, branch, ZERO) < self._key(depth, spared):
                first = self._bystanders(depth, branch)
                known = self._least(known, lambda r: self._until_first((depth, branch), first, spared, r))
            self._most_of_one[branch, request, spared] = known
        return known

    def _bound(self, loss: tuple[tuple[int, Triple], tuple[int, Triple]], spared: Triple) -> Triple:
        """What a branch that loses blocks of at most such amounts to a claim may lose, if the gang's own branch has
        lost so much."""
        (depth, request), (branch, block) = loss
        known = self._most.get(((branch, block), request, spared))
        if known is None:
            quota = self.cycle.quota
            assert quota is not None
            known = quota.most_losses(self.cycle.book, (self._path[depth], branch, spared), request, block)
            at, first = (depth, branch), self._bystanders(depth, branch)

            def until_first(r: int) -> float:
                alone = self._until_first(at, _alone(block, r), spared, r)
                return max(self._until_first(at, first, spared, r), alone)

            known = self._least(known, until_first if self._all_return(branch) else lambda _: inf)
            known = self._most[(branch, block), request, spared] = triple(max(most, 0.0) for most in known)
        return known

    def _least(self, most: Triple, other: Callable[[int], float]) -> Triple:
        """The smaller of two bounds, of the resources that are bounded and of which anything could be lost."""
        return triple(
            (min(most[r], other(r)) if most[r] > 0 else most[r]) if r in self._resources else inf
            for r in range(QUEUE_RESOURCES)
        )

    def _until_first(self, at: tuple[int, int], request: Triple, spared: Triple, resource: int) -> float:
        """How much of a resource a branch can lose before it is served, with this request, before the gang; infinite
        where that never happens."""
        depth, branch = at
        ours, held = self._key(depth, spared), self.cycle.book.allocated[branch][resource]

        def first(lost: float) -> bool:
            left = [*request]
            left[resource] -= lost
            return queue_key(self.cycle, branch, triple(left)) < ours

        if first(0.0):
            return 0.0
        most = held + request[resource]
        if not first(most):
            return inf
        _, quota, _, bound = self.cycle.book.bounds[branch][resource]
        step = max(_STEPS[resource], 2 * bound / BILLION)
        equal = sorted((most - quota, most - ours.share / BILLION * bound))
        return next((lost for at in equal if first(lost := min(at + step, most))), most)

    def _bystanders(self, depth: int, branch: int) -> Triple:
        """The largest requests of those in a branch that may be popped before its victims."""
        known, key = self._known_turns(branch), (branch, "requests")
        if key not in known:
            known[key] = reduce(
                largest, (self._turn_of(leaf, depth, self._position(leaf)).most for leaf in self._leaves(branch)), ZERO
            )
        most: Triple = known[key]
        return most

    def _known_turns(self, queue: int) -> dict[Hashable, Any]:
        """What is known of the turns below the root of a queue."""
        return self._pool.turns.setdefault(self.cycle.snapshot.queues.paths[queue][-1], {})

    def _leaves(self, branch: int) -> Sequence[int]:
        """The leaf queues of a branch in which anybody could lose anything."""
        return self._pool.below(self._path[0]).get(branch, ())

    def _all_return(self, branch: int) -> bool:
        """Whether all victims of a branch get their places back when it is served before the gang."""
        return all(map(self._pool.may_return, self._leaves(branch)))

    # --------------------------------------------------------------------------------------------------------- turns
    def _returns_first(self, place: Place, depth: int, ours: QueueKey) -> bool:
        """Whether a victim at such a place is sure to get its own place back before the gang is served, which has this
        key in its queue at a depth."""
        leaf, position = place
        return self._pool.may_return(leaf) and self._turn_of(leaf, depth, position).key < ours

    def _turn_of(self, leaf: int, depth: int, position: int) -> Turn:
        """When a victim of a leaf queue, behind so many of its pending gangs, is served at the latest: the more is
        lost, the sooner."""
        return self._turns_of(leaf, position)[depth - len(self._path)]

    def _turns_of(self, leaf: int, position: int) -> Sequence[Turn]:
        """The same in the leaf queue and in each of its ancestors."""
        known = self._known_turns(leaf)
        turns: Sequence[Turn] | None = known.get((leaf, position))
        if turns is None:
            turns = known[leaf, position] = self._waiting.turn(leaf, position, ZERO)
        return turns

    def _places(self, victims: VictimLosses) -> tuple[Sequence[Place], Rows]:
        """The different places of victims in the order of service, and which of them each has."""
        positions = np.zeros(len(victims.queues), dtype=np.int64)
        for leaf in np.unique(victims.queues).tolist():
            if self._position(leaf):
                mine = np.flatnonzero(victims.queues == leaf)
                positions[mine] = [self._position_of(leaf, gang) for gang in victims.gangs[mine].tolist()]
        kinds, of_kind = np.unique(np.stack((victims.queues, positions)), axis=1, return_inverse=True)
        return [(leaf, position) for leaf, position in kinds.T.tolist()], of_kind.reshape(-1)

    def _position(self, leaf: int) -> int:
        """Behind how many of the pending gangs of a leaf queue its last victim is served."""
        known = self._known_turns(leaf)
        if leaf not in known:
            last = self._pool.last_key(leaf)
            known[leaf] = bisect_left(self._waiting.leaf(leaf).keys, last) if last is not None else 0
        position: int = known[leaf]
        return position

    def _position_of(self, leaf: int, gang: int) -> int:
        """The same of one victim."""
        last = self._position(leaf)
        if not last:
            return 0
        known, key = self._known_turns(leaf), (gang, "position")
        if key not in known:
            lost = self._pool.lost_key(gang)
            known[key] = last if lost is None else min(bisect_left(self._waiting.leaf(leaf).keys, lost), last)
        position: int = known[key]
        return position

    def _key(self, depth: int, spared: Triple) -> QueueKey:
        """The smallest key with which the gang can be popped from its ancestor at a depth, which loses so much."""
        known = self._keys.get(spared)
        if known is None:
            leaf, key = self._path[0], self.cycle.gang_key(self._gang)
            at = bisect_left(self._waiting.leaf(leaf).keys, key)
            turns = self._waiting.earliest_turn(leaf, at, next_request(self.cycle, self._gang), spared)
            known = self._keys[spared] = [turn.key for turn in turns]
        return known[depth]


def _alone(block: Triple, resource: int) -> Triple:
    """What a block has of one resource."""
    return triple(amount if r == resource else 0.0 for r, amount in enumerate(block))


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


def _rounded_down(amounts: Column) -> Column:
    """Amounts rounded down to steps of a sixteenth."""
    step = np.exp2(np.floor(np.log2(np.maximum(amounts, 1e-6))) - 4)
    return np.asarray(np.floor(amounts / step) * step)
