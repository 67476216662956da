"""Shared devices in trouble: reservations that are lost, refused, late or not wanted yet."""

from __future__ import annotations

from contextlib import suppress

import pytest

from pykai.controllers.binder.device_index import GroupKey
from pykai.controllers.binder.reservations import CONTAINER, described_container, reservation_name
from pykai.kube.api import Deletion, Object, Patch
from pykai.kube.api_resources import BIND_REQUEST, EVENT, POD
from pykai.kube.errors import Conflict, Forbidden, NotFound, Unavailable
from pykai.objects import names

from .world import TEAM, World

pytestmark = pytest.mark.virtual_time

RESERVED = names.RESERVATION_NAMESPACE


def labels(pod: Object) -> Object:
    return dict(pod["metadata"].get("labels") or {})


# ------------------------------------------------------------------------------------------------- lost devices
@pytest.mark.parametrize("loss", ["deleted", "ended"])
async def test_pods_whose_reservation_is_lost_are_deleted(loss: str) -> None:
    async with World() as world:
        await world.share("p", ["g"])
        await world.pod("bystander", labels={names.GPU_GROUP_LABEL: "g"}, spec={"nodeName": "n1"})
        await world.start_binder()
        ref = POD.ref(reservation_name(GroupKey("n1", "g")), RESERVED)
        if loss == "deleted":
            await world.api.delete(ref, Deletion(grace_seconds=0))
        else:
            await world.api.patch(ref.sub("status"), Patch.merge({"status": {"phase": "Failed"}}))
        await world.settle(1)
        with pytest.raises(NotFound):
            await world.now(POD, "p")
        assert (await world.now(POD, "bystander"))["spec"]["nodeName"] == "n1"
        reasons = [event["reason"] for event in (await world.api.list(EVENT, Object)).items]
        assert "ReservationLost" in reasons


async def test_nobody_joins_a_device_that_is_going() -> None:
    async with World() as world:
        await world.share("p", ["g"])
        await world.start_binder()
        world.kubelets.reserves = False
        ref = POD.ref(reservation_name(GroupKey("n1", "g")), RESERVED)
        held = Patch.merge({"metadata": {"finalizers": ["test/hold"]}})
        await world.api.patch(ref, held)
        await world.api.delete(ref)
        await world.share("q", ["g"])
        await world.settle(1)
        assert await world.status("q") == {}
        assert "nodeName" not in (await world.now(POD, "q"))["spec"]
        await world.api.patch(ref, Patch.merge({"metadata": {"finalizers": None}}))
        await world.kubelets.resume()
        await world.settle(1)
        with pytest.raises(NotFound):
            await world.now(POD, "p")
        assert (await world.status("q"))["phase"] == "Succeeded"
        assert len(await world.reservations()) == 1


# ----------------------------------------------------------------------------------------------------- refusals
async def test_a_device_that_never_comes_fails_in_time_and_leaves_nothing() -> None:
    async with World() as world:
        world.kubelets.reserves = False
        await world.share("p", ["g"])
        await world.start_binder()
        await world.settle(39)
        assert await world.status("p") == {}
        await world.settle(2)
        name = reservation_name(GroupKey("n1", "g"))
        assert (await world.status("p"))["reason"] == (
            "failed to reserve GPUs for pod team/p in gpu group g: "
            f"failed waiting for GPU reservation pod to allocate: {RESERVED}/{name}"
        )
        assert await world.reservations() == []
        assert labels(await world.now(POD, "p")) == {}


async def test_a_reservation_container_that_crashes_fails_with_its_last_words() -> None:
    async with World() as world:
        world.kubelets.reserves = False
        await world.share("p", ["g"])
        await world.start_binder()
        await world.settle(1)
        ended = {"exitCode": 1, "reason": "Error", "message": "INFO start\nno NVML: libnvidia-ml.so.1 not found\n"}
        crashed = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}
        ref = POD.ref(reservation_name(GroupKey("n1", "g")), RESERVED).sub("status")
        await world.api.patch(ref, Patch.merge({"status": {"containerStatuses": [{"name": CONTAINER, **crashed}]}}))
        await world.settle(41)
        assert (await world.status("p"))["reason"].endswith(
            f", container {CONTAINER} is waiting: CrashLoopBackOff, "
            "ended with exit code 1: no NVML: libnvidia-ml.so.1 not found"
        )


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({}, ""),
        ({"state": {"running": {}}}, ""),
        (
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
            "is waiting: no such image",
        ),
        ({"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}, "ended with exit code 137, OOMKilled"),
    ],
)
def test_the_state_of_a_reservation_container_in_one_line(status: Object, text: str) -> None:
    described = described_container({"status": {"containerStatuses": [status]}})
    assert described == (f"container {CONTAINER} {text}" if text else "")


async def test_a_kubelet_that_is_still_busy_is_asked_again() -> None:
    async with World({"n1": 1}) as world:
        await world.share("p", ["g"])
        await world.start_binder()
        await world.share("q", ["h"])
        await world.settle(3)
        assert await world.status("q") == {}
        await world.remove("p")
        await world.settle(17)
        assert (await world.status("q"))["phase"] == "Succeeded"
        assert await world.told_devices("q") == "GPU-n1-0"


async def test_a_node_without_a_device_fails_with_the_kubelets_words() -> None:
    async with World({"n1": 1}) as world:
        await world.share("p", ["g"])
        await world.start_binder()
        await world.share("q", ["h"])
        await world.settle(41)
        reason = (await world.status("q"))["reason"]
        assert reason.endswith("the pod is Failed, OutOfnvidia.com/gpu, no GPU left")
        assert len(await world.reservations()) == 1


async def test_a_reservation_that_may_not_be_made_fails_at_once() -> None:
    async with World() as world:
        api = await world.start_binder()

        def refuse(write: str) -> None:
            if write == "create pods":
                raise Forbidden('RuntimeClass "nvidia" not found')

        api.refuse = refuse
        await world.share("p", ["g"])
        await world.settle(1)
        assert 'RuntimeClass "nvidia" not found' in (await world.status("p"))["reason"]
        api.refuse = lambda write: None
        await world.api.delete(BIND_REQUEST.ref("p", TEAM))
        await world.settle(1)
        await world.request(await world.now(POD, "p"), groups=["g"])
        await world.settle(2)
        assert (await world.status("p"))["phase"] == "Succeeded"


@pytest.mark.parametrize(("scheduled", "phase"), [("False", "Failed"), ("True", "Succeeded")])
async def test_no_reservation_while_the_cluster_scales_up(scheduled: str, phase: str) -> None:
    async with World() as world:
        body = {"metadata": {"name": "s"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        await world.api.create(POD, body, names.SCALING_NAMESPACE)
        waits = {"conditions": [{"type": "PodScheduled", "status": scheduled}]}
        await world.api.patch(POD.ref("s", names.SCALING_NAMESPACE).sub("status"), Patch.merge({"status": waits}))
        await world.share("p", ["g"])
        await world.start_binder()
        status = await world.status("p")
        assert status["phase"] == phase
        if phase == "Failed":
            assert status["reason"].endswith("cluster is scaling up, could not create reservation pod")


async def test_the_labels_of_an_earlier_attempt_are_replaced() -> None:
    async with World() as world:
        stale = {names.GPU_GROUP_LABEL: "before", "runai-gpu-group/x": "x"}
        await world.share("p", ["g"], labels=stale)
        await world.start_binder()
        assert labels(await world.now(POD, "p")) == {names.GPU_GROUP_LABEL: "g"}


async def test_a_reservation_that_could_not_be_deleted_is_deleted_later() -> None:
    async with World() as world:
        await world.share("p", ["g"])
        api = await world.start_binder()
        troubles = [Conflict("busy")]

        def refuse(write: str) -> None:
            if write == "delete pods" and troubles:
                raise troubles.pop()

        api.refuse = refuse
        await world.remove("p")
        await world.settle(1)
        assert not troubles
        news = Patch.merge({"metadata": {"annotations": {"seen": "again"}}})
        with suppress(NotFound):
            await world.api.patch(POD.ref(reservation_name(GroupKey("n1", "g")), RESERVED), news)
        await world.settle(300)
        assert await world.reservations() == []


@pytest.mark.parametrize("shared", [True, False])
async def test_a_watch_that_lags_shows_no_labels_and_no_devices_that_are_gone(shared: bool) -> None:
    """A request is taken back and another one follows while the watch of pods lags; `shared`: the device stays."""
    async with World() as world:
        api = await world.start_binder()
        if shared:
            await world.share("other", ["g"])
            await world.settle()

        def refuse(write: str) -> None:
            if write == "post pods/binding":
                raise Unavailable("not now")

        api.refuse = refuse
        pod = await world.share("p", ["g"])
        await world.settle()
        assert labels(await world.now(POD, "p")) == {names.GPU_GROUP_LABEL: "g"}
        api.late.add(POD)
        await world.api.delete(BIND_REQUEST.ref("p", TEAM))
        await world.settle(5)
        assert labels(await world.now(POD, "p")) == {}
        api.refuse = lambda write: None
        await world.request(pod, groups=["g"])
        await world.settle(5)
        api.late.clear()
        await world.settle(5)
        bound = await world.now(POD, "p")
        assert (bound["spec"]["nodeName"], labels(bound)) == ("n1", {names.GPU_GROUP_LABEL: "g"})
