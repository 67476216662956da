"""Rankings that are kept up to date, in large clusters and over many placements, are those of a fresh look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pykai.engine import ranking
from pykai.engine.cycle import Cycle
from pykai.engine.node_facts import NodeFacts
from pykai.engine.plugin_api import NodeResourceState
from pykai.engine.policy import Policy
from pykai.engine.ranked import Filling
from pykai.engine.ranking import OFTEN, STREAK, Ranking, Rankings
from pykai.model.pods import PodClass
from pykai.model.resources import CPU, Column, Rows
from pykai.objects import names
from pykai.plugins.scoring import GpuSharingOrder, NodeAvailability, Pack
from tests.properties.small_world import NOW, PACKING, POLICIES

from .clusters import gang, node, pod, seen

Best = list[tuple[int, bool]]


def fresh(cycle: Cycle, c: PodClass, nodes: Rows | None = None) -> Best:
    """Nodes from best to worst, by rankings that are made now."""
    facts = NodeFacts(cycle.trial, cycle.policy)
    facts.reliefs = cycle.node_facts.reliefs
    return list(Rankings(facts).of(c, nodes).best())


def waiting(count: int, **asks: Any) -> list[Any]:
    """Gangs of one pod each."""
    return [item for number in range(count) for item in (gang(f"w{number}"), pod(f"w{number}-0", **asks))]


def opened(*objects: Any, policy: Policy = PACKING) -> tuple[Cycle, list[int], PodClass]:
    """A cycle, its pending pods, and the class of the first."""
    cycle = Cycle(seen(*objects), policy, NOW)
    pods = [row for row, name in enumerate(cycle.snapshot.pods.names) if name.startswith("w")]
    return cycle, pods, cycle.trial.of_class(pods[0])


def placed_one_by_one(cycle: Cycle, pods: list[int]) -> Iterator[Ranking]:
    """Place pods of one class on the best node each, until it is full; yields the ranking before each pod."""
    c = cycle.trial.of_class(pods[0])
    kept = cycle.rankings.ranking(c)
    for each in pods:
        yield kept
        best = next(iter(fresh(cycle, c)), None)
        assert kept.first() == best
        if best is None:
            return
        cycle.trial.place(each, best[0], (), not best[1])


SIZES = ("8", "6", "8", "3", *["8"] * 14)
LEAVING = [
    item for number in range(9, 14) for item in (gang(f"old{number}"), pod(f"old{number}-0", f"n{number:02}!", cpu="4"))
]


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("leaving", [[], LEAVING], ids=["idle", "leaving"])
@pytest.mark.parametrize("cores", ["2", "5"])
def test_nodes_chosen_in_advance_are_those_of_a_fresh_look(policy: str, leaving: list[Any], cores: str) -> None:
    """Whether pods start there or wait for others to leave. Nodes that take turns are chosen in advance only if they
    take one pod each."""
    nodes = [node(f"n{number:02}", cpu=size, pods=99) for number, size in enumerate(SIZES)]
    room = sum(int(size) // int(cores) for size in SIZES)
    cycle, pods, _ = opened(*nodes, *leaving, *waiting(room + 1, cpu=cores), policy=POLICIES[policy])
    chosen = [len(kept._ahead) for kept in placed_one_by_one(cycle, pods)]
    assert len(chosen) == room + 1
    assert chosen[: STREAK + 1] == [0] * (STREAK + 1)
    assert (max(chosen) > STREAK) is (policy == "packing" or cores == "5")


def test_another_placement_ends_what_was_chosen_in_advance() -> None:
    cycle, pods, c = opened(*(node(f"n{number}", pods=99) for number in range(6)), *waiting(20, cpu="1"))
    *_, kept = placed_one_by_one(cycle, pods[:10])
    assert kept._ahead
    cycle.trial.place(pods[10], 5)
    assert kept.first() == fresh(cycle, c)[0]
    assert not kept._ahead


NIC = "example.com/nic"
WANTS_NIC = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2", NIC: "1"}, "limits": {NIC: "1"}}}]}


class Nics:
    """A node resource: where a node offers no network card, pods get one in another way."""

    def open(self, cycle: Cycle) -> NicState:
        return NicState(cycle)


class NicState(NodeResourceState):
    relieves = True

    def __init__(self, cycle: Cycle) -> None:
        self.row = cycle.snapshot.space.rows[NIC]
        self.offered = cycle.snapshot.nodes.allocatable[self.row] > 0

    def spared(self, pod_class: PodClass, nodes: Rows) -> Column:
        amounts = np.zeros((len(pod_class.request), len(nodes)))
        amounts[self.row] = np.where(self.offered[nodes], 0.0, pod_class.request[self.row])
        return amounts


def test_what_pods_do_not_take_from_a_node_does_not_bound_how_many_are_chosen_for_it() -> None:
    """Nodes take three pods by their cores; one with a single card takes one."""
    card: dict[str, Any] = {NIC: "1"}
    nodes = [node(f"n{number:02}", cpu="6", pods=99, **(card if number == 2 else {})) for number in range(8)]
    policy = replace(PACKING, plugins=(*PACKING.plugins, Nics()))
    cycle, pods, _ = opened(*nodes, *waiting(23, spec=WANTS_NIC), policy=policy)
    assert len(list(placed_one_by_one(cycle, pods))) == 7 * 3 + 1 + 1
    assert [cycle.trial.node.count(row) for row in range(8)] == [3, 3, 1, 3, 3, 3, 3, 3]


# ------------------------------------------------------------------------------------------------- which lookup serves
BROKEN = node("broken", cpu="0", pods=99)
OVERCOMMITTED = [node("full", cpu="2", pods=99), gang("big"), pod("big-0", "full", cpu="6")]


@pytest.mark.parametrize(
    ("others", "asks", "ordered"),
    [
        ([], {"cpu": "1"}, True),
        ([BROKEN], {"cpu": "1"}, True),  # it fits only where there are cores
        ([], {}, True),
        ([BROKEN], {}, False),  # a node without cores has no place among the others
        (OVERCOMMITTED, {}, False),
    ],
)
def test_nodes_are_kept_sorted_where_two_of_them_tell_their_order(
    others: list[Any], asks: dict[str, str], ordered: bool
) -> None:
    """Pods that ask for no cores are packed by cores all the same."""
    nodes = [node(f"n{number}", cpu=size, pods=3) for number, size in enumerate("8648")]
    cycle, pods, c = opened(*nodes, *others, *waiting(10, **asks))
    kept = cycle.rankings.ranking(c)
    assert kept._ordered is ordered
    for each in pods:
        best = fresh(cycle, c)[0]
        assert kept.first() == best
        cycle.trial.place(each, best[0])
        cycle.trial.touched.append(0)  # another node changed: nothing is chosen in advance
    assert kept._looks == len(pods) > OFTEN


def test_spread_nodes_are_not_kept_sorted() -> None:
    cycle, _, c = opened(node("n"), *waiting(1, cpu="1"), policy=POLICIES["spreading"])
    assert cycle.rankings.ranking(c)._ordered is False


@pytest.mark.parametrize("asks", [{"cpu": "1"}, {"gpus": 1}, {"share": "0.5"}], ids=["cpu", "gpu", "share"])
@pytest.mark.parametrize("count", [4, 12, 25])
def test_entries_of_some_nodes_are_brought_up_to_date(count: int, asks: dict[str, Any]) -> None:
    """One by one, as columns of these nodes, or all of them; pods without GPUs prefer nodes that have none."""
    with_gpus = [number for number in range(40) if number % 3]
    nodes = [node(f"n{number:02}", gpus=2 * (number in with_gpus), pods=99) for number in range(40)]
    cycle, pods, c = opened(*nodes, *waiting(26, **asks))
    kept = cycle.rankings.ranking(c)
    for each, number in zip(pods[:count], with_gpus, strict=False):
        cycle.trial.place(each, number, (f"d{number}",) if "share" in asks else ())
    some = np.arange(0, 40, 2)
    assert list(kept.ranked(some).best()) == fresh(cycle, c, some)
    assert list(kept.ranked().best()) == fresh(cycle, c)


@pytest.mark.parametrize("asks", [{"gpus": 1}, {"share": "0.5"}], ids=["gpu", "share"])
@pytest.mark.parametrize("fitting", ["n20", ""])
def test_the_best_node_may_be_behind_many_that_lack_something_else(asks: dict[str, Any], fitting: str) -> None:
    """More of them than an order of nodes that classes share tries: devices are there, cores are not."""
    nodes = [node(f"n{number:02}", gpus=2, cpu="2", pods=99) for number in range(20)]
    nodes.append(node("n20", gpus=3, cpu="8" if fitting else "2", pods=99))
    held = [
        item
        for number in range(18)
        for item in (gang(f"old{number}"), pod(f"old{number}-0", f"n{number:02}", share="0.5", device=f"d{number}"))
    ]
    cycle, _, c = opened(*nodes, *held, *waiting(1, cpu="4", **asks))
    expected = next(iter(fresh(cycle, c)), None)
    assert expected == ((20, True) if fitting else None)
    assert cycle.rankings.first(c) == expected


@pytest.mark.parametrize("asks", [{"gpus": 1}, {"share": "0.5"}], ids=["gpu", "share"])
@pytest.mark.parametrize(("count", "allowed"), [(100, 3), (100, 40), (100, 90), (560, 40)])
def test_pods_that_may_use_some_nodes_only_get_the_best_of_those(
    count: int, allowed: int, asks: dict[str, Any]
) -> None:
    """The last ones of many, of which most lack cores: the first ones of all nodes tell nothing about them."""

    def numbered(at: int) -> Any:
        cores = "8" if at < 60 or at == count - 1 else "2"
        return node(f"n{at:03}", gpus=2, cpu=cores, pods=99, labels={"some": str(at >= count - allowed)})

    held = [
        item
        for at in range(0, count, 2 if count == 100 else 40)
        for item in (gang(f"old{at}"), pod(f"old{at}-0", f"n{at:03}", share="0.5", device=f"d{at}"))
    ]
    there = {"nodeSelector": {"some": "True"}}
    cycle, pods, c = opened(*map(numbered, range(count)), *held, *waiting(20, cpu="4", spec=there, **asks))
    for number, each in enumerate(pods):
        best = next(iter(fresh(cycle, c)), None)
        assert cycle.rankings.first(c) == best
        if best is not None:
            groups = (f"new-{number}",) if "share" in asks else ()
            cycle.trial.place(each, best[0], groups, not best[1])


class Emptiest:
    """A plugin that prefers nodes with more free CPU, in the terms of those with least and most."""

    def measured(self, pod_class: PodClass) -> int:
        return CPU

    def relative(self, measure: Column, low: float, high: float) -> Column:
        return 100 * (measure - low) / max(high - low, 1.0)


def test_a_relative_score_that_does_not_pack_is_followed_as_well() -> None:
    others = tuple(plugin for plugin in PACKING.plugins if not isinstance(plugin, Pack))
    nodes = [node(f"n{at}", cpu=cores, pods=99) for at, cores in enumerate("465")]
    cycle, pods, c = opened(*nodes, *waiting(6, cpu="1"), policy=replace(PACKING, plugins=(*others, Emptiest())))
    for each in pods:
        best = cycle.rankings.first(c)
        assert best == fresh(cycle, c)[0]
        cycle.trial.place(each, best[0])
    assert cycle.trial.idle[CPU].tolist() == [3000.0, 3000.0, 3000.0]


@pytest.mark.parametrize("sizes", [2, 12])
def test_shares_of_devices_of_many_sizes_get_the_best_node(sizes: int) -> None:
    nodes = [
        node(f"n{at:02}", gpus=2, pods=99, labels={names.GPU_MEMORY_LABEL: str(8000 + 1000 * (at % sizes))})
        for at in range(12)
    ]
    cycle, pods, c = opened(*nodes, *waiting(8, share="0.4"))
    for number, each in enumerate(pods):
        best = fresh(cycle, c)[0]
        assert cycle.rankings.first(c) == best
        cycle.trial.place(each, best[0], (f"new-{number}",))


def fill(ranking: Ranking, cycle: Cycle, pods: list[int], nodes: np.ndarray) -> list[int]:
    """Place pods of a class on some nodes as a gang; returns the node of each."""
    done = 0
    while done < len(pods):
        rows, copies, wait = ranking.best_alike(len(pods) - done, nodes, None)
        number = len(rows) if copies is None else int(copies.sum())
        if not number:
            break
        cycle.trial.place_alike(pods[done : done + number], (rows, copies), wait)
        done += number
    return [cycle.trial.node[pod] for pod in pods]


@pytest.mark.parametrize("asks", [{"cpu": "5"}, {"cpu": "2"}, {"cpu": "1", "gpus": 1}], ids=["one", "some", "gpu"])
@pytest.mark.parametrize("size", [1, 3, 4, 7])
@pytest.mark.parametrize("between", ["", "touched", "undone"])
def test_gangs_in_one_domain_get_the_nodes_that_are_best_for_each(
    asks: dict[str, Any], size: int, between: str
) -> None:
    """Nodes are chosen for several gangs in advance, and anew when something else happened."""
    nodes = [node(f"n{number:02}", gpus=2, cpu=cores, pods=9) for number, cores in enumerate("868866668866")]
    pending = [gang("w"), *(pod(f"w-{number}", **asks) for number in range(28))]
    kept, pods, c = opened(*nodes, *pending)
    fresh_one, _, same = opened(*nodes, *pending)
    some = np.arange(0, 12, 2)
    for start in range(0, len(pods), size):
        chosen = pods[start : start + size]
        found = fill(kept.rankings.ranking(c), kept, chosen, some)
        assert found == fill(Rankings(fresh_one.node_facts).ranking(same), fresh_one, chosen, some)
        if between == "touched":
            kept.trial.touched.append(2)
        if between == "undone":
            mark = kept.trial.mark()
            fill(kept.rankings.ranking(c), kept, pods[start + size : start + 2 * size], some)
            kept.trial.undo_to(mark)


def test_a_filling_is_split_between_gangs() -> None:
    one_each = Filling(np.array([3, 1, 2]), None, False)
    first, rest = one_each.split(2)
    assert (first.rows.tolist(), first.copies, rest.rows.tolist(), rest.copies) == ([3, 1], None, [2], None)
    several = Filling(np.array([3, 1, 2]), np.array([2, 1, 3]), True)
    first, rest = several.split(4)
    assert (first.wait, rest.wait) == (True, True)
    assert first.copies is not None
    assert rest.copies is not None
    assert (first.rows.tolist(), first.copies.tolist()) == ([3, 1, 2], [2, 1, 1])
    assert (rest.rows.tolist(), rest.copies.tolist()) == ([2], [2])


@pytest.mark.parametrize("without", [(), (GpuSharingOrder,), (NodeAvailability,), (GpuSharingOrder, NodeAvailability)])
def test_shares_get_the_best_node_of_a_policy_that_does_not_gather_them(without: tuple[type, ...]) -> None:
    """Nodes with a shared device are not the fullest, and some are to be given up."""
    nodes = [node(f"n{at}", gpus=4, pods=99) for at in range(6)]
    held = [
        item
        for at, leaves in enumerate(("", "", "!", "!"))
        for item in (
            gang(f"old{at}"),
            pod(f"old{at}-0", f"n{at}{leaves}", gpus=at),
            pod(
                f"old{at}-1", f"n{at}{leaves}", **({"share": "0.5", "device": f"d{at}"} if at % 2 == 0 else {"gpus": 1})
            ),
        )
    ]
    policy = replace(PACKING, plugins=tuple(each for each in PACKING.plugins if not isinstance(each, without)))
    cycle, pods, c = opened(*nodes, *held, *waiting(20, share="0.5"), policy=policy)
    for number, each in enumerate(pods):
        best = fresh(cycle, c)[0]
        assert cycle.rankings.first(c) == best
        cycle.trial.place(each, best[0], (f"new-{number}",), not best[1])


def test_no_node_is_the_best_of_none() -> None:
    cycle, _, c = opened(node("n"), *waiting(1, cpu="1"))
    assert list(cycle.rankings.of(c, np.zeros(0, dtype=np.int64)).best()) == []
    assert list(cycle.rankings.best(c, np.zeros(0, dtype=np.int64), None)) == []
    assert list(cycle.rankings.best(c, np.array([0]), None)) == [(0, True)]


def test_of_many_rankings_the_oldest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "MOST", 2)
    sizes = [gang("big"), *(pod(f"big-{number}", cpu=str(number)) for number in range(1, 5))]
    cycle = Cycle(seen(*(node(f"n{number}") for number in range(3)), *sizes), PACKING, NOW)
    first, *others = cycle.snapshot.pods.classes
    made = cycle.rankings.ranking(first)
    assert cycle.rankings.ranking(first) is made
    for c in others:
        cycle.rankings.ranking(c)
    assert cycle.rankings.ranking(first) is not made
    assert cycle.rankings.ranking(others[-1]) is cycle.rankings.ranking(others[-1])
