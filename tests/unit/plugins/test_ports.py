from __future__ import annotations

from typing import Any

import pytest

from pykai.objects.pod_template import Port
from pykai.plugins import ports
from pykai.plugins.ports import HostPorts, collide
from pykai.plugins.predicates import LateStart
from pykai.plugins.scoring import NodeAvailability
from tests.unit.plugins.small_clusters import closed, cycle, node, placed, pod, reason, row

COLLISIONS = [  # ours, theirs, collide
    (Port(host_port=80), Port(host_port=80), True),
    (Port(host_port=80), Port(host_port=81), False),
    (Port(host_port=80), Port(host_port=80, protocol="UDP"), False),
    (Port(host_port=80, host_ip="10.0.0.1"), Port(host_port=80, host_ip="10.0.0.2"), False),
    (Port(host_port=80, host_ip="10.0.0.1"), Port(host_port=80, host_ip="10.0.0.1"), True),
    (Port(host_port=80, host_ip="10.0.0.1"), Port(host_port=80), True),
    (Port(host_port=80, host_ip="0.0.0.0"), Port(host_port=80, host_ip="10.0.0.2"), True),
]


@pytest.mark.parametrize(("ours", "theirs", "expected"), COLLISIONS)
def test_collisions(ours: Port, theirs: Port, expected: bool) -> None:
    assert collide([ours], [theirs]) is expected
    assert collide([theirs], [ours]) is expected


def listens(port: int, where: str = "", init: bool = False, always: bool = False) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "ports": [{"hostPort": port}]}
    plain = {"name": "plain"}
    spec: dict[str, Any] = {"containers": [plain if init else container]}
    if init:
        spec["initContainers"] = [{**container, **({"restartPolicy": "Always"} if always else {})}]
    return {**spec, **({"nodeName": where} if where else {})}


def test_pods_of_one_cycle_spread_over_the_nodes_that_are_free() -> None:
    objects = [node("a"), node("b"), node("c"), pod("old", listens(80, "a"))]
    made = cycle([*objects, *(pod(f"p{i}", listens(80)) for i in range(3)), pod("q", listens(81))], [HostPorts()])
    assert placed(made) == {"p0": "b", "p1": "c", "p2": "", "q": "a"}
    assert reason(made, "p2") == f"no nodes with enough resources were found: 3 {ports.TAKEN}."


def test_a_gang_that_is_undone_gives_its_ports_back() -> None:
    made = cycle([node("a"), pod("p", listens(80)), pod("q", listens(80))], [HostPorts()])
    mark = made.trial.mark()
    made.trial.place(row(made, "p"), 0)
    assert closed(made, HostPorts(), "q") == {"a": ports.TAKEN}
    made.trial.undo_to(mark)
    assert closed(made, HostPorts(), "q") == {}


STARTING = [HostPorts(), NodeAvailability(), LateStart()]


def test_ports_of_a_leaving_pod_can_be_waited_for() -> None:
    leaving = pod("old", listens(80, "a"), terminating=True)
    alone = cycle([node("a"), leaving, pod("p", listens(80))], STARTING)
    assert placed(alone) == {"p": "~a"}
    with_choice = cycle([node("a"), node("b"), leaving, pod("p", listens(80))], STARTING)
    assert placed(with_choice) == {"p": "b"}


@pytest.mark.parametrize(("always", "where"), [(True, ""), (False, "a")])
def test_init_containers_count_only_as_sidecars(always: bool, where: str) -> None:
    made = cycle(
        [node("a"), pod("old", listens(80, "a")), pod("p", listens(80, init=True, always=always))], [HostPorts()]
    )
    assert placed(made) == {"p": where}


def test_sidecars_with_different_ports_do_not_collide() -> None:
    sidecars = [pod(f"p{port}", listens(port, init=True, always=True)) for port in (80, 81)]
    assert placed(cycle([node("a"), *sidecars], [HostPorts()])) == {"p80": "a", "p81": "a"}


def test_nobody_else_is_concerned() -> None:
    made = cycle([node("a"), pod("old", listens(80, "a")), pod("p")], [HostPorts()])
    assert not made.resources.of(1).all
    assert not made.pod_locations.opened
