"""The candidate sampler: every gang once a round, whatever the order of input, in pieces that are made when needed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pykai.engine import strategies
from pykai.engine.cycle import Cycle
from pykai.engine.strategies import CandidateSampler, pieces
from pykai.engine.victims import VictimPool
from tests import builders
from tests.properties.small_world import NOW, OURS, PACKING, Cluster, Fields

GANGS, NODES = 60, 20


def crowd(seed: int) -> tuple[Cycle, CandidateSampler]:
    """The same running pods, two of each gang, in an order of input of its own."""
    chance = random.Random(seed)
    cluster = Cluster(
        nodes=[node(f"n{number:02}") for number in range(NODES)],
        queues=[{"metadata": {"name": "q"}, "spec": {"resources": {"gpu": {"quota": -1, "limit": -1}}}}],
        groups=[group(number) for number in range(GANGS)],
        pods=[pod for number in range(GANGS) for pod in pods(number)],
    )
    for items in (cluster.nodes, cluster.groups, cluster.pods):
        chance.shuffle(items)
    cycle = Cycle(cluster.snapshot(), PACKING, NOW)
    return cycle, CandidateSampler(cycle, VictimPool(cycle))


def node(name: str) -> Fields:
    return builders.node(name, 8, allocatable={"cpu": "64", "memory": "64Gi"})


def group(number: int) -> Fields:
    created = {"namespace": OURS, "creationTimestamp": f"2026-01-01T00:00:{number % 7:02}Z"}
    return builders.pod_group(f"g{number}", "q", 2, created, priorityClassName="train")


def pods(number: int) -> list[Fields]:
    return [
        builders.pod(
            f"g{number}-{name}", f"g{number}", f"n{(number * 3 + at * 7) % NODES:02}", {"gpu": 1}, namespace=OURS
        )
        for at, name in enumerate("ab")
    ]


def titles(cycle: Cycle, rows: list[int]) -> list[str]:
    return [cycle.snapshot.gangs.title(row) for row in rows]


@pytest.mark.parametrize("piece", [7, 1024])
def test_everybody_has_a_turn_before_anybody_has_two(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "PIECE", piece)
    cycle, of = crowd(1)
    first, second = (of.take(GANGS, ()) for _ in range(2))
    assert sorted(first) == list(range(GANGS))
    assert second == first
    assert titles(cycle, first) != sorted(titles(cycle, first))


@pytest.mark.parametrize("piece", [7, 1024])
def test_the_same_cluster_gives_the_same_sample(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "PIECE", piece)
    orders = [titles(cycle, of.take(GANGS, ())) for cycle, of in map(crowd, range(3))]
    assert orders[0] == orders[1] == orders[2]


def test_each_search_takes_the_next_ones_and_nobody_it_must_not() -> None:
    _, of = crowd(1)
    whole = crowd(1)[1].take(GANGS, ())
    assert of.take(3, ()) == whole[:3]
    assert of.take(3, {whole[3], whole[5]}) == [whole[4], whole[6], whole[7]]
    assert of.take(GANGS, set(whole[1:])) == whole[:1]
    assert of.take(2, set(whole)) == []


def test_pieces_hold_everybody_of_a_node_and_are_about_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "PIECE", 100)
    rows, nodes = np.arange(3000), np.arange(3000) // 6
    cut = list(pieces(rows, nodes))
    assert len(cut) == 30
    assert sorted(np.concatenate(cut).tolist()) == rows.tolist()
    assert sum(len(set(nodes[piece].tolist())) for piece in cut) == 500
    assert max(map(len, cut)) < 200
