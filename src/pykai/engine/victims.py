"""Potential victims: the preemptible gangs of each queue in order, their pods and what they hold, as columns.

Everything is computed on first use and brought up to date when evictions are committed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.gang import evictable_in_order, next_victims
from pykai.engine.node_room import NodeRoom, least_of
from pykai.engine.order import in_order
from pykai.engine.queues import BILLION, ZERO, QueueKey, Triple, fits, total, triple
from pykai.model.resources import GPU, QUEUE_RESOURCES, Column, Mask, Rows
from pykai.model.status import IS_ACTIVE_ALLOCATED


@dataclass(frozen=True)
class Batch:
    """Pods of one gang that would go together."""

    gang: int
    pods: tuple[int, ...]


def held_by(cycle: Cycle, pods: Iterable[int]) -> Triple:
    """What pods count against their queue where they are."""
    trial = cycle.trial
    return total(trial.quota_amounts(trial.of_class(pod), trial.node[pod]) for pod in pods)


class Front(NamedTuple):
    """The first candidates below a queue, and whether these are all."""

    gangs: Rows
    complete: bool

    def upto(self, count: int) -> Front:
        """The first of them."""
        return self if len(self.gangs) <= count else Front(self.gangs[:count], False)


Passes = Callable[[Rows], Mask]
"""Which of some gangs may be considered as victims."""


class VictimPool:
    """Per leaf queue the gangs that could lose something, least deserving first; worked out when first asked for.

    Evictions take gangs out of a list, which stays in order; only a gang that lost a part of its pods changes its
    place.
    """

    def __init__(self, cycle: Cycle) -> None:
        self.cycle = cycle
        self.likely = False
        """Whether the last search found victims: the next one probably will."""
        self.first_did: set[Hashable] = set()
        """Kinds of searches of which the last was solved by the first choice that it looked at."""
        self.chunks: dict[Hashable, int] = {}
        """How many gangs the next search of a kind looks at first."""
        self._shrunk: set[int] = set()
        """Leaf queues whose list has gangs in it that have lost everything."""
        self._misplaced: dict[int, set[int]] = {}
        """By leaf queue: gangs that may have another place in its list."""
        self._figures: dict[int, tuple[float, Triple]] = {}
        self._branches: dict[int, tuple[Rows, Rows]] = {}
        self._below: dict[int, dict[int, list[int]]] = {}
        self._competing: dict[int, dict[int, list[int]]] = {}
        self.turns: dict[int, dict[Hashable, Any]] = {}
        """By root queue: what is known of the turns of victims below it, until one of them or its queue changes."""
        self._fronts: dict[int, tuple[int, Front]] = {}
        """By inner queue: how many were wanted, and the first gangs below it."""
        self._known_shares: dict[int, tuple[Rows, Column]] = {}
        """By queue: some of its gangs in order, and its dominant share after each of them is gone."""
        self._known_keys: dict[int, QueueKey] = {}
        self._scales: dict[int, Column] = {}
        self._reaches: dict[bytes, Mask] = {}
        self._last_keys: dict[int, tuple[Any, ...] | None] = {}
        self._lost_keys: dict[int, tuple[Any, ...]] = {}

    @cached_property
    def _active(self) -> Mask:
        """Gangs that could lose something."""
        gangs = self.cycle.snapshot.gangs
        concerned = gangs.columns.preemptible
        if gangs.semi_preemptible:
            concerned = concerned.copy()
            concerned[list(gangs.semi_preemptible)] = True
        return np.asarray(concerned & (self._held > 0) & (self._queue >= 0))

    @cached_property
    def goes_whole(self) -> Mask:
        """Gangs without a pod or a sub-group to spare: one batch takes all of it."""
        gangs = self.cycle.snapshot.gangs
        spare = np.asarray(self.cycle.trial.active_allocated) > gangs.columns.podset_min
        whole = np.bincount(gangs.podset_gang, weights=spare, minlength=len(gangs)) == 0
        whole[[gang for gang, tree in gangs.trees.items() if not tree.needs_all]] = False
        whole[list(gangs.semi_preemptible)] = False
        return np.asarray(whole)

    @cached_property
    def _held(self) -> Column:
        gangs = self.cycle.snapshot.gangs
        held = np.bincount(gangs.podset_gang, weights=self.cycle.trial.active_allocated, minlength=len(gangs))
        for gang in gangs.semi_preemptible:
            held[gang] = len(evictable_in_order(self.cycle.trial, self.cycle.orders, gang))
        return np.asarray(held, dtype=np.float64)

    @property
    def _queue(self) -> Rows:
        return self.cycle.snapshot.gangs.columns.queue

    @cached_property
    def queues(self) -> list[int]:
        """Leaf queues with a gang that could lose something."""
        return np.unique(self._queue[self._active]).tolist()  # type: ignore[no-any-return]

    @cached_property
    def members(self) -> Members:
        return Members(self.cycle)

    @property
    def spread(self) -> bool:
        """Whether a gang has pods on several nodes, or had."""
        pods = self.members.pods
        first, gang = self.members.leftmost(np.arange(len(self.members.count))), self.cycle.snapshot.pods.gang[pods]
        return bool((self.members.node[pods] != first[gang]).any())

    @property
    def priority(self) -> Column:
        """Of each gang."""
        return self.cycle.snapshot.gangs.columns.priority

    @cached_property
    def amounts(self) -> Column:
        """[resource, gang]: what each gang holds of its queue."""
        trial, pods, rows = self.cycle.trial, self.cycle.snapshot.pods, self.members.pods
        size, gang, klass = len(self.cycle.snapshot.gangs), pods.gang[rows], pods.klass[rows]
        sums = [np.bincount(gang, weights=row[klass], minlength=size) for row in self.class_amounts]
        amounts = np.array(sums, dtype=np.float64).reshape(QUEUE_RESOURCES, size)
        by_memory = [c.row for c in pods.classes if c.memory_mib]
        for pod in rows[np.isin(klass, by_memory)].tolist() if by_memory else ():
            amounts[GPU, trial.gang[pod]] += trial.quota_amounts(trial.of_class(pod), trial.node[pod])[GPU]
        return amounts

    @cached_property
    def class_amounts(self) -> Column:
        """[resource, class]: what a pod counts against its queue; GPU memory, which depends on the node, as nothing."""
        amounts, classes = self.cycle.trial.amounts, self.cycle.snapshot.pods.classes
        return np.array([amounts.of_queue(c, -1) for c in classes]).reshape(-1, QUEUE_RESOURCES).T

    @cached_property
    def class_requests(self) -> tuple[Column, Mask]:
        """[resource, class] requests, and which classes ask for GPU memory instead of devices."""
        classes = self.cycle.snapshot.pods.classes
        return np.array([c.request for c in classes]).T.copy(), np.array([c.memory_mib > 0 for c in classes])

    @cached_property
    def share_sizes(self) -> set[float]:
        """What potential victims take of each device they share, as a part of it; the least where nodes differ."""
        facts, classes = self.cycle.node_facts, self.cycle.snapshot.pods.classes
        rows = np.unique(self.cycle.snapshot.pods.klass[self.members.pods]).tolist()
        return {float(least_of(facts, c)[GPU]) / c.devices for c in map(classes.__getitem__, rows) if c.shared}

    def _scale(self, queue: int) -> Column:
        """[resource, 1]: what turns use of a queue into a share of what it may use; 0 where that has no bound."""
        found = self._scales.get(queue)
        if found is None:
            bounds = [bound for *_, bound in self.cycle.book.bounds[queue]]
            scale = [1 / bound if bound > 0 else (1000.0 if bound == 0 else 0.0) for bound in bounds]
            found = self._scales[queue] = np.array(scale)[:, None]
        return found

    def children(self, parent: int) -> Sequence[int]:
        """Of a queue; -1: the roots."""
        return self.cycle.snapshot.queues.children[parent] if parent >= 0 else self._roots

    @cached_property
    def _roots(self) -> list[int]:
        return [queue for queue, above in enumerate(self.cycle.snapshot.queues.parent) if above < 0]

    def front(self, queue: int, wanted: int) -> Front:
        """The first gangs below a queue, least deserving first: so many, or more, or all there are."""
        children = self.children(queue)
        if not children:
            gangs = self.leaf(queue) if queue in self._leaves else np.zeros(0, dtype=np.int64)
            return Front(gangs, True).upto(wanted)
        known = self._fronts.get(queue)
        if known is None or (known[0] < wanted and not known[1].complete):
            fronts = [self.front(child, wanted) for child in children]
            known = self._fronts[queue] = wanted, self.merged_fronts(children, fronts)
        return known[1]

    def merged_fronts(self, queues: Sequence[int], fronts: Sequence[Front]) -> Front:
        """The fronts of siblings in one order, as far as it is sure: up to the end of a front that is not complete."""
        order = self.merged(queues, [front.gangs for front in fronts])
        ends = [int(front.gangs[-1]) for front in fronts if not front.complete]
        if not ends:
            return Front(order, True)
        return Front(order[: min([int((order == end).argmax()) for end in ends]) + 1], False)

    def merged(self, queues: Sequence[int], orders: Sequence[Rows]) -> Rows:
        """Gangs of siblings, each in order, in one order: always the next of the least deserving queue."""
        some = [(q, order) for q, order in zip(queues, orders, strict=True) if len(order)]
        if len(some) <= 1:
            return some[0][1] if some else np.zeros(0, dtype=np.int64)
        first, last = self._ranks([q for q, _ in some])
        sizes = [len(order) for _, order in some]
        shares = np.concatenate([self._shares(q, order) for q, order in some])
        keys = (-np.repeat(last, sizes), -np.floor(shares * BILLION + 0.5), -np.repeat(first, sizes))
        return np.concatenate([order for _, order in some])[np.lexsort(keys)]

    def _ranks(self, children: Sequence[int]) -> tuple[list[int], list[int]]:
        """What of each child's key does not change: before the dominant share, and after it."""
        if self.cycle.quota is None:
            return [0] * len(children), list(range(len(children)))
        keys = {q: self._key(q) for q in children}
        first = sorted({key[:4] for key in keys.values()})
        last = sorted(children, key=lambda q: keys[q][5:])
        ranks = {q: rank for rank, q in enumerate(last)}
        return [first.index(keys[q][:4]) for q in children], [ranks[q] for q in children]

    def _key(self, queue: int) -> QueueKey:
        known = self._known_keys.get(queue)
        if known is None:
            assert self.cycle.quota is not None
            known = self._known_keys[queue] = self.cycle.quota.queue_key(self.cycle.book, queue, ZERO, ZERO)
        return known

    def _shares(self, queue: int, order: Rows) -> Column:
        """A child's dominant share after each of its gangs is gone, in order."""
        known = self._known_shares.get(queue)
        if known is None or not _starts_with(known[0], order):
            lost = np.cumsum(self.amounts.take(order, axis=1), axis=1)
            left = np.array(self.cycle.book.allocated[queue])[:, None] - lost
            left *= self._scale(queue)
            known = self._known_shares[queue] = order, np.maximum.reduce(left, initial=0.0)
        return known[1][: len(order)]

    def branches(self, leaf: int) -> tuple[Rows, Rows]:
        """By queue: the depth on the path of a leaf, from there up, at which the two compete, and its own ancestor that
        does."""
        found = self._branches.get(leaf)
        if found is None:
            above, length = self._ancestors, len(self.cycle.snapshot.queues.paths[leaf])
            shared = np.cumprod(above == above[leaf], axis=1).sum(axis=1)
            shared = np.minimum(shared, above.shape[1] - 1)
            branches = above[np.arange(len(above)), shared]
            found = self._branches[leaf] = (length - 1 - np.minimum(shared, length), branches)
        return found

    def below(self, leaf: int) -> Mapping[int, Sequence[int]]:
        """By branch that competes with a leaf: the leaf queues of the branch with potential victims."""
        found = self._below.get(leaf)
        if found is None:
            found = self._below[leaf] = {}
            for queue, branch in zip(self.queues, self.branches(leaf)[1][self.queues].tolist(), strict=True):
                found.setdefault(branch, []).append(queue)
        return found

    def competing(self, leaf: int) -> Mapping[int, Sequence[int]]:
        """By queue on the path of a leaf: its siblings with potential victims."""
        found = self._competing.get(leaf)
        if found is None:
            path, levels = self.cycle.snapshot.queues.paths[leaf], self.branches(leaf)[0]
            found = self._competing[leaf] = {}
            for branch in self.below(leaf):
                if branch >= 0:
                    found.setdefault(path[levels[branch]], []).append(branch)
        return found

    @cached_property
    def _ancestors(self) -> Rows:
        """[queue, depth]: the path from the root to each queue, then -1."""
        paths = self.cycle.snapshot.queues.paths
        found = np.full((len(paths), max(map(len, paths), default=0) + 1), -1, dtype=np.int64)
        for queue, path in enumerate(paths):
            found[queue, : len(path)] = path[::-1]
        return found

    @cached_property
    def counts_alike(self) -> bool:
        """Whether every potential victim counts the same against its queue wherever it goes (`Cycle.counts_alike`)."""
        by_memory = self.class_requests[1]
        return self.cycle.counts_alike or not by_memory[self.cycle.snapshot.pods.klass[self.members.pods]].any()

    def may_return(self, leaf: int) -> bool:
        """Whether the victims of a leaf queue are sure to get their places back if they are served before the evictor.
        A queue beyond its limit may not have them back."""
        return not self._over_limit or self._over_limit.isdisjoint(self.cycle.book.paths[leaf])

    @cached_property
    def return_with_more(self) -> bool:
        """Whether a gang that could lose something is below its minimum in a queue with a limit: where it returns with
        the pods that it lacks it may be beyond that."""
        gangs, book = self.cycle.snapshot.gangs, self.cycle.book
        below = np.asarray(self.cycle.trial.active_allocated) < gangs.columns.podset_min
        incomplete = np.unique(gangs.podset_gang[below])
        return any(book.limits[gangs.queue[gang]] for gang in incomplete[self._active[incomplete]].tolist())

    @cached_property
    def _over_limit(self) -> set[int]:
        """Queues that use more than their limit."""
        book = self.cycle.book
        return {queue for queue, used in enumerate(book.allocated) if not fits(used, book.limit[queue])}

    def changed(self, gangs: Iterable[int]) -> None:
        """These gangs lost, got or moved pods. Who had nothing to lose before still does not."""
        table, book = self.cycle.snapshot.gangs, self.cycle.book
        for gang in gangs:
            path = book.paths[table.queue[gang]]
            self.turns.pop(path[-1], None)
            for queue in path:
                self._fronts.pop(queue, None)
                self._known_shares.pop(queue, None)
                self._known_keys.pop(queue, None)
            self._over_limit.difference_update(path)
            self._over_limit.update(q for q in path if not fits(book.allocated[q], book.limit[q]))
            if not self._active[gang]:
                continue
            self._last_keys.pop(int(self._queue[gang]), None)
            self._lost_keys.pop(gang, None)
            left = evictable_in_order(self.cycle.trial, self.cycle.orders, gang)
            self._held[gang], self._active[gang] = len(left), bool(left)
            if not left:
                self._shrunk.add(int(self._queue[gang]))
                continue
            self._misplaced.setdefault(int(self._queue[gang]), set()).add(gang)
            self.amounts[:, gang] = held_by(self.cycle, left)
            self.members.replace(gang, left)
            in_parts = next_victims(self.cycle.trial, self.cycle.orders, gang, left)[1]
            self.goes_whole[gang] = not in_parts and gang not in table.semi_preemptible

    @cached_property
    def room(self) -> NodeRoom:
        return NodeRoom(self.cycle.trial)

    def reach(self, allowed: Mask) -> Mask:
        """Where free places are of use to pods that are allowed on some nodes: there, and wherever the victims of these
        nodes could move to, and those of the nodes they move to."""
        found = self._reaches.get(key := allowed.tobytes())
        if found is None:
            found = allowed
            while more := [nodes for nodes in self._ranges if (nodes & found).any() and (nodes & ~found).any()]:
                found = np.logical_or.reduce([found, *more])
            self._reaches[key] = found
        return found

    @cached_property
    def _ranges(self) -> list[Mask]:
        """Where potential victims could be, those that could be at the same nodes once."""
        classes, facts = self.cycle.snapshot.pods.classes, self.cycle.node_facts
        rows = np.unique(self.cycle.snapshot.pods.klass[self.members.pods]).tolist()
        return list({nodes.tobytes(): nodes for nodes in (facts.allowed(classes[row]) for row in rows)}.values())

    def has(self, gang: int) -> bool:
        """Whether a gang could lose something."""
        return bool(self._active[gang])

    def rows(self) -> Rows:
        """All gangs that could lose something."""
        return np.flatnonzero(self._active)

    def lowest_priority(self, queue: int) -> float:
        """Of the gangs of a queue at the start of the action."""
        return self._of(queue)[0]

    def largest(self, queue: int) -> Triple:
        """The most of each resource that a gang of a queue held at the start of the action."""
        return self._of(queue)[1]

    def _of(self, queue: int) -> tuple[float, Triple]:
        found = self._figures.get(queue)
        if found is None:
            rows = np.flatnonzero(self._active & (self._queue == queue))
            most = triple(self.amounts.take(rows, axis=1).max(axis=1, initial=0.0).tolist())
            found = self._figures[queue] = float(self.priority[rows].min(initial=np.inf)), most
        return found

    def leaf(self, queue: int) -> Rows:
        """Gangs of a queue with something to lose, least deserving first."""
        return self.leaves()[queue]

    def leaves(self) -> dict[int, Rows]:
        """The same of every queue with a gang that had something to lose when the action began; read only."""
        for queue in self._shrunk:
            self._leaves[queue] = self._leaves[queue][self._active[self._leaves[queue]]]
        for queue, gangs in self._misplaced.items():
            others = self._leaves[queue]
            self._leaves[queue] = self._with(others[~np.isin(others, list(gangs))], gangs)
        self._shrunk.clear()
        self._misplaced.clear()
        return self._leaves

    def _with(self, ordered: Rows, gangs: Iterable[int]) -> Rows:
        """Gangs in order, and some more where they belong."""
        key_of = self.cycle.gang_key
        for gang in gangs:
            if self._active[gang]:
                key = key_of(gang)
                at = bisect_left(ordered, True, key=lambda other: key_of(int(other)) < key)
                ordered = np.insert(ordered, at, gang)
        return ordered

    def last_key(self, queue: int) -> tuple[Any, ...] | None:
        """The place, in the order of a queue, of the last of its gangs that loses its pods; None: there is none."""
        if queue not in self._last_keys:
            self._last_keys[queue] = self._last_key(self.leaf(queue))
        return self._last_keys[queue]

    def _last_key(self, gangs: Rows) -> tuple[Any, ...] | None:
        if not len(gangs):
            return None
        gang = int(gangs[0])
        return (self.lost_key(gang) if self.goes_whole[gangs].all() else None) or self.cycle.gang_key(gang)

    def lost_key(self, gang: int) -> tuple[Any, ...] | None:
        """The place, in the order of its queue, of a gang that has lost all its pods; None where it may lose a part."""
        if not self.goes_whole[gang]:
            return None
        known = self._lost_keys.get(gang)
        if known is None:
            trial = self.cycle.trial
            mark = trial.mark()
            for podset in self.cycle.snapshot.gangs.podsets(gang):
                trial.journal.put(trial.active_allocated, podset, 0)
            known = self._lost_keys[gang] = self.cycle.gang_key(gang)
            trial.journal.undo_to(mark)
        return known

    @cached_property
    def _leaves(self) -> dict[int, Rows]:
        gangs = self._last_first(self.rows())
        queue = self._queue[gangs]
        return {q: gangs[queue == q] for q in self.queues}

    def _last_first(self, gangs: Rows) -> Rows:
        return np.array(list(in_order(self.cycle, gangs))[::-1], dtype=np.int64)


def _starts_with(some: Rows, order: Rows) -> bool:
    """Whether an order is the beginning of another one, or all of it."""
    return len(order) <= len(some) and bool((some[: len(order)] == order).all())


class Members:
    """The pods of each gang that hold a place and could lose it, and their nodes, as columns.

    A gang's pods lie together, from `first` on; those that would be placed first in front.
    """

    def __init__(self, cycle: Cycle) -> None:
        self.cycle = cycle
        gang_of = cycle.snapshot.pods.gang
        active = np.array(IS_ACTIVE_ALLOCATED)[np.array(cycle.trial.status, dtype=np.int64)]
        active[[pod for pod, core in cycle.trial.core.items() if core]] = False
        rows = np.flatnonzero(active & (gang_of >= 0))
        self.pods: Rows = rows[np.argsort(gang_of[rows], kind="stable")]
        self.count: Rows = np.bincount(gang_of[rows], minlength=len(cycle.snapshot.gangs))
        self.first: Rows = np.cumsum(self.count) - self.count
        self.node: Rows = np.array(cycle.trial.node, dtype=np.int64)
        """By pod."""
        self._sorted = self.count < 2

    def of(self, gangs: Rows) -> tuple[Rows, Rows]:
        """The pods of some gangs, gang by gang, and how many each has."""
        for gang in gangs[~self._sorted[gangs]].tolist():
            start, self._sorted[gang] = int(self.first[gang]), True
            pods = evictable_in_order(self.cycle.trial, self.cycle.orders, gang)
            self.pods[start : start + len(pods)] = pods
        count = self.count[gangs]
        if (count == 1).all():
            return self.pods[self.first[gangs]], count
        ends = np.cumsum(count)
        offsets = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - count, count)
        return self.pods[np.repeat(self.first[gangs], count) + offsets], count

    def leftmost(self, gangs: Rows) -> Rows:
        """The first node, by name, that each of the gangs has a pod on."""
        nodes = np.full(len(self.count), len(self.cycle.snapshot.nodes))
        np.minimum.at(nodes, self.cycle.snapshot.pods.gang[self.pods], self.node[self.pods])
        return np.asarray(nodes[gangs])

    def replace(self, gang: int, pods: Sequence[int]) -> None:
        """From now on these are the gang's pods."""
        self.first[gang], self.count[gang], self._sorted[gang] = len(self.pods), len(pods), True
        self.pods = np.append(self.pods, pods)
        self.node[list(pods)] = [self.cycle.trial.node[pod] for pod in pods]
