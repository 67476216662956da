"""With claims on devices, too, the engine decides what its twin decides."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykai.plugins.dra.selectors import Selectors
from tests.properties.contended import contended, rivals, scattered
from tests.properties.test_twin import CONTESTS, EVERYTHING, decided, examples, policy_of
from tests.properties.twin.claims import Claims, Devices
from tests.properties.twin.decide import decide as decide_slowly
from tests.properties.twin.racks import MEANINGS, racks

Selectors().selects(
    "true", "", {}
)  # the CEL library changes the recursion limit when it is first used: not during an example


def compare(devices: Devices, actions: tuple[str, ...]) -> None:
    snapshot, policy = devices.snapshot(), policy_of(actions)
    assert decided(snapshot, policy) == decide_slowly(snapshot, policy.actions, [Claims(devices, MEANINGS)])


@given(racks(rivals()), st.sampled_from(CONTESTS))
@examples(0.5)
def test_the_twin_takes_the_same_devices(devices: Devices, actions: tuple[str, ...]) -> None:
    compare(devices, actions)


@given(racks(st.one_of(contended(6), scattered())))
@examples(0.5)
def test_the_twin_moves_to_the_same_devices(devices: Devices) -> None:
    compare(devices, EVERYTHING)
