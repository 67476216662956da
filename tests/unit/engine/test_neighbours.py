"""Victims that are in the way by where they are, not by what they take: host ports, pod affinity."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from .clusters import evicted, gang, node, plan, pod, promised

RACK = "rack"


def web(number: int = 80) -> dict[str, Any]:
    """A container that takes a port of its node, and hardly anything else."""
    ports = [{"hostPort": number, "containerPort": number}]
    return {"containers": [{"name": "main", "ports": ports, "resources": {"requests": {"cpu": "1"}}}]}


def by_affinity(kind: str, key: str, app: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def running(name: str, on: str, rank: str, app: str = "", **asks: Any) -> list[Any]:
    """A gang of one pod; the later ones are younger, and the first to go."""
    found = pod(f"{name}-0", on, **asks)
    labels = {**(found.metadata.labels or {}), **({"app": app} if app else {})}
    return [gang(name, rank), replace(found, metadata=replace(found.metadata, labels=labels))]


def placed(found: Any) -> tuple[set[str], dict[str, str]]:
    return evicted(found), promised(found)


@pytest.mark.parametrize(
    ("ranks", "ports", "expected"),
    [
        ("low low", (80, 80), ({"y-0"}, {"new-0": "b"})),
        ("low high", (80, 80), ({"x-0"}, {"new-0": "a"})),
        ("high high", (80, 80), (set(), {})),
        ("low low", (80, 81), (set(), {})),  # it starts on the other node
    ],
)
def test_a_pod_takes_the_port_of_one_that_may_go(ranks: str, ports: tuple[int, int], expected: Any) -> None:
    """Nodes have cores enough: `other` need not go in any case."""
    one, two = ranks.split()
    objects = [*running("x", "a", one, spec=web(ports[0])), *running("y", "b", two, spec=web(ports[1]))]
    objects += [*running("other", "a", "low", cpu="1"), gang("new"), pod("new-0", spec=web())]
    assert placed(plan(node("a"), node("b"), *objects)) == expected


@pytest.mark.parametrize(
    ("ranks", "on", "expected"),
    [
        ("low low", "a", ({"x-0", "y-0"}, {"new-0": "a"})),
        ("low high", "a", (set(), {})),
        ("low low", "b", (set(), {})),  # for one pod victims are searched on one node
    ],
)
def test_a_pod_that_keeps_apart_needs_all_of_them_gone_from_its_domain(ranks: str, on: str, expected: Any) -> None:
    """They are in one rack; the other one is full."""
    sizes = {"a": ("r1", "8"), "b": ("r1", "8"), "c": ("r2", "9")}
    nodes = [node(name, labels={RACK: rack}, cpu=cores) for name, (rack, cores) in sizes.items()]
    one, two = ranks.split()
    objects = [*running("x", "a", one, "db", cpu="1"), *running("y", on, two, "db", cpu="1")]
    objects += [*running("full", "c", "high", cpu="9"), *running("other", "a", "low", cpu="1"), gang("new")]
    spec = by_affinity("podAntiAffinity", RACK, "db")
    assert placed(plan(*nodes, *objects, pod("new-0", cpu="1", spec=spec))) == expected


@pytest.mark.parametrize(
    ("near", "expected"),
    [
        ("a", ({"x-0"}, {"new-0": "a"})),
        ("b", ({"y-0"}, {"new-0": "b"})),
        ("c", ({"x-0"}, {"new-0": "a"})),  # c is full, in the rack of a
        ("d", (set(), {})),  # nothing on d may go
    ],
)
def test_a_pod_that_must_be_near_others_gets_a_place_near_them(near: str, expected: Any) -> None:
    racks = {"a": "r1", "b": "r2", "c": "r1", "d": "r3"}
    nodes = [node(name, labels={RACK: rack}) for name, rack in racks.items()]
    objects = [item for name, on in (("x", "a"), ("y", "b")) for item in running(name, on, "low", cpu="6")]
    objects += [item for name, on in (("v", "c"), ("w", "d")) for item in running(name, on, "high", cpu="6")]
    objects += [*running("db", near, "high", "db", cpu="1"), gang("new")]
    spec = by_affinity("podAffinity", RACK, "db")
    assert placed(plan(*nodes, *objects, pod("new-0", cpu="4", spec=spec))) == expected
