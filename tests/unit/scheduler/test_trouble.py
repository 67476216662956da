"""What the scheduler does when writes fail, requests fail, nodes go, and when an earlier leader left things behind."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from pykai.kube.api import Deletion, Object, Patch, Resource
from pykai.kube.api_resources import BIND_REQUEST, NODE, POD, PRIORITY_CLASS
from pykai.kube.backoff import Backoff
from pykai.kube.clock import Clock
from pykai.kube.errors import ApiError, Forbidden, Timeout, Unavailable
from pykai.kube.operations import bind
from pykai.objects import names
from pykai.scheduler.bind_requests import BACKOFF
from tests import builders

from .rig import FAST, RecordingApi, Rig, furnish, node, pod, rig, submit
from .test_status_updater import condition

pytestmark = pytest.mark.virtual_time


def request_for(name: str, on: str, uid: str, **labels: str) -> Object:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels, "ownerReferences": [owner]},
        "spec": {"podName": name, "selectedNode": on, "receivedResourceType": "Regular"},
    }


async def fail(it: Rig, name: str) -> str:
    """The binder gives a request up; returns the request's uid."""
    failed = {"status": {"phase": "Failed", "reason": "no such volume", "failedAttempts": 1}}
    found = await it.api.patch(BIND_REQUEST.ref(name, "team").sub("status"), Patch.merge(failed))
    return str(found["metadata"]["uid"])


LOST = [Timeout("no answer"), Unavailable("gone away"), ApiError("etcdserver: request timed out")]


@pytest.mark.parametrize("error", LOST)
async def test_an_answer_that_got_lost_is_asked_for_again(error: ApiError) -> None:
    async with rig() as it:
        await furnish(it.api)
        it.api.failures["create", "BindRequest"] = [error]
        await submit(it.api, pod("a"))
        await it.request("a")
        await it.quiet()
        assert await it.events("FailedBinding") == []
        assert len(await it.events("Scheduled")) == 1


@pytest.mark.parametrize("error", LOST)
async def test_a_request_that_was_made_though_the_answer_got_lost_is_found(error: ApiError) -> None:
    class Lossy(RecordingApi):
        async def create(self, resource, body, namespace=""):  # type: ignore[no-untyped-def]
            made = await super().create(resource, body, namespace)
            if resource == BIND_REQUEST and self.count("create", "BindRequest") == 1:
                raise error
            return made

    async with rig(Lossy()) as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("a"), pod("b"))
        await it.until(lambda: it.events("Scheduled"))
        await it.until(lambda: it.events("Unschedulable"))
        assert len(await it.requests()) == 1
        assert await it.events("FailedBinding") == []


async def test_a_refused_bind_is_told_and_tried_again_later() -> None:
    async with rig() as it:
        await furnish(it.api)
        it.api.failures["create", "BindRequest"] = [Forbidden("the namespace is\nbeing deleted")] * 2
        await submit(it.api, pod("a"))
        found = await it.until(lambda: condition(it, "a"))
        text = "Failed to bind pod team/a to node node-0. the namespace is being deleted"
        assert (found["reason"], found["message"]) == ("BindingError", text)
        await it.request("a")
        events = await it.events("FailedBinding")
        assert [(event["type"], event["message"]) for event in events] == [("Warning", text)]
        assert it.api.count("create", "BindRequest") == 3


async def test_a_failed_request_is_deleted_and_its_gang_waits_a_while() -> None:
    options = replace(FAST, backoff=Backoff(0.3, 1.0))
    async with rig(options=options) as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("a"))
        await it.request("a")
        first = await fail(it, "a")
        await it.until(lambda: _gone(it, "a"))
        await submit(it.api, pod("b"))
        assert (await it.request("b"))["spec"]["selectedNode"] == "node-0"
        await it.api.create(NODE, node("node-1", gpus=1))
        again = await it.request("a")
        assert again["metadata"]["uid"] != first
        assert again["spec"]["selectedNode"] == "node-1"


async def _gone(it: Rig, name: str) -> bool:
    return await it.seen(BIND_REQUEST, name) is None


async def test_a_request_for_a_node_that_is_gone_is_deleted() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=1)
        await submit(it.api, pod("a"))
        await it.request("a")
        other = request_for("theirs", "unknown", "1", **{"kai.scheduler/node-pool": "theirs"})
        del other["metadata"]["ownerReferences"]
        await it.api.create(BIND_REQUEST, other)
        await it.api.create(NODE, node("node-1"))
        await it.api.delete(NODE.ref("node-0"))
        await it.until(lambda: _on(it, "a", "node-1"))
        assert await it.seen(BIND_REQUEST, "theirs") is not None
        events = await it.until(lambda: _scheduled_twice(it))
        assert sorted(event["message"].split()[6] for event in events) == ["node-0", "node-1"]


async def _scheduled_twice(it: Rig) -> list[Object]:
    events = await it.events("Scheduled")
    return events if len(events) == 2 else []


async def _on(it: Rig, name: str, where: str) -> bool:
    found = await it.seen(BIND_REQUEST, name)
    return found is not None and found["spec"]["selectedNode"] == where


async def test_what_an_earlier_pod_of_the_name_left_behind_does_not_count() -> None:
    api = RecordingApi()
    await furnish(api, nodes=2, gpus=1)
    await api.create(BIND_REQUEST, request_for("web-0", "node-1", "another-uid"))
    await submit(api, pod("web-0"))
    async with rig(api) as it:
        await it.until(lambda: _on(it, "web-0", "node-0"))
        request = await it.request("web-0")
        uid = (await api.get(POD.ref("web-0", "team"), dict))["metadata"]["uid"]
        assert request["metadata"]["ownerReferences"][0]["uid"] == uid


async def test_who_takes_over_counts_what_the_watch_has_not_shown() -> None:
    class Blind(RecordingApi):
        """The list of the watch does not have the request yet, the fresh one has."""

        async def list(self, resource, into, *rest):  # type: ignore[no-untyped-def]
            page = await super().list(resource, into, *rest)
            return replace(page, items=[]) if resource == BIND_REQUEST and rest else page

        async def watch(self, resource, into, where=None, version=""):  # type: ignore[no-untyped-def]
            async for event in super().watch(resource, into, where, version):
                if resource != BIND_REQUEST or event.type == "BOOKMARK":
                    yield event

    api = Blind()
    await furnish(api, nodes=1, gpus=1)
    await submit(api, pod("a"), pod("b"))
    uid = (await api.get(POD.ref("a", "team"), dict))["metadata"]["uid"]
    await api.create(BIND_REQUEST, request_for("a", "node-0", uid))
    async with rig(api, takes_over=True) as it:
        await it.until(lambda: condition(it, "b"))
        assert it.api.count("create", "BindRequest") == 1


@pytest.mark.parametrize("withdrawn", [False, True])
async def test_a_place_is_not_given_out_again_because_a_watch_is_late(withdrawn: bool) -> None:
    class Hung(RecordingApi):
        """The watch of requests shows nothing new."""

        async def watch(self, resource, into, where=None, version=""):  # type: ignore[no-untyped-def]
            async for event in super().watch(resource, into, where, version):
                if resource != BIND_REQUEST or event.type == "BOOKMARK":
                    yield event

    late = 0.0
    asyncio.get_running_loop().clock = Clock(wall=lambda: time.time() + late)  # type: ignore[attr-defined]
    async with rig(Hung()) as it:
        await furnish(it.api, nodes=1, gpus=1)
        await it.api.create(PRIORITY_CLASS, {"metadata": {"name": "build"}, "value": 100})
        await submit(it.api, pod("a"), priorityClassName="build")
        await it.request("a")
        await it.quiet()
        if withdrawn:
            await it.api.delete(BIND_REQUEST.ref("a", "team"))
            await it.api.delete(POD.ref("a", "team"))
        late = 100.0
        await it.api.create(PRIORITY_CLASS, {"metadata": {"name": "urgent"}, "value": 1000})
        await submit(it.api, pod("b"), priorityClassName="urgent")
        if not withdrawn:
            await it.until(lambda: _answered(it, "b"))
        await it.until(lambda: it.requests())
        assert [found["metadata"]["name"] for found in await it.requests()] == ["b" if withdrawn else "a"]


@pytest.mark.parametrize("deleted", [False, True])
async def test_the_place_of_a_request_that_ended_is_not_free_before_pods_are_seen(deleted: bool) -> None:
    """The binder reserved the device, or bound the pod, before a user took the request away."""
    shows = asyncio.Event()
    shows.set()

    class Late(RecordingApi):
        """The watch of pods shows nothing for a while."""

        async def watch(self, resource, into, where=None, version=""):  # type: ignore[no-untyped-def]
            async for event in super().watch(resource, into, where, version):
                if resource == POD:
                    await shows.wait()
                yield event

    async with rig(Late()) as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("a"), pod("b"))
        first = await it.until(it.requests)
        taken, waits = sorted(("a", "b"), key=first[0]["metadata"]["name"].__ne__)
        await it.until(lambda: condition(it, waits))
        await it.quiet()
        shows.clear()
        await bind(it.api, POD.ref(taken, "team"), "node-0")
        if deleted:
            await it.api.delete(BIND_REQUEST.ref(taken, "team"))
        else:
            await fail(it, taken)
        await it.api.create(NODE, node("cpu-only", gpus=0))
        await it.quiet()
        assert it.api.count("create", "BindRequest") == 1
        shows.set()
        await it.api.create(NODE, node("node-1", gpus=1))
        await it.until(lambda: _on(it, waits, "node-1"))


@pytest.mark.parametrize("withdrawn", [POD, BIND_REQUEST])
@pytest.mark.parametrize("appears", [True, False])
async def test_a_device_is_not_free_while_its_reservation_pod_may_be_on_its_way(
    withdrawn: Resource, appears: bool
) -> None:
    """A share was withdrawn while the binder was creating its reservation pod."""
    late = 0.0
    asyncio.get_running_loop().clock = Clock(wall=lambda: time.time() + late)  # type: ignore[attr-defined]
    async with rig() as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("share", gpus=0, annotations={"gpu-fraction": "0.5"}))
        (device,) = (await it.request("share"))["spec"]["selectedGPUGroups"]
        await it.quiet()
        await it.api.delete(withdrawn.ref("share", "team"))
        if withdrawn != POD:
            await it.api.delete(POD.ref("share", "team"))
        await submit(it.api, pod("whole"))
        await it.quiet()
        assert not await it.requests()
        if appears:
            labels = {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: device}
            reservation = builders.pod("reservation", node="node-0", requests={"gpu": 1}, labels=labels)
            reservation["metadata"]["namespace"] = "team"
            await it.api.create(POD, reservation)
            await it.quiet()
            assert not await it.requests()
            await it.api.delete(POD.ref("reservation", "team"), Deletion(grace_seconds=0))
        else:
            late = 100.0
            await it.api.create(NODE, node("cpu-only", gpus=0))
        await it.request("whole")


async def _answered(it: Rig, name: str) -> bool:
    return await it.seen(BIND_REQUEST, name) is not None or await condition(it, name) is not None


async def test_who_takes_over_asks_until_it_is_answered() -> None:
    class Busy(RecordingApi):
        """Does not answer the first time it is asked for everything."""

        asked = 0

        async def list(self, resource, into, *rest):  # type: ignore[no-untyped-def]
            if resource == BIND_REQUEST and not rest:
                self.asked += 1
                if self.asked == 1:
                    raise Unavailable("gone away")
            return await super().list(resource, into, *rest)

    api = Busy()
    await furnish(api, nodes=1, gpus=1)
    await submit(api, pod("a"))
    async with rig(api, takes_over=True) as it:
        await it.until(lambda: it.api.count("create", "BindRequest"))
        assert api.asked > 1


async def test_who_takes_over_counts_a_request_in_place_of_the_one_the_watch_shows() -> None:
    class Late(RecordingApi):
        """The watch of requests goes on showing the first state of them."""

        first: list[Object] | None = None

        async def list(self, resource, into, *rest):  # type: ignore[no-untyped-def]
            page = await super().list(resource, into, *rest)
            if resource == BIND_REQUEST and rest and self.first is None:
                self.first = list(page.items)
                await self.delete(BIND_REQUEST.ref("a", "team"))
                await self.create(BIND_REQUEST, request_for("a", "node-1", uid))
            return page

        async def watch(self, resource, into, where=None, version=""):  # type: ignore[no-untyped-def]
            async for event in super().watch(resource, into, where, version):
                if resource != BIND_REQUEST or event.type == "BOOKMARK":
                    yield event

    api = Late()
    await furnish(api, nodes=2, gpus=1)
    uid = (await api.create(POD, pod("a")))["metadata"]["uid"]
    await api.create(BIND_REQUEST, request_for("a", "node-0", uid))
    async with rig(api, takes_over=True) as it:
        await submit(api, pod("b"))
        assert (await it.request("b"))["spec"]["selectedNode"] == "node-0"


async def test_a_failed_request_that_could_not_be_deleted_is_deleted_later() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("a"))
        await it.request("a")
        it.api.failures["delete", "BindRequest"] = [Unavailable("gone away")]
        await it.api.patch(NODE.ref("node-0"), Patch.merge({"spec": {"unschedulable": True}}))
        await fail(it, "a")
        await it.until(lambda: _gone(it, "a"))


async def test_a_request_that_failed_while_its_answer_was_lost_is_not_made_again() -> None:
    class Lossy(RecordingApi):
        async def create(self, resource, body, namespace=""):  # type: ignore[no-untyped-def]
            made = await super().create(resource, body, namespace)
            if resource == BIND_REQUEST and self.count("create", "BindRequest") == 1:
                failed = {"status": {"phase": "Failed", "reason": "no such volume", "failedAttempts": 1}}
                await self.patch(BIND_REQUEST.ref("a", "team").sub("status"), Patch.merge(failed))
                raise Timeout("no answer")
            return made

    options = replace(FAST, backoff=Backoff(60.0, 60.0))
    async with rig(Lossy(), options=options) as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("a"))
        await it.until(lambda: it.api.count("delete", "BindRequest"))
        await it.quiet(BACKOFF.initial * 2)
        assert it.api.count("create", "BindRequest") == 1


async def test_a_cycle_that_fails_is_tried_again() -> None:
    faults = [ValueError("a bug")]

    def judge(snapshot: object, plan: object) -> list[str]:
        if faults:
            raise faults.pop()
        return []

    async with rig(judge=judge) as it:
        await furnish(it.api)
        await submit(it.api, pod("a"))
        await it.until(lambda: _requested(it))
        assert b"kai_failed_cycles_total 1" in it.scheduler.metrics.text()


async def _requested(it: Rig) -> bool:
    return bool(await it.requests())
