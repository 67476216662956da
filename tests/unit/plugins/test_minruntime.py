from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pykai.engine.cycle import Cycle
from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.objects import kinds, names
from pykai.objects.units import rfc3339
from pykai.plugins.minruntime import MinRuntime, MinRuntimePolicy, MinRuntimes, is_elastic, keeps_minimum, protected
from pykai.plugins.registry import BUILT_IN, make_all
from tests.builders import as_kind
from tests.properties.small_world import NOW, PACKING
from tests.unit.engine.clusters import evicted, gang, node, pod, promised, seen

#   0 a (30)      1 b
#   ├─ 2 (10)     └─ 5
#   │  ├─ 3 (5)
#   │  └─ 4
PARENT = [-1, -1, 0, 2, 2, 1]
VALUES = [30.0, None, 10.0, 5.0, None, None]


def tree(method: str = "lca") -> MinRuntimes:
    policy = MinRuntimePolicy.from_arguments(
        {"defaultPreemptMinRuntime": "1s", "defaultReclaimMinRuntime": "2s", "reclaimResolveMethod": method}
    )
    return MinRuntimes(PARENT, VALUES, VALUES, policy)


@pytest.mark.parametrize(("queue", "seconds"), [(3, 5), (4, 10), (0, 30), (5, 1), (1, 1)])
def test_preempt_takes_the_nearest_value_upwards(queue: int, seconds: float) -> None:
    assert tree().preempt_min_runtime(queue) == seconds


@pytest.mark.parametrize(
    ("reclaimer", "victim", "lca", "queue"),
    [
        (5, 3, 30, 5),  # other department: the department decides
        (3, 5, 2, 2),  # nothing set on the way
        (4, 3, 5, 5),  # siblings: the victim itself decides
        (3, 4, 10, 10),  # sibling without a value
        (3, 3, 5, 5),
        (3, 2, 10, 10),  # the victim is the ancestor
        (0, 3, 10, 5),  # the reclaimer is the ancestor: its child towards the victim
    ],
)
def test_reclaim_by_method(reclaimer: int, victim: int, lca: float, queue: float) -> None:
    assert tree("lca").reclaim_min_runtime(reclaimer, victim) == lca
    assert tree("queue").reclaim_min_runtime(reclaimer, victim) == queue


@pytest.mark.parametrize("method", ["", "LCA", "nearest"])
def test_an_unknown_method_is_lca(method: str) -> None:
    assert tree(method).policy.method == "lca"


@pytest.mark.parametrize("text", ["-5s", "soon", ""])
def test_an_unreadable_default_is_zero(text: str) -> None:
    assert MinRuntimePolicy.from_arguments({"defaultPreemptMinRuntime": text}) == MinRuntimePolicy()


def test_rows_outside_the_tree_and_cycles_are_refused() -> None:
    with pytest.raises(ValueError, match="not a row"):
        tree().reclaim_min_runtime(-1, 3)
    with pytest.raises(ValueError, match="ancestor"):
        MinRuntimes([1, 0], [None, None], [None, None], MinRuntimePolicy()).preempt_min_runtime(0)


def test_protection_ends_at_the_minimum() -> None:
    assert [protected(start, 10.0, 10.0) for start in (0.0, 1.0, math.nan)] == [False, True, False]


@pytest.mark.parametrize(
    ("pods", "victims", "minimum", "elastic", "kept"),
    [
        ([3], [1], [2], True, True),
        ([3], [2], [2], True, False),
        ([2], [0], [2], False, True),
        ([4, 2], [1, 1], [2, 2], True, False),
    ],
)
def test_elastic_workloads(pods: list[int], victims: list[int], minimum: list[int], elastic: bool, kept: bool) -> None:
    assert is_elastic(pods, minimum) is elastic
    assert keeps_minimum(pods, victims, minimum) is kept


# -------------------------------------------------------------------------------------------------------- whole cycles
def elastic_gang(ago: float, *places: str) -> list[Any]:
    """A gang that needs two pods, started so many seconds ago; a GPU for each of its pods, `!`: it leaves."""
    meta = {"name": "e", "namespace": "ns", "annotations": {names.LAST_START_TIMESTAMP: rfc3339(NOW - ago)}}
    group = as_kind(
        kinds.PodGroup, {"metadata": meta, "spec": {"queue": "q", "priorityClassName": "low", "minMember": 2}}
    )
    return [group, *(pod(f"e-{n}", on, gpus=1) for n, on in enumerate(places))]


def newcomers(*gpus: int) -> list[Any]:
    """One after the other, each a gang of one pod."""
    gangs = [gang(f"new{n}", age=100 - n) for n in range(len(gpus))]
    return [*gangs, *(pod(f"new{n}-0", gpus=count) for n, count in enumerate(gpus))]


def outcome(*objects: Any) -> tuple[set[str], set[str]]:
    """Who is evicted and who is promised a place where ten minutes are the minimum."""
    minimum = {"defaultPreemptMinRuntime": "10m"}
    plugins = make_all([(name, minimum if name == "minruntime" else {}) for name in BUILT_IN])
    found = decide(seen(*objects), replace(Policy(plugins), actions=("allocate", "preempt")), NOW)
    return evicted(found), set(promised(found))


@pytest.mark.parametrize(
    ("asked", "gone", "served"),
    [
        ((1, 1, 1, 2), {"e-2", "e-3", "e-4"}, {"new0-0", "new1-0", "new2-0"}),
        ((1, 2, 2), {"e-2", "e-3", "e-4"}, {"new0-0", "new1-0"}),
        ((2, 2, 1), {"e-2", "e-3", "e-4"}, {"new0-0", "new2-0"}),
        ((4, 3), {"e-2", "e-3", "e-4"}, {"new1-0"}),
    ],
)
def test_many_take_no_more_than_the_surplus(asked: tuple[int, ...], gone: set[str], served: set[str]) -> None:
    """What went to the first is no longer there for the next: two pods stay, however many ask in one cycle."""
    assert outcome(node("n", gpus=5), *elastic_gang(60, *"nnnnn"), *newcomers(*asked)) == (gone, served)


def test_who_leaves_by_itself_is_no_surplus() -> None:
    held = elastic_gang(60, "n!", "n", "n", "n")
    assert outcome(node("n", gpus=4), *held, *newcomers(2, 2)) == ({"e-3"}, {"new0-0"})


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_of_many_the_same_is_said_as_one_by_one(action: str) -> None:
    """One that started in the future, one that did just now, one that has a surplus, two that ran for long enough."""
    started = {"early": -60.0, "now": 0.0, "more": 60.0, "just": 600.0, "long": 3600.0}
    objects = []
    for name, ago in started.items():
        meta = {"name": name, "namespace": "ns", "annotations": {names.LAST_START_TIMESTAMP: rfc3339(NOW - ago)}}
        objects.append(as_kind(kinds.PodGroup, {"metadata": meta, "spec": {"queue": "q", "minMember": 1}}))
        objects += [pod(f"{name}-{n}", "n", gpus=1) for n in range(2 if name == "more" else 1)]
    cycle = Cycle(seen(node("n", gpus=8), *objects, gang("never"), pod("never-0", "n", gpus=1)), PACKING, NOW)
    plugin, rows = MinRuntime(MinRuntimePolicy(preempt=600.0, reclaim=600.0)), np.arange(len(cycle.snapshot.gangs))
    one_by_one = [plugin.may_evict(cycle, action, 0, row) for row in rows.tolist()]
    assert plugin.may_evict_column(cycle, action, 0, rows).tolist() == one_by_one
    assert {cycle.snapshot.gangs.names[row] for row, may in zip(rows, one_by_one, strict=True) if not may} == {
        "early",
        "now",
    }


def test_after_its_minimum_all_of_it_may_go() -> None:
    everything = {f"e-{n}" for n in range(5)}
    assert outcome(node("n", gpus=5), *elastic_gang(600, *"nnnnn"), *newcomers(1, 4)) == (
        everything,
        {"new0-0", "new1-0"},
    )
