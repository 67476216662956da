"""What the end-to-end benchmark makes of its readings."""

from __future__ import annotations

from collections import Counter

import pytest
from bench.e2e import ALONE, GANG, OURS, SINGLES, YARDSTICK, Order, Outcome, Report, loads, middle
from bench.live_load import Cost, Lives, Meter, count_writes
from bench.machine import now

METRICS = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",resource="pods",subresource="",verb="POST",version="v1"} 7
apiserver_request_total{code="409",component="apiserver",resource="pods",subresource="",verb="POST",version="v1"} 1
apiserver_request_total{code="200",component="apiserver",resource="pods",subresource="status",verb="PATCH"} 5e+00
apiserver_request_total{code="200",component="apiserver",resource="pods",subresource="",verb="WATCH"} 9
apiserver_request_total{code="200",component="apiserver",resource="leases",subresource="",verb="PUT"} 99
"""


def outcome(seconds: float, scheduler: str = OURS, load: str = SINGLES) -> Outcome:
    cost = Cost(Counter({("POST", "pods/binding"): 10, ("PATCH", "pods/status"): 10}), {"etcd": 0.5})
    return Outcome(scheduler, load, 10, seconds, 0.1, cost)


def test_writes_are_counted_by_verb_and_place() -> None:
    assert count_writes(METRICS) == {("POST", "pods"): 8, ("PATCH", "pods/status"): 5}


def test_cost_is_what_happened_between_two_readings_without_our_own_writes() -> None:
    before = Meter(Counter({("POST", "pods"): 3}), {"etcd": 1.0})
    after = Meter(Counter({("POST", "pods"): 9, ("PATCH", "queues/status"): 2}), {"etcd": 1.5, "kai": 2.0})
    cost = Cost.between(before, after, Counter({("POST", "pods"): 4}))
    assert cost.writes == {("POST", "pods"): 2, ("PATCH", "queues/status"): 2}
    assert (cost.total_writes, cost.total_cpu) == (4, 2.5)


def test_the_round_in_the_middle_is_shown() -> None:
    found = [outcome(3.0), outcome(1.0), outcome(2.0), outcome(9.0, YARDSTICK)]
    kept = middle(found)
    assert (kept[SINGLES, OURS].seconds, kept[SINGLES, YARDSTICK].seconds) == (2.0, 9.0)
    assert kept[SINGLES, OURS].rate == 5.0


def test_a_load_of_nothing_is_left_out() -> None:
    order = Order(nodes=1, gpus=1, pods=0, gang=4, alone=0, rounds=1)
    assert [(load.name, load.pods) for load in loads(order)] == [(GANG, 4)]


def test_times_are_from_birth_to_binding() -> None:
    lives = Lives(born={"a": 1.0, "b": 2.0, "c": 2.0}, bound={"a": 4.0, "b": 3.0, "c": 10.0})
    assert (lives.seconds(), lives.latency()) == (9.0, 3.0)


@pytest.mark.parametrize(("ours", "verdicts"), [(1.0, ["yes"] * 6), (9.0, ["no", "yes", "no", "yes", "yes", "yes"])])
def test_the_page_says_what_was_asked_for_and_whether_it_was_reached(ours: float, verdicts: list[str]) -> None:
    found = [outcome(s, who, load) for load in (SINGLES, GANG, ALONE) for who, s in ((OURS, ours), (YARDSTICK, 1.0))]
    page = Report(middle(found), now(), now()).page(nodes=500, rounds=1)
    asked = [line.split(" | ") for line in page.splitlines() if " | ≤ " in line or " | ≥ " in line]
    assert [cells[-1].removesuffix(" |") for cells in asked] == verdicts
    assert "| PATCH pods/status | 1.00 |" in page
