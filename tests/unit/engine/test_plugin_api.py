"""What a node resource answers that overrides nothing, and what the resources of a pod add to its bind together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pykai.engine.decide import decide
from pykai.engine.plugin_api import BindDetails, NodeResourceState
from pykai.engine.policy import Policy
from pykai.model.plan import Bind
from tests.builders import NOW
from tests.properties.small_world import PACKING

from .clusters import gang, node, pod, seen

NODES = np.array([0, 1])


def test_a_resource_that_overrides_nothing_objects_to_nothing() -> None:
    (pod_class,) = seen(gang("g"), pod("g-0")).pods.classes
    plain = NodeResourceState()
    assert (plain.concerns(pod_class), plain.alike(0)) == (True, None)
    assert (tuple(plain.infeasible(0)), plain.reject(0, 1)) == ((), None)
    assert (plain.may_wait(), plain.must_wait(0, NODES)) == (True, None)
    assert (tuple(plain.blockers(0)), tuple(plain.companions(0))) == ((), ())
    assert (plain.relieves, plain.spared(pod_class, NODES)) == (False, None)
    assert (plain.unchanged(0, 1), plain.details(0)) == (True, None)


@dataclass(frozen=True)
class Adding:
    """A node resource that adds something to the bind of each pod, or nothing."""

    added: BindDetails | None

    def open(self, _: Any) -> NodeResourceState:
        return AddingState(self.added)


class AddingState(NodeResourceState):
    def __init__(self, added: BindDetails | None) -> None:
        self.added = added

    def details(self, pod: int) -> BindDetails | None:
        return self.added


CLAIM, ZONE, EXTENDED = ("claim", {"devices": "a"}), ("zone-0", {"cpu": "1"}), {"deviceRequests": "b"}


@pytest.mark.parametrize(
    ("added", "claims", "zones", "extended"),
    [
        ([None], (), (), None),
        ([None, BindDetails(zones=(ZONE,))], (), (ZONE,), None),
        ([BindDetails((CLAIM,)), BindDetails(zones=(ZONE,))], (CLAIM,), (ZONE,), None),
        ([BindDetails((CLAIM,)), None, BindDetails((("other", {}),), (ZONE,))], (CLAIM, ("other", {})), (ZONE,), None),
        ([BindDetails(zones=(ZONE,)), BindDetails(extended_claim=EXTENDED)], (), (ZONE,), EXTENDED),
    ],
)
def test_a_bind_carries_what_all_resources_add(
    added: list[BindDetails | None], claims: Any, zones: Any, extended: Any
) -> None:
    policy = Policy((*PACKING.plugins, *map(Adding, added)))
    found = decide(seen(node("n"), gang("g"), pod("g-0", cpu="1")), policy, NOW)
    assert found.binds == (
        Bind(("ns", "g-0"), "n", "Regular", 0, 0.0, claims=claims, extended_claim=extended, numa_zones=zones),
    )
