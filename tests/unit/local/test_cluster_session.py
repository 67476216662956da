"""A plan is checked when it is made."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pykai.hollow.hollow_node import NodeShape
from pykai.local.cluster_session import ClusterPlan, LocalComponent


async def idle(kubeconfig: Path, ready: asyncio.Event) -> None:
    ready.set()


@pytest.mark.parametrize(
    ("nodes", "components", "message"),
    [(["a", "b", "a"], [], "node name 'a' is used twice"), ([], ["x", "x"], "component name 'x' is used twice")],
)
def test_names_are_unique(nodes: list[str], components: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClusterPlan("demo", list(map(NodeShape, nodes)), components=[LocalComponent(name, idle) for name in components])
