"""A node where a pod has to wait for a port or a neighbour is like others where it has to wait, not worse."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.plugins.affinity import RequiredPodAffinity
from pykai.plugins.ports import HostPorts
from pykai.plugins.predicates import LateStart
from pykai.plugins.scoring import NodeAvailability
from tests.unit.plugins.small_clusters import cycle, node, placed, pod
from tests.unit.plugins.test_pod_affinity import apart, term

RULES = HostPorts(), RequiredPodAffinity()
PLUGINS = [*RULES, NodeAvailability(), LateStart()]
NODES = [node("a", {"host": "a"}), node("b", {"host": "b"})]


def with_port(cpu: str, **rest: Any) -> dict[str, Any]:
    container = {"name": "main", "ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": cpu}}}
    return {"containers": [container], **rest}


FULL = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "8"}}}], "nodeName": "b"}
BOTH = apart(term("host", {"app": "p"}))
OLD = [  # who leaves node a
    ("full, and the port", with_port("8", nodeName="a")),
    ("the port", with_port("1", nodeName="a")),
    ("the port, and a neighbour to keep away from", with_port("1", nodeName="a", **BOTH)),
]


@pytest.mark.parametrize(("_", "old"), OLD)
def test_nodes_where_the_pod_has_to_wait_are_alike(_: str, old: dict[str, Any]) -> None:
    wanted = pod("p", with_port("1"), labels={"app": "p"})
    made = cycle([*NODES, pod("old", old, terminating=True), pod("full", FULL, terminating=True), wanted], PLUGINS)
    assert placed(made) == {"p": "~a"}


def test_a_node_where_it_can_start_is_better() -> None:
    made = cycle([*NODES, pod("old", OLD[1][1], terminating=True), pod("p", with_port("1"))], PLUGINS)
    assert placed(made) == {"p": "b"}
