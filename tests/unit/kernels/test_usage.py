"""Past use: what a record weighs, and parts of the capacity, beside sums over small steps of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.kernels.fairshare import UsageRecord, normalised_use, stretch_weights

NOW = 100.0
WHOLE = (1000.0, 0.0, 8.0)


@pytest.mark.parametrize(
    ("begins", "since", "half_life", "expected"),
    [
        ([60.0, 80.0], 50.0, None, [20.0, 20.0]),
        ([20.0, 80.0], 50.0, None, [30.0, 20.0]),
        ([20.0, 40.0], 50.0, None, [0.0, 50.0]),
        ([60.0, 120.0], 50.0, None, [40.0, 0.0]),
        ([80.0, 90.0], 0.0, 10.0, [0.25, 0.5]),
        ([], 0.0, 10.0, []),
    ],
)
def test_a_stretch_counts_by_its_length_in_the_window_and_by_its_age(
    begins: list[float], since: float, half_life: float | None, expected: list[float]
) -> None:
    assert stretch_weights(np.array(begins), since, NOW, half_life).tolist() == pytest.approx(expected)


def test_equal_steps_weigh_as_samples_do() -> None:
    """Each step back counts less by the same factor: as in a database that is asked sample by sample."""
    weights = stretch_weights(np.arange(90.0, 100.0), 0.0, NOW, 3.0)
    assert (weights[:-1] / weights[1:]).tolist() == pytest.approx([0.5 ** (1 / 3)] * 9)


def in_steps(records: Sequence[UsageRecord], since: float, half_life: float | None, queue: str) -> float:
    """The slow, obvious twin: GPUs held and there, moment by moment."""
    held = there = 0.0
    for moment in np.arange(since, NOW, 0.01) + 0.005:
        weight = 1.0 if half_life is None else 0.5 ** ((NOW - moment) / half_life)
        current = [record for record in records if record.at <= moment]
        if current:
            held += weight * current[-1].allocated.get(queue, (0.0, 0.0, 0.0))[2]
            there += weight * current[-1].capacity[2]
    return held / there if there else 0.0


@settings(max_examples=25)
@given(
    gaps=st.lists(st.floats(0.5, 9.0), min_size=1, max_size=6),
    held=st.lists(st.integers(0, 8), min_size=6, max_size=6),
    half_life=st.none() | st.floats(1.0, 50.0),
    window=st.floats(1.0, 30.0),
)
def test_parts_are_those_of_a_sum_over_small_steps(
    gaps: list[float], held: list[int], half_life: float | None, window: float
) -> None:
    times = 70.0 + np.cumsum(gaps)
    records = [
        UsageRecord(float(at), (0.0, 0.0, 8.0 + number), {"q": (0.0, 0.0, float(held[number]))})
        for number, at in enumerate(times)
        if at < NOW
    ]
    found = normalised_use(records, NOW - window, NOW, half_life).get("q", (0.0, 0.0, 0.0))
    assert found[2] == pytest.approx(in_steps(records, NOW - window, half_life, "q"), abs=2e-3)


def test_a_resource_the_cluster_lacks_is_not_used_and_who_held_nothing_is_left_out() -> None:
    records = [UsageRecord(50.0, WHOLE, {"a": (250.0, 10.0, 4.0), "idle": (0.0, 0.0, 0.0)})]
    assert normalised_use(records, 0.0, NOW, None) == {"a": (0.25, 0.0, 0.5)}
    assert normalised_use([], 0.0, NOW, None) == {}
    assert normalised_use(records, NOW, NOW, None) == {}
