"""Assumptions count until the watch shows them, and end in no other way than they should."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from pykai.cache.assumed import Assumptions
from pykai.cache.cluster import Change, ClusterCache
from pykai.model.params import SchedulerParams
from pykai.objects import kinds

KEY = ("team", "a")


def pod(uid: str = "1", **more: Any) -> kinds.Pod:
    node, deleted = more.get("node", ""), more.get("deleted")
    meta = kinds.ObjectMeta(
        name="a", namespace="team", uid=uid, annotations={"pod-group-name": "gang"}, deletion_timestamp=deleted
    )
    return kinds.Pod(metadata=meta, spec=kinds.PodSpec(node_name=node, scheduler_name="kai-scheduler"))


def request(owner: str = "1", uid: str = "", phase: str = "", node: str = "n") -> kinds.BindRequest:
    owners = [kinds.OwnerReference(kind="Pod", name="a", uid=owner)]
    return kinds.BindRequest(
        metadata=kinds.ObjectMeta(name="a", namespace="team", uid=uid, owner_references=owners),
        spec=kinds.BindRequestSpec(pod_name="a", selected_node=node),
        status=kinds.BindRequestStatus(phase=phase),
    )


def group(**annotations: str) -> kinds.PodGroup:
    return kinds.PodGroup(metadata=kinds.ObjectMeta(name="gang", namespace="team", annotations=annotations))


def view(assumptions: Assumptions, *objects: Any) -> ClusterCache:
    """What a cycle sees if these objects were watched."""
    cache = ClusterCache(SchedulerParams())
    cache.load(objects)
    copied = cache.copy()
    assumptions.lay_over(copied)
    return copied


@pytest.fixture
def assumptions() -> Assumptions:
    return Assumptions()


LEAVING = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (Change(request(uid="b")), False),
        (Change(request(owner="0", uid="x")), True),
        (Change(request(owner="0", uid="x"), gone=True), True),
        (Change(request(uid="other"), gone=True), True),
        (Change(request(uid="b"), gone=True), False),
        (Change(pod()), True),
        (Change(pod(node="n")), False),
        (Change(pod(), gone=True), False),
        (Change(pod("0"), gone=True), True),
        (Change(pod("2")), False),
    ],
)
def test_a_bind_counts_until_its_effect_shows(assumptions: Assumptions, change: Change, counts: bool) -> None:
    order = request()
    assumptions.bind(order, "1")
    assumptions.created(order, request(uid="b"), until=10)
    assumptions.seen(change)
    assert assumptions.assumes_bind(KEY) is counts
    assert assumptions.wants(order) is counts


@pytest.mark.parametrize(
    "told",
    [
        {"resource_claim_allocations": [kinds.ClaimAllocation(name="nic", allocation={"devices": {}})]},
        {"extended_resource_claim_allocation": {"allocation": {}}},
        {"predicted_numa_zones": [kinds.NumaZone(zone="node-0")]},
    ],
)
def test_what_a_bound_pod_does_not_say_counts_until_the_request_is_seen(
    assumptions: Assumptions, told: dict[str, Any]
) -> None:
    order = request()
    order = structs.replace(order, spec=structs.replace(order.spec, **told))
    assumptions.bind(order, "1")
    assumptions.seen(Change(pod(node="n")))
    assert view(assumptions, pod(node="n")).of(kinds.BindRequest)[KEY] is order
    assumptions.seen(Change(request(uid="b")))
    assert KEY not in view(assumptions, pod(node="n")).of(kinds.BindRequest)


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (Change(request(uid="b")), False),
        (Change(request(uid="old", phase="Failed")), True),
        (Change(request(uid="old", node="gone")), True),
        (Change(request(uid="old"), gone=True), True),
    ],
)
def test_an_earlier_request_for_the_same_pod_says_nothing_about_the_one_under_way(
    assumptions: Assumptions, change: Change, counts: bool
) -> None:
    assumptions.bind(request(), "1")
    assumptions.seen(change)
    assert assumptions.assumes_bind(KEY) is counts


@pytest.mark.parametrize(
    ("end", "counts"),
    [
        (lambda it: None, True),
        (lambda it: it.pods_seen(6), True),
        (lambda it: it.pods_seen(7), False),
        (lambda it: it.expire(9.0), True),
        (lambda it: it.expire(10.0), False),
        (lambda it: it.seen(Change(request(uid="b", phase="Failed"))), True),
        (lambda it: it.seen(Change(request(uid="c", node="other"))), False),
    ],
)
def test_a_request_that_ended_keeps_its_place_until_pods_are_seen(
    assumptions: Assumptions, end: Callable[[Assumptions], object], counts: bool
) -> None:
    assumptions.request_ended(request(uid="b"), pod(), version=7, until=10.0)
    assert assumptions.next_end() == 10.0
    end(assumptions)
    seen = view(assumptions, pod(), request(uid="b", phase="Failed"))
    assert (seen.of(kinds.BindRequest)[KEY].status.phase != "Failed") is counts
    assert assumptions.next_end() == (10.0 if counts else None)


def test_a_request_that_ended_keeps_no_place_of_another_pod(assumptions: Assumptions) -> None:
    assumptions.request_ended(request(uid="b"), pod(), version=7, until=10.0)
    assert KEY not in view(assumptions, pod("2")).of(kinds.BindRequest)
    assert KEY not in view(assumptions, pod(node="n")).of(kinds.BindRequest)


def test_the_watch_may_be_faster_than_the_answer(assumptions: Assumptions) -> None:
    order = request()
    assumptions.bind(order, "1")
    assumptions.seen(Change(request(uid="b", phase="Succeeded")))
    assumptions.created(order, request(uid="b"), until=10)
    seen = view(assumptions, pod(), request(uid="b", phase="Succeeded"))
    assert seen.of(kinds.BindRequest)[KEY].status.phase == "Succeeded"


def test_a_late_answer_about_an_earlier_pod_changes_nothing(assumptions: Assumptions) -> None:
    first, second = request(), request(owner="2")
    assumptions.bind(first, "1")
    assumptions.evict(pod(), now=5.0)
    assumptions.seen(Change(pod("2")))
    assumptions.bind(second, "2")
    assumptions.evict(pod("2"), now=6.0)
    assumptions.created(first, request(uid="b", node="elsewhere"), until=10)
    assumptions.trust_bind(first, until=10)
    assumptions.bind_failed(first)
    assumptions.trust_eviction(pod(), until=10)
    assumptions.eviction_failed(pod())
    assert assumptions.next_end() is None
    seen = view(assumptions, pod("2"))
    assert seen.of(kinds.BindRequest)[KEY] is second
    assert seen.of(kinds.Pod)[KEY].metadata.deletion_timestamp == datetime.fromtimestamp(6, UTC)


@pytest.mark.parametrize(("watched", "counts"), [(pod(), True), (pod("2"), False), (pod(node="n"), False)])
def test_a_bind_is_laid_over_its_own_pod_only(assumptions: Assumptions, watched: kinds.Pod, counts: bool) -> None:
    assumptions.bind(request(), "1")
    assert (KEY in view(assumptions, watched).of(kinds.BindRequest)) is counts


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (Change(pod(deleted=LEAVING)), False),
        (Change(pod(), gone=True), False),
        (Change(pod("0"), gone=True), True),
        (Change(pod("2")), False),
        (Change(pod()), True),
    ],
)
def test_an_eviction_counts_until_it_shows(assumptions: Assumptions, change: Change, counts: bool) -> None:
    assumptions.evict(pod(), now=5.0)
    assumptions.seen(change)
    shown = view(assumptions, pod()).of(kinds.Pod)[KEY].metadata.deletion_timestamp
    assert (shown == datetime.fromtimestamp(5, UTC)) is counts


@pytest.mark.parametrize(
    ("others", "where"),
    [([], ""), ([request(uid="b")], "n"), ([request(uid="b", phase="Failed")], ""), ([request(owner="0")], "")],
)
def test_who_is_evicted_while_being_bound_keeps_the_place_until_it_is_gone(
    assumptions: Assumptions, others: list[Any], where: str
) -> None:
    assumptions.evict(pod(), now=5.0)
    assert view(assumptions, pod(), *others).of(kinds.Pod)[KEY].spec.node_name == where
    bound = view(assumptions, pod(node="elsewhere"), *others).of(kinds.Pod)[KEY]
    assert bound.spec.node_name == "elsewhere", "a bound pod is where it is"


@pytest.mark.parametrize(("uid", "evicted"), [("1", True), ("2", False)])
def test_an_eviction_is_laid_over_its_own_pod_only(assumptions: Assumptions, uid: str, evicted: bool) -> None:
    assumptions.evict(pod(), now=5.0)
    assert (view(assumptions, pod(uid)).of(kinds.Pod)[KEY].metadata.deletion_timestamp is not None) is evicted


def test_annotations_count_until_all_of_them_show(assumptions: Assumptions) -> None:
    assumptions.note(("team", "gang"), {"a": "1", "b": None})
    assumptions.note(("team", "gang"), {"c": "3"})
    assumptions.trust_notes(("team", "gang"), until=10)
    seen = view(assumptions, group(b="2", d="4")).of(kinds.PodGroup)["team", "gang"]
    assert seen.metadata.annotations == {"a": "1", "c": "3", "d": "4"}
    assumptions.seen(Change(group(a="1", b="2")))
    assert assumptions.next_end() == 10
    assumptions.seen(Change(group(a="1", c="3")))
    assert assumptions.next_end() is None


@pytest.mark.parametrize(
    ("others", "in_sight"),
    [
        ([], False),
        ([request(uid="b")], True),
        ([request(uid="b", phase="Failed")], False),
        ([request(owner="0", uid="b")], False),
    ],
)
def test_a_held_gang_is_out_of_sight_unless_it_has_a_place(
    assumptions: Assumptions, others: list[Any], in_sight: bool
) -> None:
    assumptions.hold(("team", "gang"), until=10)
    assert (KEY in view(assumptions, pod(), *others).of(kinds.Pod)) is in_sight
    assert KEY in view(assumptions, pod(node="n"), *others).of(kinds.Pod)
    assumptions.expire(10)
    assert KEY in view(assumptions, pod(), *others).of(kinds.Pod)


def test_what_was_written_and_is_never_seen_ends(assumptions: Assumptions) -> None:
    order = request()
    assumptions.bind(order, "1")
    assumptions.evict(pod(), now=0)
    assumptions.note(("team", "gang"), {"a": "1"})
    assert (assumptions.expire(1e12), assumptions.next_end()) == ([], None), "writes are under way"
    assumptions.trust_bind(order, until=10)
    assumptions.trust_eviction(pod(), until=11)
    assumptions.trust_notes(("team", "gang"), until=12)
    assert assumptions.expire(9.9) == []
    assert assumptions.next_end() == 10
    assert assumptions.expire(11) == ["bind of team/a", "eviction of team/a"]
    assert assumptions.expire(12) == ["annotations of team/gang"]
    assert assumptions.next_end() is None


def test_what_the_server_has_confirmed_is_asked_about_before_it_ends(assumptions: Assumptions) -> None:
    order = request()
    assumptions.bind(order, "1")
    assumptions.created(order, request(uid="b"), until=10)
    assert assumptions.overdue(9.9) == []
    (late,) = assumptions.overdue(10)
    assert late is order
    assert (assumptions.overdue(1e12), assumptions.expire(1e12)) == ([], []), "somebody asks"
    assert assumptions.wants(order)
    assumptions.bind_failed(order)
    assert not assumptions.wants(order)


@pytest.mark.parametrize(
    ("end", "counts"),
    [
        (lambda it: it.expire(9.9), True),
        (lambda it: it.expire(10), False),
        (lambda it: it.reservation_seen(("n", "other")), True),
        (lambda it: it.reservation_seen(("n", "device")), False),
    ],
)
def test_a_reservation_that_may_be_on_its_way_counts_until_it_shows(
    assumptions: Assumptions, end: Callable[[Assumptions], Any], counts: bool
) -> None:
    assumptions.reservation_coming(("n", "device"), until=10)
    assert assumptions.next_end() == 10
    end(assumptions)
    found = [each.metadata.labels for each in view(assumptions).of(kinds.Pod).values()]
    assert found == [{"app": "kai-resource-reservation", "runai-gpu-group": "device"}] * counts


def test_a_copy_is_not_changed_by_what_comes_later() -> None:
    cache = ClusterCache(SchedulerParams())
    cache.load([pod()])
    copied = cache.copy()
    cache.apply(Change(pod(), gone=True))
    assert KEY in copied.of(kinds.Pod)
    assert KEY not in cache.of(kinds.Pod)
