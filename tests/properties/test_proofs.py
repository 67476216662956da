"""What arithmetic rules out would fail in a simulation: with and without it the same is decided."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import PropertyMock, patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pykai.engine import strategies
from pykai.engine.accumulated import Accumulated
from pykai.engine.cycle import Cycle
from pykai.engine.decide import decide
from pykai.engine.feasibility import FeasibilityBound, SinglePodFit
from pykai.engine.order import GangWalk, pending_gangs
from pykai.engine.pending import PendingOrder
from pykai.engine.reschedule import ServiceOrder, rescheduling_order
from pykai.engine.sub_domains import SubDomains
from pykai.engine.victims import VictimPool
from tests.properties.contended import contended, pooled, rivals, scattered, short_of_cores
from tests.properties.small_world import NOW, PACKING, Cluster
from tests.properties.test_twin import decided, examples, policy_of, snapshot_of
from tests.properties.twin.sites import crowded_sites, snapshot_with_topologies

ACTIONS = (("reclaim",), ("allocate", "reclaim"), ("allocate", "consolidation", "reclaim", "preempt"))


@contextmanager
def every_gang_gets_a_turn() -> Iterator[None]:
    """No action is skipped because it can help nobody."""
    with ExitStack() as patches:
        for name in ("CONSOLIDATION", "RECLAIM", "PREEMPT"):
            always = replace(getattr(strategies, name), may_help=lambda *_: True)
            patches.enter_context(patch.object(strategies, name, always))
        yield


@contextmanager
def without_proofs() -> Iterator[None]:
    """Every gang gets its turn, and every scenario that could make enough room is simulated."""
    with (
        every_gang_gets_a_turn(),
        patch.object(strategies, "_bounded", return_value=False),
        patch.object(Accumulated, "along", property(lambda found: found.total)),
        patch.object(SubDomains, "fit", side_effect=lambda _, domains: np.ones(domains, dtype=bool)),
        patch.object(FeasibilityBound, "enough_devices", return_value=True),
        patch.object(FeasibilityBound, "packs", return_value=True),
        patch.object(VictimPool, "reach", side_effect=np.ones_like),
        patch.object(SinglePodFit, "possible", return_value=True),
        patch.object(SinglePodFit, "opening", side_effect=lambda leaving: np.ones(len(leaving.pods), dtype=bool)),
    ):
        yield


def compare(cluster: Cluster, actions: tuple[str, ...]) -> None:
    snapshot, policy = snapshot_of(cluster), policy_of(actions)
    with without_proofs():
        expected = decided(snapshot, policy)
    assert decided(snapshot, policy) == expected


@given(contended(), st.sampled_from(ACTIONS))
@examples(2.0)
def test_proofs_change_no_decision(cluster: Cluster, actions: tuple[str, ...]) -> None:
    compare(cluster, actions)


@given(rivals(), st.sampled_from(ACTIONS))
@examples(1.5)
def test_proofs_change_no_decision_between_rivals(cluster: Cluster, actions: tuple[str, ...]) -> None:
    compare(cluster, actions)


@given(scattered(), st.sampled_from(ACTIONS))
def test_proofs_change_no_decision_where_pods_can_move(cluster: Cluster, actions: tuple[str, ...]) -> None:
    compare(cluster, actions)


@given(pooled(), st.sampled_from(ACTIONS))
@examples(2.0)
def test_proofs_change_no_decision_in_pools_of_nodes(cluster: Cluster, actions: tuple[str, ...]) -> None:
    compare(cluster, actions)


@given(crowded_sites(), st.sampled_from(ACTIONS))
@examples(2.0)
def test_proofs_change_no_decision_where_topology_counts(cluster: Cluster, actions: tuple[str, ...]) -> None:
    snapshot, policy = snapshot_with_topologies(cluster), policy_of(actions)
    with without_proofs():
        expected = decided(snapshot, policy)
    assert decided(snapshot, policy) == expected


@given(short_of_cores(), st.sampled_from(ACTIONS))
@examples(2.0)
def test_proofs_change_no_decision_where_cores_are_short(cluster: Cluster, actions: tuple[str, ...]) -> None:
    compare(cluster, actions)


@given(st.one_of(contended(), rivals(), scattered(), short_of_cores()), st.sampled_from(ACTIONS))
@examples(2.0)
def test_one_by_one_the_same_is_found_as_after_proofs(cluster: Cluster, actions: tuple[str, ...]) -> None:
    snapshot, policy = snapshot_of(cluster), policy_of(actions)
    with patch.object(VictimPool, "likely", PropertyMock(return_value=False), create=True):
        expected = decided(snapshot, policy)
    with patch.object(VictimPool, "likely", PropertyMock(return_value=True), create=True):
        assert decided(snapshot, policy) == expected


@given(st.one_of(contended(), rivals(), scattered()))
@examples(2.0)
def test_an_action_that_can_help_nobody_decides_nothing(cluster: Cluster) -> None:
    snapshot, policy = snapshot_of(cluster), policy_of(ACTIONS[-1])
    with every_gang_gets_a_turn():
        expected = decide(snapshot, policy, NOW)
    found = decide(snapshot, policy, NOW)
    assert replace(found, verdicts=(), actions={}) == replace(expected, verdicts=(), actions={})


@given(rivals(), st.data())
def test_the_order_of_service_is_the_walk_of_all_that_wait(cluster: Cluster, data: st.DataObject) -> None:
    """Streams and skipped bystanders give the order in which a walk pops the gangs that get a turn."""
    cycle = Cycle(cluster.snapshot(), PACKING, NOW)
    waiting = pending_gangs(cycle)
    turns = data.draw(st.sets(st.sampled_from(waiting), min_size=1)) if waiting else set()
    order, walk = ServiceOrder(cycle, PendingOrder(cycle, waiting), turns), GangWalk(cycle, waiting)
    popped = [gang for gang in iter(walk.pop, None) if gang in turns]
    assert list(iter(order.pop, None)) == popped
    assert list(iter(rescheduling_order(cycle, PendingOrder(cycle, waiting), turns).pop, None)) == popped
