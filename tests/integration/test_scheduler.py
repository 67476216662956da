"""The live scheduler on a real control plane. The test plays the binder, hollow kubelets run what is bound.

Every test has a node pool of its own, so that tests which share the control plane do not see one another.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pykai.cli.install import install
from pykai.cli.replay import Replay
from pykai.config.scheduler_config import SchedulerConfig, policy
from pykai.config.snapshot_file import load, params
from pykai.hollow.hollow_node import GpuShape, NodeShape
from pykai.kube.api import Object, Patch, Selection
from pykai.kube.api_resources import BIND_REQUEST, POD, POD_GROUP, QUEUE
from pykai.kube.client import HttpApi
from pykai.kube.informer import InformerFactory
from pykai.kube.operations import bind
from pykai.kube.workqueue import Pace, ReconcileLoop
from pykai.model.params import SchedulerParams
from pykai.objects import names
from pykai.plugins import registry
from pykai.scheduler.debug_server import SnapshotContext, write_snapshot
from pykai.scheduler.queueing_hints import Debounce
from pykai.scheduler.scheduler import Policies, Scheduler, SchedulerOptions
from pykai.verify.judge import verify
from tests.hollow_nodes import hollow_nodes
from tests.timeouts import TIMEOUT_SECONDS

from .conftest import Eventually, Kubectl

FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
USUAL = Debounce()
WITHOUT_A_TICK = Debounce(period=600, refresh=600)


@dataclass(frozen=True)
class Ground:
    """Where a test works: its namespace, and its pool, which is also the name of its queue."""

    api: HttpApi
    namespace: str
    pool: str

    @property
    def labels(self) -> dict[str, str]:
        return {names.NODE_POOL_LABEL: self.pool}

    def shape(self, name: str, gpus: int) -> NodeShape:
        return NodeShape(f"{self.pool}-{name}", GpuShape(gpus), labels=self.labels)

    async def submit(self, *pods: Object, gang: str = "", least: int = 1, priority: str = "train") -> None:
        """Create pods, all in one PodGroup, or each in one of its own name."""
        for name in [gang] if gang else [pod["metadata"]["name"] for pod in pods]:
            group = {"metadata": {"name": name, "namespace": self.namespace, "labels": self.labels}}
            spec = {"minMember": least, "queue": self.pool, "priorityClassName": priority}
            await self.api.create(POD_GROUP, {**group, "spec": spec})
        for pod in pods:
            pod["metadata"]["annotations"]["pod-group-name"] = gang or pod["metadata"]["name"]
            await self.api.create(POD, pod)

    def pod(self, name: str, gpus: int = 1, **annotations: str) -> Object:
        limits = {"limits": {names.NVIDIA_GPU: gpus}} if gpus else {}
        notes = {key.replace("_", "-"): value for key, value in annotations.items()}
        return {
            "metadata": {"name": name, "namespace": self.namespace, "annotations": notes},
            "spec": {
                "schedulerName": names.SCHEDULER_NAME,
                "containers": [{"name": "main", "image": "x", "resources": limits}],
                "terminationGracePeriodSeconds": 1,
            },
        }

    async def requests(self) -> list[Object]:
        return list((await self.api.list(BIND_REQUEST, Object, Selection(namespace=self.namespace))).items)

    async def all_requested(self, count: int) -> list[Object]:
        found = await self.requests()
        return found if len(found) == count else []

    async def bind(self, requests: Sequence[Object]) -> None:
        """Do what a binder does: bind, and note that it is done."""
        for request in requests:
            name = request["metadata"]["name"]
            await bind(self.api, POD.ref(name, self.namespace), request["spec"]["selectedNode"])
            done = Patch.merge({"status": {"phase": "Succeeded"}})
            await self.api.patch(BIND_REQUEST.ref(name, self.namespace).sub("status"), done)


@pytest.fixture
async def ground(real_api: HttpApi, namespace: str) -> AsyncIterator[Ground]:
    await install(real_api)
    pool = f"pool-{uuid.uuid4().hex[:6]}"
    made = Ground(real_api, namespace, pool)
    for name, parent in ((f"{pool}-all", ""), (pool, f"{pool}-all")):
        spec = {"parentQueue": parent, "resources": {"cpu": FREE, "memory": FREE, "gpu": FREE}}
        await real_api.create(QUEUE, {"metadata": {"name": name, "labels": made.labels}, "spec": spec})
    yield made
    for name in (pool, f"{pool}-all"):
        await real_api.delete(QUEUE.ref(name))


@asynccontextmanager
async def scheduler(ground: Ground, debounce: Debounce = USUAL) -> AsyncIterator[Scheduler]:
    """A scheduler of the pool that runs while the block does."""
    watches = InformerFactory(ground.api)
    mind = Policies(policy(SchedulerConfig(), registry.make, registry.BUILT_IN), verify)
    loop = ReconcileLoop[Hashable]("status", Pace(5))
    live = Scheduler(
        ground.api, watches, mind, loop, SchedulerOptions(SchedulerParams(node_pool=ground.pool), debounce)
    )
    ready = asyncio.Event()
    tasks = [asyncio.create_task(watches.run()), asyncio.create_task(live.run(ready))]
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await ready.wait()
        yield live
        assert not watches.problems()
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(error, asyncio.CancelledError) for error in ended), ended


async def test_pods_are_scheduled_at_once_and_seen_by_kubectl(
    ground: Ground, kubectl: Kubectl, eventually: Eventually
) -> None:
    async with hollow_nodes(ground.api, [ground.shape("a", 8)]), scheduler(ground, WITHOUT_A_TICK):
        for number in range(5):
            await ground.submit(ground.pod(f"one-{number}"))
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while len(await ground.requests()) <= number:
                    await asyncio.sleep(0.005)
        requests = await ground.requests()
        await ground.bind(requests)
        request = requests[0]
        assert request["spec"]["receivedGPU"] == {"count": 1, "portion": "1.00"}
        assert request["metadata"]["labels"] == {"selected-node": f"{ground.pool}-a", **ground.labels}
        text = f"Successfully assigned pod {ground.namespace}/one-0 to node {ground.pool}-a at node-pool {ground.pool}"
        await eventually(lambda: _mentions(kubectl, ground, "pod/one-0", text))
        columns = await kubectl("get", "bindrequests", "-n", ground.namespace)
        assert f"{ground.pool}-a" in columns

        async def labelled() -> bool:
            pod = await ground.api.get(POD.ref("one-0", ground.namespace), Object)
            return bool((pod["metadata"].get("labels") or {}).get(names.NODE_POOL_LABEL) == ground.pool)

        await eventually(labelled)


async def test_a_gang_starts_whole_or_not_at_all(ground: Ground, kubectl: Kubectl, eventually: Eventually) -> None:
    async with hollow_nodes(ground.api, [ground.shape("a", 4)]) as nodes, scheduler(ground):
        await ground.submit(*(ground.pod(f"w-{n}") for n in range(6)), gang="gang", least=6)

        async def told() -> Any:
            pod = await ground.api.get(POD.ref("w-0", ground.namespace), Object)
            return next((c for c in pod["status"].get("conditions") or () if c["type"] == "PodScheduled"), None)

        condition = await eventually(told)
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert await ground.requests() == []
        described = await eventually(lambda: _mentions(kubectl, ground, "podgroup/gang", "gang scheduling"))
        assert "Resources were found for 4 pods while 6 are required for gang scheduling" in described
        shown = await kubectl("get", "podgroup", "gang", "-n", ground.namespace, "-o", "json")
        assert json.loads(shown)["status"]["schedulingConditions"][0]["nodePool"] == ground.pool
        await nodes.add([ground.shape("b", 4)])
        await ground.bind(await eventually(lambda: ground.all_requested(6)))
        await kubectl("wait", "--for=condition=Ready", "pod", "--all", "-n", ground.namespace, "--timeout=50s")

        async def content() -> bool:
            group = await ground.api.get(POD_GROUP.ref("gang", ground.namespace), Object)
            return not (group.get("status") or {}).get("schedulingConditions")

        await eventually(content)


async def _mentions(kubectl: Kubectl, ground: Ground, what: str, text: str) -> str:
    kind, name = what.split("/")
    described = await kubectl("describe", kind, name, "-n", ground.namespace)
    return described if text in described else ""


async def test_an_impossible_pod_is_told_why(ground: Ground, kubectl: Kubectl, eventually: Eventually) -> None:
    async with hollow_nodes(ground.api, [ground.shape("a", 2)]), scheduler(ground):
        await ground.submit(ground.pod("big", gpus=3))
        described = await eventually(lambda: _mentions(kubectl, ground, "pod/big", "Warning  Unschedulable"))
        assert (
            f"Max GPU resources available in a single node in the {ground.pool} node-pool is topped at 2" in described
        )


async def test_priority_takes_the_place_of_others(ground: Ground, kubectl: Kubectl, eventually: Eventually) -> None:
    async with hollow_nodes(ground.api, [ground.shape("a", 1)]), scheduler(ground):
        await ground.submit(ground.pod("train"))
        await ground.bind(await eventually(lambda: ground.all_requested(1)))
        await kubectl("wait", "--for=condition=Ready", "pod/train", "-n", ground.namespace, "--timeout=50s")
        await ground.submit(ground.pod("build"), priority="build")
        await kubectl("wait", "--for=delete", "pod/train", "-n", ground.namespace, "--timeout=50s")

        async def replaced() -> list[Object]:
            return [request for request in await ground.requests() if request["metadata"]["name"] == "build"]

        await ground.bind(await eventually(replaced))
        await kubectl("wait", "--for=condition=Ready", "pod/build", "-n", ground.namespace, "--timeout=50s")

        async def told() -> list[Object]:
            events = json.loads(await kubectl("get", "events", "-n", ground.namespace, "-o", "json"))["items"]
            found = [event for event in events if event["reason"] == "Evict"]
            return found if len(found) > 1 else []

        found = await eventually(told)
        assert {event["involvedObject"]["kind"] for event in found} == {"Pod", "PodGroup"}
        assert {event["metadata"]["annotations"]["evictor-pod-group-name"] for event in found} == {"build"}


async def test_devices_are_never_given_out_twice_however_often_it_is_killed(
    ground: Ground, eventually: Eventually
) -> None:
    """16 halves on 8 devices, the scheduler restarted again and again while it works."""
    async with hollow_nodes(ground.api, [ground.shape("a", 8)]):
        pods = [ground.pod(f"half-{n:02}", gpus=0, gpu_fraction="0.5") for n in range(16)]
        feeding = asyncio.create_task(ground.submit(*pods))
        while len(await ground.requests()) < 16:
            async with scheduler(ground):
                await asyncio.sleep(0.15)
        await feeding
        async with scheduler(ground) as live:
            await eventually(lambda: live.cycles)
            groups = [group for request in await ground.requests() for group in request["spec"]["selectedGPUGroups"]]
    assert sorted(groups.count(group) for group in set(groups)) == [2] * 8


async def test_the_snapshot_of_a_real_server_can_be_replayed(
    ground: Ground, eventually: Eventually, tmp_path: Path
) -> None:
    async with hollow_nodes(ground.api, [ground.shape("a", 1)]), scheduler(ground) as live:
        await ground.submit(ground.pod("runs"), ground.pod("waits"))
        await eventually(lambda: ground.all_requested(1))
        about = SnapshotContext(SchedulerConfig(), registry.BUILT_IN)
        with await write_snapshot(ground.api, live.params, about) as file:
            (tmp_path / "snapshot.zip").write_bytes(file.read())
    parsed = load(tmp_path / "snapshot.zip")
    assert params(parsed) == live.params
    assert [node.metadata.name for node in parsed.raw_objects.nodes or ()] == [f"{ground.pool}-a"]
    plan, _ = Replay(parsed, time.time()).cycle()
    assert (plan.binds, plan.pending) == ((), 1)
