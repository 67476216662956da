"""With volumes, too, the engine decides what its twin decides, whether storage is counted or not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.contended import contended, rivals, scattered
from tests.properties.test_twin import CONTESTS, EVERYTHING, decided, examples, policy_of
from tests.properties.twin.decide import decide as decide_slowly
from tests.properties.twin.pools import Pools
from tests.properties.twin.storage import Storage
from tests.properties.twin.volumes import Volumes
from tests.properties.twin.warehouses import warehouses


def compare(storage: Storage, actions: tuple[str, ...]) -> None:
    snapshot, policy = storage.snapshot(), policy_of(actions)
    rules = [Volumes(storage), *([Pools(storage)] if storage.by_pools else [])]
    assert decided(snapshot, policy) == decide_slowly(snapshot, policy.actions, rules)


@given(warehouses(rivals(), by_pools=False), st.sampled_from(CONTESTS))
@examples(0.5)
def test_the_twin_chooses_the_same_volumes(storage: Storage, actions: tuple[str, ...]) -> None:
    compare(storage, actions)


@given(warehouses(st.one_of(contended(7), scattered()), by_pools=False))
@examples(0.5)
def test_the_twin_moves_with_the_same_volumes(storage: Storage) -> None:
    compare(storage, EVERYTHING)


@given(warehouses(st.one_of(contended(7), rivals(), scattered()), by_pools=True))
@examples(0.5)
def test_the_twin_draws_on_the_same_pools(storage: Storage) -> None:
    compare(storage, EVERYTHING)
