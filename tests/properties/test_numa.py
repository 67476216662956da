"""The NUMA kernel agrees with its slow twin on every node, and never takes what a zone does not have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.kernels import numa, reference
from pykai.model.resources import Column, Mask

RESOURCES = 2
amounts = st.integers(0, 8)


@st.composite
def machines(draw: st.DrawFn) -> tuple[Column, Column, Column]:
    """(available, allocatable, request) of a few nodes; nodes differ in how many zones they have."""
    zones, nodes = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    size = zones * RESOURCES * nodes
    allocatable = np.array(draw(st.lists(amounts, min_size=size, max_size=size)), dtype=float)
    allocatable = allocatable.reshape(zones, RESOURCES, nodes)
    used = np.array(draw(st.lists(amounts, min_size=size, max_size=size)), dtype=float).reshape(allocatable.shape)
    request = draw(st.lists(st.integers(0, 14), min_size=RESOURCES * nodes, max_size=RESOURCES * nodes))
    return np.maximum(allocatable - used, 0), allocatable, np.array(request, dtype=float).reshape(RESOURCES, nodes)


def chosen(mask: Mask, node: int) -> list[int]:
    return [int(zone) for zone in np.flatnonzero(mask[:, node])]


@settings(max_examples=200)
@given(machines())
def test_each_policy_chooses_as_its_twin(machine: tuple[Column, Column, Column]) -> None:
    available, allocatable, request = machine
    single = numa.one_zone(available, allocatable, request)
    fewest = numa.fewest_zones(available, allocatable, request)
    covering = numa.covering_zones(available, allocatable, request)
    for node in range(available.shape[2]):
        have, full, need = (block[..., node].tolist() for block in (available, allocatable, request))
        assert chosen(single, node) == reference.one_zone(have, need)
        assert chosen(fewest, node) == reference.fewest_zones(have, full, need)
        assert chosen(covering, node) == reference.covering_zones(have, need)


@settings(max_examples=200)
@given(machines(), st.sampled_from([numa.one_zone, numa.fewest_zones, numa.covering_zones]))
def test_shares_add_up_and_fit(machine: tuple[Column, Column, Column], choose: numa.Choose) -> None:
    available, allocatable, request = machine
    zones = choose(available, allocatable, request)
    taken = numa.shares(available, request, zones)
    for node in range(available.shape[2]):
        have, need = available[..., node].tolist(), request[:, node].tolist()
        assert taken[..., node].tolist() == reference.zone_shares(have, need, chosen(zones, node))
    assert (taken <= available).all()
    placed = zones.any(axis=0)
    assert taken.sum(axis=0)[:, placed] == pytest.approx(request[:, placed])


@settings(max_examples=100)
@given(machines(), st.sampled_from([numa.one_zone, numa.fewest_zones]))
def test_two_at_once_never_take_more_than_there_is(machine: tuple[Column, Column, Column], choose: numa.Choose) -> None:
    available, allocatable, request = machine
    taken, possible = numa.align(choose, available, allocatable, [request, request])
    assert (taken <= available).all()
    assert taken.sum(axis=0)[:, possible] == pytest.approx(2 * request[:, possible])
    assert not taken[:, :, ~possible].any()
