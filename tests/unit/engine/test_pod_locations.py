"""Counts that follow the moves are those of counting from scratch."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.engine.cycle import Cycle
from pykai.engine.pod_locations import PodCounts, PodLocations
from pykai.model.status import Status
from tests.unit.plugins.small_clusters import cycle, node, pod

NODES = 4
DOMAINS = np.array([1, 1, 2, 0])
STEPS = st.lists(st.tuples(st.sampled_from(["place", "evict", "keep", "mark", "undo"]), st.integers(0, 5)), max_size=25)


def start() -> Cycle:
    running = [pod(f"r{i}", {"nodeName": f"n{i}"}) for i in range(3)]
    return cycle([*(node(f"n{i}") for i in range(NODES)), *running, *(pod(f"p{i}") for i in range(3))], ())


def step(of: Cycle, marks: list[int], what: str, which: int) -> None:
    trial, status = of.trial, Status(of.trial.status[which])
    if what == "mark":
        marks.append(trial.mark())
    elif what == "undo" and marks:
        trial.undo_to(marks.pop())
    elif what == "place" and (status is Status.PENDING or which in trial.virtual):
        trial.place(which, (which * 7 + len(trial.moved)) % NODES, wait=which in trial.virtual)
    elif what == "evict" and status is Status.RUNNING:
        trial.suppose_evicted(which)
    elif what == "keep" and which in trial.virtual:
        trial.keep(which)


@settings(max_examples=150)
@given(steps=STEPS)
def test_following_agrees_with_counting(steps: list[tuple[str, int]]) -> None:
    of = start()
    pods = np.flatnonzero([name != "r0" for name in of.snapshot.pods.names])
    followed = PodCounts(of.pod_locations, pods, DOMAINS, 3)
    marks: list[int] = []
    for what, which in steps:
        step(of, marks, what, which)
        locations = PodLocations(of.trial)
        fresh = PodCounts(locations, pods, DOMAINS, 3)
        assert of.pod_locations.any_leaves() == bool((locations.leaving >= 0).any())
        assert followed.present.tolist() == fresh.present.tolist()
        assert followed.leaving.tolist() == fresh.leaving.tolist()


def test_nodes_outside_every_domain_count_nothing() -> None:
    of = start()
    everybody = PodCounts(of.pod_locations, np.arange(6), DOMAINS, 3)
    of.trial.place(of.snapshot.pods.names.index("p0"), 3)
    assert everybody.present.tolist() == [0, 2, 1]
    assert everybody.nodes_present.tolist() == [True, True, True, False]


def test_counts_are_made_anew_after_more_moves_than_they_have_pods() -> None:
    of = start()
    rows = {name: row for row, name in enumerate(of.snapshot.pods.names)}
    one = PodCounts(of.pod_locations, np.array([rows["p0"]]), DOMAINS, 3)
    assert one.present.tolist() == [0, 0, 0]
    for number, name in enumerate(("p0", "p1", "p2")):
        of.trial.place(rows[name], number)
    of.trial.suppose_evicted(rows["r2"])
    assert (one.present.tolist(), one.leaving.tolist()) == ([0, 1, 0], [0, 0, 0])
    of.trial.suppose_evicted(rows["p0"])
    assert (one.present.tolist(), one.leaving.tolist()) == ([0, 0, 0], [0, 1, 0])


def test_counts_of_no_pods_include_none() -> None:
    nobody = PodCounts(start().pod_locations, np.zeros(0, dtype=np.int64), DOMAINS, 3)
    assert nobody.includes([0, 5]).tolist() == [False, False]
    everybody = PodCounts(start().pod_locations, np.array([1, 3]), DOMAINS, 3)
    assert everybody.includes([0, 3, 5, 1]).tolist() == [False, True, False, True]
