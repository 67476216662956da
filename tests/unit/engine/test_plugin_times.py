"""What plugins spend when a cycle opens and closes is told under their configured names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.plugins.registry import make
from tests.properties.small_world import NOW

from .clusters import gang, node, pod, seen
from .test_budgets import Clock


@dataclass(frozen=True)
class Bookkeeper:
    """Opens its books in 3 seconds, finds out in 4 whether it spares anybody anything, tells a detail in 5 each."""

    clock: Clock

    def start(self, cycle: Any) -> None:
        self.clock.now += 3

    def relieves(self, cycle: Any) -> bool:
        self.clock.now += 4
        return False

    def spared(self, cycle: Any, pod_class: Any, nodes: Any) -> None: ...

    def concerns(self, cycle: Any, pod_class: Any) -> bool:
        return True

    def placed(self, cycle: Any, pod: int, node: int) -> None: ...

    def evicted(self, cycle: Any, pod: int) -> None: ...

    def claims(self, cycle: Any, pod: int) -> list[Any]:
        self.clock.now += 5
        return [("mine", {})]

    def zones(self, cycle: Any, pod: int) -> list[Any]:
        self.clock.now += 5
        return [("zone-0", {})]

    def extended_claim(self, cycle: Any, pod: int) -> dict[str, str]:
        self.clock.now += 5
        return {"extra": "claim"}


@dataclass(frozen=True)
class Sharer:
    """Works out fair shares in 2 seconds."""

    clock: Clock

    def fair_shares(self, cycle: Any) -> Any:
        self.clock.now += 2
        return np.full((3, len(cycle.snapshot.queues)), -1.0)

    def queue_key(self, book: Any, queue: int, request: Any, victims: Any) -> Any:
        return queue

    def over_capacity(self, cycle: Any, gang: int, request: Any) -> None: ...

    def can_reclaim(self, cycle: Any, gang: int, request: Any) -> bool:
        return False

    def most_gpus(self, book: Any, taking: Any, request: Any, block: float) -> float:
        return 0.0


def test_times_of_plugins() -> None:
    clock = Clock()
    policy = Policy((Bookkeeper(clock), Sharer(clock), *make("priority")), names=("books", "shares", "priority"))
    plan = decide(seen(node("n"), gang("g"), pod("g-0", cpu="1")), policy, NOW, clock)
    assert plan.timings.plugins_opening == {"books": 7.0, "shares": 2.0, "priority": 0.0}
    assert plan.timings.opening == 9.0
    (bind,) = plan.binds
    assert (bind.claims, bind.numa_zones, bind.extended_claim) == (
        (("mine", {}),),
        (("zone-0", {}),),
        {"extra": "claim"},
    )
    assert plan.timings.plugins_closing == {"books": 15.0, "shares": 0.0, "priority": 0.0}


def test_plugins_without_a_name_are_not_told() -> None:
    clock = Clock()
    policy = replace(Policy((Sharer(clock),)), names=())
    assert decide(seen(node("n")), policy, NOW, clock).timings.plugins_opening == {}
