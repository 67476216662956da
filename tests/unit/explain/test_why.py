"""Explanations of small clusters: state, position, what each action found, and the dominant reason."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.cache.cluster import ClusterCache
from pykai.explain.source import Decided, TargetError, decided, gangs_of
from pykai.explain.why import Explanation, explain
from pykai.model.params import SchedulerParams
from pykai.scheduler.plan_conditions import conditions
from tests import builders
from tests.builders import NOW, decoded
from tests.properties.small_world import PACKING
from tests.unit.engine.clusters import PRIORITIES, gang, node, pod


def state(*objects: Any, params: SchedulerParams | None = None) -> Decided:
    cache = ClusterCache(params or SchedulerParams())
    cache.load([decoded(each) if isinstance(each, dict) else each for each in _sorted([*PRIORITIES, *objects])])
    return decided(cache, PACKING, NOW)


def _sorted(objects: list[Any]) -> list[Any]:
    return sorted(objects, key=lambda each: each["kind"] if isinstance(each, dict) else type(each).__name__)


def why(found: Decided, name: str = "g") -> Explanation:
    return explain(found, (builders.pod("any")["metadata"]["namespace"], name))


QUEUE = builders.queue()


def test_a_running_workload_waits_for_nothing() -> None:
    found = why(state(QUEUE, node("a", 2), gang("g"), pod("g-0", on="a", gpus=1)))
    assert (found.state, found.reason, found.position, found.pods) == ("Running", None, None, {"running": 1})


def test_a_workload_that_fits_starts() -> None:
    found = why(state(QUEUE, node("a", 2), gang("g"), pod("g-0", gpus=1)))
    assert (found.state, found.reason, found.pods) == ("Starts", None, {"starting": 1})


def test_a_promised_place_waits_for_those_who_leave() -> None:
    found = why(state(QUEUE, node("a", 1), gang("old"), gang("g"), pod("old-0", on="a!", gpus=1), pod("g-0", gpus=1)))
    assert found.state == "WaitsForVictims"
    assert found.reason is not None
    assert found.reason.category == "waiting for victims"
    assert [each.rpartition("/")[2] for each in found.waits_for] == ["old-0"]


def test_position_counts_from_one_in_the_queue_and_overall() -> None:
    full = [gang("run"), pod("run-0", on="a", gpus=1), node("a", 1), QUEUE]
    waiting = [
        each for n, age in (("x", 30), ("y", 20), ("z", 10)) for each in (gang(n, age=age), pod(f"{n}-0", gpus=1))
    ]
    found = state(*full, *waiting)
    places = {name: why(found, name).position for name in "xyz"}
    assert [(p.in_queue, p.of_queue, p.overall) for p in places.values() if p] == [(1, 3, 1), (2, 3, 2), (3, 3, 3)]
    last = places["z"]
    assert last is not None
    assert [(each.name, each.gpus) for each in last.ahead] == [("x", 1), ("y", 1)]


def test_every_action_leaves_a_verdict() -> None:
    found = why(state(QUEUE, node("a", 1), gang("run"), pod("run-0", on="a", gpus=1), gang("g"), pod("g-0", gpus=1)))
    assert {each.action: each.code for each in found.verdicts} == {
        "allocate": "InsufficientResources",
        "consolidation": "ConsolidationInsufficientGPUs",
        "reclaim": "ReclaimQueueAtFairShare",
        "preempt": "PreemptNoEligibleVictims",
    }


def test_the_best_partial_fit_of_a_gang_is_told() -> None:
    pods = [pod(f"g-{n}", gpus=1) for n in range(4)]
    found = why(state(QUEUE, node("a", 3), gang("g", minMember=4), *pods))
    allocate = found.verdicts[0]
    assert (allocate.code, allocate.found, allocate.needed) == ("GangDoesNotFit", 3, 4)


def test_a_pod_leads_to_its_gang() -> None:
    found = state(QUEUE, node("a", 1), gang("g"), pod("g-0", gpus=1))
    namespace = builders.pod("any")["metadata"]["namespace"]
    assert gangs_of(found, "pod/g-0", namespace) == [(namespace, "g")]
    with pytest.raises(TargetError, match="nothing named 'pod/other'"):
        gangs_of(found, "pod/other", namespace)


def test_an_unknown_workload_is_an_error() -> None:
    with pytest.raises(KeyError):
        why(state(QUEUE, node("a", 1)), "nobody")


def test_fairness_is_a_reason() -> None:
    """Two queues share 4 GPUs; the one that has its half is told so, and not that nodes are full."""
    queues = [builders.queue(name, gpu={"quota": 0}) for name in ("a", "b")]
    running = [gang(f"{q}{n}", queue=q) for q in "ab" for n in range(2)]
    pods = [pod(f"{q}{n}-0", on="x", gpus=1) for q in "ab" for n in range(2)]
    full = state(*queues, node("x", 4), *running, *pods, gang("g", queue="b"), pod("g-0", gpus=1))
    found = why(full)
    assert found.reason is not None
    assert (found.reason.token, found.reason.category) == ("ReclaimQueueAtFairShare", "queue policy")
    assert "queue b uses 2 of its fair share of 2 GPUs and the workload requests 1" in found.reason.message
    told = conditions(full.snapshot, full.plan)
    sentence = "Queue b is at its fair share and may not reclaim from other queues."
    (of_pod,), (of_gang,) = told.pods.values(), told.gangs.values()
    assert of_pod.message.startswith(
        "no nodes with enough resources were found: 1 node(s) didn't have enough resources"
    )
    assert of_pod.message.endswith(sentence)
    assert of_gang.scheduling is not None
    assert of_gang.scheduling["message"].endswith(sentence)
    assert "ReclaimQueueAtFairShare" in [each["reason"] for each in of_gang.scheduling["reasons"]]


def test_the_only_turn_goes_to_one_workload_and_what_others_request_still_counts() -> None:
    waiting = [gang("f", age=20), pod("f-0", gpus=2), gang("g", age=10), pod("g-0", gpus=2)]
    found = state(QUEUE, node("a", 2), *waiting)
    namespace = builders.pod("any")["metadata"]["namespace"]
    assert (why(found, "f").state, why(found, "g").state) == ("Starts", "Waits")
    alone = found.again([], (namespace, "g"))
    assert [each.pod[1] for each in alone.plan.binds] == ["g-0"]
    assert alone.plan.verdicts == ()
    assert alone.plan.queues[0].fair_share == found.plan.queues[0].fair_share
    assert alone.plan.queues[0].requested == found.plan.queues[0].requested
    assert why(alone.for_all(), "g").state == "Waits"


def test_an_action_that_served_a_gang_says_nothing_about_its_other_pods() -> None:
    """Reclaim finds a place for the first pod; that it gave the gang no turn would be wrong."""
    queues = [builders.queue(name, gpu={"quota": quota}) for name, quota in (("q", 2), ("other", 0))]
    held = [each for n in "ab" for each in (node(n, 1), gang(f"run{n}", queue="other"), pod(f"run{n}-0", on=n, gpus=1))]
    found = why(state(*queues, *held, gang("g"), *(pod(f"g-{n}", gpus=1) for n in range(3))))
    assert found.state == "WaitsForVictims"
    assert {each.action: each.code for each in found.verdicts} == {
        "allocate": "RestTriedNextCycle",
        "consolidation": "ConsolidationInsufficientGPUs",
        "preempt": "PreemptNoEligibleVictims",
    }
