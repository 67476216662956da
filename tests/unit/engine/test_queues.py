from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from pykai.engine.queues import (
    BILLION,
    ZERO,
    Claim,
    QueueBook,
    Triple,
    _queue_key,
    can_reclaim,
    fits,
    human,
    may_lose,
    most_losses,
    over_limit,
    over_non_preemptible_quota,
    queue_key,
    reclaimable,
)

FREE: Triple = (-1.0, -1.0, -1.0)


def gpus(amount: float) -> Triple:
    return 0.0, 0.0, amount


def quota(amount: float) -> Triple:
    return -1.0, -1.0, amount


def book(*queues: Mapping[str, Any]) -> QueueBook:
    """Queues by column; what is not said is free, unused and without a parent."""
    parents = [queue.get("parent", -1) for queue in queues]

    def path(row: int) -> tuple[int, ...]:
        return (row, *path(parents[row])) if row >= 0 else ()

    def column(key: str, default: object) -> list[Any]:
        return [queue.get(key, default) for queue in queues]

    return QueueBook(
        names=[str(row) for row in range(len(queues))],
        titles=[f"queue-{row}" for row in range(len(queues))],
        paths=[path(row) for row in range(len(queues))],
        priority=column("priority", 100),
        creation=column("creation", 0.0),
        deserved=column("deserved", FREE),
        limit=column("limit", FREE),
        fair=column("fair", FREE),
        allocated=column("allocated", ZERO),
        allocated_non_preemptible=column("held", ZERO),
        total=(1000.0, 1000.0, 10.0),
    )


@pytest.mark.parametrize(
    ("amount", "bound", "inside"),
    [
        ((1, 1, 1), (1, 1, 1), True),
        ((1, 1, 2), (1, 1, 1), False),
        ((9, 9, 9), (-1, -1, -1), True),
        ((2, 2, 2), (2, 2, -1), True),
        ((2, 2, 2), (1, 2, -1), False),
    ],
)
def test_unlimited_is_larger_than_anything(amount: Triple, bound: Triple, inside: bool) -> None:
    assert fits(amount, bound) is inside


@pytest.mark.parametrize(
    ("deserved", "fair", "limit", "allocatable"),
    [(2, 5, -1, 5), (5, 2, -1, 5), (5, 2, 3, 3), (-1, 2, 7, 7), (-1, 2, -1, -1), (0, 0, -1, 0)],
)
def test_allocatable_share(deserved: float, fair: float, limit: float, allocatable: float) -> None:
    found = book({"deserved": (deserved,) * 3, "fair": (fair,) * 3, "limit": (limit,) * 3})
    assert found.allocatable == [(allocatable,) * 3]


@pytest.mark.parametrize(
    ("amount", "allocatable", "share"),
    [
        ((500, 100, 1), (1000, 1000, 4), 0.5),
        ((500, 100, 3), (1000, 1000, 4), 0.75),
        ((0, 0, 5), (-1, -1, -1), 0.5),  # of the cluster
        ((0, 0, 2), (1000, 1000, 0), 2000),  # may use none of it
        ((-100, 0, 0), (1000, 1000, 4), 0),
    ],
)
def test_dominant_share_orders_queues(amount: Triple, allocatable: Triple, share: float) -> None:
    known = replace(book({"limit": allocatable, "allocated": amount}), total=(1000.0, 1000.0, 10.0))
    assert queue_key(known, 0, ZERO, ZERO)[5] == share * BILLION


NO_CPU = (0.0, -1.0, -1.0)
OVER = {"fair": gpus(1), "allocated": (1.0, 1.0, 2.0)}
ORDER = [  # why the first goes before the second; the second has every advantage that comes later
    ("not over its share in all", {"fair": gpus(1), "allocated": (1.0, 0.0, 2.0)}, {**OVER, "priority": 200}),
    ("starved", {"deserved": (100.0, -1.0, -1.0)}, {"deserved": (99.0, -1.0, -1.0), "priority": 200}),
    ("priority", {"priority": 200, "allocated": gpus(9)}, {}),
    ("may use the resource", {"deserved": NO_CPU, "allocated": gpus(9)}, {"deserved": NO_CPU, "fair": ZERO}),
    ("smaller share", {"allocated": gpus(1)}, {"allocated": gpus(2)}),
    ("smaller right", {"limit": (-1.0, -1.0, 1.0)}, {"creation": -1.0}),
    ("older", {"creation": 1.0}, {"creation": 2.0}),
    ("first row", {}, {}),
]


@pytest.mark.parametrize(("first", "second"), [pair for _, *pair in ORDER], ids=[name for name, *_ in ORDER])
def test_queue_order(first: dict[str, object], second: dict[str, object]) -> None:
    request = (100.0, 0.0, 0.0)
    found = book(first, second)
    keys = [queue_key(found, row, request, ZERO) for row in (0, 1)]
    assert keys[0] < keys[1]
    assert not keys[1] < keys[0]


#   0 department        4 department
#   ├─ 1 ─ 3 team        └─ 5
#   └─ 2
TREE = book({}, {"parent": 0}, {"parent": 0}, {"parent": 1}, {}, {"parent": 4})


@pytest.mark.parametrize(
    ("queue", "other", "level"),
    [
        (1, 2, (1, 2)),
        (3, 2, (1, 2)),
        (3, 5, (0, 4)),
        (0, 5, (0, 4)),
        (3, 1, (3, 1)),  # a queue and one above it: they differ nowhere on the way down
        (3, 3, (3, 3)),
    ],
)
def test_queues_compete_where_their_branches_part(queue: int, other: int, level: tuple[int, int]) -> None:
    assert TREE.level_with(queue, other) == level
    assert TREE.level_with(other, queue) == level[::-1]


@pytest.mark.parametrize("capacity", [0.0, -2.0])
def test_no_capacity_is_no_share(capacity: float) -> None:
    """Other schedulers may use more than there is: then GPUs, of which queues may have any number, count for nothing.

    Where there are none the share is infinite, in units of a thousandth.
    """
    found = replace(book({"limit": (1000.0, 1000.0, -1.0)}), total=(1000.0, 1000.0, capacity))
    key = queue_key(found, 0, (100.0, 0.0, 2.0), ZERO)
    assert (key.share, key.penalty) == ((2000 if not capacity else 0.1) * BILLION, False)


@pytest.mark.parametrize("priority_in_quota", [False, True])
@pytest.mark.parametrize(
    "used",
    [ZERO, (1.0, 1.0, 2.0), (700.0, 300.0, 4.0), (2000.0, 2000.0, 20.0)]
    + [(700.0, 600.0, 0.5), (700.0, 200.0, 4.0), (400.0, 600.0, 4.0)],  # above its share in all but one
)
@pytest.mark.parametrize("deserved", [FREE, (500.0, -1.0, 5.0), (3000.0, 3000.0, 30.0)])
@pytest.mark.parametrize("fair", [(500.0, 500.0, 1.0), (500.0, 250.0, 3.0)])
def test_keys_without_a_loop_are_those_by_resource(
    priority_in_quota: bool, used: Triple, deserved: Triple, fair: Triple
) -> None:
    queue = {"allocated": used, "deserved": deserved, "fair": fair, "priority": 50}
    found = replace(book(queue), priority_in_quota=priority_in_quota)
    assert found.plain_bounds[0] is not None
    for request, victims in ((ZERO, ZERO), ((100.0, 700.0, 0.5), ZERO), ((0.0, 0.0, 3.0), (10.0, 0.0, 9.0))):
        assert queue_key(found, 0, request, victims) == _queue_key(found, 0, request, victims)


def test_victims_make_a_queue_smaller() -> None:
    found = book({"allocated": gpus(4)}, {"allocated": gpus(3)})
    assert queue_key(found, 0, ZERO, gpus(2)) < queue_key(found, 1, ZERO, ZERO)


@pytest.mark.parametrize(
    ("request_", "queue", "resource"),
    [
        (gpus(1), None, None),
        (gpus(2), 1, 2),  # the leaf has room, its parent has not
        (gpus(4), 0, 2),
        ((200.0, 0.0, 2.0), 1, 0),  # cpu is looked at first
        (ZERO, None, None),
    ],
)
def test_limits_from_the_leaf_up(request_: Triple, queue: int | None, resource: int | None) -> None:
    found = book(
        {"parent": 1, "limit": (-1.0, -1.0, 3.0)},
        {"limit": (100.0, -1.0, 3.0), "allocated": gpus(2), "held": gpus(2)},
    )
    over = over_limit(found, 0, request_)
    assert (over.queue, over.resource) == (queue, resource) if over else queue is None


def test_a_queue_above_its_limit_takes_what_does_not_touch_it() -> None:
    found = book({"limit": (-1.0, -1.0, 1.0), "allocated": gpus(2)})
    assert over_limit(found, 0, (100.0, 0.0, 0.0)) is None


def test_texts_of_refusals() -> None:
    found = book({"limit": (1500.0, -1.0, -1.0), "deserved": (-1.0, 2e9, -1.0), "held": (0.0, 1e9, 0.0)})
    limit = over_limit(found, 0, (1600.0, 0.0, 0.0))
    held = over_non_preemptible_quota(found, 0, (0.0, 1.5e9, 0.0))
    assert limit is not None
    assert limit.message == (
        "queue-0 quota has reached the allowable limit of CPU cores. "
        "Limit is 1.5 cores, currently 0 cores allocated and workload requested 1.6 cores"
    )
    assert held is not None
    assert held.message == (
        "Non-preemptible workload is over quota. Workload requested 1.5 GB memory, but queue-0 quota is 2 GB, "
        "while 1 GB are already allocated for non-preemptible pods. Use a preemptible workload to go over quota."
    )


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.59, "0.59"), (1 / 3, "0.333"), (10.0, "10"), (-1.0, "Unlimited")]
)
def test_numbers_for_people(value: float, text: str) -> None:
    assert human(value) == text


@pytest.mark.parametrize(
    ("held", "preemptible", "allowed"), [(0, True, True), (0, False, True), (1, True, True), (1, False, False)]
)
def test_reclaiming_within_fair_share_and_quota(held: float, preemptible: bool, allowed: bool) -> None:
    found = book({"deserved": quota(1), "fair": quota(3), "allocated": gpus(2), "held": gpus(held)})
    assert can_reclaim(found, Claim(0, gpus(1), preemptible)) is allowed
    assert not can_reclaim(found, Claim(0, gpus(2), preemptible))


@pytest.mark.parametrize(
    ("wanted", "victim", "considered"),
    [
        (1, {"allocated": gpus(3), "deserved": quota(2), "fair": quota(4)}, True),
        (1, {"allocated": gpus(2), "deserved": quota(2), "fair": quota(4)}, True),  # could be moved
        (1, {"allocated": gpus(1), "deserved": quota(2), "fair": quota(4)}, False),
        (1, {"allocated": gpus(1), "deserved": FREE, "fair": quota(4)}, True),
        (3, {"allocated": gpus(3), "deserved": quota(2), "fair": quota(4)}, False),  # beyond the quota
        (3, {"allocated": gpus(5), "deserved": quota(2), "fair": quota(4)}, True),
    ],
)
def test_who_is_considered_as_a_victim(wanted: float, victim: dict[str, object], considered: bool) -> None:
    found = book({"deserved": quota(2), "fair": quota(9)}, victim)
    assert may_lose(found, Claim(0, gpus(wanted)), 1) is considered


def test_only_what_the_claim_asks_for_makes_a_victim() -> None:
    found = book({}, {"deserved": (10.0, -1.0, 2.0), "allocated": (5.0, 0.0, 2.0), "fair": quota(4)})
    assert may_lose(found, Claim(0, gpus(1)), 1), "not below its quota of GPUs"
    assert not may_lose(found, Claim(0, (1.0, 0.0, 1.0)), 1), "below that of cpu, and above none"


@pytest.mark.parametrize(
    ("wanted", "victim", "most"),
    [
        (1, {"allocated": gpus(6), "deserved": quota(2), "fair": quota(4)}, 6 - 2 + 1),
        (3, {"allocated": gpus(6), "deserved": quota(2), "fair": quota(4)}, 6 - 4 + 1),  # beyond the quota
        (1, {"allocated": gpus(7), "deserved": FREE, "limit": quota(5)}, 7 - 5 + 1),
        (
            1,
            {"allocated": gpus(2), "deserved": quota(2), "fair": quota(4)},
            -inf,
        ),  # nothing, not even pods without GPUs
        (1, {"allocated": (9.0, 0.0, 2.0), "deserved": (8.0, -1.0, 2.0), "fair": quota(2)}, inf),
    ],
)
def test_at_most_the_surplus_and_one_block_can_be_taken(wanted: float, victim: dict[str, object], most: float) -> None:
    found = book({"deserved": quota(2), "fair": quota(9)}, victim)
    assert most_losses(found, (0, 1, ZERO), gpus(wanted), gpus(1))[2] == most


def test_a_copy_of_the_book_shows_no_later_use() -> None:
    found = book({"deserved": quota(2), "fair": quota(9), "allocated": gpus(1)})
    copy = found.copied()
    assert copy == found
    assert copy.allocatable is found.allocatable
    assert isinstance(found.allocated, list)
    found.allocated[0] = gpus(2)
    assert copy.allocated[0] == gpus(1)


#   0 department    1 department
#   └─ 2            └─ 3
def departments(**victim: object) -> QueueBook:
    ours = {"deserved": quota(2), "fair": quota(2), "allocated": gpus(1)}
    theirs = {"deserved": quota(2), "fair": quota(2), "allocated": gpus(4), **victim}
    return book(ours, theirs, {**ours, "parent": 0}, {**theirs, "parent": 1})


@pytest.mark.parametrize(
    ("blocks", "fair"),
    [
        ([1], True),
        ([1, 1], True),
        ([1, 1, 1], False),  # the third block would be taken from what is theirs
        ([3], True),  # one block may cross the line
    ],
)
def test_blocks_are_taken_while_the_victim_has_too_much(blocks: list[float], fair: bool) -> None:
    losses = {3: [gpus(block) for block in blocks]}
    assert reclaimable(departments(), Claim(2, gpus(1)), losses) is fair


def test_a_queue_must_not_become_relatively_richer_than_the_one_that_lost() -> None:
    richer = departments(allocated=gpus(3))
    assert not reclaimable(richer, Claim(2, gpus(2)), {3: [gpus(1)]})
    as_rich = departments(allocated=gpus(4))
    assert not reclaimable(as_rich, Claim(2, gpus(2)), {3: [gpus(1)]})
    poorer = departments(allocated=gpus(8))
    assert reclaimable(poorer, Claim(2, gpus(2)), {3: [gpus(1)]})
    assert not reclaimable(poorer, Claim(2, gpus(2)), {3: [gpus(1)]}, multiplier=3.0)


def test_non_preemptible_claims_stay_within_quota_on_every_level() -> None:
    found = book(
        {"deserved": quota(1), "fair": quota(4), "allocated": gpus(1), "held": gpus(1)},
        {"deserved": quota(1), "fair": quota(1), "allocated": gpus(4)},
        {"parent": 0, "deserved": quota(4), "fair": quota(4)},
    )
    losses = {1: [gpus(1)]}
    assert reclaimable(found, Claim(2, gpus(1), preemptible=True), losses)
    assert not reclaimable(found, Claim(2, gpus(1), preemptible=False), losses)


def test_only_resources_that_change_hands_are_compared() -> None:
    found = book(
        {"deserved": gpus(1), "fair": gpus(1), "allocated": (900.0, 0.0, 0.0)},
        {"deserved": gpus(1), "fair": (100.0, 0.0, 1.0), "allocated": gpus(2)},
    )
    assert reclaimable(found, Claim(0, gpus(1)), {1: [gpus(1)]})
    assert not reclaimable(found, Claim(0, (1.0, 0.0, 1.0)), {1: [gpus(1)]})


def test_every_loser_is_compared_in_what_it_lost_itself() -> None:
    ours = {"deserved": gpus(1), "fair": (10.0, -1.0, 1.0), "allocated": (20.0, 0.0, 0.0)}
    gives_gpus = {"deserved": gpus(0), "fair": (10.0, -1.0, 1.0), "allocated": gpus(2)}
    gives_cpu = {"deserved": gpus(0), "fair": (10.0, -1.0, 1.0), "allocated": (50.0, 0.0, 0.0)}
    found = book(ours, gives_gpus, gives_cpu)
    assert reclaimable(found, Claim(0, gpus(1)), {1: [gpus(1)], 2: [(5.0, 0.0, 0.0)]})
    assert not reclaimable(found, Claim(0, gpus(1)), {1: [(0.0, 0.0, 1.0)], 2: [(40.0, 0.0, 0.0)]})


def test_a_share_of_nothing_is_infinite() -> None:
    found = book({"fair": gpus(0)}, {"deserved": gpus(0), "fair": gpus(1), "allocated": gpus(9)})
    assert not reclaimable(found, Claim(0, gpus(1)), {1: [gpus(1)]})


def test_nothing_of_a_share_of_nothing_is_nothing() -> None:
    ours = {"deserved": quota(2), "fair": (0.0, -1.0, 2.0)}
    theirs = {"deserved": gpus(0), "fair": (100.0, 0.0, 1.0), "allocated": (200.0, 0.0, 9.0)}
    assert reclaimable(book(ours, theirs), Claim(0, gpus(1)), {1: [(100.0, 0.0, 1.0)]})


def test_a_loser_whose_share_is_nothing_is_not_compared() -> None:
    ours = {"deserved": gpus(1), "fair": gpus(1), "allocated": gpus(1)}
    theirs = {"deserved": gpus(0), "fair": gpus(0), "allocated": gpus(1)}
    assert reclaimable(book(ours, theirs), Claim(0, gpus(1)), {1: [gpus(1)]})
