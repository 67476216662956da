"""Who is served before whom: gangs of one shape, elastic ones, and those for which there is no room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pykai.engine import order
from pykai.engine.allocate import allocate
from pykai.engine.cycle import Cycle
from pykai.engine.pending import PendingOrder
from pykai.model.status import Status
from tests import builders
from tests.properties.small_world import NOW, PACKING

from .clusters import bound, gang, node, plan, pod, seen


def queue(name: str, gpus: int, weight: int) -> Any:
    return builders.queue(name, gpu={"quota": gpus, "overQuotaWeight": weight})


def elastic(name: str) -> list[Any]:
    """A gang with more than its minimum that waits for a small pod and then for a large one."""
    running = [pod(f"{name}-{n}", "n", gpus=1) for n in (0, 1)]
    return [gang(name, minMember=1), *running, pod(f"{name}-2", gpus=1), pod(f"{name}-3", gpus=3)]


def test_elastic_gangs_of_one_shape_have_a_turn_each() -> None:
    """The first one, in line again, finds no room for its large pod: that is none of the others' business."""
    found = plan(node("n", gpus=9, pods=20), *elastic("a"), *elastic("b"), *elastic("c"))
    assert bound(found) == {"a-2": "n", "b-2": "n", "c-2": "n"}


def waiting(name: str, age: int, gpus: int, **spec: Any) -> list[Any]:
    pods = spec.get("minMember", 1)
    return [gang(name, age=age, **spec), *(pod(f"{name}-{n}", gpus=gpus) for n in range(pods))]


def two_queues(alike: int = 1) -> list[Any]:
    """6 GPUs. In queue a: one that does not fit, one of 3, then `alike` like the first, and one of 2; in b one of 2.

    After the one of 3 the queues are compared by who is next: large ones in a, so that b is served.
    """
    large = {"queue": "a", "minMember": 2}
    return [
        node("n", gpus=6, pods=20),
        queue("a", 2, 1),
        queue("b", 1, 0),
        *waiting("large", 90, 4, **large),
        *waiting("middle", 85, 3, queue="a"),
        *(item for n in range(alike) for item in waiting(f"alike{n}", 80 - n, 4, **large)),
        *waiting("small", 10, 2, queue="a"),
        *waiting("other", 5, 2, queue="b"),
    ]


def started(objects: list[Any]) -> set[str]:
    """Pods that an allocate pass starts."""
    cycle = Cycle(seen(*objects), PACKING, NOW)
    allocate(cycle)
    status = cycle.trial.status
    return {name for row, name in enumerate(cycle.snapshot.pods.names) if status[row] == Status.ALLOCATED}


@pytest.mark.parametrize("count", [0, 1, 2, 30])
def test_gangs_are_in_the_order_of_their_keys(count: int) -> None:
    """A few of many one by one, many by columns."""
    gangs = [item for n in range(40) for item in waiting(f"w{n * 7 % 40:02}", n % 3, 1 + n % 2)]
    cycle = Cycle(seen(node("n", gpus=8), *gangs), PACKING, NOW)
    rows = np.arange(40)[::-1][:count]
    expected = sorted(rows.tolist(), key=cycle.gang_key)
    assert order.in_order(cycle, rows) == expected
    keyed = order.keyed_in_order(cycle, rows)
    assert list(keyed) == expected
    assert keyed == {row: cycle.gang_key(row) for row in expected}


def test_gangs_without_a_turn_count_in_the_order_of_queues() -> None:
    assert started(two_queues()) == {"middle-0", "other-0"}


def test_without_them_the_other_queue_is_second() -> None:
    assert started(two_queues(alike=0)) == {"middle-0", "small-0"}


@pytest.mark.parametrize(("most", "served"), [(2, "other-0"), (1, "other-0"), (0, "small-0")])
def test_of_a_backlog_only_the_first_count(most: int, served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "MAX_BLOCKED", most)
    assert started(two_queues(alike=3)) == {"middle-0", served}


def test_all_without_a_turn_are_told_why() -> None:
    cycle = Cycle(seen(*two_queues(alike=order.MAX_BLOCKED + 5)), PACKING, NOW)
    allocate(cycle)
    told = {cycle.snapshot.gangs.names[gang] for gang in cycle.reasons.gangs}
    assert told == {"large", "small", *(f"alike{n}" for n in range(order.MAX_BLOCKED + 5))}


def requested(cycle: Cycle, waiting: PendingOrder) -> list[float]:
    """GPUs that the pending gangs of the queue request, as other queues see it."""
    return [entry.request[2] for entry in waiting.stream(cycle.snapshot.queues.rows["q"])]


def test_a_gang_that_lost_pods_requests_them_again() -> None:
    objects = [gang("some", minMember=2), pod("some-0", gpus=1), pod("some-1", gpus=1)]
    cycle = Cycle(seen(node("n", gpus=1), *objects), PACKING, NOW)
    waits, trial = PendingOrder(cycle, [0]), cycle.trial
    trial.place(0, 0)
    waits.prepare([cycle.snapshot.queues.rows["q"]])
    trial.suppose_evicted(0)
    assert requested(cycle, waits) == [1], "what is only supposed does not count"
    trial.decide({0: "why"})
    waits.changed([0])
    assert requested(cycle, waits) == [2]


def test_of_the_gangs_that_wait_only_those_that_request_more_than_the_ones_before_count() -> None:
    sizes = (2, 1, 2, 4, 3, 4, 1)
    objects = [item for n, gpus in enumerate(sizes) for item in waiting(f"g{n}", 90 - n, gpus)]
    cycle = Cycle(seen(node("n", gpus=1), *objects), PACKING, NOW)
    assert requested(cycle, PendingOrder(cycle, range(len(sizes)))) == [2, 4]
