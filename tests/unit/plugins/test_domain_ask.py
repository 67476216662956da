"""Gangs whose pods differ, and parts of a topology: what counts as room, and where a gang may grow."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest

from pykai.model.resources import PODS
from pykai.objects import names
from pykai.plugins.domains import figures_of, group_request
from tests.unit.plugins.test_topology import GPU_1, ask, constraint, cycle, pending, pod, waiting

HALF = {names.GPU_FRACTION: "0.5"}
TWO_HALVES = {**HALF, names.GPU_FRACTION_DEVICES: "2"}
BLOCK = {"topologyConstraint": constraint("block")}


def share(name: str, notes: dict[str, str], node: str = "", device: str = "") -> Any:
    labels = {names.GPU_GROUP_LABEL: device} if device else {}
    return pod(name, {}, node=node, annotations=notes, labels=labels)


@pytest.mark.parametrize(("at", "sets"), [("n0", ["n2"]), ("n3", []), ("n5", [])])
def test_a_gang_grows_in_its_domain_where_no_pod_of_it_is_among_the_given_nodes(at: str, sets: list[str]) -> None:
    c = cycle(BLOCK, [pod("running", GPU_1, node=at), *waiting(1)])
    assert ask(c, ["n2"])[0] == sets


def test_asks_of_different_pods_are_of_different_kinds() -> None:
    requests: list[dict[str, str]] = [GPU_1, {"cpu": "1"}, {}]
    c = cycle(BLOCK, [pod(f"p{at}", request) for at, request in enumerate(requests)])
    some = list(chain.from_iterable(combinations(pending(c), size) for size in (1, 2, 3)))
    assert len({group_request(c.trial, pods).kind for pods in some}) == len(some)


def test_a_node_counts_where_the_smaller_shares_fit() -> None:
    nodes = {"n0": ("b1", "r1", 1), "n1": ("b1", "r1", 2)}
    pods = [share("a", HALF), share("b", TWO_HALVES), share("c", HALF)]
    assert ask(cycle(BLOCK, pods, nodes)) == (["all"], [])


def test_a_node_without_devices_for_any_share_does_not_count() -> None:
    c = cycle(BLOCK, [share("a", TWO_HALVES), share("b", TWO_HALVES)], {"n0": ("b1", "r1", 1)})
    assert ask(c)[0] == []


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_left_of_devices_counts_where_a_share_is_as_large_as_a_whole_device(turned: bool) -> None:
    pods = [share("a", TWO_HALVES), pod("b", GPU_1)]
    left = [share("x", HALF, "n0", "d1"), share("y", HALF, "n0", "d2")]
    c = cycle(BLOCK, [*left, *(pods[::-1] if turned else pods)], {"n0": ("b1", "r1", 3)})
    assert ask(c) == (["all"], [])


def test_a_node_without_a_slot_has_no_room_for_pods_that_group_request_nothing() -> None:
    c = cycle(BLOCK, waiting(2, {}))
    c.trial.idle[PODS, 1] = 0.0
    assert figures_of(c.trial, group_request(c.trial, pending(c)), np.arange(3)).tolist() == [[2, 0, 2]]
