"""What people are told about pods and PodGroups that wait, and that it is said once."""

from __future__ import annotations

import asyncio

import pytest

from pykai.kube.api import Deletion, Object, Patch
from pykai.kube.api_resources import BIND_REQUEST, NODE, POD, POD_GROUP, QUEUE
from pykai.kube.errors import Unavailable
from pykai.objects import names

from .rig import RecordingApi, Rig, furnish, group, node, pod, rig, submit

pytestmark = pytest.mark.virtual_time

SEARCHES = ["ConsolidationInsufficientGPUs", "ReclaimQueueAtFairShare", "PreemptNoEligibleVictims"]
FULL = "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs."


async def condition(it: Rig, name: str) -> Object | None:
    found = await it.seen(POD, name)
    conditions = ((found or {}).get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == "PodScheduled"), None)


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_condition_that_a_killed_process_wrote_late_is_replaced(restarted: bool) -> None:
    """Also where the process found the right one when it began, and wrote nothing itself."""
    api = RecordingApi()
    async with rig(api) as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("big", gpus=2))
        right = await it.until(lambda: condition(it, "big"))
        if not restarted:
            await _replaced(it, right)
    if restarted:
        async with rig(api) as it:
            await it.quiet()
            await _replaced(it, right)


async def _replaced(it: Rig, right: Object) -> None:
    late = {"status": {"conditions": [{**right, "message": "late"}]}}
    await it.api.patch(POD.ref("big", "team").sub("status"), Patch.strategic(late))
    await it.quiet()
    await submit(it.api, pod("another", gpus=2))

    async def is_right() -> bool:
        return bool((await condition(it, "big") or {})["message"] == right["message"])

    await it.until(is_right)


async def scheduling_conditions(it: Rig, name: str) -> list[Object]:
    found = await it.seen(POD_GROUP, name)
    return list(((found or {}).get("status") or {}).get("schedulingConditions") or [])


async def test_a_pod_without_a_place_is_told_why_and_told_once() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("fits"))
        await it.bound("fits")
        await submit(it.api, pod("waits"))
        found = await it.until(lambda: condition(it, "waits"))
        assert (found["status"], found["reason"], found["message"]) == ("False", "Unschedulable", FULL)
        assert found["lastTransitionTime"]
        whole = f"PodSchedulingErrors: Resources were not found for pod team/waits due to: {FULL}"
        (shown,) = await it.until(lambda: scheduling_conditions(it, "waits"))
        reasons = [{"reason": "PodSchedulingErrors", "message": whole.removeprefix("PodSchedulingErrors: ")}]
        assert shown.pop("lastTransitionTime")
        told = shown.pop("reasons")
        assert told[:1] == reasons
        assert [each["reason"] for each in told[1:]] == SEARCHES
        assert all(each["message"] for each in told)
        assert shown == {
            "type": "UnschedulableOnNodePool",
            "nodePool": "default",
            "reason": "Unschedulable",
            "message": whole,
            "status": "True",
            "transitionID": "1",
        }
        events = await it.until(lambda: _both(it))
        assert {(e["involvedObject"]["kind"], e["type"], e["message"]) for e in events} == {
            ("Pod", "Warning", FULL),
            ("PodGroup", "Warning", whole),
        }
        await it.api.create(NODE, node("too-small", gpus=0))
        await it.until(lambda: _says(it, "waits", "2 node(s)"))
        written = [write for write in it.api.writes if write[2] == "waits" and write[3] == "status"]
        assert len(written) == 4


async def _both(it: Rig) -> list[Object]:
    events = await it.events("Unschedulable")
    return events if len(events) == 2 else []


async def _says(it: Rig, name: str, text: str) -> bool:
    found = await condition(it, name)
    groups = await scheduling_conditions(it, name)
    return bool(found and text in found["message"] and groups and text in groups[-1]["message"])


async def test_a_pod_whose_node_went_is_told_while_its_request_still_shows() -> None:
    class Slow(RecordingApi):
        """Nobody is heard who wants a request deleted."""

        async def delete(self, ref, how=None):  # type: ignore[no-untyped-def]
            if ref.resource == BIND_REQUEST:
                raise Unavailable("gone away")
            await super().delete(ref, how)

    async with rig(Slow()) as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("a"))
        await it.request("a")
        await it.api.delete(NODE.ref("node-0"))
        found = await it.until(lambda: condition(it, "a"))
        assert found["reason"] == "Unschedulable"


async def test_a_group_of_the_same_name_is_told_the_same_anew() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=0)
        await submit(it.api, pod("waits"))
        await it.until(lambda: scheduling_conditions(it, "waits"))
        await it.api.delete(POD_GROUP.ref("waits", "team"))
        await it.api.create(POD_GROUP, group("waits"))
        assert await it.until(lambda: scheduling_conditions(it, "waits"))


async def test_what_was_said_is_taken_back_once_all_have_a_place() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=0)
        await submit(it.api, pod("waits"))
        await it.until(lambda: scheduling_conditions(it, "waits"))
        await it.api.create(NODE, node("late"))
        await it.bound("waits")
        await it.until(lambda: _none(it, "waits"))
        found = await condition(it, "waits")
        assert found is not None
        assert found["status"] == "True"


async def test_what_was_said_too_late_is_taken_back() -> None:
    class Slow(RecordingApi):
        """What is said of groups arrives when it may."""

        async def patch(self, ref, patch):  # type: ignore[no-untyped-def]
            if ref.resource == POD_GROUP and ref.subresource:
                begun.set()
                await may.wait()
            return await super().patch(ref, patch)

    begun, may = asyncio.Event(), asyncio.Event()
    async with rig(Slow()) as it:
        await furnish(it.api, nodes=0)
        await submit(it.api, pod("waits"))
        await begun.wait()
        await it.api.create(NODE, node("late"))
        await it.bound("waits")
        await it.quiet()
        may.set()
        await it.until(lambda: it.api.count("patch", "PodGroup") == 2, 5)
        await it.until(lambda: _none(it, "waits"))


async def _none(it: Rig, name: str) -> bool:
    return not await scheduling_conditions(it, name)


async def test_a_gang_that_is_not_complete_is_told_what_is_missing() -> None:
    async with rig() as it:
        await furnish(it.api)
        await submit(it.api, pod("one", gang="gang"), least=3)
        events = await it.until(lambda: it.at_least(2, "NotReady"))
        text = "Job is not ready for scheduling. Waiting for 3 pods, currently 1 exist, 0 are gated"
        assert {(event["involvedObject"]["kind"], event["type"], event["message"]) for event in events} == {
            ("PodGroup", "Normal", text),
            ("Pod", "Normal", "1 of 3 pods exist"),
        }
        await it.quiet()
        assert await condition(it, "one") is None


async def test_a_group_may_ask_not_to_have_its_pods_marked() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=0)
        await submit(it.api, pod("waits"), markUnschedulable=False)
        await it.until(lambda: it.events("Unschedulable"))
        await it.quiet()
        assert await condition(it, "waits") is None


async def test_a_group_with_one_attempt_is_told_the_pool_and_left_alone() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=0)
        await submit(it.api, pod("waits"), schedulingBackoff=1)
        found = await it.until(lambda: condition(it, "waits"))
        assert found["message"].startswith("Node-Pool 'default': ")
        await it.until(lambda: scheduling_conditions(it, "waits"))
        await it.api.create(NODE, node("late"))
        await it.quiet()
        assert await it.requests() == []


async def test_the_core_of_a_semi_preemptible_group_is_named_once() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=1, gpus=4)
        await submit(it.api, *[pod(name, gang="gang") for name in "cab"], least=2, preemptibility="semi-preemptible")

        async def core() -> list[str]:
            found = await it.seen(POD_GROUP, "gang")
            return list((((found or {}).get("status") or {}).get("schedulingState") or {}).get("corePods") or [])

        for name in "abc":
            await it.bound(name)
        first = await it.until(core)
        assert first == sorted(first)
        assert len(first) == 2
        await it.quiet()
        assert len([write for write in it.api.writes if write[2] == "gang" and write[3] == "status"]) == 1
        gone = first[0]
        await it.api.delete(POD.ref(gone, "team"), Deletion(grace_seconds=0))

        async def other() -> bool:
            return bool(set(await core()) == set("abc") - {gone})

        await it.until(other)


async def test_a_full_queue_is_shown_with_its_figures() -> None:
    async with rig() as it:
        await furnish(it.api, limit=1)
        await submit(it.api, pod("big", gpus=4))
        (shown,) = await it.until(lambda: scheduling_conditions(it, "big"))
        why, *found = shown["reasons"]
        assert why["reason"] == "OverLimit"
        assert [each["reason"] for each in found][:1] == ["ConsolidationNoSolutionFound"]
        assert "test quota has reached the allowable limit of GPUs" in why["message"]
        details = why["details"]["queueDetails"]
        assert details["name"] == "test"
        assert details["podGroupRequestedResources"]["nvidia.com/gpu"] == "4"
        assert details["queueResourceLimits"]["nvidia.com/gpu"] == "1"
        assert details["queueAllocatedResources"]["nvidia.com/gpu"] == "0"


async def test_conditions_of_other_pools_are_kept_whole() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=0)
        other = {"type": "UnschedulableOnNodePool", "nodePool": "slow", "transitionID": "7", "status": "True"}
        other["reasons"] = [{"reason": "OverLimit", "message": "kept"}]  # type: ignore[assignment]
        await submit(it.api, pod("waits", gpus=2))
        await it.until(lambda: scheduling_conditions(it, "waits"))
        await it.api.patch(
            POD_GROUP.ref("waits", "team").sub("status"), Patch.merge({"status": {"schedulingConditions": [other]}})
        )
        await it.api.create(NODE, node("tiny", gpus=1))
        shown = await it.until(lambda: _two(it))
        assert shown[0] == other
        assert (shown[1]["nodePool"], shown[1]["transitionID"]) == ("default", "8")


async def _two(it: Rig) -> list[Object]:
    found = await scheduling_conditions(it, "waits")
    return found if len(found) == 2 else []


async def test_a_stray_pod_is_told_that_its_sub_group_does_not_exist() -> None:
    async with rig() as it:
        await furnish(it.api)
        stray = pod("stray", gang="gang")
        stray["metadata"]["labels"] = {"kai.scheduler/subgroup-name": "nowhere"}
        groups = [{"name": "workers", "minMember": 1}]
        await submit(it.api, stray, subGroups=groups)
        found = await it.until(lambda: condition(it, "stray"))
        text = 'Pod references subgroup "nowhere", which does not exist in PodGroup team/gang'
        assert found["message"] == text


async def test_a_bound_pod_is_never_told_that_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod is bound while the write of its condition is on its way: the write must not land."""
    async with rig() as it:
        await furnish(it.api, nodes=0)
        held, go = asyncio.Event(), asyncio.Event()
        plain = it.api.patch

        async def slow(ref, patch):  # type: ignore[no-untyped-def]
            if ref.resource == POD and ref.subresource == "status":
                held.set()
                await go.wait()
            return await plain(ref, patch)

        monkeypatch.setattr(it.api, "patch", slow)
        await submit(it.api, pod("waits"))
        await held.wait()
        await it.api.create(NODE, node("late"))
        await it.bound("waits")
        go.set()
        await it.quiet()
        found = await condition(it, "waits")
        assert found is not None
        assert found["status"] == "True"


async def test_starts_are_noted_where_a_minimum_run_time_asks_for_them() -> None:
    async with rig() as it:
        await furnish(it.api)
        await submit(it.api, pod("early"))
        await it.bound("early")
        await it.quiet()
        assert not await started(it, "early")
        await it.api.patch(QUEUE.ref("test"), Patch.merge({"spec": {"preemptMinRuntime": "1m"}}))
        await submit(it.api, pod("late"))
        await it.until(lambda: started(it, "late"))
        await it.until(lambda: started(it, "early"))


async def started(it: Rig, name: str) -> bool:
    found = await it.seen(POD_GROUP, name)
    return names.LAST_START_TIMESTAMP in (found or {})["metadata"].get("annotations", {})


async def test_queues_show_their_fair_share_also_when_they_are_made_anew() -> None:
    async with rig() as it:
        await furnish(it.api)

        async def shown(gpus: str) -> bool:
            status = (await it.seen(QUEUE, "test") or {}).get("status") or {}
            return bool(status.get("fairShare", {}).get("nvidia.com/gpu") == gpus)

        await it.until(lambda: shown("0"))
        await submit(it.api, pod("two", 2))
        await it.until(lambda: shown("2"))
        await it.bound("two")
        await it.quiet()
        same = await it.seen(QUEUE, "test")
        assert same is not None
        await it.api.delete(QUEUE.ref("test"))
        await it.api.create(QUEUE, {**same, "metadata": {"name": "test"}})
        await it.until(lambda: shown("2"))
