"""What plugins spend when a cycle opens and closes is told under their configured names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pykai.engine.decide import decide
from pykai.engine.plugin_api import BindDetails, NodeResourceState
from pykai.engine.policy import Policy
from pykai.plugins.registry import make
from tests.properties.small_world import NOW

from .clusters import gang, node, pod, seen
from .test_budgets import Clock


@dataclass(frozen=True)
class Licences:
    """Opens in 3 seconds; the details of a bind take 5."""

    clock: Clock

    def open(self, cycle: Any) -> NodeResourceState:
        self.clock.now += 3
        return LicenceState(self.clock)


class LicenceState(NodeResourceState):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def details(self, pod: int) -> BindDetails:
        self.clock.now += 5
        return BindDetails((("mine", {}),), (("zone-0", {}),), {"extra": "claim"})


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

    def most_losses(self, book: Any, taking: Any, request: Any, block: Any) -> Any:
        return 0.0, 0.0, 0.0


def test_times_of_plugins() -> None:
    clock = Clock()
    policy = Policy((Licences(clock), Sharer(clock), *make("priority")), names=("licences", "shares", "priority"))
    plan = decide(seen(node("n"), gang("g"), pod("g-0", cpu="1")), policy, NOW, clock)
    assert plan.timings.plugins_opening == {"licences": 3.0, "shares": 2.0, "priority": 0.0}
    assert plan.timings.opening == 5.0
    (bind,) = plan.binds
    assert (bind.claims, bind.numa_zones, bind.extended_claim) == (
        (("mine", {}),),
        (("zone-0", {}),),
        {"extra": "claim"},
    )
    assert plan.timings.plugins_closing == {"licences": 5.0, "shares": 0.0, "priority": 0.0}


def test_plugins_without_a_name_are_not_told() -> None:
    clock = Clock()
    policy = replace(Policy((Sharer(clock),)), names=())
    assert decide(seen(node("n")), policy, NOW, clock).timings.plugins_opening == {}
