"""Bind requests from decision to bound pod, one table row or short story at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from pykai.kube.api import Object, Patch, Resource
from pykai.kube.api_resources import BIND_REQUEST, EVENT, NODE, POD
from pykai.kube.errors import ApiError, Conflict, Forbidden, Timeout, Unavailable
from pykai.objects import names
from tests.virtual_time import settle

from .world import TEAM, World

pytestmark = pytest.mark.virtual_time


async def events(world: World) -> list[tuple[str, str, str]]:
    found = (await world.api.list(EVENT, Object)).items
    return [(event["type"], event["reason"], event["message"]) for event in found]


def condition(pod: Object, kind: str) -> Object | None:
    return next((each for each in pod["status"].get("conditions") or () if each["type"] == kind), None)


async def test_a_whole_gpu_pod_costs_the_bind_one_status_write_and_one_event() -> None:
    async with World() as world:
        pod = await world.pod("p")
        await world.request(pod)
        api = await world.start_binder()
        await world.settle(300)
        assert api.writes == ["post pods/binding", "patch bindrequests/status", "create events"]
        bound = await world.now(POD, "p")
        assert bound["spec"]["nodeName"] == "n1"
        assert bound["metadata"]["annotations"] == {names.RECEIVED_RESOURCE_TYPE: "Regular"}
        assert condition(bound, "PodScheduled")["status"] == "True"  # type: ignore[index]
        assert await world.status("p") == {"phase": "Succeeded"}
        assert await events(world) == [("Normal", "Bound", "Pod bound successfully to node n1")]


async def test_numa_zones_travel_with_the_bind() -> None:
    async with World() as world:
        zones = [{"zone": "node-0", "amount": {"cpu": "4", "nvidia.com/gpu": "1"}}]
        await world.request(await world.pod("p"), predictedNUMAZones=zones)
        await world.start_binder()
        told = (await world.now(POD, "p"))["metadata"]["annotations"]
        assert told[names.NUMA_PREDICTED] == '[{"zone":"node-0","amount":{"cpu":"4","nvidia.com/gpu":"1"}}]'


@pytest.mark.parametrize(("own", "told"), [({}, "pg"), ({names.POD_GROUP_ANNOTATION: "chosen"}, "chosen")])
async def test_the_group_travels_with_the_bind_to_a_pod_that_names_none(own: dict[str, str], told: str) -> None:
    async with World() as world:
        request = await world.request(await world.pod("p", annotations=own))
        note = {"metadata": {"annotations": {names.POD_GROUP_ANNOTATION: "pg"}}}
        await world.api.patch(BIND_REQUEST.ref("p", request["metadata"]["namespace"]), Patch.merge(note))
        await world.start_binder()
        assert (await world.now(POD, "p"))["metadata"]["annotations"][names.POD_GROUP_ANNOTATION] == told


async def test_a_request_ahead_of_everything_else_waits_for_nothing() -> None:
    async with World() as world:
        await world.start_binder()
        for number in range(25):
            await world.request(await world.pod(f"p{number}"))
        await world.settle()
        assert {(await world.status(f"p{number}"))["phase"] for number in range(25)} == {"Succeeded"}


@pytest.mark.parametrize("late", [BIND_REQUEST, POD], ids=["requests", "pods"])
async def test_a_watch_that_lags_behind_our_own_writes_costs_no_second_write(late: Resource) -> None:
    async with World() as world:
        api = await world.start_binder()

        def fall_behind(write: str) -> None:
            if write == "post pods/binding":
                api.late.add(late)

        api.refuse = fall_behind
        await world.request(await world.pod("whole"))
        await world.settle()
        await world.api.patch(POD.ref("whole", TEAM), Patch.merge({"metadata": {"labels": {"news": "yes"}}}))
        await world.settle(30)
        api.late.clear()
        await world.settle(200)
        assert Counter(api.writes)["patch bindrequests/status"] == 1
        assert Counter(api.writes)["post pods/binding"] == 1


# ------------------------------------------------------------------------------------------------------- failures
async def gone_pod(world: World) -> str:
    body = {"metadata": {"name": "p"}, "spec": {"podName": "p", "selectedNode": "n1"}}
    await world.api.create(BIND_REQUEST, body, TEAM)
    return 'pods "p" not found'


async def gone_node(world: World) -> str:
    await world.request(await world.pod("p"), node="n9")
    return 'nodes "n9" not found'


async def gone_node_for_a_share(world: World) -> str:
    await world.share("p", ["g"], node="n9")
    return 'nodes "n9" not found'


async def another_pod_of_that_name(world: World) -> str:
    await world.pod("p")
    node = await world.api.get(NODE.ref("n1"), Object)
    owners = [("Pod", "p", "11111111-1111-1111-1111-111111111111"), ("Node", "n1", node["metadata"]["uid"])]
    references = [{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid} for kind, name, uid in owners]
    body = {"metadata": {"name": "p", "ownerReferences": references}, "spec": {"podName": "p", "selectedNode": "n1"}}
    await world.api.create(BIND_REQUEST, body, TEAM)
    return 'pods "p" not found: the pod of that name is not the one of the request'


async def no_config_map_name(world: World) -> str:
    pod = await world.pod("p", annotations={names.GPU_FRACTION: "0.5"})
    await world.request(pod, groups=["g"])
    return "plugin gpusharing failed in PreBind: no desired configmap name found in pod team/p annotations"


async def no_such_container(world: World) -> str:
    share = {names.GPU_FRACTION: "0.5", names.GPU_FRACTION_CONTAINER: "sidecar"}
    await world.request(await world.pod("p", share=share), groups=["g"])
    return "plugin gpusharing failed in PreBind: container with name sidecar not found for fraction request"


async def a_pod_that_has_failed(world: World) -> str:
    pod = await world.pod("p")
    await world.api.patch(POD.ref("p", TEAM).sub("status"), Patch.merge({"status": {"phase": "Failed"}}))
    await world.request(pod, groups=["g"])
    return 'pod "p" is Failed'


async def a_pod_that_is_going(world: World) -> str:
    pod = await world.pod("p", finalizers=["test/hold"])
    await world.remove("p")
    await world.request(pod, groups=["g"])
    return 'pod "p" is being deleted'


@pytest.mark.parametrize(
    "story",
    [
        a_pod_that_has_failed,
        a_pod_that_is_going,
        gone_pod,
        gone_node,
        gone_node_for_a_share,
        another_pod_of_that_name,
        no_config_map_name,
        no_such_container,
    ],
)
async def test_what_cannot_be_bound_fails_once_with_a_reason(story: Any) -> None:
    async with World() as world:
        why = await story(world)
        api = await world.start_binder()
        await world.settle(600)
        assert await world.status("p") == {"phase": "Failed", "reason": why, "failedAttempts": 1}
        assert api.writes.count("patch bindrequests/status") == 1
        assert await world.reservations() == []


async def test_a_failure_shows_on_the_pod_and_the_next_success_corrects_it() -> None:
    async with World() as world:
        await world.request(await world.pod("p"), node="n9")
        await world.start_binder()
        text = 'Failed to bind pod team/p to node n9: nodes "n9" not found'
        shown = condition(await world.now(POD, "p"), names.POD_BOUND)
        assert shown is not None
        assert (shown["status"], shown["reason"], shown["message"]) == ("False", "BindingError", text)
        assert await events(world) == [("Warning", "BindingError", text)]
        await world.api.delete(BIND_REQUEST.ref("p", TEAM))
        await world.request(await world.now(POD, "p"))
        await world.settle()
        shown = condition(await world.now(POD, "p"), names.POD_BOUND)
        assert shown is not None
        assert (shown["status"], shown["reason"]) == ("True", "Bound")


async def fail_once(world: World) -> None:
    """Let a pod be told that it is not bound, and ask for it again."""
    await world.request(await world.pod("p"), node="n9")
    await world.settle()
    await world.api.delete(BIND_REQUEST.ref("p", TEAM))
    await world.request(await world.now(POD, "p"))


async def is_told_bound(world: World) -> bool:
    shown = condition(await world.now(POD, "p"), names.POD_BOUND)
    return shown is not None and shown["status"] == "True" and (await world.status("p"))["phase"] == "Succeeded"


async def test_a_correction_that_the_server_refuses_for_the_moment_is_made_later() -> None:
    async with World() as world:
        api = await world.start_binder()
        troubles: list[ApiError] = [Unavailable("down"), Conflict("busy")]

        def refuse(write: str) -> None:
            if write == "patch pods/status" and "post pods/binding" in api.writes and troubles:
                raise troubles.pop()

        api.refuse = refuse
        await fail_once(world)
        await world.settle(10)
        assert not troubles
        assert await is_told_bound(world)


async def test_a_correction_does_not_depend_on_what_the_watch_has_shown() -> None:
    async with World() as world:
        api = await world.start_binder()
        await world.request(await world.pod("p"), node="n9")
        await settle(5)
        api.late.add(POD)
        await world.settle()
        await world.api.delete(BIND_REQUEST.ref("p", TEAM))
        await world.request(await world.now(POD, "p"))
        await world.settle(5)
        api.late.clear()
        await world.settle(5)
        assert await is_told_bound(world)


async def test_a_binder_killed_before_the_correction_is_followed_by_one_that_makes_it() -> None:
    for last in range(2, 7):
        async with World() as world:
            await world.start_binder(last)
            await fail_once(world)
            await world.settle()
            await world.stop_binder()
            await world.start_binder()
            await world.settle()
            shown = condition(await world.now(POD, "p"), names.POD_BOUND)
            assert shown is None or shown["status"] == "True", f"killed at write {last}"
            assert await world.status("p") == {"phase": "Succeeded"}


async def test_a_failure_that_may_be_known_already_is_not_taken_back() -> None:
    async with World() as world:
        api = await world.start_binder()

        def refuse(write: str) -> None:
            if write == "post pods/binding" and api.writes.count("post pods/binding") == 0:
                api.writes.append(write)
                raise Forbidden("no")

        def lose(write: str) -> None:
            if write == "patch bindrequests/status" and api.writes.count(write) == 1:
                raise Timeout("no answer")

        api.refuse, api.lose = refuse, lose
        await world.request(await world.pod("p"))
        await settle(5)
        api.late.add(BIND_REQUEST)
        await world.settle(30)
        api.late.clear()
        await world.settle(30)
        assert (await world.status("p"))["phase"] == "Failed"
        assert "nodeName" not in (await world.now(POD, "p"))["spec"]
        assert api.writes.count("post pods/binding") == 1


async def test_a_request_with_a_backoff_limit_is_tried_that_often() -> None:
    async with World() as world:
        await world.request(await world.pod("p"), node="n9", backoffLimit=3)
        await world.start_binder()
        attempts = []
        for seconds in (0.0, 0.9, 0.2, 1.8, 0.3, 60.0):
            await world.settle(seconds)
            attempts.append((await world.status("p"))["failedAttempts"])
        assert attempts == [1, 1, 2, 2, 3, 3]


async def test_a_retry_finds_the_node_that_came_back() -> None:
    async with World() as world:
        await world.request(await world.pod("p"), node="n9", backoffLimit=2)
        await world.start_binder()
        assert (await world.status("p"))["phase"] == "Failed"
        await world.api.create(NODE, {"metadata": {"name": "n9"}})
        await world.settle(1.1)
        assert await world.status("p") == {"phase": "Succeeded", "failedAttempts": 1}


async def test_a_fraction_without_groups_is_deleted() -> None:
    async with World() as world:
        await world.request(await world.pod("p"), groups=[])
        await world.start_binder()
        assert (await world.api.list(BIND_REQUEST, Object)).items == []


async def test_a_pod_bound_by_somebody_else_counts_as_success() -> None:
    async with World() as world:
        pod = await world.pod("p", spec={"nodeName": "n1"})
        await world.request(pod, node="n9")
        api = await world.start_binder()
        assert await world.status("p") == {"phase": "Succeeded"}
        assert "post pods/binding" not in api.writes


async def test_a_request_taken_back_while_its_pod_is_prepared_is_not_carried_out() -> None:
    async with World() as world:
        api = await world.start_binder()
        api.turns = 30
        taking_back: list[asyncio.Task[None]] = []

        def take_back(write: str) -> None:
            if write == "create configmaps" and not taking_back:
                taking_back.append(asyncio.create_task(world.api.delete(BIND_REQUEST.ref("p", TEAM))))

        api.refuse = take_back
        await world.share("p", ["g"])
        await world.settle()
        await world.settle(5)
        assert taking_back
        assert "post pods/binding" not in api.writes
        assert names.GPU_GROUP_LABEL not in (await world.now(POD, "p"))["metadata"].get("labels", {})
        assert await world.reservations() == []


async def test_a_server_in_trouble_is_tried_again_and_nothing_is_undone() -> None:
    async with World() as world:
        await world.share("p", ["g"])
        await world.start_binder()
        await world.share("q", ["g"])
        api = world.seen_by_binder
        troubles = [Unavailable("down")] * 3

        def refuse(write: str) -> None:
            if write == "post pods/binding" and troubles:
                raise troubles.pop()

        api.refuse = refuse
        await world.settle(20)
        assert await world.status("q") == {"phase": "Succeeded"}
        assert not [write for write in api.writes if write.startswith("delete")]


async def test_a_server_that_refuses_for_good_fails_the_request() -> None:
    async with World() as world:
        await world.start_binder()

        def refuse(write: str) -> None:
            if write == "post pods/binding":
                raise Forbidden("pods/binding is forbidden")

        world.seen_by_binder.refuse = refuse
        await world.share("p", ["g"])
        await world.settle(1)
        status = await world.status("p")
        assert status["reason"] == "failed to bind pod team/p to node n1: pods/binding is forbidden"
        assert names.GPU_GROUP_LABEL not in (await world.now(POD, "p"))["metadata"].get("labels", {})
        assert (await world.picture())["maps"] == []
        assert await world.reservations() == []
