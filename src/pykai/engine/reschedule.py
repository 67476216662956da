"""Rescheduling after supposed evictions: evictor and victims take their turns in the order of service."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pykai.engine.allocate import place_gang
from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_return
from pykai.engine.order import Key, next_request, queue_key
from pykai.engine.pending import LeafOrder, PendingOrder, covered
from pykai.engine.queues import Triple

if TYPE_CHECKING:
    from pykai.engine.scenario import Cause


BYSTANDER = -1


def reschedule(cycle: Cycle, cause: Cause, pods: Sequence[int], losers: set[int]) -> bool:
    """Give the gang its pods and the losers what is left, in order of service; False where the gang gets nothing.

    A loser that is served before the gang stays where it is: another place for it would only shuffle pods of queues
    that come first. In consolidation, where all must keep a place, it is placed anew, and the gang gets nothing where
    that fails.
    """
    turns = {cause.gang, *losers}
    order = rescheduling_order(cycle, cause.waiting, turns)
    while (turn := order.pop()) is not None:
        if turn == cause.gang:
            if not place_gang(cycle, cause.gang, pods, wait_only=True):
                return False
            turns.discard(turn)
            continue
        again = pods_to_return(cycle.trial, cycle.orders, turn)
        if cause.gang in turns and not cause.keep_all:
            if _stay(cycle, turn, again):
                order.push(turn)
            else:
                turns.discard(turn)
            continue
        placed = place_gang(cycle, turn, again, wait_only=True)
        if again and not placed and cause.gang in turns and not _over_limits(cycle, turn, again):
            return False
        if placed and pods_to_return(cycle.trial, cycle.orders, turn):
            order.push(turn)
        else:
            turns.discard(turn)
    return cause.gang not in turns


def _stay(cycle: Cycle, gang: int, pods: Sequence[int]) -> bool:
    """Take back the eviction of those of some pods, unless their queue is over its limit; whether it had any effect."""
    evicted = [pod for pod in pods if pod in cycle.trial.virtual]
    if not evicted or _over_limits(cycle, gang, evicted):
        return False
    for pod in evicted:
        cycle.trial.keep(pod)
        cycle.resources.reserve(pod)
    return True


def _over_limits(cycle: Cycle, gang: int, pods: Sequence[int]) -> bool:
    """Whether the queues of a gang may not have it back."""
    request = cycle.queue_request(pods, cycle.snapshot.max_gpu_memory)
    return cycle.quota is not None and cycle.quota.over_capacity(cycle, gang, request) is not None


def rescheduling_order(cycle: Cycle, waiting: PendingOrder, turns: Iterable[int]) -> ServiceOrder | LeafService:
    """The order of some gangs: with all of them in one leaf queue there is nothing to compare with bystanders."""
    queue_of = cycle.snapshot.gangs.queue
    one_leaf = len({queue_of[gang] for gang in turns}) == 1
    return LeafService(cycle, turns) if one_leaf else ServiceOrder(cycle, waiting, turns)


class LeafService:
    """Pops some gangs of one leaf queue in the order of service."""

    def __init__(self, cycle: Cycle, turns: Iterable[int]) -> None:
        self._cycle = cycle
        self._turns = sorted([(cycle.gang_key(gang), gang) for gang in turns], reverse=True)

    def pop(self) -> int | None:
        """The next of the gangs, None when all had their turn."""
        return self._turns.pop()[1] if self._turns else None

    def push(self, gang: int) -> None:
        """Put a gang back: it has more to place."""
        self._turns.append((self._cycle.gang_key(gang), gang))
        self._turns.sort(reverse=True)


class ServiceOrder:
    """Pops some gangs in the order of service; all others that wait are bystanders.

    Only queues with one of the gangs below them are walked: what waits elsewhere below their ancestors is in the
    streams of `PendingOrder`, and what waits below other roots does not matter.
    """

    def __init__(self, cycle: Cycle, waiting: PendingOrder, turns: Iterable[int]) -> None:
        self.cycle = cycle
        self._waiting = waiting
        self._left = 0
        by_leaf: dict[int, list[int]] = {}
        queue_of, paths = cycle.snapshot.gangs.queue, cycle.snapshot.queues.paths
        for gang in sorted(turns):
            by_leaf.setdefault(queue_of[gang], []).append(gang)
            self._left += 1
        self._leaves = {leaf: _Turns(cycle, waiting.leaf(leaf), gangs) for leaf, gangs in by_leaf.items()}
        self._children: dict[int, list[int]] = {}
        """Queue (-1: above the roots) -> its children with a gang below them."""
        for leaf in by_leaf:
            below = leaf
            for queue in (*paths[leaf][1:], -1):
                siblings = self._children.setdefault(queue, [])
                known = below in siblings
                if not known:
                    siblings.append(below)
                below = queue
        self._passed: dict[int, int] = dict.fromkeys(self._children, 0)
        """Inner queue -> how many bystanders of its other children have been popped."""
        self._heads: dict[int, tuple[Key, Triple] | None] = {}
        """By queue: its key and the request of its first gang; None where nothing is left below it."""

    def pop(self) -> int | None:
        """The next of the gangs, None when all had their turn."""
        while self._left and (found := self._best_root()) is not None:
            root, bound = found
            while (head := self._head(root)) is not None and (bound is None or head[0] < bound):
                gang = self._pop_below(root)
                if gang != BYSTANDER:
                    self._left -= 1
                    return gang
        return None

    def _best_root(self) -> tuple[int, Key | None] | None:
        """The root queue that is next, and the key at which another one is; None: the gangs that are left are below a
        queue that holds a gang itself (its PodGroup was edited while it ran), and get no turn."""
        heads = [(head[0], root) for root in self._children[-1] if (head := self._head(root)) is not None]
        if not heads:
            return None
        first = min(heads)
        return first[1], min((key for key, root in heads if root != first[1]), default=None)

    def _pop_below(self, queue: int) -> int:
        """Take the first gang below a queue; BYSTANDER where it is none of those that get a turn."""
        while queue not in self._leaves:
            child = self._first_child(queue)
            assert child is not None
            if child == BYSTANDER:
                self._passed[queue] += 1
                self._changed(queue)
                return BYSTANDER
            queue = child
        gang = self._leaves[queue].pop()
        self._changed(queue)
        return gang

    def push(self, gang: int) -> None:
        """Put a gang back: it has more to place."""
        queue = self.cycle.snapshot.gangs.queue[gang]
        self._left += 1
        self._leaves[queue].push(gang)
        self._changed(queue)

    def _changed(self, queue: int) -> None:
        for above in self.cycle.snapshot.queues.paths[queue]:
            self._heads.pop(above, None)

    def _first_child(self, queue: int) -> int | None:
        """The child to descend to, BYSTANDER where one of a child without any of the gangs is first."""
        best: Key | None = None
        found: int | None = None
        for child in self._children[queue]:
            head = self._head(child)
            if head is not None and (best is None or head[0] < best):
                best, found = head[0], child
        other = self._bystander(queue)
        if other is not None and (best is None or other[0] < best):
            return BYSTANDER
        return found

    def _bystander(self, queue: int) -> tuple[Key, Triple] | None:
        """The first bystander of the children of a queue without any of the gangs."""
        stream, at, involved = self._waiting.below(queue), self._passed[queue], self._children[queue]
        while at < len(stream) and stream[at].queue in involved:
            at += 1
        self._passed[queue] = at
        return (stream[at].key, stream[at].request) if at < len(stream) else None

    def _head(self, queue: int) -> tuple[Key, Triple] | None:
        if queue in self._heads:
            return self._heads[queue]
        request = self._request(queue)
        head = None if request is None else (queue_key(self.cycle, queue, request), request)
        self._heads[queue] = head
        return head

    def _request(self, queue: int) -> Triple | None:
        leaf = self._leaves.get(queue)
        if leaf is not None:
            return leaf.head()
        child = self._first_child(queue)
        if child is None:
            return None
        head = self._bystander(queue) if child == BYSTANDER else self._head(child)
        return None if head is None else head[1]


class _Turns:
    """The gangs of a leaf queue that get a turn, among its bystanders."""

    def __init__(self, cycle: Cycle, order: LeafOrder, gangs: Sequence[int]) -> None:
        self._cycle = cycle
        self._order = order
        self._skipped = set(gangs)
        keyed = sorted(((cycle.gang_key(gang), gang) for gang in gangs), reverse=True)
        self._turns = [(key, gang, bisect_left(order.keys, key)) for key, gang in keyed]
        """Key, gang and position among the bystanders, last first."""
        self._at = 0
        self._popped: list[Triple] = []
        """Requests of the bystanders that were popped since a gang last had its turn."""
        self._known: tuple[int, Triple] | None = None

    def head(self) -> Triple | None:
        """What is requested by the gang that would be popped; None: nothing is left."""
        found = self._first()
        return None if found is None else found[1]

    def pop(self) -> int:
        """Take the first gang; BYSTANDER where it is none of those that get a turn."""
        found = self._first()
        assert found is not None
        self._known = None
        if found[0] == BYSTANDER:
            self._popped.append(found[1])
            self._at += 1
        else:
            self._turns.pop()
            self._popped.clear()
        return found[0]

    def push(self, gang: int) -> None:
        key = self._cycle.gang_key(gang)
        at = bisect_left(self._order.keys, key)
        turns = [*self._turns, (key, gang, at)]
        turns.sort(key=lambda turn: turn[0], reverse=True)
        self._turns = turns
        self._known = None

    def _first(self) -> tuple[int, Triple] | None:
        if self._known is None:
            self._known = self._found()
        return self._known

    def _found(self) -> tuple[int, Triple] | None:
        order, turns = self._order, self._turns
        end = turns[-1][2] if turns else len(order.gangs)
        self._skip(end)
        if self._at < end:
            return BYSTANDER, order.requests[self._at]
        if turns:
            gang = turns[-1][1]
            return gang, next_request(self._cycle, gang)
        return None

    def _skip(self, end: int) -> None:
        """Go past bystanders that would be popped at once, after one that requests as much or more."""
        order, popped = self._order, self._popped
        while self._at < end:
            if order.gangs[self._at] not in self._skipped:
                cpu, memory, gpus = order.requests[self._at]
                for more_cpu, more_memory, more_gpus in popped:  # a call for each pair is most of the time of this
                    if cpu <= more_cpu and memory <= more_memory and gpus <= more_gpus:
                        break
                else:
                    return
                if covered(order.most_behind[self._at], popped[-1]):
                    self._at = end
                    return
            self._at += 1
