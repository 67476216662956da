"""The scheduler on an API server in memory: what it binds, and when it works at all."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
import structlog

from pykai.kube.api import Patch
from pykai.kube.api_resources import BIND_REQUEST, NODE, POD, POD_GROUP, QUEUE

from .rig import FAST, RecordingApi, furnish, group, node, params, pod, queue, rig, submit

pytestmark = pytest.mark.virtual_time


async def test_a_pod_that_fits_gets_a_bind_request() -> None:
    async with rig() as it:
        await furnish(it.api)
        await submit(it.api, pod("train-0"))
        request = await it.request("train-0")
        uid = (await it.api.get(POD.ref("train-0", "team"), dict))["metadata"]["uid"]
        assert request["spec"] == {
            "podName": "train-0",
            "selectedNode": "node-0",
            "receivedResourceType": "Regular",
            "receivedGPU": {"count": 1, "portion": "1.00"},
        }
        assert request["metadata"]["labels"] == {"selected-node": "node-0"}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "train-0", "uid": uid}
        assert request["metadata"]["ownerReferences"] == [owner]
        scheduled = await it.until(lambda: it.events("Scheduled"))
        text = "Successfully assigned pod team/train-0 to node node-0 at node-pool default"
        assert [event["message"] for event in scheduled] == [text]


async def test_a_whole_gpu_pod_costs_two_writes() -> None:
    async with rig() as it:
        await furnish(it.api)
        await it.quiet()
        it.api.writes.clear()
        await submit(it.api, pod("train-0"))
        await it.request("train-0")
        await it.quiet()
        own = [(verb, kind) for verb, kind, *_ in it.api.writes if (verb, kind) not in OTHERS]
        assert sorted(own) == [("create", "BindRequest"), ("create", "Event")]


OTHERS = (("create", "Pod"), ("create", "PodGroup"), ("patch", "Queue"))
"""The user's writes, and fair shares: one per queue and second at most, however many pods come."""


async def test_a_burst_is_few_cycles_and_a_gang_starts_whole() -> None:
    async with rig() as it:
        await furnish(it.api)
        await it.quiet()
        before = it.scheduler.cycles
        await submit(it.api, *(pod(f"w-{n}", gang="gang") for n in range(16)), least=16)
        await it.until(lambda: it.api.count("create", "BindRequest") == 16)
        assert it.scheduler.cycles - before <= 3
        nodes = [request["spec"]["selectedNode"] for request in await it.requests()]
        assert sorted(nodes) == ["node-0"] * 8 + ["node-1"] * 8


async def test_nothing_happens_while_nothing_changes() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("fits"), pod("waits"))
        await it.bound("fits")
        await it.until(lambda: it.events("Unschedulable"))
        await it.quiet(0.3)
        cycles, writes = it.scheduler.cycles, len(it.api.writes)
        heartbeat = {"status": {"conditions": [{"type": "Ready", "status": "True", "message": "still here"}]}}
        await it.api.patch(NODE.ref("node-0").sub("status"), Patch.strategic(heartbeat))
        await it.quiet(0.3)
        assert (it.scheduler.cycles, len(it.api.writes)) == (cycles, writes + 1)


async def test_halves_share_a_device_under_a_lasting_name() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=1, gpus=2)
        half = {"gpu-fraction": "0.5"}
        await submit(it.api, *(pod(f"half-{n}", gpus=0, annotations=half) for n in range(4)))
        await it.until(lambda: it.api.count("create", "BindRequest") == 4)
        requests = [await it.request(f"half-{n}") for n in range(4)]
        groups = [request["spec"]["selectedGPUGroups"][0] for request in requests]
        assert all(UUID(name) for name in groups)
        assert sorted(groups.count(name) for name in set(groups)) == [2, 2]
        assert {request["spec"]["receivedGPU"]["portion"] for request in requests} == {"0.50"}
        assert {request["spec"]["receivedResourceType"] for request in requests} == {"Fraction"}


async def test_what_was_begun_counts_before_the_watch_shows_it() -> None:
    """The watch of bind requests is silent: one GPU must still not be given out twice."""

    class Blind(RecordingApi):
        async def watch(self, resource, into, where=None, version=""):  # type: ignore[no-untyped-def]
            async for event in super().watch(resource, into, where, version):
                if resource != BIND_REQUEST or event.type == "BOOKMARK":
                    yield event

    async with rig(Blind()) as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("first"))
        await it.request("first")
        await submit(it.api, pod("second"))
        await it.until(lambda: it.events("Unschedulable"))
        assert it.api.count("create", "BindRequest") == 1


async def test_a_restart_goes_on_where_the_last_one_stopped() -> None:
    api = RecordingApi()
    async with rig(api) as it:
        await furnish(api, nodes=1, gpus=2)
        await submit(api, pod("a"))
        await it.request("a")
    await submit(api, pod("b"), pod("c"))
    async with rig(api) as it:
        await it.until(lambda: it.api.count("create", "BindRequest") == 2)
        await it.until(lambda: it.events("Unschedulable"))
        assert [request["metadata"]["name"] for request in await it.requests()] == ["a", "b"]


async def test_pods_of_other_schedulers_take_their_room() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=1, gpus=2)
        other = pod("theirs")
        other["spec"] |= {"schedulerName": "default-scheduler", "nodeName": "node-0"}
        del other["metadata"]["annotations"]
        await it.api.create(POD, other)
        await submit(it.api, pod("ours", gpus=2))
        await it.until(lambda: it.events("Unschedulable"))
        await it.api.patch(POD.ref("theirs", "team").sub("status"), Patch.merge({"status": {"phase": "Succeeded"}}))
        assert (await it.request("ours"))["spec"]["selectedNode"] == "node-0"


async def test_a_shard_sees_its_own_pool_and_says_so() -> None:
    key = "kai.scheduler/node-pool"
    shard = replace(FAST, params=params(node_pool="fast"))
    async with rig(options=shard) as it:
        await furnish(it.api)
        await it.api.create(NODE, node("fast-0", kai__none="x"))
        mine = {"metadata": {"labels": {key: "fast"}}}
        for ref in (NODE.ref("fast-0"), QUEUE.ref("test"), QUEUE.ref("default")):
            await it.api.patch(ref, Patch.merge(mine))
        await submit(it.api, pod("elsewhere"))
        ours = group("ours")
        ours["metadata"]["labels"] = {key: "fast"}
        await it.api.create(POD_GROUP, ours)
        await it.api.create(POD, pod("ours"))
        request = await it.request("ours")
        assert request["metadata"]["labels"] == {"selected-node": "fast-0", key: "fast"}
        await it.until(lambda: _labelled(it, key))
        assert await it.seen(BIND_REQUEST, "elsewhere") is None


async def _labelled(it, key: str) -> bool:  # type: ignore[no-untyped-def]
    found = await it.seen(POD, "ours")
    return (found["metadata"].get("labels") or {}).get(key) == "fast"


async def test_a_refused_plan_is_not_written() -> None:
    async with rig(judge=lambda snapshot, plan: ["a device is given out twice"] if plan.binds else []) as it:
        await furnish(it.api)
        await submit(it.api, pod("a"))
        await it.until(lambda: b"kai_refused_plans_total 1" in it.scheduler.metrics.text())
        await it.quiet()
        assert await it.requests() == []


async def test_a_queue_made_larger_lets_work_go_on() -> None:
    async with rig() as it:
        await furnish(it.api, limit=1)
        await submit(it.api, pod("a"), pod("b"))
        await it.until(lambda: it.events("Unschedulable"))
        assert len(await it.requests()) == 1
        spec = queue("test", "default")["spec"]
        await it.api.patch(QUEUE.ref("test"), Patch.merge({"spec": spec}))
        await it.until(lambda: it.api.count("create", "BindRequest") == 2)


async def test_the_log_names_each_gang_that_waits_once() -> None:
    with structlog.testing.capture_logs() as lines:
        async with rig() as it:
            await furnish(it.api, nodes=1, gpus=1)
            await submit(it.api, pod("fits"))
            await it.bound("fits")
            await submit(it.api, pod("waits"))
            await it.until(lambda: [line for line in lines if line["event"] == "gang waits"])
            cycles = it.scheduler.cycles
            await it.api.create(QUEUE, queue("another"))
            await it.until(lambda: it.scheduler.cycles > cycles)
            await it.api.delete(POD.ref("waits", "team"))
            await it.until(lambda: [line for line in lines if line["event"] == "gang does not wait any more"])
    (line,) = [line for line in lines if line["event"] == "gang waits"]
    assert (line["gang"], line["pods"], line["ready"]) == ("team/waits", ["waits"], True)
    assert line["reason"].startswith(
        "PodSchedulingErrors: Resources were not found for pod team/waits due to: no nodes"
    )
