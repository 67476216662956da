"""What follows from constraints alone is worked out once for classes that a rule does not distinguish."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np

from pykai.engine.plugin_api import ANY, Rejection
from pykai.model.pods import PodClass
from pykai.model.snapshot import Snapshot
from tests.unit.plugins import small_clusters as small


@dataclass(frozen=True)
class Counting:
    """A filter that rejects the first node and counts how often it is asked."""

    asked: list[int] = field(default_factory=list)

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        self.asked.append(pod_class.row)
        return [("first", np.arange(len(snapshot.nodes)) == 0)]


@dataclass(frozen=True)
class Undistinguishing(Counting):
    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        return ANY


def asking(cpu: str) -> dict[str, object]:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}


def test_a_filter_is_asked_once_for_classes_it_does_not_distinguish() -> None:
    choosy, plain = Counting(), Undistinguishing()
    pods = [small.pod(f"p{number}", asking(f"{number}00m")) for number in (1, 2, 3)]
    cycle = small.cycle([small.node("a"), small.node("b"), *pods], [choosy, plain])
    masks = [cycle.node_facts.allowed(c) for c in cycle.snapshot.pods.classes]
    assert (len(choosy.asked), len(plain.asked)) == (3, 1)
    assert [mask.tolist() for mask in masks] == [[False, True]] * 3
    assert len({id(mask) for mask in masks}) == 1


def test_a_pod_is_nowhere_only_after_another_found_no_node() -> None:
    pods = [small.pod("small", asking("1")), small.pod("large", asking("7"))]
    cycle = small.cycle([small.node("a", allocatable={"cpu": "4"}), *pods], [])
    large = max(cycle.snapshot.pods.classes, key=lambda c: float(c.request[0]))
    facts = cycle.node_facts
    assert not facts.nowhere(large)
    facts.states().tighten()
    assert [facts.nowhere(c) for c in cycle.snapshot.pods.classes] == [c is large for c in cycle.snapshot.pods.classes]


def test_the_nodes_touched_since_a_moment_are_found_however_long_the_log_is() -> None:
    trial = small.cycle([small.node(name) for name in "abcd"], []).trial
    among = np.array([0, 1, 3])
    for _ in range(3):
        for touched in ([2], [0, 1] * 100, [3, 2], [1] * 300 + [2]):
            read = len(trial.touched)
            trial.touched.extend(touched)
            wanted = set(touched) & set(among.tolist())
            assert wanted <= set(trial.touched_since(read, among)) <= set(touched)
            assert set(trial.touched_since(read, among)) & set(among.tolist()) == wanted
    assert not list(trial.touched_since(len(trial.touched), among))
