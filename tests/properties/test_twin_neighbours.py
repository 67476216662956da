"""With host ports and pod affinity, too, the engine decides what its twin decides."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pykai.engine.policy import Policy
from pykai.plugins.registry import BUILT_IN, make_all
from tests.properties.contended import contended, lookalikes, rivals, scattered
from tests.properties.small_world import Cluster
from tests.properties.test_twin import CONTESTS, EVERYTHING, decided, examples, snapshot_of
from tests.properties.twin.decide import decide as decide_slowly
from tests.properties.twin.neighbours import Neighbours
from tests.properties.twin.towns import towns

FRIENDLY = Policy(make_all([(name, {}) for name in BUILT_IN]))


def compare(cluster: Cluster, actions: tuple[str, ...]) -> None:
    snapshot, policy = snapshot_of(cluster), replace(FRIENDLY, actions=actions)
    assert decided(snapshot, policy) == decide_slowly(snapshot, policy.actions, [Neighbours(cluster)])


@given(towns(st.one_of(contended(7), lookalikes())))
@examples(0.5)
def test_the_twin_keeps_the_same_company(cluster: Cluster) -> None:
    compare(cluster, ("allocate",))


@given(towns(rivals()), st.sampled_from(CONTESTS))
@examples(0.5)
def test_the_twin_takes_the_same_company(cluster: Cluster, actions: tuple[str, ...]) -> None:
    compare(cluster, actions)


@given(towns(st.one_of(contended(7), scattered())))
@examples(0.5)
def test_the_twin_moves_the_same_company(cluster: Cluster) -> None:
    compare(cluster, EVERYTHING)
