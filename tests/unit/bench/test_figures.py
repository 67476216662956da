"""How our figures are held against KAI's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.figures import COUNTS, Comparison, Peer, compare
from bench.measure import Run
from bench.page import worst
from bench.scenarios import SCENARIOS, Case, Scenario

SCENARIO = Scenario("reclaim", "", targets={1_000: 50}, most_seconds={5_000: 10.0})
THEIRS = (0, 40, 20, 5)


def ours(counts: tuple[int, ...] = THEIRS, milliseconds: float = 100.0, size: int = 1_000, pods: int = 90) -> Run:
    case = Case(SCENARIO, size, size, None)
    named = dict(zip(COUNTS, counts, strict=True))
    return Run(case, size, pods, 90, 25, 50.0, (milliseconds, 1.0, 99_999.0), named)


def theirs(size: int = 1_000, timeout: bool = False) -> Peer:
    counts = (None,) * 4 if timeout else THEIRS
    cpu = None if timeout else 6_000.0
    return Peer(size, 90, 90, 300.0, timeout, cpu, **dict(zip(COUNTS, counts, strict=True)))


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ((0, 40, 20, 5), "same"),
        ((0, 39, 20, 5), "fewer evictions"),
        ((0, 41, 20, 5), "differ"),
        ((0, 39, 19, 6), "differ"),
        ((1, 40, 19, 5), "differ"),
    ],
)
def test_counts_are_the_same_or_with_fewer_evictions(counts: tuple[int, ...], verdict: str) -> None:
    assert Comparison(ours(counts), theirs()).verdict == verdict


def test_the_ratio_is_that_of_the_median_cycle() -> None:
    assert Comparison(ours(milliseconds=100.0), theirs()).ratio == pytest.approx(60.0)


@pytest.mark.parametrize(("milliseconds", "met"), [(100.0, True), (120.0, True), (121.0, False)])
def test_a_target_is_a_ratio(milliseconds: float, met: bool) -> None:
    assert Comparison(ours(milliseconds=milliseconds), theirs()).met is met


@pytest.mark.parametrize(
    ("cold", "warm", "met"),
    [(100.0, 121.0, False), (200.0, 120.0, True), (121.0, None, False), (120.0, None, True)],
)
def test_a_target_is_held_against_the_warm_cycle(cold: float, warm: float | None, met: bool) -> None:
    run = replace(ours(milliseconds=cold), warm_cycles_ms=() if warm is None else (warm,))
    assert Comparison(run, theirs()).met is met


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.parametrize(("size", "least"), [(1_000, 40), (5_000, 100)])
def test_something_is_asked_of_every_file(scenario: Scenario, size: int, least: float) -> None:
    assert scenario.targets[size] >= least


@pytest.mark.parametrize(("milliseconds", "met"), [(9_999.0, True), (10_000.0, False)])
def test_where_kai_does_not_finish_the_target_is_a_time(milliseconds: float, met: bool) -> None:
    comparison = Comparison(ours(milliseconds=milliseconds, size=5_000), theirs(5_000, timeout=True))
    assert (comparison.ratio, comparison.verdict, comparison.met) == (None, "", met)


def test_another_file_is_not_compared() -> None:
    peers = {"reclaim-1000": theirs()}
    assert compare(ours(pods=90), peers).peer is not None
    assert compare(ours(pods=91), peers).peer is None
    assert compare(ours(pods=91), peers).met is None


def test_a_run_that_does_not_end_reaches_nothing() -> None:
    unfinished = replace(ours(), groups=None, peak_mib=None, cycles_ms=(), counts=None)
    comparison = compare(unfinished, {"reclaim-1000": theirs()})
    assert comparison.peer is not None
    assert (comparison.ratio, comparison.verdict, comparison.met) == (None, "", False)


@pytest.mark.parametrize(
    ("name", "size", "nodes", "pending"),
    [
        ("allocate-single", 1_000, 1_000, None),
        ("allocate-single", 10_000, 10_000, 5_000),
        ("preempt", 5_000, 5_000, 100),
        ("reclaim-mixed", 5_000, 5_000, 50),
        ("reclaim-large", 5_000, 5_000, None),
        ("consolidation-hard", 5_000, 5_000, 20),
        ("topology", 1_000, 1_024, None),
        ("topology", 10_000, 10_240, None),
        ("backlog", 1_000, 1_008, None),
        ("backlog", 5_000, 5_008, 5_000),
    ],
)
def test_sizes_are_those_of_kais_figures(name: str, size: int, nodes: int, pending: int | None) -> None:
    (scenario,) = (s for s in SCENARIOS if s.name == name)
    case = scenario.case(size)
    assert (case.nodes, case.pending) == (nodes, pending)


def test_the_page_names_what_misses_its_target_the_worst_first() -> None:
    cycles = ((200.0, 100.0), (400.0, 300.0), (100.0, 90.0))
    runs = [replace(ours(milliseconds=cold), warm_cycles_ms=(warm,)) for cold, warm in cycles]
    found = [Comparison(run, theirs()) for run in runs]
    assert worst(found).splitlines() == [
        "Of 3 files 2 miss what is asked from parsed objects, 1 also warm:",
        "",
        "* reclaim at 1,000 nodes 15x (20x warm) of 50x",
        "* reclaim at 1,000 nodes 30x (60x warm) of 50x",
    ]
    assert worst(found[2:]).startswith("Every file reaches")
