"""Gangs of one shape stand in line behind each other: thousands that ask for the same cost one turn, not thousands.

Two gangs have one shape when no rule tells them apart but age: same queue, priority and minimum, pods of the same
classes. If the first of them finds no place, nor do the others, as long as nothing is freed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place
from pykai.engine.order import GangWalk, in_order


class ShapedWalk:
    """Pops gangs like GangWalk, of each shape only the first; the caller says whether the next one gets its turn."""

    def __init__(self, cycle: Cycle, gangs: Iterable[int], depth: int | None = None) -> None:
        self._shape: dict[int, Hashable] = {}
        self._lines: dict[Hashable, deque[int]] = {}
        for gang in _best_of_each_queue(cycle, in_order(cycle, gangs), depth):
            shape = shape_of(cycle, gang)
            self._shape[gang] = shape
            self._lines.setdefault(shape, deque()).append(gang)
        self._walk = GangWalk(cycle, [line.popleft() for line in self._lines.values()])

    def pop(self) -> int | None:
        """The next gang, or None when all had their turn."""
        return self._walk.pop()

    def push(self, gang: int) -> None:
        """Put a gang back: it has more to place."""
        self._walk.push(gang)

    def go_on(self, gang: int) -> None:
        """The next gang of the same shape gets its turn."""
        line = self._lines[self._shape[gang]]
        if line:
            self._walk.push(line.popleft())

    def give_up(self, gang: int) -> list[int]:
        """No more turns for this shape; returns who would have been next."""
        line = self._lines[self._shape[gang]]
        rest = list(line)
        line.clear()
        return rest


def _best_of_each_queue(cycle: Cycle, gangs: list[int], depth: int | None) -> Iterable[int]:
    if depth is None:
        return gangs
    queue_of = cycle.snapshot.gangs.queue
    taken: dict[int, int] = {}
    found: list[int] = []
    for gang in gangs:
        taken[queue_of[gang]] = taken.get(queue_of[gang], 0) + 1
        if taken[queue_of[gang]] <= depth:
            found.append(gang)
    return found


def shape_of(cycle: Cycle, gang: int) -> Hashable:
    """What makes a gang like others; its own row where it is like no other."""
    trial, gangs = cycle.trial, cycle.snapshot.gangs
    if gang in gangs.trees:
        return gang
    pods = pods_to_place(trial, cycle.orders, gang)
    classes = tuple(trial.klass[pod] for pod in pods)
    if not all(cycle.rules(cycle.snapshot.pods.classes[row]).none for row in set(classes)):
        return gang
    podset = gangs.first_podset[gang]
    return (
        gangs.queue[gang],
        gangs.priority[gang],
        gangs.preemptible[gang],
        gangs.podset_min[podset],
        trial.active_used[podset],
        len(gangs.pods(gang)),
        classes,
    )
