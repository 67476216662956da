"""Background pods: they stay where they fit and leave for workloads that can use their place."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as replace_in
from typing import Any

import pytest
from msgspec.structs import replace

from pykai.engine.decide import decide
from pykai.engine.plugin_api import NodeResourceState
from pykai.engine.policy import Policy
from pykai.model.plan import Plan
from pykai.plugins.registry import BUILT_IN, make, make_all
from pykai.verify.judge import verify
from tests import builders
from tests.builders import NOW, decoded
from tests.properties.small_world import PACKING

from .clusters import PRIORITIES, bound, evicted, gang, node, promised, reservation
from .clusters import pod as plain_pod

LABEL = {"kai.scheduler/background": "true"}


def background(name: str, on: str = "", labels: dict[str, str] | None = None, **asks: Any) -> list[Any]:
    """A background pod and its group."""
    made = plain_pod(f"{name}-0", on, **asks)
    labels = {**(made.metadata.labels or {}), **(LABEL if labels is None else labels)}
    return [gang(name, "low", queue="idle"), replace(made, metadata=replace(made.metadata, labels=labels))]


def workload(name: str, on: str = "", **asks: Any) -> list[Any]:
    return [gang(name, "low"), plain_pod(f"{name}-0", on, **asks)]


def plan(*objects: Any, policy: Policy = PACKING) -> Plan:
    """Background pods are of a queue without quota and weight."""
    nothing = {"quota": 0, "overQuotaWeight": 0}
    queues = [builders.queue(), builders.queue("idle", cpu=nothing, memory=nothing, gpu=nothing)]
    snapshot = builders.snapshot([*PRIORITIES, *queues, *objects])
    found = decide(snapshot, policy, NOW)
    assert [str(violation) for violation in verify(snapshot, found)] == []
    return found


def test_they_stay_as_long_as_nobody_needs_the_place() -> None:
    found = plan(node("n", 2), *background("low", "n", gpus=2), *workload("new", cpu="1"))
    assert (evicted(found), bound(found)) == (set(), {"new-0": "n"})


def test_a_workload_that_needs_the_place_waits_until_they_are_gone() -> None:
    found = plan(node("n", 2), *background("a", "n", gpus=1), *background("b", "n", gpus=1), *workload("new", gpus=1))
    assert (evicted(found), promised(found), bound(found)) == ({"b-0"}, {"new-0": "n"}, {})
    (eviction,) = found.evictions
    assert (eviction.action, eviction.message, eviction.evictor) == (
        "backgroundpods",
        "Evicted to make room for a workload on this node",
        None,
    )


def test_a_node_without_them_is_better() -> None:
    found = plan(node("a", 1), node("b", 1), *background("low", "a", gpus=1), *workload("new", gpus=1))
    assert (evicted(found), bound(found)) == (set(), {"new-0": "b"})


def test_a_pod_that_fits_beside_others_stays_though_an_earlier_one_goes() -> None:
    big, small = background("a", "n", gpus=2), background("b", "n", gpus=1)
    found = plan(node("n", 3), *big, *small, *workload("new", gpus=2))
    assert (evicted(found), promised(found)) == ({"a-0"}, {"new-0": "n"})


def test_they_take_what_is_idle_and_not_each_others_place() -> None:
    running = background("old", "n", gpus=1)
    assert bound(plan(node("n", 2), *running, *background("new", gpus=1))) == {"new-0": "n"}
    full = plan(node("n", 1), *running, *background("new", gpus=1))
    assert (bound(full), promised(full), evicted(full)) == ({}, {}, set())


def test_they_do_not_count_in_the_fair_share_of_others() -> None:
    """A queue of lower share than the background queue has reclaimed nothing: the pods were never in the way."""
    found = plan(node("n", 2), *background("a", "n", gpus=2), *workload("new", gpus=2))
    figures = {figure.name: figure for figure in found.queues}
    assert figures["idle"].fair_share[2] == 0
    assert promised(found) == {"new-0": "n"}


@pytest.mark.parametrize(("gpus", "asked", "gone"), [(2, "0.75", set()), (1, "0.75", {"low-0"})])
def test_shares_of_a_device(gpus: int, asked: str, gone: set[str]) -> None:
    low = background("low", "n", share="0.5", device="d")
    found = plan(node("n", gpus), *low, reservation("n", "d"), *workload("new", share=asked))
    assert evicted(found) == gone


def test_a_port_that_a_workload_takes_is_no_longer_theirs() -> None:
    web = {"name": "m", "ports": [{"hostPort": 80, "containerPort": 80}], "resources": {"requests": {"cpu": "1"}}}
    low = background("low", "n", spec={"containers": [web]})
    found = plan(node("n"), *low, *workload("new", spec={"containers": [web]}))
    assert (evicted(found), promised(found)) == ({"low-0"}, {"new-0": "n"})


@dataclass(frozen=True)
class Seats:
    """A node resource: one seat on each node, kept by whom it was last given."""

    def open(self, _: Any) -> NodeResourceState:
        return SeatsState()


class SeatsState(NodeResourceState):
    def __init__(self) -> None:
        self.taken: dict[int, int] = {}

    def reject(self, pod: int, node: int) -> str | None:
        return None if self.taken.get(node, pod) == pod else "no seat"

    def reserve(self, pod: int, node: int) -> None:
        self.taken[node] = pod


@pytest.mark.parametrize(("plugins", "gone"), [((), set()), ((Seats(),), {"low-0"})])
def test_they_leave_where_a_workload_took_what_only_a_check_of_one_node_shows(
    plugins: tuple[Seats, ...], gone: set[str]
) -> None:
    policy = replace_in(PACKING, plugins=(*PACKING.plugins, *plugins))
    found = plan(node("n"), *background("low", "n", cpu="1"), *workload("new", cpu="1"), policy=policy)
    assert evicted(found) == gone


def test_by_another_selector() -> None:
    def chosen(selector: str) -> set[str]:
        arguments = {"backgroundpods": {"labelSelector": selector}}
        policy = Policy(make_all([(name, arguments.get(name, {})) for name in BUILT_IN]))
        low = background("low", "n", {"tier": "spare"}, gpus=2)
        found = plan(node("n", 2), *low, *workload("new", gpus=2), policy=policy)
        return {eviction.pod[1] for eviction in found.evictions if eviction.action == "backgroundpods"}

    assert chosen("tier=spare") == {"low-0"}
    assert chosen("tier==spare, !pinned") == {"low-0"}
    assert chosen("tier") == {"low-0"}
    assert chosen("tier,other!=x") == {"low-0"}
    assert chosen("tier=other") == set()
    with pytest.raises(ValueError, match=r"arguments.labelSelector: 'tierin\(a\)' is not key=value"):
        make("backgroundpods", {"labelSelector": "tier in (a)"})


def test_a_pod_of_no_group_of_ours_is_left_alone() -> None:
    low = plain_pod("low-0", "n", gpus=1)
    low = replace(low, metadata=replace(low.metadata, labels=LABEL, annotations={}))
    found = plan(node("n", 1), decoded(builders.pod_group("other")), low, *workload("new", gpus=1))
    assert evicted(found) == set()
