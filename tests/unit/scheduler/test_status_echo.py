"""A text that returns to an older one is written, though the watch still shows the older and not what came between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, cast

import msgspec

from pykai.cache.assumed import Assumptions
from pykai.cache.cluster import Change, ClusterCache
from pykai.kube.api import Api, Object, Patch, Ref
from pykai.kube.events import EventRecorder
from pykai.kube.workqueue import ReconcileLoop
from pykai.model.params import SchedulerParams
from pykai.objects import names
from pykai.objects.kinds import Pod, PodGroup, Queue
from pykai.scheduler.plan_conditions import NOT_READY, Conditions, GangCondition, PodCondition
from pykai.scheduler.status_updater import NOT_READY_SECONDS, Spacing, StatusUpdater, WriteAccess, WriteQueue

KEY = ("team", "waits")


class Keys:
    """A loop that works on its keys when asked to."""

    def __init__(self) -> None:
        self.keys: list[Hashable] = []
        self.delays: list[float] = []
        self.reconcile: Callable[[Hashable], Awaitable[float | None]] | None = None

    def add_after(self, key: Hashable, seconds: float) -> None:
        self.keys.append(key)
        self.delays.append(seconds)

    async def run(self, reconcile: Callable[[Hashable], Awaitable[float | None]]) -> None:
        self.reconcile = reconcile

    async def work(self) -> None:
        assert self.reconcile is not None
        while self.keys:
            await self.reconcile(self.keys.pop(0))


class Server:
    """Stores what is patched, each time as a newer version; no watch shows it."""

    def __init__(self) -> None:
        self.version = 1
        self.stored: list[Object] = []

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        assert isinstance(patch.body, dict)
        self.version += 1
        self.stored.append(patch.body["status"])
        return {"metadata": {"resourceVersion": str(self.version)}}


class Bench:
    """A status updater between a server and a cache that has seen the text "a"."""

    def __init__(self) -> None:
        self.server, self.keys, self.cache = Server(), Keys(), ClusterCache(SchedulerParams())
        api = cast(Api, self.server)
        queue = WriteQueue(cast(ReconcileLoop[Hashable], self.keys), Spacing(0.0, 0.0, 0.0))
        self.run = queue.run
        access = WriteAccess(api, EventRecorder(api, "test"), queue)
        self.updater = StatusUpdater(access, self.cache, Assumptions())

    def show(self, kind: type[Any], obj: Object, version: int, uid: str = "u") -> None:
        """The watch shows the object in this version."""
        meta = {"name": KEY[1], "namespace": "" if kind is Queue else KEY[0], "uid": uid}
        meta["resourceVersion"] = str(version)
        self.cache.apply(Change(msgspec.convert({"spec": {}, **obj, "metadata": meta}, kind)))

    async def update(self, pods: dict[Any, Any], gangs: dict[Any, Any], **more: Any) -> list[Object]:
        """What is written for these conditions."""
        before = len(self.server.stored)
        await self.run()
        self.updater.update(Conditions(pods, gangs, **more))
        await self.keys.work()
        return self.server.stored[before:]


def scheduling(text: str) -> Object:
    fixed = {"type": names.UNSCHEDULABLE_ON_POOL, "nodePool": "default", "reason": names.UNSCHEDULABLE}
    return {**fixed, "message": text, "reasons": [], "status": "True"}


async def test_the_condition_of_a_group() -> None:
    bench = Bench()
    shown = {"status": {"schedulingConditions": [{**scheduling("a"), "transitionID": "1"}]}}
    bench.show(PodGroup, shown, 1)

    async def written(text: str) -> list[tuple[str, str]]:
        bodies = await bench.update({}, {KEY: GangCondition("u", (), scheduling(text))})
        return [(c["message"], c["transitionID"]) for body in bodies for c in body["schedulingConditions"]]

    assert await written("a") == [], "the watch shows it"
    assert await written("b") == [("b", "2")]
    assert await written("a") == [("a", "3")], "the server has b, whatever the watch shows"
    bench.show(PodGroup, {"status": {"schedulingConditions": [{**scheduling("c"), "transitionID": "9"}]}}, 9)
    assert await written("b") == [("b", "10")], "a newer version counts more than what was sent"
    bench.show(PodGroup, {"status": {"schedulingConditions": [{**scheduling("b"), "transitionID": "10"}]}}, 10)
    assert await written("b") == []
    bench.show(PodGroup, {}, 11)
    assert await written("b") == [("b", "1")], "another writer removed it"


async def test_the_condition_of_a_pod() -> None:
    bench = Bench()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "a"}
    bench.show(Pod, {"status": {"conditions": [condition]}}, 1)

    async def written(text: str) -> list[str]:
        bodies = await bench.update({KEY: PodCondition("u", text)}, {})
        return [c["message"] for body in bodies for c in body["conditions"]]

    assert await written("a") == []
    assert await written("b") == ["b"]
    assert await written("a") == ["a"]


async def test_pods_of_a_gang_that_may_be_complete_in_a_moment_wait_to_say_so() -> None:
    bench = Bench()
    await bench.run()
    bench.updater.update(Conditions({KEY: PodCondition("u", "1 of 2 pods exist", False, NOT_READY)}, {}))
    bench.updater.update(Conditions({KEY: PodCondition("u", "no nodes")}, {}))
    assert bench.keys.delays == [NOT_READY_SECONDS, 0.0]


async def test_the_fair_share_of_a_queue() -> None:
    bench = Bench()
    bench.show(Queue, {}, 1)

    async def written(gpus: float) -> list[str]:
        bodies = await bench.update({}, {}, fair_shares={KEY[1]: (0.0, 0.0, gpus), "gone": (0.0, 0.0, 1.0)})
        return [body["fairShare"][names.NVIDIA_GPU] for body in bodies]

    assert await written(2) == ["2"]
    assert await written(2) == [], "the server has it, though the watch does not show it"
    assert await written(2.5) == ["2500m"]
    bench.show(Queue, {"status": {"fairShare": {"cpu": "0", "memory": "0", names.NVIDIA_GPU: "2500m"}}}, 3)
    assert await written(2.5) == []
    bench.show(Queue, {}, 4, "another")
    assert await written(2.5) == ["2500m"], "a queue made anew under its name has none"
    bench.show(Queue, {}, 9, "another")
    assert await written(2.5) == ["2500m"], "somebody removed it"
