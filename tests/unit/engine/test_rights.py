"""Who may take from whom: rights to reclaim and to preempt, what protects, and who speaks for whom."""

from __future__ import annotations

from dataclasses import replace as replace_in
from typing import Any

import pytest
from msgspec.structs import replace

from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.model.plan import Plan
from pykai.objects import names
from pykai.objects.units import rfc3339
from pykai.plugins.registry import BUILT_IN, make_all
from pykai.verify.judge import verify
from tests import builders
from tests.builders import decoded
from tests.properties.small_world import NOW, PACKING, snapshot_of

from .clusters import PRIORITIES, evicted, gang, node, pod, promised, reservation

PROTECTING = Policy(
    make_all([(name, {"defaultReclaimMinRuntime": "5m"} if name == "minruntime" else {}) for name in BUILT_IN])
)


def queue(name: str, parent: str = "", weight: float = 1, **quotas: float) -> Any:
    """A queue with quotas of GPUs and cores, none by default."""
    shares = {resource: {"quota": quotas.get(resource, 0), "overQuotaWeight": weight} for resource in ("gpu", "cpu")}
    return decoded(builders.queue(name, parent, **shares))


def plan(*objects: Any, policy: Policy = PACKING) -> Plan:
    return decide(builders.snapshot([*PRIORITIES, *objects]), policy, NOW)


@pytest.mark.parametrize("minimum", [1, 2, 3])
def test_a_queue_gets_its_quota_back_from_a_gang_of_any_minimum(minimum: int) -> None:
    """The pods to spare go first, then the rest as one: the owner of the gang stays at its quota as long as it can."""
    holds = [gang("old", queue="over", minMember=minimum), *(pod(f"old-{n}", "n", gpus=1) for n in range(3))]
    asks = [gang("new", queue="under"), pod("new-0", gpus=2)]
    found = plan(node("n", gpus=3), queue("under", gpu=2), queue("over", gpu=1), *holds, *asks)
    assert promised(found)["new-0"] == "n"


def test_who_may_not_reclaim_does_not_speak_for_others() -> None:
    """GPUs beyond the quota are not for a gang that cannot be evicted again; cores within it are for another one."""
    holds = [item for n in range(8) for item in (gang(f"old{n}", queue="over"), pod(f"old{n}-0", "n", cpu="1"))]
    asks = [
        gang("fixed", queue="under", age=9, preemptibility="non-preemptible"),
        pod("fixed-0", gpus=1),
        gang("new", queue="under"),
        pod("new-0", cpu="2"),
    ]
    found = plan(node("n", gpus=4), queue("under", cpu=4000), queue("over", gpu=1, cpu=4000), *holds, *asks)
    assert promised(found) == {"new-0": "n"}
    assert len(evicted(found)) == 2


def test_who_may_not_preempt_does_not_speak_for_others() -> None:
    holds = [
        gang("held", queue="q", preemptibility="non-preemptible"),
        pod("held-0", "n", gpus=1),
        gang("low", "low", queue="q"),
        pod("low-0", "n", gpus=1),
    ]
    asks = [
        gang("fixed", queue="q", age=9, preemptibility="non-preemptible"),
        pod("fixed-0", gpus=1),
        gang("new", queue="q"),
        pod("new-0", gpus=1),
    ]
    found = plan(node("n", gpus=2), queue("q", gpu=1), *holds, *asks)
    assert (promised(found), evicted(found)) == ({"new-0": "n"}, {"low-0"})


def test_a_queue_at_its_fair_share_loses_nothing() -> None:
    """Three times 0.6 is 1.8, and so is the share, whatever floating point makes of it."""
    holds = [
        item
        for n in range(3)
        for item in (
            gang(f"old{n}", queue="a"),
            pod(f"old{n}-0", "n", share="0.6", device=f"d{n}"),
            reservation("n", f"d{n}"),
        )
    ]
    asks = [item for n in range(2) for item in (gang(f"new{n}", queue="b"), pod(f"new{n}-0", share="0.6"))]
    assert evicted(plan(node("n", gpus=3), queue("a"), queue("b"), *holds, *asks)) == set()


def test_room_on_every_shared_device_counts_before_a_search() -> None:
    own = [gang("own", queue="under", minMember=4)]
    own += [pod(f"own-{n}", "n", share="0.1", device=f"d{n}") for n in range(4)]
    own += [reservation("n", f"d{n}") for n in range(4)]
    old = [gang("old", "low", queue="over"), pod("old-0", "n", share="0.5", device="d3")]
    new = [gang("new", queue="under", minMember=4), *(pod(f"new-{n}", share="0.9") for n in range(4))]
    found = plan(node("n", gpus=4, pods=20), queue("under", gpu=4), queue("over"), *own, *old, *new)
    assert (evicted(found), len(promised(found))) == ({"old-0"}, 4)


def test_after_an_eviction_queues_are_compared_by_what_they_use_then() -> None:
    """The first newcomer takes all that the one department holds: its other queue is next for the last slot."""
    queues = [queue("one", cpu=-1), queue("one-a", "one", cpu=-1, gpu=2), queue("one-b", "one", cpu=-1)]
    queues += [queue("two", cpu=-1, gpu=1), queue("two-a", "two", cpu=-1, gpu=1)]
    old = [gang("old", queue="one-b", minMember=2), *(pod(f"old-{n}", "n", gpus=2, cpu="1") for n in range(2))]
    asks = [
        gang("first", queue="two-a"),
        pod("first-0", gpus=1, cpu="1"),
        gang("second", "low", queue="two-a"),
        pod("second-0", cpu="1"),
        gang("other", queue="one-a"),
        pod("other-0", cpu="3"),
    ]
    only = replace_in(PACKING, actions=("reclaim",))
    found = plan(node("n", gpus=4, pods=2, cpu="4"), *queues, *old, *asks, policy=only)
    assert set(promised(found)) == {"first-0", "other-0"}


@pytest.mark.parametrize(("policy", "moved"), [(PROTECTING, False), (PACKING, True)])
def test_the_minimum_of_a_protected_gang_is_not_moved_either(policy: Policy, moved: bool) -> None:
    """A move is a restart. The gang has one pod to spare, the newcomer needs all of its node."""
    old, started = gang("old", queue="over", minMember=2), {names.LAST_START_TIMESTAMP: rfc3339(NOW - 60)}
    old = replace(old, metadata=replace(old.metadata, annotations=started))
    holds = [old, *(pod(f"old-{n}", "a", gpus=1) for n in range(3))]
    asks = [gang("new", queue="under"), pod("new-0", spec={"nodeSelector": {"name": "a"}}, gpus=3)]
    room = [node("a", gpus=3), node("b", gpus=2)]
    found = plan(*room, queue("under", gpu=4), queue("over"), *holds, *asks, policy=policy)
    assert bool(evicted(found)) is moved


def test_what_is_left_of_an_evicted_gang_gets_nothing_below_its_minimum() -> None:
    queues = [queue("top", gpu=-1, cpu=-1), queue("one", "top", 0, gpu=1, cpu=-1), queue("two", "top", gpu=1, cpu=-1)]
    holds = [gang("d", "low", 8, queue="one", minMember=2), pod("d-0", "n1", gpus=1), pod("d-1", "n0", gpus=1)]
    holds += [gang("e", "low", 7, queue="two"), pod("e-0", "n0", gpus=1)]
    asks = [pod("d-2", gpus=1), gang("a", age=9, queue="two", preemptibility="non-preemptible"), pod("a-0", gpus=1)]
    nodes = [node("n0", gpus=2), node("n1", gpus=1)]
    snapshot = snapshot_of([*PRIORITIES, *nodes, *queues, *holds, *asks])
    assert [str(violation) for violation in verify(snapshot, decide(snapshot, PACKING, NOW))] == []


BY_PRIORITY = Policy(
    make_all([(name, {"queuePriorityInQuotaReclaim": "true"} if name == "proportion" else {}) for name in BUILT_IN])
)


@pytest.mark.parametrize(
    ("policy", "priority", "asked", "gone"),
    [
        (BY_PRIORITY, 200, 2, {"old0-0", "old1-0"}),
        (BY_PRIORITY, 100, 2, set()),
        (BY_PRIORITY, 50, 2, set()),
        (BY_PRIORITY, 200, 3, set()),
        (PACKING, 200, 2, set()),
    ],
)
def test_a_queue_within_its_quota_takes_from_one_of_lower_priority(
    policy: Policy, priority: int, asked: int, gone: set[str]
) -> None:
    """Both quotas are 2 and only 2 GPUs exist: whose work runs is a matter of priority, if the policy says so."""
    above = decoded(builders.queue("above", gpu={"quota": 2, "overQuotaWeight": 1}, priority=priority))
    below = decoded(builders.queue("below", gpu={"quota": 2, "overQuotaWeight": 1}, priority=100))
    holds = [item for n in range(2) for item in (gang(f"old{n}", queue="below"), pod(f"old{n}-0", "n", gpus=1))]
    asks = [gang("new", queue="above"), pod("new-0", gpus=asked)]
    snapshot = builders.snapshot([*PRIORITIES, above, below, node("n", gpus=2), *holds, *asks])
    found = decide(snapshot, policy, NOW)
    assert evicted(found) == gone
    assert [str(violation) for violation in verify(snapshot, found)] == []
