from __future__ import annotations

from typing import Any

import pytest

from pykai.plugins.preferences import PreferNoSchedule, PreferredNodeAffinity
from pykai.plugins.scoring import Pack
from tests.unit.plugins.small_clusters import cycle, node, placed, pod, row

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODES = [node("a", {"disk": "ssd", "zone": "1"}), node("b", {"disk": "hdd", "zone": "1"}), node("c", {"zone": "2"})]
TAINTED = [
    node("a", taints=[{"key": "x", "effect": "PreferNoSchedule"}, {"key": "y", "effect": "PreferNoSchedule"}]),
    node("b", taints=[{"key": "x", "effect": "PreferNoSchedule"}]),
    node("c", taints=[{"key": "z", "effect": "NoSchedule"}]),
]


def prefers(*terms: tuple[int, str, str]) -> dict[str, Any]:
    return {
        "affinity": {
            "nodeAffinity": {
                PREFERRED: [
                    {
                        "weight": weight,
                        "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]},
                    }
                    for weight, key, value in terms
                ]
            }
        }
    }


def scores(plugin: Any, nodes: Any, spec: dict[str, Any]) -> list[float]:
    made = cycle([*nodes, pod("p", spec)], [plugin])
    found: list[float] = made.rankings.of(made.trial.of_class(row(made, "p"))).total.tolist()
    return found


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, [0, 0, 0]),
        (prefers((1, "disk", "ssd")), [200, 0, 0]),
        (prefers((100, "disk", "ssd"), (50, "zone", "1")), [200, 66, 0]),
        (prefers((1, "disk", "tape")), [0, 0, 0]),
        ({"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 5, "preference": {}}]}}}, [0, 0, 0]),
    ],
)
def test_preferred_node_affinity_adds_up_weights(spec: dict[str, Any], expected: list[float]) -> None:
    assert scores(PreferredNodeAffinity(), NODES, spec) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, [0, 150, 300]),
        ({"tolerations": [{"key": "x", "operator": "Exists"}]}, [0, 300, 300]),
        ({"tolerations": [{"key": "x", "operator": "Exists", "effect": "NoSchedule"}]}, [0, 150, 300]),
        ({"tolerations": [{"operator": "Exists"}]}, [0, 0, 0]),
    ],
)
def test_taints_that_discourage_pods_count_where_they_are_not_tolerated(
    spec: dict[str, Any], expected: list[float]
) -> None:
    assert scores(PreferNoSchedule(), TAINTED, spec) == expected


def test_a_preference_beats_packing() -> None:
    busy = pod("busy", {"nodeName": "b"})
    made = cycle([*NODES, busy, pod("p", prefers((1, "zone", "2")))], [PreferredNodeAffinity(), Pack()])
    assert placed(made) == {"p": "c"}
    made = cycle([*NODES, busy, pod("p")], [PreferredNodeAffinity(), Pack()])
    assert placed(made) == {"p": "b"}


def test_classes_without_preferences_share_their_scores() -> None:
    made = cycle([*NODES, pod("p"), pod("q", {"nodeSelector": {"zone": "1"}}), pod("r", prefers((1, "zone", "2")))], [])
    keys = [PreferredNodeAffinity().class_key(c) for c in made.snapshot.pods.classes]
    assert len(set(keys)) == 2
