"""Which of the victims of a choice are left when bounds are asked about all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pykai.engine.accumulated import Accumulated
from pykai.engine.cycle import Cycle
from pykai.engine.device_room import Leaving
from pykai.engine.feasibility import FeasibilityBound
from pykai.engine.reclaim_bound import VictimLosses
from pykai.engine.victim_order import VictimOrder, every_gang
from pykai.engine.victims import VictimPool
from pykai.model.resources import Column, Mask, Rows
from tests.builders import NOW
from tests.properties.small_world import PACKING

from .clusters import gang, node, pod, seen


@dataclass(frozen=True)
class Scripted:
    """Bounds as a test wants them: which victims could be of use, by name. `before`: those that are served before the
    evictor."""

    names: list[str]
    together: str = "abcd"
    """If all of them go."""
    fewer: str = "abcd"
    """If not all of them go."""
    alone: str = "abcd"
    before: str = ""
    kept: str = ""
    """Those that could not lose their place."""
    limits: bool = True
    gpus: float = np.inf
    """What could be had of all of them."""
    back: str = ""
    """The least of them that must get a place again."""

    def _named(self, victims: VictimLosses, names: str) -> Mask:
        return np.array([self.names[gang] in names for gang in victims.gangs.tolist()], dtype=bool)

    def judge(self, victims: VictimLosses, nodes: Rows | None) -> tuple[Mask, Mask]:
        useful = self.together if len(victims.gangs) == len(self.names) - 1 else self.fewer
        after = ~self._named(victims, self.before)
        return after, after & self._named(victims, useful if nodes is None else self.alone)

    def lost(self, victims: VictimLosses) -> Mask:
        return ~self._named(victims, self.kept)

    def obtainable(self, victims: VictimLosses) -> Column:
        return np.cumsum(victims.losses, axis=1)

    def obtainable_on_node(self, victims: VictimLosses, nodes: Rows) -> Column:
        return np.cumsum(victims.losses, axis=1)

    def obtainable_together(self, victims: VictimLosses) -> Column:
        return np.array([np.inf, np.inf, self.gpus])

    def returning(self, pods: Sequence[int], victims: VictimLosses) -> list[int]:
        mine = zip(pods, self._named(victims, self.back).tolist(), strict=True)
        return [pod for pod, returns in mine if returns]

    def opening(self, leaving: Leaving) -> Mask:
        return np.ones(len(leaving.pods), dtype=bool)

    def within_limits(self, victims: VictimLosses) -> Mask:
        return np.full(len(victims.queues), self.limits)


def accumulated(wanted: int, spare: int = 0, both: bool = False, **script: Any) -> Accumulated:
    """Victims a, b, c and d, which go in this order, of one GPU each on a node that is full; a pod wants some of its
    GPUs. Another node has `spare` GPUs; gang a has a pod there, too, where it is on `both`."""
    minimum = {"a": 2 if both else 1}
    held = [
        item
        for n, name in enumerate("abcd")
        for item in (gang(name, "low", age=n, minMember=minimum.get(name, 1)), pod(f"{name}-0", "n", gpus=1))
    ]
    held += [pod("a-1", "m", gpus=1)] if both else []
    nodes = [node("m", gpus=spare + both), node("n", gpus=4)]
    chosen = {"nodeSelector": {"name": "n"}}
    return asked_by_new(*nodes, *held, gang("new"), pod("new-0", spec=chosen, gpus=wanted), **script)


def asked_by_new(*objects: Any, **script: Any) -> Accumulated:
    """All gangs as victims of pod new-0."""
    cycle = Cycle(seen(*objects), PACKING, NOW)
    pool = VictimPool(cycle)
    order = VictimOrder(pool, {queue: pool.leaf(queue) for queue in pool.queues}, every_gang)
    while order.extend():
        pass
    names = list(cycle.snapshot.gangs.names)
    rows = [row for row, name in enumerate(cycle.snapshot.pods.names) if name == "new-0"]
    return Accumulated(order, set(), FeasibilityBound(pool, rows), Scripted(names, **script))


def effective(chosen: str, *arguments: Any, **script: Any) -> str:
    """Which of the chosen victims are left, by name."""
    found = accumulated(*arguments, **script)
    assert [found.batch(number).gang for number in range(4)] == [0, 1, 2, 3]
    return "".join("abcd"[number] for number in found.effective(["abcd".index(name) for name in chosen]))


@pytest.mark.parametrize(
    ("chosen", "wanted", "script", "left"),
    [
        ("abcd", 4, {}, "abcd"),
        ("a", 1, {}, "a"),
        # who is served before the evictor, or keeps its place, stays
        ("abcd", 2, {"before": "b"}, "acd"),
        ("abcd", 2, {"kept": "ad"}, "bc"),
        ("abcd", 4, {"before": "b"}, "acd"),
        ("ab", 2, {"before": "ab"}, ""),
        ("abcd", 2, {"limits": False}, ""),
        # two must find room beside the pod, or no more than that
        ("abcd", 2, {"back": "ab"}, "abcd"),
        ("abcd", 2, {"back": "abc"}, ""),
        ("abcd", 2, {"gpus": 1.0}, ""),
        ("abcd", 2, {"gpus": 2.0}, "abcd"),
        # who is of no use stays where the others leave enough; all of it may be needed for those that come back
        ("abcd", 3, {"together": "bcd", "fewer": "bcd"}, "bcd"),
        ("abcd", 4, {"together": "bcd", "fewer": "bcd"}, ""),
        # b is of use only if a goes, too: where c and d alone are enough, b stays as well
        ("abcd", 2, {"together": "bcd", "fewer": "cd", "alone": "cd"}, "cd"),
        ("abcd", 2, {"together": "bcd", "fewer": "cd", "alone": "d"}, "bcd"),
    ],
)
def test_victims_that_would_stay_are_left_out(chosen: str, wanted: int, script: dict[str, Any], left: str) -> None:
    assert effective(chosen, wanted, **script) == left


def test_who_can_move_may_go_without_being_of_use() -> None:
    assert effective("abcd", 3, 1, together="bcd", fewer="bcd") == "abcd"


@pytest.mark.parametrize(
    ("both", "goes"), [(False, [True, False, True, True]), (True, [True, True, False, True, True])]
)
def test_who_could_leave_its_node_at_all(both: bool, goes: list[bool]) -> None:
    """Where a gang is on two nodes it is not asked which node is open after each pod."""
    found = accumulated(2, both=both, before="b")
    assert found.single is not both
    assert found.goes.tolist() == goes


@pytest.mark.parametrize(("both", "along"), [(False, [0, 1, 1, 2]), (True, [0, 2, 1, 1, 2])])
def test_what_may_be_free_on_other_nodes_counts_for_a_gang_that_is_there_as_well(both: bool, along: list[int]) -> None:
    """By pod, how many pods of two GPUs would fit on the node of d by then; for a pod of a on another node as many as
    would in the end."""
    assert accumulated(2, both=both).along.tolist() == along


SIDES = [{"name": "x", "minMember": 2}, {"name": "y", "minMember": 1}]


@pytest.mark.parametrize(
    ("running", "chosen", "complete"),
    [
        ("xxyyy", [1], [1]),
        ("xxyyy", [2], [0, 1, 2]),
        ("xxyyy", [1, 2], [0, 1, 2]),
        ("xyyy", [2], [2]),  # it had lost a pod of its minimum before
        ("yyy", [2], [2]),
    ],
)
def test_surplus_goes_with_the_minimum_that_it_belongs_to(running: str, chosen: list[int], complete: list[int]) -> None:
    """The pods beyond the minimum are batches of their own, the last ones first; then comes the minimum."""
    parts = [pod(f"a-{number}", "n", gpus=1, part=part) for number, part in enumerate(running)]
    held = [gang("a", "low", subGroups=SIDES), *parts]
    found = asked_by_new(node("n", gpus=8), *held, gang("new"), pod("new-0", gpus=2))
    assert sorted(found.whole_gangs(chosen)) == complete
