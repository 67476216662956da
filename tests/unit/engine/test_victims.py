"""Who goes: nobody who need not, and who gets back what it had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place, pods_to_return
from pykai.engine.victim_order import VictimOrder, VictimWalk, every_gang
from pykai.engine.victims import VictimPool
from pykai.objects import names
from tests import builders
from tests.properties.small_world import NOW, PACKING

from .clusters import PRIORITIES, bound, evicted, gang, node, plan, pod, promised, seen


def whole(name: str, rank: str, *nodes: str, age: int = 0) -> list[Any]:
    """A gang of as many pods as it needs, each of one GPU, on these nodes."""
    pods = [pod(f"{name}-{n}", on, gpus=1) for n, on in enumerate(nodes)]
    return [gang(name, rank, age=age, minMember=len(nodes)), *pods]


def test_victims_are_looked_at_once_more() -> None:
    """The two are younger and supposed to go first. Then the three must, too, and that suffices: the two stay."""
    nodes = [node(f"n{n}", gpus=2) for n in range(3)]
    held = [*whole("three", "low", "n2", "n1", "n0", age=100), *whole("two", "low", "n1", "n0")]
    wish = [gang("new", minMember=3), *(pod(f"new-{n}", gpus=1) for n in range(3))]
    assert evicted(plan(*nodes, *held, *whole("one", "high", "n2"), *wish)) == {"three-0", "three-1", "three-2"}


def test_a_spare_pod_that_is_in_nobodys_way_stays() -> None:
    """Room is needed on b. Without its pod there the elastic gang still has its minimum, on a and c."""
    elastic = [gang("e", "low", minMember=2), *(pod(f"e-{n}", on, gpus=1) for n, on in enumerate("abc"))]
    nodes = [node("a", gpus=1), node("b", gpus=2), node("c", gpus=1)]
    found = plan(*nodes, *elastic, *whole("s", "low", "b"), gang("new"), pod("new-0", gpus=2))
    assert (evicted(found), promised(found)) == ({"s-0", "e-1"}, {"new-0": "b"})


INCOMPLETE = [gang("v", "low", minMember=3), pod("v-0", "n", cpu="4"), pod("v-1", cpu="4")]
"""A gang of three of which two exist; one of them runs."""


def test_who_moves_takes_nobody_along_who_could_not_start() -> None:
    here = {"nodeSelector": {"name": "n"}}
    found = plan(node("n"), node("m"), *INCOMPLETE, gang("new"), pod("new-0", cpu="8", spec=here))
    assert (evicted(found), bound(found), promised(found)) == ({"v-0"}, {}, {"new-0": "n", "v-0": "m"})


@pytest.mark.parametrize("parts", [{}, {"subGroups": [{"name": "part", "minMember": 3}]}])
def test_an_incomplete_gang_gets_back_what_it_had(parts: dict[str, Any]) -> None:
    group = gang("v", "low", **(parts or {"minMember": 3}))
    labels = {"part": "part"} if parts else {}
    ran, waits = pod("v-0", "n", None, **labels), pod("v-1", "", None, **labels)
    cycle = Cycle(seen(node("n"), group, ran, waits), PACKING, NOW)
    rows = {name: cycle.snapshot.pods.names.index(name) for name in ("v-0", "v-1")}
    trial, orders = cycle.trial, cycle.orders
    assert pods_to_return(trial, orders, 0) == []
    trial.suppose_evicted(rows["v-0"])
    assert pods_to_return(trial, orders, 0) == [rows["v-0"]]
    assert sorted(pods_to_place(trial, orders, 0)) == sorted(rows.values())


def test_a_complete_gang_gets_back_all_that_it_misses() -> None:
    cycle = Cycle(seen(node("n"), gang("v", minMember=2), pod("v-0", "n"), pod("v-1")), PACKING, NOW)
    assert [cycle.snapshot.pods.names[row] for row in pods_to_return(cycle.trial, cycle.orders, 0)] == ["v-1"]


def test_the_front_of_a_tree_is_the_start_of_its_order() -> None:
    """However many are wanted, those that are sure are the first of all, and as many as wanted if there are."""
    queues = [builders.queue("top"), *(builders.queue(name, "top") for name in "abc"), builders.queue("other")]
    sizes = {"a": (3, 1, 2), "b": (1, 1), "c": (5,), "other": (2, 4)}
    running = [(f"{q}{n}", q, gpus) for q, held in sizes.items() for n, gpus in enumerate(held)]
    objects = [
        each for name, q, gpus in running for each in (gang(name, "low", queue=q), pod(f"{name}-0", "n", gpus=gpus))
    ]
    snapshot = builders.snapshot([*queues, *PRIORITIES, node("n", gpus=20), *objects])
    pool = VictimPool(Cycle(snapshot, PACKING, NOW))
    for wanted in range(1, len(running) + 1):
        every, _ = VictimPool(pool.cycle).front(-1, len(running))
        found, complete = pool.front(-1, wanted)
        assert sorted(every.tolist()) == list(range(len(running)))
        assert found.tolist() == every[: len(found)].tolist()
        assert len(found) >= wanted
        assert not complete or len(found) == len(running)


def test_gangs_that_lost_pods_get_another_place_in_their_queue() -> None:
    """Two that have more than their minimum go down to it: they are no longer the first to lose something."""
    gangs = [gang(name, "low", age=age, minMember=1) for age, name in enumerate("abcd")]
    cycle = Cycle(
        seen(node("n", gpus=8), *gangs, *(pod(f"{name}-{n}", "n", gpus=1) for name in "abcd" for n in (0, 1))),
        PACKING,
        NOW,
    )
    pool = VictimPool(cycle)
    rows, trial = {name: row for row, name in enumerate(cycle.snapshot.gangs.names)}, cycle.trial
    queue = cycle.snapshot.gangs.queue[0]
    before = pool.leaf(queue).tolist()
    for name in "ca":
        trial.suppose_evicted(cycle.snapshot.gangs.pods(rows[name])[1])
    trial.decide({})
    pool.changed([rows["c"], rows["a"]])
    assert pool.leaf(queue).tolist() == VictimPool(cycle).leaf(queue).tolist() != before


@pytest.mark.parametrize(
    ("spec", "running", "expected"),
    [
        ({"subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]}, "ab", True),
        ({"subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]}, "abb", False),
        ({"subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}], "minSubGroup": 1}, "ab", False),
        ({"subGroups": [{"name": "a", "minMember": 2}], "minSubGroup": 1}, "aa", True),
    ],
)
def test_a_tree_without_a_pod_or_sub_group_to_spare_goes_whole(
    spec: dict[str, Any], running: str, expected: bool
) -> None:
    pods = [pod(f"v-{n}", "n", None, part=part, gpus=1) for n, part in enumerate(running)]
    cycle = Cycle(seen(node("n", gpus=8), gang("v", "low", **spec), *pods), PACKING, NOW)
    pool = VictimPool(cycle)
    assert pool.goes_whole.tolist() == [expected]
    pool.changed([0])
    assert pool.goes_whole.tolist() == [expected]


def test_free_places_of_nodes_that_nobody_could_go_to_are_out_of_reach() -> None:
    """A victim of pool a could move to b, one of b to c; d is alone."""

    def within(*pools: str) -> dict[str, Any]:
        term = {"matchExpressions": [{"key": "name", "operator": "In", "values": list(pools)}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        return {"affinity": {"nodeAffinity": required}}

    victims = [("ab", "a"), ("bc", "b"), ("d", "d")]
    held = [each for pools, on in victims for each in (gang(pools, "low"), pod(f"{pools}-0", on, spec=within(*pools)))]
    cycle = Cycle(seen(*(node(name) for name in "abcd"), *held), PACKING, NOW)
    names = list(cycle.snapshot.nodes.names)
    for start, expected in (("a", "abc"), ("d", "d")):
        allowed = np.array([name == start for name in names])
        assert {name for name, near in zip(names, VictimPool(cycle).reach(allowed), strict=True) if near} == set(
            expected
        )


@pytest.mark.parametrize(
    ("limit", "minimum", "used", "may_return", "with_more"),
    [
        (-1, 1, 2, True, False),
        (2, 1, 2, True, False),
        (1, 1, 2, False, False),  # more than the limit is in use
        (2, 3, 2, True, True),  # it would return with the third pod that it lacks
        (-1, 3, 2, True, False),
        (2, 3, 0, True, False),  # it has nothing to lose
    ],
)
def test_victims_return_if_their_queue_is_within_its_limit(
    limit: int, minimum: int, used: int, may_return: bool, with_more: bool
) -> None:
    pods = [pod(f"v-{number}", "n" if number < used else "", gpus=1) for number in range(3)]
    objects = [builders.queue("bounded", gpu={"limit": limit}), gang("v", "low", queue="bounded", minMember=minimum)]
    cycle = Cycle(seen(node("n", gpus=4), *objects, *pods), PACKING, NOW)
    pool, queues = VictimPool(cycle), cycle.snapshot.queues.names
    assert (pool.may_return(queues.index("bounded")), pool.return_with_more) == (may_return, with_more)
    assert pool.may_return(queues.index("q"))


def test_only_victims_by_memory_count_differently_elsewhere() -> None:
    """Devices differ in size; a pod that waits for memory changes nothing, one that runs does."""
    large = node("large", gpus=1, labels={names.GPU_MEMORY_LABEL: "40000"})
    waiting, running = (pod("w-0", memory="8000"), pod("r-0", "large", memory="8000", device="d"))
    world = [node("small", gpus=1), large, gang("w"), gang("r"), gang("g"), pod("g-0", "small", gpus=1), waiting]
    assert VictimPool(Cycle(seen(*world), PACKING, NOW)).counts_alike
    assert not VictimPool(Cycle(seen(*world, running), PACKING, NOW)).counts_alike


@pytest.mark.parametrize("chunk", [2, 4, 8, 64])
def test_the_order_of_whole_gangs_goes_on_where_one_may_lose_a_part(chunk: int) -> None:
    """The gangs that go first are whole, and their order is merged; one of higher priority has pods to spare."""
    wholes = [item for n in range(6) for item in whole(f"w{n}", "low", "n", "n", age=n)]
    elastic = [gang("e", "high", minMember=1), *(pod(f"e-{n}", "n", gpus=1) for n in range(3))]
    cycle = Cycle(seen(node("n", gpus=20, pods=99), *wholes, *elastic), PACKING, NOW)
    pool = VictimPool(cycle)
    pool.chunks[None] = chunk
    leaves = {queue: pool.leaf(queue) for queue in pool.queues}
    order = VictimOrder(pool, leaves, every_gang)
    sizes = [len(order)]
    while order.extend():
        sizes.append(len(order))
    walk = VictimWalk(cycle, leaves, every_gang)
    assert [order.batch(number) for number in range(len(order))] == list(iter(walk.pop, None))
    names = [cycle.snapshot.gangs.names[gang] for gang in order.gangs.tolist()]
    assert names == [*(f"w{n}" for n in range(6)), "e", "e", "e"]
    assert order.in_parts
    assert sizes == sorted(set(sizes))
