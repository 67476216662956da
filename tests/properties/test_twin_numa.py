"""With NUMA zones, too, the engine decides what its twin decides, and predicts the same zones for those that start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.objects.units import amount
from pykai.plugins.registry import BUILT_IN, make_all
from tests.properties.contended import contended, lookalikes, rivals, scattered
from tests.properties.small_world import NOW
from tests.properties.test_twin import CONTESTS, EVERYTHING, decided, examples
from tests.properties.twin.boards import boards, roomy
from tests.properties.twin.decide import after_cycle
from tests.properties.twin.decide import decide as decide_slowly
from tests.properties.twin.zones import Boards, Zones

Seats = dict[str, dict[tuple[str, str], float]]
"""Pod -> zone and resource -> how much of it."""


def policy_of(found: Boards, actions: tuple[str, ...]) -> Policy:
    arguments = {"reconstructAvailable": "true" if found.reconstructed else "false"}
    return Policy(make_all([*((name, {}) for name in BUILT_IN), ("numa", arguments)]), actions)


def predicted(snapshot: Snapshot, policy: Policy) -> Seats:
    return {
        bind.pod[1]: {(zone, name): amount(text) for zone, amounts in bind.numa_zones for name, text in amounts.items()}
        for bind in decide(snapshot, policy, NOW).binds
    }


def predicted_slowly(found: Boards, snapshot: Snapshot, policy: Policy) -> Seats:
    rule = Zones(found)
    world, seats = after_cycle(snapshot, policy.actions, [rule]), Seats()
    for pod, name in enumerate(snapshot.pods.names):
        if world.status(pod) is Status.ALLOCATED:
            mine = seats[name] = dict[tuple[str, str], float]()
            for zone, resource, much in world.pods[pod].given:
                at = rule.nodes[snapshot.nodes.names[world.pods[pod].node]].names[zone], resource
                mine[at] = mine.get(at, 0.0) + much
    return seats


def compare(found: Boards, actions: tuple[str, ...]) -> None:
    snapshot, policy = found.snapshot(), policy_of(found, actions)
    assert decided(snapshot, policy) == decide_slowly(snapshot, policy.actions, [Zones(found)])
    assert predicted(snapshot, policy) == predicted_slowly(found, snapshot, policy)


@given(boards(st.one_of(roomy(), lookalikes())))
@examples(0.7)
def test_the_twin_aligns_with_the_same_zones(found: Boards) -> None:
    compare(found, ("allocate",))


@given(boards(roomy()))
@examples(0.7)
def test_the_twin_waits_for_the_same_zones(found: Boards) -> None:
    compare(found, EVERYTHING)


@given(boards(rivals()), st.sampled_from(CONTESTS))
@examples(0.5)
def test_the_twin_takes_the_same_zones(found: Boards, actions: tuple[str, ...]) -> None:
    compare(found, actions)


@given(boards(st.one_of(contended(7), scattered())))
@examples(0.5)
def test_the_twin_moves_to_the_same_zones(found: Boards) -> None:
    compare(found, EVERYTHING)
