"""The search for victims (spec/scheduling.md §16.3, §16.4): arithmetic first, simulation to confirm.

A scenario costs a simulation; most cannot work, and figures tell. `Room` keeps, per node, an upper bound of how many of
the wanted pods fit there, and follows what is freed by victims at the cost of an addition. Only when the bound says
that all pods could fit is a scenario simulated.

Pods of the gang are solved for in growing prefixes (1, 2, 4 ... then bisection): the victims found for a shorter
prefix are kept for the longer one. Two ways of choosing among the accumulated victims are tried in turn: all on one
node, then as few nodes as cover the need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place
from pykai.engine.scenario import Cause, Scenario, simulate, whole
from pykai.engine.victims import Batch, VictimWalk
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column

Walk = Callable[[], VictimWalk]
Bound = Callable[[float], bool]
"""Whether victims worth this many GPUs could be had at all."""


@dataclass
class Search:
    """One gang's search. `victims` starts a fresh walk over its candidates."""

    cycle: Cycle
    cause: Cause
    victims: Walk
    enough_gpus: Bound = lambda _: True
    spent: int = 0

    def solve(self) -> Scenario | None:
        """The scenario that gives the gang all it needs next; None where there is none within the limits."""
        pods = pods_to_place(self.cycle.trial, self.cycle.orders, self.cause.gang)
        if not pods or not self._gpus_to_be_had(pods):
            return None
        for choose in (one_node, few_nodes):
            scenario = self._grow(pods, choose)
            if scenario is not None:
                return scenario
        return None

    def _gpus_to_be_had(self, pods: Sequence[int]) -> bool:
        """Whether what is free and what could be taken covers the need."""
        trial = self.cycle.trial
        need = sum(float(trial.of_class(pod).request[GPU]) for pod in pods)
        free = float(np.maximum(trial.idle[GPU] + trial.releasing[GPU], 0).sum()) + len(trial.shares)
        return self.enough_gpus(need - free)

    def _grow(self, pods: Sequence[int], choose: Choose) -> Scenario | None:
        """Solve for longer and longer prefixes, keeping the victims found; the whole must be solved in the end."""
        total, solved, size = len(pods), 0, 1
        possible = total
        recorded: list[Batch] = []
        while solved < possible:
            mark = self.cycle.trial.mark()
            found = Probe(self, pods[:size], recorded, choose).run()
            if found is None:
                possible = size - 1
            elif size == total:
                return found if whole(self.cycle, self.cause.gang) else None
            else:
                recorded, solved = batches_of(self.cycle, found), size
                self.cycle.trial.undo_to(mark)
            size = min(size * 2, total) if possible == total else (solved + possible + 1) // 2
        return Probe(self, pods, recorded, choose).run() if 0 < solved < total else None


def batches_of(cycle: Cycle, scenario: Scenario) -> list[Batch]:
    """The victims of a scenario, by gang."""
    by_gang: dict[int, list[int]] = {}
    for pod in scenario.victims:
        by_gang.setdefault(cycle.trial.gang[pod], []).append(pod)
    return [Batch(gang, tuple(pods)) for gang, pods in by_gang.items()]


Freed = dict[int, Column]
"""What is freed, by node."""


class Room:
    """Upper bound of how many of some pods fit: per node from what is free, what is freed, and what filters allow."""

    def __init__(self, cycle: Cycle, pods: Sequence[int], freed: Freed) -> None:
        self.cycle = cycle
        trial = cycle.trial
        classes = list({trial.klass[pod]: trial.of_class(pod) for pod in pods}.values())
        self._need = np.min([self._floor(c) for c in classes], axis=0)
        self._dims = np.flatnonzero(self._need > 0)
        allowed = np.zeros(len(cycle.snapshot.nodes), dtype=bool)
        for c in classes:
            allowed |= cycle.rankings.allowed(c)
        self._allowed = allowed
        self.free = trial.idle + trial.releasing
        for node, shares in trial.shares.items():
            capacity = float(cycle.snapshot.nodes.gpu_memory[node])
            spare = sum(capacity - s.allocated + s.releasing for s in shares.values() if s.used > 0)
            self.free[GPU, node] += spare / capacity
        for node, amount in freed.items():
            self.free[:, node] += amount
        counts = np.where(allowed, self._counts(self.free), 0)
        self.counts: list[float] = counts.tolist()
        self.total = float(counts.sum())

    def _floor(self, c: PodClass) -> Column:
        """What a pod of the class takes at least."""
        need = self.cycle.rankings.least(c).copy()
        if c.memory_mib:
            need[GPU] = c.devices * c.memory_mib / float(self.cycle.snapshot.nodes.gpu_memory.max())
        return need

    def _counts(self, free: Column) -> Column:
        need = self._need[self._dims]
        if not len(need):
            return np.full(free.shape[1], np.inf)
        ratio = (free[self._dims] + 1e-9) / need[:, None]
        return np.asarray(np.maximum(np.floor(ratio.min(axis=0)), 0))

    def gain(self, freed: dict[int, Column]) -> float:
        """How many more pods fit when these amounts are freed, by node."""
        more = 0.0
        for node, amount in freed.items():
            if self._allowed[node]:
                more += float(self._counts((self.free[:, node] + amount)[:, None])[0]) - self.counts[node]
        return more


@dataclass
class Accumulated:
    """Victims popped so far, and what they free per node."""

    cycle: Cycle
    pods: Sequence[int]
    room: Room
    batches: list[Batch] = field(default_factory=list)
    freed: Freed = field(default_factory=dict)
    by_node: dict[int, list[Batch]] = field(default_factory=dict)
    gained: float = 0.0

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        for node, amount in freed_by(self.cycle, [batch]).items():
            before = {node: self.freed[node]} if node in self.freed else {}
            self.gained -= self.room.gain(before)
            self.freed[node] = self.freed.get(node, 0.0) + amount
            self.gained += self.room.gain({node: self.freed[node]})
            if batch not in self.by_node.setdefault(node, []):
                self.by_node[node].append(batch)

    def nodes_of(self, batch: Batch) -> list[int]:
        """The nodes of a batch, in name order."""
        return sorted({self.cycle.trial.node[pod] for pod in batch.pods})


def freed_by(cycle: Cycle, batches: Sequence[Batch]) -> Freed:
    """What evicting batches frees, by node."""
    trial = cycle.trial
    freed: Freed = {}
    for batch in batches:
        for pod in batch.pods:
            amount = trial.of_class(pod).request.copy()
            amount[GPU] = trial.accepted_gpus(pod)
            node = trial.node[pod]
            freed[node] = freed[node] + amount if node in freed else amount
    return freed


Choose = Callable[[Accumulated, Batch], Iterator[list[Batch]]]


def one_node(found: Accumulated, latest: Batch) -> Iterator[list[Batch]]:
    """For each node of the latest victim: everybody who has a pod there."""
    for node in found.nodes_of(latest):
        yield list(found.by_node[node])


def few_nodes(found: Accumulated, _: Batch) -> Iterator[list[Batch]]:
    """The fewest nodes, tightest first, whose victims cover the need; then more and more of them."""
    room, cycle = found.room, found.cycle
    needs = [float(cycle.trial.of_class(pod).request[GPU]) for pod in found.pods]
    capacity = {node: float(room.free[GPU, node] + freed[GPU]) for node, freed in found.freed.items()}
    nodes = [node for node in capacity if capacity[node] >= min(needs)]
    nodes.sort(key=lambda node: capacity[node])
    inside = set(nodes)
    baseline = float(np.maximum(room.free[GPU], 0).sum()) - sum(max(float(room.free[GPU, n]), 0.0) for n in inside)
    for count in _sizes(sum(needs) - baseline, [capacity[node] for node in nodes]):
        chosen = [batch for node in nodes[:count] for batch in found.by_node[node]]
        yield list(dict.fromkeys(chosen))


def _sizes(need: float, capacities: Sequence[float]) -> Iterator[int]:
    """Lengths of prefixes: the shortest that covers the need, then longer by 1, 2, 4 ... up to all."""
    covered = np.cumsum(capacities)
    first = int(np.searchsorted(covered, need - 1e-9)) + 1 if len(covered) else 1
    step = 1
    while first < len(capacities):
        yield first
        first, step = first + step, step * 2
    if capacities:
        yield len(capacities)


class Probe:
    """One attempt to make room for a prefix of the gang's pods, on top of victims recorded before."""

    def __init__(self, search: Search, pods: Sequence[int], recorded: Sequence[Batch], choose: Choose) -> None:
        self.search = search
        self.cycle = search.cycle
        self.pods = pods
        self.recorded = list(recorded)
        self.choose = choose
        self.tried: set[frozenset[int]] = set()
        self.known = {pod for batch in recorded for pod in batch.pods}

    def run(self) -> Scenario | None:
        """The first scenario that works; it is left in the trial."""
        room = Room(self.cycle, self.pods, freed_by(self.cycle, self.recorded))
        need = len(self.pods) - room.total
        if need <= 0:
            scenario = self._try([])
            if scenario is not None:
                return scenario
        found = Accumulated(self.cycle, self.pods, room)
        walk = self.search.victims()
        while (popped := walk.pop()) is not None:
            fresh = Batch(popped.gang, tuple(pod for pod in popped.pods if pod not in self.known))
            if not fresh.pods:
                continue
            found.add(fresh)
            if found.gained < need:
                continue
            scenario = self._choices(found, fresh, (room, need))
            if scenario is not None or self._exhausted():
                return scenario
        return None

    def _choices(self, found: Accumulated, latest: Batch, bound: tuple[Room, float]) -> Scenario | None:
        room, need = bound
        for chosen in self.choose(found, latest):
            if room.gain(freed_by(self.cycle, chosen)) >= need:
                scenario = self._try(chosen)
                if scenario is not None:
                    return scenario
        return None

    def _exhausted(self) -> bool:
        return self.search.spent >= self.cycle.policy.limits.scenarios_per_gang

    def _try(self, chosen: Sequence[Batch]) -> Scenario | None:
        batches = [*self.recorded, *chosen]
        key = frozenset(pod for batch in batches for pod in batch.pods)
        if key in self.tried:
            return None
        self.tried.add(key)
        self.search.spent += 1
        return simulate(self.cycle, self.search.cause, self.pods, batches)
