"""Remedies of small clusters: which are stated, and in which order running workloads are tried."""

from __future__ import annotations

from typing import Any

from pykai.explain.remedies import remedies
from pykai.explain.running_workloads import FreedCapacity, expected_start
from pykai.objects.units import rfc3339
from tests import builders
from tests.builders import NOW, decoded
from tests.unit.engine.clusters import gang, node, pod
from tests.unit.explain.test_why import QUEUE, state

NAMESPACE = builders.pod("any")["metadata"]["namespace"]
NON: dict[str, Any] = {"preemptibility": "non-preemptible"}


def texts(found: Any, name: str = "g") -> list[str]:
    return [each.text for each in remedies(found, (NAMESPACE, name))]


def running(name: str, gpus: int, on: str) -> list[Any]:
    return [gang(name, **NON), pod(f"{name}-0", on=on, gpus=gpus)]


def test_the_smallest_workload_that_leaves_room_enough_is_named() -> None:
    works = [*running("x", 4, "d"), *running("m", 3, "c"), *running("s", 1, "c")]
    found = state(QUEUE, node("c", 4), node("d", 4), *works, gang("g"), pod("g-0", gpus=3))
    assert texts(found) == ["3 more GPUs on a node like c", f"{NAMESPACE}/m (3 GPUs) ends"]


def test_running_workloads_are_tried_in_the_order_of_what_they_promise() -> None:
    works = [*running("s", 1, "a"), *running("m", 3, "a"), *running("x", 4, "b")]
    found = state(QUEUE, node("a", 4), node("b", 4), *works, gang("g"), pod("g-0", gpus=4))
    snapshot = found.snapshot
    row = snapshot.gangs.rows_of([(NAMESPACE, "g")])[NAMESPACE, "g"]
    estimate = FreedCapacity(snapshot, row, [snapshot.pods.of_class(snapshot.gangs.pods(row)[0])])
    assert [key[1] for key, _ in estimate.most_promising()] == ["x", "s", "m"]
    assert estimate.ends_needed() == 2, "m and s, which come before x by name"


def test_what_others_take_first_is_no_remedy() -> None:
    """One more GPU would do, but a workload before it takes that: two are needed."""
    first = [gang("f", age=30), pod("f-0", gpus=1)]
    found = state(QUEUE, node("a", 1), *running("x", 1, "a"), *first, gang("g", age=10), pod("g-0", gpus=1))
    assert texts(found) == ["2 more GPUs on a node like a"]
    assert texts(found, "f") == ["1 more GPU on a node like a", f"{NAMESPACE}/x (1 GPU) ends"]


def test_the_expected_start_is_the_end_that_makes_room() -> None:
    def until(name: str, seconds: int) -> list[Any]:
        manifest = builders.pod(f"{name}-0", name, "a", {"gpu": 1}, {"activeDeadlineSeconds": seconds})
        manifest["status"]["startTime"] = rfc3339(NOW - 100)
        return [gang(name, **NON), decoded(manifest)]

    waiting = [gang("g"), pod("g-0", gpus=2)]
    found = state(QUEUE, node("a", 2), *until("x", 200), *until("y", 300), *waiting)
    assert expected_start(found, (NAMESPACE, "g")).at == rfc3339(NOW + 200)
    unknown = state(QUEUE, node("a", 2), *until("x", 200), *running("y", 1, "a"), *waiting)
    start = expected_start(unknown, (NAMESPACE, "g"))
    assert (start.at, start.why) == ("", "1 running workload does not say when it ends")
