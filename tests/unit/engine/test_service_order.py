"""The order in which allocate considers the pending gangs, as `kai replay` and the tools show it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykai.engine.decide import service_order
from tests import builders
from tests.properties.small_world import NOW, PACKING

from .clusters import gang, node, pod, seen

WAITING = [("young", "high", 10, "a"), ("old", "high", 20, "a"), ("low", "low", 30, "a"), ("other", "low", 5, "b")]


@pytest.mark.parametrize(
    ("depth", "expected"),
    [(None, ["other", "old", "young", "low"]), (1, ["other", "old"]), (2, ["other", "old", "young"])],
)
def test_by_queue_then_priority_then_age(depth: int | None, expected: list[str]) -> None:
    """Queue b comes first, as its quota is free; of every queue no more gangs than its depth."""
    queues = [builders.queue("a", gpu={"quota": 0}), builders.queue("b", gpu={"quota": 4})]
    gangs = [gang(name, rank, age, queue=queue) for name, rank, age, queue in WAITING]
    pods = [pod(f"{name}-0", gpus=1) for name, *_ in WAITING]
    policy = replace(PACKING, queue_depth={} if depth is None else {"allocate": depth})
    found = service_order(seen(node("n", gpus=8), *queues, *gangs, *pods), policy, NOW)
    assert [name for _, name in found] == expected
