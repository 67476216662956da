"""The order in which allocate considers the pending gangs, as `kai replay` and the tools show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykai.engine.cycle import Cycle
from pykai.engine.decide import decide, queue_book, service_order
from pykai.engine.order import GangWalk, pending_gangs
from pykai.engine.policy import Policy
from pykai.objects.units import rfc3339
from pykai.plugins.registry import BUILT_IN, make_all
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


WITHOUT_QUOTAS = Policy(make_all([(name, {}) for name in BUILT_IN if name != "proportion"]))


def queues(*ages: tuple[str, int]) -> list[Any]:
    """Queues without a quota, created so many seconds ago."""
    nothing = {"quota": 0}
    return [
        {**builders.queue(name, gpu=nothing), "metadata": {"name": name, "creationTimestamp": rfc3339(NOW - age)}}
        for name, age in ages
    ]


def test_without_a_policy_for_quotas_queues_are_served_by_age() -> None:
    """The other queue has fewer GPUs and a smaller share; only by quotas does that make it the first."""
    running = [gang("big", queue="old"), pod("big-0", "n", gpus=4)]
    wanting = [gang("a", queue="old"), pod("a-0", gpus=1), gang("b", queue="new"), pod("b-0", gpus=1)]
    snapshot = seen(node("n", gpus=8), *queues(("new", 10), ("old", 20)), *running, *wanting)
    assert [name for _, name in service_order(snapshot, PACKING, NOW)] == ["b", "a"]
    assert [name for _, name in service_order(snapshot, WITHOUT_QUOTAS, NOW)] == ["a", "b"]


def test_a_walk_pops_every_gang_once() -> None:
    """Best first, back and forth between queues, which take turns as their shares grow."""
    wanting = [item for name in ("a1", "a2", "b1") for item in (gang(name, queue=name[0]), pod(f"{name}-0", gpus=1))]
    cycle = Cycle(seen(node("n", gpus=8), *queues(("a", 20), ("b", 10)), *wanting), PACKING, NOW)
    walk = GangWalk(cycle, pending_gangs(cycle))
    popped = [cycle.snapshot.gangs.names[gang] for gang in iter(walk.pop, None)]
    assert popped == ["a1", "a2", "b1"]
    assert walk.pop() is None


def test_queues_are_shown_as_they_are_before_the_first_action() -> None:
    """Of the book's columns use is that of running pods, although the next cycle places another one."""
    objects = [gang("g", minMember=1), pod("g-0", "n", gpus=1), pod("g-1", gpus=2)]
    book = queue_book(seen(node("n", gpus=8), *objects), PACKING, NOW)
    assert (list(book.names), book.allocated[0][2], book.fair[0][2]) == (["q"], 1.0, 3.0)


def test_one_gang_gets_a_turn_and_the_others_still_want_their_share() -> None:
    """Of 8 GPUs queue b may have the 7 that the request of a leaves."""
    wanting = [gang("a", queue="a"), pod("a-0", gpus=1), gang("b", queue="b"), pod("b-0", gpus=8)]
    snapshot = seen(node("n", gpus=8), *queues(("a", 20), ("b", 10)), *wanting)
    found = decide(snapshot, PACKING, NOW, only=("ns", "b"))
    assert [bind.pod for bind in found.binds] == [("ns", "b-0")]
    assert [verdict.gang for verdict in found.verdicts] == []
    shares = {figures.name: figures.fair_share[2] for figures in found.queues}
    assert shares == {"a": 1.0, "b": 7.0, "q": 0.0}
