"""Pending gangs in the order of service, cached across simulations.

A queue is compared with its siblings by its use and the request of its first pending gang. In a simulation only the
evictor and the victims get a turn. Every other pending gang is a *bystander*: it is popped without being placed, but
while it is first its request determines the key of its queue. Not all of the thousands of bystanders must be popped:

* a bystander that requests no more, in any resource, than one popped just before it is popped right after it, because
  the keys of its queues grow with the request. Only those that request more than all before them count;
* in queues without a victim nothing changes during a simulation, so the order in which their bystanders are popped is
  computed once, as a *stream*, and is valid until evictions are decided.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate
from typing import Any, NamedTuple

from pykai.engine.cycle import Cycle
from pykai.engine.order import keyed_in_order, next_request, queue_key
from pykai.engine.queues import ZERO, QueueKey, Triple, minus


class Entry(NamedTuple):
    """A bystander in a stream: its queue's key when it is popped, the queue, and its request."""

    key: QueueKey
    queue: int
    request: Triple


class Turn(NamedTuple):
    """When a gang is popped from a queue: the largest key the queue has had by then, and the largest request of each
    resource that it was compared with."""

    key: QueueKey
    most: Triple


@dataclass(frozen=True)
class LeafOrder:
    """The pending gangs of a leaf queue in order, with their keys and requests."""

    gangs: list[int]
    keys: list[tuple[Any, ...]]
    requests: list[Triple]
    most_behind: list[Triple]
    """By position: the largest request in each resource from there to the end."""

    @classmethod
    def of(cls, gangs: list[int], keys: list[tuple[Any, ...]], requests: list[Triple]) -> LeafOrder:
        behind = list(accumulate(reversed(requests), largest))
        return cls(gangs, keys, requests, behind[::-1])

    def without(self, gang: int) -> LeafOrder:
        """Return the order without a gang that was placed. `most_behind` changes only at positions before it, down to
        the first that stays equal."""
        at = self.gangs.index(gang)
        gangs, keys = self.gangs.copy(), self.keys.copy()
        requests, behind = self.requests.copy(), self.most_behind.copy()
        del gangs[at], keys[at], requests[at], behind[at]
        for before in range(at - 1, -1, -1):
            most = largest(requests[before], behind[before + 1]) if before + 1 < len(behind) else requests[before]
            if most == behind[before]:
                break
            behind[before] = most
        return LeafOrder(gangs, keys, requests, behind)

    @cached_property
    def growing(self) -> list[int]:
        """Positions without those that request no more than an earlier one."""
        found: list[int] = []
        known: list[Triple] = []
        behind = self.most_behind
        for at, request in enumerate(self.requests):
            if known and covered(behind[at], known[-1]):
                break
            cpu, memory, gpus = request
            for more_cpu, more_memory, more_gpus in known:  # a call for each pair is most of the time of this
                if cpu <= more_cpu and memory <= more_memory and gpus <= more_gpus:
                    break
            else:
                found.append(at)
                known.append(request)
        return found


def largest(a: Triple, b: Triple) -> Triple:
    """The larger amount of each resource."""
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2])


def _key(entry: Entry) -> QueueKey:
    return entry.key


def covered(request: Triple, by: Triple) -> bool:
    return request[0] <= by[0] and request[1] <= by[1] and request[2] <= by[2]


class PendingOrder:
    """The pending gangs of a cycle by leaf queue; orders and streams are computed on first use."""

    def __init__(self, cycle: Cycle, gangs: Sequence[int]) -> None:
        self.cycle = cycle
        self._by_queue: dict[int, dict[int, None]] = {}
        queue_of = cycle.snapshot.gangs.queue
        for gang in gangs:
            self._by_queue.setdefault(queue_of[gang], {})[gang] = None
        self._leaves: dict[int, LeafOrder] = {}
        self._streams: dict[int, list[Entry]] = {}
        self._below: dict[int, list[Entry]] = {}
        """Queue -> the streams of its children, merged."""
        self._turns: dict[int, dict[tuple[int, int, Triple, Triple, bool], Sequence[Turn]]] = {}
        """By root queue."""

    def served(self, gang: int) -> None:
        """Remove a gang that was placed."""
        queue = self.cycle.snapshot.gangs.queue[gang]
        if gang in self._by_queue.get(queue, ()):
            del self._by_queue[queue][gang]
            known = self._leaves.get(queue)
            if known is not None:
                self._leaves[queue] = known.without(gang)
        self._use_changed(queue)

    def changed(self, gangs: Iterable[int]) -> None:
        """Drop what is cached of gangs that lost or got pods: the use of their queues and their requests changed."""
        for gang in gangs:
            queue = self.cycle.snapshot.gangs.queue[gang]
            if gang in self._by_queue.get(queue, ()):
                self._leaves.pop(queue, None)
            self._use_changed(queue)

    def _use_changed(self, leaf: int) -> None:
        path = self.cycle.snapshot.queues.paths[leaf]
        self._turns.pop(path[-1], None)
        for queue in path:
            self._streams.pop(queue, None)
            self._below.pop(queue, None)

    def leaf(self, queue: int) -> LeafOrder:
        """Return the order of a leaf queue without tentative evictions."""
        known = self._leaves.get(queue)
        if known is None:
            cycle = self.cycle
            keyed = keyed_in_order(cycle, self._by_queue.get(queue, ()))
            gangs, keys = list(keyed), list(keyed.values())
            known = self._leaves[queue] = LeafOrder.of(gangs, keys, [next_request(cycle, gang) for gang in gangs])
        return known

    def turn(self, leaf: int, at: int, request: Triple) -> Sequence[Turn]:
        """Return when a gang with this request, at this position of a leaf queue, is popped from the leaf and from each
        of its ancestors; siblings are ordered by these turns."""
        return self.latest_turn(leaf, at, request, ZERO)

    def latest_turn(self, leaf: int, at: int, request: Triple, lost: Triple) -> Sequence[Turn]:
        """Return the same at the latest, if the leaf queue has lost so much by then; at other leaf queues nothing."""
        known, key = self._known_turns(leaf), (leaf, at, request, lost, False)
        if key not in known:
            known[key] = self._turn(leaf, at, request, (lost, lost))
        return known[key]

    def earliest_turn(self, leaf: int, at: int, request: Triple, spared: Triple) -> Sequence[Turn]:
        """Return the same at the earliest, if the ancestors have lost so much at most by victims of other leaf queues.

        Bystanders that go before the gang still do: what their own queues lose brings them forward as well.
        """
        known, key = self._known_turns(leaf), (leaf, at, request, spared, True)
        if key not in known:
            known[key] = self._turn(leaf, at, request, (ZERO, spared), earliest=spared != ZERO)
        return known[key]

    def _known_turns(self, leaf: int) -> dict[tuple[int, int, Triple, Triple, bool], Sequence[Turn]]:
        return self._turns.setdefault(self.cycle.snapshot.queues.paths[leaf][-1], {})

    def _turn(
        self, leaf: int, at: int, request: Triple, lost: tuple[Triple, Triple], earliest: bool = False
    ) -> Sequence[Turn]:
        """`lost`: by the leaf queue, and by each of its ancestors. What a key has of the use alone is as without
        losses; `earliest`: as if ancestors used nothing."""
        order, (by_leaf, above) = self.leaf(leaf), lost
        requests = [request, *(order.requests[before] for before in order.growing if before < at)]
        turns: list[Turn] = []
        below = leaf
        for queue in self.cycle.snapshot.queues.paths[leaf]:
            if turns:
                others = self.below(queue)
                before = bisect_left(others, turns[-1].key, key=_key)
                requests += [entry.request for entry in others[:before] if entry.queue != below]
            requests, less = list(dict.fromkeys(requests)), above if turns else by_leaf
            less_requested = requests if less == ZERO else [minus(each, less) for each in requests]
            key = max([queue_key(self.cycle, queue, each) for each in less_requested])
            if turns and earliest:
                key = key._replace(over=False, share_now=-1)
            turns.append(Turn(key, reduce(largest, requests)))
            below = queue
        return turns

    def prepare(self, leaves: Iterable[int]) -> None:
        """Compute what simulations with victims in these leaf queues need, before any tentative eviction."""
        queues = self.cycle.snapshot.queues
        for leaf in leaves:
            self.leaf(leaf)
            self.stream(leaf)
            for queue in queues.paths[leaf][1:]:
                self.below(queue)

    def below(self, queue: int) -> list[Entry]:
        """The bystanders of the children of a queue, in the order in which the children alone would be popped."""
        known = self._below.get(queue)
        if known is None:
            children = self.cycle.snapshot.queues.children[queue]
            known = [entry for child in children for entry in self.stream(child)]
            known.sort(key=_key)
            self._below[queue] = known
        return known

    def stream(self, queue: int) -> list[Entry]:
        """The bystanders below a queue in the order in which they are popped from it, each with the largest key the
        queue has had by then: queues are popped in the order of these."""
        known = self._streams.get(queue)
        if known is None:
            known = self._streams[queue] = self._stream(queue)
        return known

    def _stream(self, queue: int) -> list[Entry]:
        if self.cycle.snapshot.queues.children[queue]:
            requests = [entry.request for entry in self.below(queue)]
        else:
            leaf = self.leaf(queue)
            requests = [leaf.requests[at] for at in leaf.growing]
        found: list[Entry] = []
        for request in dict.fromkeys(requests):
            key = queue_key(self.cycle, queue, request)
            if not found or found[-1].key < key:
                found.append(Entry(key, queue, request))
            elif not any(e.key is found[-1].key and covered(request, e.request) for e in found[-4:]):
                found.append(Entry(found[-1].key, queue, request))
        return found
