"""Small clusters and the plans for them: promised places, devices and pod slots, gangs that stay whole, circles."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pykai.engine.decide import decide
from pykai.engine.trial import Trial
from pykai.model.resources import GPU
from pykai.objects import names
from tests import builders
from tests.properties.small_world import PACKING

from .clusters import bound, evicted, gang, node, plan, pod, promised, reservation, seen


# ------------------------------------------------------------------------------------------------------ nodes that went
def test_who_runs_on_a_node_that_is_gone_frees_nothing() -> None:
    running = [gang("ghost", "low"), pod("ghost-0", "gone", gpus=1), gang("low", "low"), pod("low-0", "n", gpus=1)]
    wish = [gang("new", minMember=3), *(pod(f"new-{number}", gpus=1) for number in range(3))]
    found = plan(node("n", gpus=2), *running, *wish)
    assert (bound(found), promised(found), evicted(found)) == ({}, {}, set())


# ---------------------------------------------------------------------------------------------------- slots and devices
def test_a_pod_that_asks_for_nothing_waits_for_a_slot() -> None:
    found = plan(node("n", pods=1), gang("old"), pod("old-0", "n!"), gang("new"), pod("new-0"))
    assert (bound(found), promised(found)) == ({}, {"new-0": "n"})


def test_each_new_shared_device_needs_a_slot() -> None:
    wish = [gang("two"), pod("two-0", share="0.5", devices=2)]
    assert bound(plan(node("n", gpus=2, pods=2), *wish)) == {}
    assert bound(plan(node("n", gpus=2, pods=3), *wish)) == {"two-0": "n"}


def test_slots_of_reservations_are_taken() -> None:
    shares = [item for name in "abc" for item in (gang(name), pod(f"{name}-0", share="0.9"))]
    assert len(bound(plan(node("n", gpus=4, pods=5), *shares))) == 2


def test_a_reservation_leaves_its_slot_with_the_last_sharer() -> None:
    """Two slots: the one who shares the device and its reservation. The newcomer needs as many."""
    running = [gang("low", "low"), pod("low-0", "n", share="0.5", device="d"), reservation("n", "d")]
    found = plan(node("n", gpus=1, pods=2), *running, gang("new"), pod("new-0", share="0.9"))
    assert (evicted(found), promised(found)) == ({"low-0"}, {"new-0": "n"})


def test_broken_devices_in_a_label_are_not_given_out() -> None:
    shares = [item for name in "abc" for item in (gang(name), pod(f"{name}-0", share="0.9"))]
    found = plan(node("n", gpus=2, labels={names.GPU_COUNT_LABEL: "8"}), *shares)
    assert len(bound(found)) == 2


def test_a_device_that_is_only_promised_is_waited_for() -> None:
    leaving = [gang("old"), pod("old-0", "n!", gpus=1)]
    found = plan(node("n", gpus=1), *leaving, gang("a"), pod("a-0", share="0.3"), gang("b"), pod("b-0", share="0.3"))
    assert (bound(found), promised(found)) == ({}, {"a-0": "n", "b-0": "n"})


def test_who_starts_on_a_promised_device_takes_it_at_once() -> None:
    """Also where somebody else goes on waiting for the same device; and the other way round."""
    sharers = [item for name in "ab" for item in (gang(name), pod(f"{name}-0", share="0.3"))]
    snapshot = seen(node("n", gpus=2), *sharers)
    trial = Trial(snapshot)
    a, b = (snapshot.pods.names.index(f"{name}-0") for name in "ab")
    for sharer in (a, b):
        trial.place(sharer, 0, ("new-1",), wait=True)
    assert (trial.idle[GPU, 0], trial.releasing[GPU, 0]) == (2, -1)
    trial.start_instead([a])
    assert (trial.idle[GPU, 0], trial.releasing[GPU, 0]) == (1, 0)
    trial.wait_instead(a)
    assert (trial.idle[GPU, 0], trial.releasing[GPU, 0]) == (2, -1)


def test_who_has_a_device_to_itself_can_keep_it() -> None:
    """The younger gang is first in line to go, but its share is not what is needed."""
    small = [gang("small", "low"), pod("small-0", "n", share="0.5", device="d")]
    large = [gang("large", "low", age=100), pod("large-0", "n", cpu="6")]
    found = plan(node("n", gpus=2), *small, *large, gang("new"), pod("new-0", cpu="6"))
    assert (evicted(found), promised(found)) == ({"large-0"}, {"new-0": "n"})


# -------------------------------------------------------------------------------------------------------------- gangs
PARTS = [{"name": "left", "minMember": 2}, {"name": "right", "minMember": 1}]


def test_a_sub_group_that_cannot_be_completed_is_left_alone() -> None:
    group = gang("g", subGroups=PARTS, minSubGroup=1)
    found = plan(node("n"), group, pod("g-0", part="left"), pod("g-1", part="right"))
    assert bound(found) == {"g-1": "n"}


def test_nobody_is_evicted_for_a_part_of_a_gang() -> None:
    group = gang("g", subGroups=PARTS, minSubGroup=2)
    running = [gang("low", "low"), pod("low-0", "n", cpu="8")]
    found = plan(node("n"), *running, group, pod("g-0", part="left", cpu="1"), pod("g-1", part="right", cpu="1"))
    assert (evicted(found), promised(found)) == (set(), {})


def test_a_gang_is_not_torn_apart() -> None:
    """Its spare pod is elsewhere; without the two on the node it would not be a gang any more."""
    victim = [
        gang("v", "low", minMember=2),
        pod("v-0", "n", cpu="4"),
        pod("v-1", "n", cpu="4"),
        pod("v-2", "m", cpu="8"),
    ]
    here = {"nodeSelector": {"name": "n"}}
    found = plan(node("n"), node("m"), *victim, gang("new"), pod("new-0", cpu="8", spec=here))
    assert evicted(found) == {"v-0", "v-1", "v-2"}


# ------------------------------------------------------------------------------------------------------------- promises
def test_promises_that_make_room_for_each_other_start_at_once() -> None:
    """The first pod is given the first node; the last one needs all of it, and the first has not started yet."""
    there = {"nodeSelector": {"name": "n2"}}
    first = [gang("a", age=300), pod("a-0", gpus=1), gang("b", age=200), pod("b-0", gpus=1, spec=there)]
    found = plan(node("n1", gpus=2), node("n2", gpus=2), *first, gang("c", age=100), pod("c-0", gpus=2))
    assert bound(found) == {"a-0": "n2", "b-0": "n2", "c-0": "n1"}
    assert (evicted(found), promised(found)) == (set(), {})


@pytest.mark.parametrize(("came", "moved"), [(50, 1), (300, 0)])
def test_nobody_is_moved_in_circles(came: int, moved: int) -> None:
    """Who was evicted since the gang came has made room for it once already: it stays."""
    halves = [
        item
        for name, on in (("a", "n1"), ("b", "n2"))
        for item in (node(on, gpus=2), gang(name, age=400, evicted=100), pod(f"{name}-0", on, gpus=1))
    ]
    assert len(evicted(plan(*halves, gang("c", age=came), pod("c-0", gpus=2)))) == moved


# ---------------------------------------------------------------------------------------------------------- stale gangs
@pytest.mark.parametrize(("enough", "gone"), [(1, set()), (2, {"g-0"})])
def test_a_gang_with_enough_sub_groups_is_not_stale(enough: int, gone: set[str]) -> None:
    group = gang("g", subGroups=PARTS, minSubGroup=enough, stalenessGracePeriod="0s")
    assert evicted(plan(node("n"), group, pod("g-0", "n", part="right"))) == gone


@pytest.mark.parametrize(("phase", "gone"), [("Succeeded", set()), ("Failed", {"g-0"})])
def test_a_gang_of_which_a_pod_has_succeeded_is_not_stale(phase: str, gone: set[str]) -> None:
    """Its pods end one after the other; a pod that failed is missed."""
    ended = pod("g-1", "n")
    ended = replace(ended, status=replace(ended.status, phase=phase))
    group = gang("g", minMember=2, stalenessGracePeriod="0s")
    assert evicted(plan(node("n"), group, pod("g-0", "n"), ended)) == gone


# ----------------------------------------------------------------------------------------------------------- identities
def test_gangs_of_one_name_in_two_namespaces_are_two() -> None:
    """One waits for a second pod; that of the other namespace is none of its own."""
    objects = [builders.node("n", 4), builders.queue("q")]
    for namespace, least in (("ns", 2), ("other", 1)):
        objects.append(builders.pod_group("g", min_member=least, metadata={"namespace": namespace}))
        objects.append(builders.pod("g-0", "g", requests={"gpu": 1}, namespace=namespace))
    found = decide(builders.snapshot(objects), PACKING, builders.NOW)
    assert [bind.pod for bind in found.binds] == [("other", "g-0")]
    assert [verdict.gang for verdict in found.verdicts] == [("ns", "g")]


def test_a_pod_without_gpus_is_not_drawn_to_shared_devices() -> None:
    """The score of nodes with room on a shared device is for pods that share one."""
    sharer = [gang("s"), pod("s-0", "n1", share="0.5", device="d"), reservation("n1", "d")]
    found = plan(
        node("n1", gpus=2), node("n2"), *sharer, gang("c"), pod("c-0", cpu="1"), gang("d"), pod("d-0", share="0.3")
    )
    assert bound(found) == {"c-0": "n2", "d-0": "n1"}
