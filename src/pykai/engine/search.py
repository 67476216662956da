"""The search for victims (spec/scheduling.md §16.3, §16.4): arithmetic first, simulation to confirm.

A scenario costs a simulation; most cannot work, and figures tell (`engine/room.py`). Pods of the gang are solved for in
growing prefixes (1, 2, 4 ... then bisection): the victims found for a shorter prefix are kept for the longer one. Two
ways of choosing among the accumulated victims are tried in turn: all on one node, then as few nodes as cover the need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.gang import active_pods, intact
from pykai.engine.line import VictimLine
from pykai.engine.room import Room, freed_by
from pykai.engine.scenario import Cause, Scenario, simulate, whole
from pykai.engine.victims import Batch
from pykai.model.resources import GPU, Column, Mask, Rows

Bound = Callable[[float], bool]
"""Whether victims worth this many GPUs could be had at all."""


@dataclass
class Search:
    """One gang's search along a line of victims."""

    cycle: Cycle
    cause: Cause
    line: VictimLine
    enough_gpus: Bound = lambda _: True
    spent: int = 0

    def solve(self) -> Scenario | None:
        """The scenario that gives the gang all it needs next; None where there is none within the limits."""
        pods = self.cause.pods
        if not pods or not self._gpus_to_be_had(pods):
            return None
        for choose in CHOICES:
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

    def _grow(self, pods: Sequence[int], choose: Choice) -> Scenario | None:
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
                return self._kept_if_whole(found, mark)
            else:
                recorded, solved = batches_of(self.cycle, found), size
                self.cycle.trial.undo_to(mark)
            size = min(size * 2, total) if possible == total else (solved + possible + 1) // 2
        mark = self.cycle.trial.mark()
        last = Probe(self, pods, recorded, choose).run() if 0 < solved < total else None
        return self._kept_if_whole(last, mark) if last is not None else None

    def _kept_if_whole(self, scenario: Scenario, mark: int) -> Scenario | None:
        """The scenario, unless the gang misses its minimum even so: then all is as at the mark."""
        if whole(self.cycle, self.cause.gang):
            return scenario
        self.cycle.trial.undo_to(mark)
        return None


def batches_of(cycle: Cycle, scenario: Scenario) -> list[Batch]:
    """The victims of a scenario, by gang."""
    by_gang: dict[int, list[int]] = {}
    for pod in scenario.victims:
        by_gang.setdefault(cycle.trial.gang[pod], []).append(pod)
    return [Batch(gang, tuple(pods)) for gang, pods in by_gang.items()]


class Accumulated:
    """The line of victims as far as it is known, without the pods that are victims already, and what it frees."""

    def __init__(self, line: VictimLine, known: set[int], room: Room) -> None:
        self.room = room
        self._line = line
        self._known = known
        fresh = ~np.isin(line.pods, list(known)) if known else slice(None)
        self.nodes: Rows = line.nodes[fresh]
        self.batch_of: Rows = line.batch_of[fresh]
        self.amounts: Column = line.freed()[:, fresh]
        self.total, self.own = room.gains(self.nodes, self.amounts)
        self.single = bool((self.batch_of[1:] != self.batch_of[:-1]).all())
        """Whether every batch is one pod: then a node's own gain is all that its victims gain."""

    def batch(self, number: int) -> Batch:
        batch = self._line.batch(number)
        return Batch(batch.gang, tuple(pod for pod in batch.pods if pod not in self._known)) if self._known else batch

    def where(self, mask: Mask) -> Rows:
        """The batches of the pods of a mask, in order, each once."""
        found = self.batch_of[mask]
        return found[np.flatnonzero(np.diff(found, prepend=-1))]

    def batches_on(self, nodes: Rows, upto: int) -> list[int]:
        """Batches with a pod on one of the nodes, of those up to a batch: node by node."""
        rank = np.full(len(self.room.counts), -1)
        rank[nodes] = np.arange(len(nodes))
        ranks = rank[self.nodes[: np.searchsorted(self.batch_of, upto, side="right")]]
        on = np.flatnonzero(ranks >= 0)
        return list(dict.fromkeys(self.batch_of[on[np.argsort(ranks[on], kind="stable")]].tolist()))

    def whole_gangs(self, numbers: list[int]) -> list[int]:
        """The batches, and of gangs that would be left with less than their minimum those that come before as well."""
        if not self._line.in_parts:
            return numbers
        gangs, trial, orders = self._line.gangs, self._line.cycle.trial, self._line.cycle.orders
        more: list[int] = []
        for gang in np.unique(gangs[numbers]).tolist():
            mine = [number for number in numbers if gangs[number] == gang]
            gone = {pod for number in mine for pod in self._line.batch(number).pods} | self._known
            present = active_pods(trial, gang)
            left = [pod for pod in present if pod not in gone]
            if left and intact(trial, orders, gang, present) and not intact(trial, orders, gang, left):
                more.extend(n for n in np.flatnonzero(gangs[: max(mine)] == gang).tolist() if n not in mine)
        return [*numbers, *more]


class Choice(Protocol):
    """A way of choosing among the victims accumulated up to some batch."""

    def worth_a_look(self, found: Accumulated) -> Rows:
        """The batches after which a choice could work, in order."""
        ...

    def choices(self, found: Accumulated, latest: int, needs: Sequence[float]) -> Iterator[list[int]]:
        """Batches to evict, one choice after the other; `needs`: GPUs of each wanted pod."""
        ...


class OneNode:
    """For each node of the latest victim: everybody who has a pod there."""

    def worth_a_look(self, found: Accumulated) -> Rows:
        return found.where((found.own if found.single else found.total) >= found.room.missing)

    def choices(self, found: Accumulated, latest: int, _: Sequence[float]) -> Iterator[list[int]]:
        start, end = np.searchsorted(found.batch_of, (latest, latest + 1)).tolist()
        for node in np.unique(found.nodes[start:end]):
            yield found.batches_on(np.array([node]), latest)


class FewNodes:
    """The fewest nodes, tightest first, whose victims cover the need; then more and more of them."""

    def worth_a_look(self, found: Accumulated) -> Rows:
        return found.where(found.total >= found.room.missing)

    def choices(self, found: Accumulated, latest: int, needs: Sequence[float]) -> Iterator[list[int]]:
        upto = int(np.searchsorted(found.batch_of, latest, side="right"))
        free = found.room.free[GPU]
        freed = np.bincount(found.nodes[:upto], weights=found.amounts[GPU, :upto], minlength=len(free))
        met, first = np.unique(found.nodes[:upto], return_index=True)
        capacity = (free + freed)[met]
        useful = capacity >= min(needs)
        order = np.lexsort((first[useful], capacity[useful]))
        nodes, capacity = met[useful][order], capacity[useful][order]
        baseline = float(np.maximum(free, 0).sum() - np.maximum(free[nodes], 0).sum())
        for count in _sizes(sum(needs) - baseline, capacity):
            yield found.batches_on(nodes[:count], latest)


CHOICES: tuple[Choice, ...] = (OneNode(), FewNodes())


def _sizes(need: float, capacities: Column) -> Iterator[int]:
    """Lengths of prefixes: the shortest that covers the need, then longer by 1, 2, 4 ... up to all."""
    size = int(np.searchsorted(np.cumsum(capacities), need - 1e-9)) + 1
    step = 1
    while size < len(capacities):
        yield size
        size, step = size + step, step * 2
    if len(capacities):
        yield len(capacities)


class Probe:
    """One attempt to make room for a prefix of the gang's pods, on top of victims recorded before."""

    def __init__(self, search: Search, pods: Sequence[int], recorded: Sequence[Batch], choose: Choice) -> None:
        self.search = search
        self.cycle = search.cycle
        self.pods = pods
        self.recorded = list(recorded)
        self.choose = choose
        self.room = Room(self.cycle, pods, freed_by(self.cycle, recorded))
        self.known = {pod for batch in recorded for pod in batch.pods}
        self.needs = [float(self.cycle.trial.of_class(pod).request[GPU]) for pod in pods]
        self.tried: set[frozenset[int]] = set()

    def run(self) -> Scenario | None:
        """The first scenario that works; it is left in the trial."""
        if self.room.missing <= 0:
            scenario = self._try([])
            if scenario is not None:
                return scenario
        line, done = self.search.line, 0
        while done < len(line) or line.extend():
            found = Accumulated(line, self.known, self.room)
            promising = self.choose.worth_a_look(found)
            for latest in promising[promising >= done].tolist():
                scenario = self._choices(found, latest)
                if scenario is not None or self.search.spent >= self.cycle.policy.limits.scenarios_per_gang:
                    return scenario
            done = len(line)
        return None

    def _choices(self, found: Accumulated, latest: int) -> Scenario | None:
        for numbers in self.choose.choices(found, latest, self.needs):
            chosen = [batch for number in found.whole_gangs(numbers) if (batch := found.batch(number)).pods]
            if self.room.enough(chosen):
                scenario = self._try(chosen)
                if scenario is not None:
                    return scenario
        return None

    def _try(self, chosen: Sequence[Batch]) -> Scenario | None:
        batches = [*self.recorded, *chosen]
        key = frozenset(pod for batch in batches for pod in batch.pods)
        if key in self.tried:
            return None
        self.tried.add(key)
        self.search.spent += 1
        return simulate(self.cycle, self.search.cause, self.pods, batches)
