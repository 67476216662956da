"""The engine decides what its twin decides: who is bound, promised a place and evicted, and where they go.

A difference is a mistake of one of the two: spec/scheduling.md says whose. One that is on purpose belongs into
docs/compatibility.md and, as "our rule", into the twin.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.model.snapshot import Snapshot
from tests.properties.contended import contended, lookalikes, rivals, scattered
from tests.properties.small_world import NOW, PACKING, Cluster
from tests.properties.twin.decide import Decisions, lodging
from tests.properties.twin.decide import decide as decide_slowly

EVERYTHING = ("allocate", "consolidation", "reclaim", "preempt")
ACTIONS = (EVERYTHING, ("allocate", "reclaim"), ("allocate", "preempt"), EVERYTHING, ("allocate",))
CONTESTS = (("allocate", "reclaim"), ("reclaim",), ("allocate", "preempt"), EVERYTHING)
MOVES = (("allocate", "consolidation"), EVERYTHING, ("consolidation",))


def examples(times: float) -> settings:
    """So many times as many examples as other properties get, in every profile."""
    return settings(max_examples=round(times * settings().max_examples))


def policy_of(actions: tuple[str, ...]) -> Policy:
    return replace(PACKING, actions=actions)


def snapshot_of(cluster: Cluster) -> Snapshot:
    """Every gang has its search: what failed for others says nothing."""
    snapshot = cluster.snapshot()
    return replace(snapshot, params=replace(snapshot.params, use_signatures=False))


def decided(snapshot: Snapshot, policy: Policy) -> Decisions:
    plan = decide(snapshot, policy, NOW)
    return Decisions(
        binds={bind.pod[1]: lodging(bind.node, bind.gpu_groups) for bind in plan.binds},
        promises={promise.pod[1]: lodging(promise.node, promise.gpu_groups) for promise in plan.nominations},
        evictions={eviction.pod[1]: eviction.moves_to for eviction in plan.evictions},
    )


def compare(cluster: Cluster, actions: tuple[str, ...]) -> None:
    snapshot, policy = snapshot_of(cluster), policy_of(actions)
    assert decided(snapshot, policy) == decide_slowly(snapshot, policy.actions)


@given(contended(), st.sampled_from(ACTIONS))
@examples(2.5)
def test_the_twin_decides_the_same(cluster: Cluster, actions: tuple[str, ...]) -> None:
    compare(cluster, actions)


@given(lookalikes())
@examples(2.0)
def test_the_twin_gives_the_same_turns(cluster: Cluster) -> None:
    compare(cluster, ("allocate",))


@given(rivals(), st.sampled_from(CONTESTS))
@examples(1.5)
def test_the_twin_takes_from_the_same(cluster: Cluster, actions: tuple[str, ...]) -> None:
    compare(cluster, actions)


@given(scattered(), st.sampled_from(MOVES))
@examples(1.5)
def test_the_twin_makes_the_same_moves(cluster: Cluster, actions: tuple[str, ...]) -> None:
    compare(cluster, actions)
