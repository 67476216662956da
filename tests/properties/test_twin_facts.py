"""The twin's fair shares and node masks, worked out on its own, are those of the engine."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given

from pykai.engine.cycle import Cycle
from tests.properties.clusters import clusters
from tests.properties.contended import contended, rivals
from tests.properties.small_world import NOW, PACKING, Cluster
from tests.properties.twin.world import World

DECIDING = ("pykai.engine", "pykai.plugins", "pykai.kernels")


def test_the_twin_imports_nothing_that_decides() -> None:
    for path in Path(__file__).with_name("twin").glob("*.py"):
        imported = [
            node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
        ]
        assert not [module for module in imported if module.startswith(DECIDING)], path


@given(contended() | rivals())
def test_fair_shares(cluster: Cluster) -> None:
    snapshot = cluster.snapshot()
    book, twin = Cycle(snapshot, PACKING, NOW).book, World(snapshot).book
    assert book.total == pytest.approx(twin.total)
    for queue, shares in enumerate(twin.fair):
        assert book.fair[queue] == pytest.approx(shares, abs=1e-4), snapshot.queues.names[queue]


@given(clusters())
def test_nodes_that_a_pod_may_use(cluster: Cluster) -> None:
    snapshot = cluster.snapshot()
    facts, twin = Cycle(snapshot, PACKING, NOW).node_facts, World(snapshot)
    for pod, name in enumerate(snapshot.pods.names):
        assert facts.allowed(snapshot.pods.of_class(pod)).tolist() == twin.allowed[pod], name
