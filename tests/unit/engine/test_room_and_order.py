"""The room that reclaim makes is nobody's: the cycle after, the order of service decides anew who gets it.

As with KAI, who waits without being evictor or victim takes nothing in a scenario. One in the victim's queue that goes
before a larger gang in front of the evictor does in the next cycle (docs/concepts/eviction.md, "The room is not kept").
"""

from __future__ import annotations

from typing import Any

from pykai.engine.decide import decide
from pykai.model.plan import Plan
from tests import builders
from tests.properties.small_world import NOW, PACKING

from .clusters import PRIORITIES, bound, evicted, gang, node, pod, promised
from .test_rights import queue

QUEUES = [queue("over", gpu=2), queue("under", gpu=2)]
WAITING = [
    gang("many", queue="over", age=9, minMember=1),
    gang("held", queue="under", age=9),
    gang("large", queue="under", age=8, minMember=3),
    gang("next", queue="over", age=8),
    gang("first", queue="over", age=7, minMember=4),
    gang("small", queue="under", age=7),
    pod("many-0", "n", gpus=1),
    pod("many-1", "n", gpus=1),
    pod("held-0", "n", gpus=1),
    *(pod(f"large-{i}", gpus=1) for i in range(3)),
    *(pod(f"first-{i}", gpus=1) for i in range(4)),
    pod("small-0", gpus=1),
]


def plan(*pods: Any) -> Plan:
    snapshot = builders.snapshot([*PRIORITIES, node("n", gpus=4), *QUEUES, *WAITING, *pods])
    return decide(snapshot, PACKING, NOW)


def test_room_goes_to_whom_the_next_cycle_serves_first() -> None:
    """`small` is within its quota, but behind `large`, which is not: `next` goes before `large`."""
    before = plan(pod("many-2", "n", gpus=1), pod("next-0", gpus=1))
    assert (evicted(before), promised(before)) == ({"many-2"}, {"small-0": "n"})
    after = plan(pod("next-0", gpus=1))
    assert bound(after) == {"next-0": "n"}
    assert (evicted(after), promised(after)) == ({"many-1"}, {"small-0": "n"})


def test_without_one_that_goes_before_the_evictor_gets_its_room() -> None:
    assert bound(plan()) == {"small-0": "n"}
