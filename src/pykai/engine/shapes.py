"""Gangs of one shape stand in line behind each other: thousands that ask for the same cost one turn, not thousands.

Two gangs have one shape when no rule tells them apart but age: same queue, priority and minimum, pods of the same
classes. If the first of them finds no place, nor do the others, as long as nothing is freed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable

from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place
from pykai.engine.order import GangWalk, in_order

ToldApart = Callable[[int], Hashable]
"""Equal for gangs that an action does not tell apart."""
MOST_HOPELESS = 64
"""So many gangs that get no turn stay in line; of more, which are a backlog, the rest has no say."""


class ShapedWalk:
    """Pops gangs like GangWalk, of each shape only the first; the caller says whether the next one gets its turn."""

    def __init__(
        self, cycle: Cycle, gangs: Iterable[int], depth: int | None = None, apart: ToldApart = lambda _: None
    ) -> None:
        self._lines: dict[int, deque[int]] = {}
        """Gang that had its turn, or has it next -> those behind it."""
        self._hopeless: set[int] = set()
        """Gangs that get no turn but stay in line: by what they ask for their queues are compared with others."""
        shapes, lines = Shapes.of(cycle), dict[Hashable, deque[int]]()
        for gang in _best_of_each_queue(cycle, in_order(cycle, gangs), depth):
            lines.setdefault((shapes.shape(cycle, gang), apart(gang)), deque()).append(gang)
        for line in lines.values():
            self._lines[line.popleft()] = line
        self._walk = GangWalk(cycle, self._lines)
        self._expected = len(self._lines)
        """How many in the walk get a turn: without any the hopeless ones are of no interest."""

    def pop(self) -> int | None:
        """The next gang, or None when all had their turn."""
        while self._expected and (gang := self._walk.pop()) is not None:
            if gang not in self._hopeless:
                self._expected -= 1
                return gang
            self.go_on(gang)
        return None

    def push(self, gang: int) -> None:
        """Put a gang back: it has more to place."""
        self._expected += 1
        self._walk.push(gang)

    def changed(self, gangs: Iterable[int]) -> None:
        """These gangs lost or got pods out of turn."""
        self._walk.changed(gangs)

    def go_on(self, gang: int) -> None:
        """The next gang of the same shape gets its turn."""
        line = self._lines[gang]
        if line:
            heir = line.popleft()
            self._lines[heir], self._lines[gang] = line, deque()
            self._expected += heir not in self._hopeless
            self._walk.follow(gang, heir)

    def give_up(self, gang: int) -> list[int]:
        """No more turns for this shape; returns who would have been next."""
        rest = list(self._lines[gang])
        kept = rest[: max(MOST_HOPELESS - len(self._hopeless), 0)]
        self._hopeless.update(kept)
        self._lines[gang] = deque(kept)
        self.go_on(gang)
        return rest


def _best_of_each_queue(cycle: Cycle, gangs: Iterable[int], depth: int | None) -> Iterable[int]:
    if depth is None:
        return gangs
    queue_of = cycle.snapshot.gangs.queue
    taken: Counter[int] = Counter()
    found: list[int] = []
    for gang in gangs:
        taken[queue_of[gang]] += 1
        if taken[queue_of[gang]] <= depth:
            found.append(gang)
    return found


class Shapes:
    """The shapes of a cycle's gangs, each kept until a pod of the gang moves."""

    def __init__(self, read: int) -> None:
        self._known: dict[int, Hashable] = {}
        self._read = read

    @classmethod
    def of(cls, cycle: Cycle) -> Shapes:
        """The up-to-date shapes of the cycle."""
        known = cycle.state(_shapes)
        for pod in cycle.trial.moved[known._read :]:
            known._known.pop(cycle.trial.gang[pod], None)
        known._read = len(cycle.trial.moved)
        return known

    def shape(self, cycle: Cycle, gang: int) -> Hashable:
        """What makes a gang like others; its own row where it is like no other."""
        known = self._known.get(gang)
        if known is None:
            known = self._known[gang] = _shape(cycle, gang)
        return known


def _shapes(cycle: Cycle) -> Shapes:
    return Shapes(len(cycle.trial.moved))


def _shape(cycle: Cycle, gang: int) -> Hashable:
    gangs, trial = cycle.snapshot.gangs, cycle.trial
    if gang in gangs.trees:
        return gang
    classes = tuple([trial.klass[pod] for pod in pods_to_place(trial, cycle.orders, gang)])
    if any(not cycle.rules(cycle.snapshot.pods.classes[row]).none for row in set(classes)):
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
