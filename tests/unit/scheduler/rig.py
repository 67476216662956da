"""A live scheduler on an API server in memory, and manifests to feed it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pykai.config.scheduler_config import SchedulerConfig, policy
from pykai.controllers.binder.binder import Binder, BinderSettings
from pykai.controllers.podgrouper.grouper import PodGrouper, PodGrouperSettings
from pykai.kube.api import Api, Body, Deletion, Object, Patch, Ref, Resource
from pykai.kube.api_resources import BIND_REQUEST, EVENT, NODE, POD, POD_GROUP, QUEUE
from pykai.kube.backoff import Backoff
from pykai.kube.clock import wall
from pykai.kube.errors import ApiError, NotFound, Timeout, TooManyRequests, Unavailable
from pykai.kube.informer import InformerFactory
from pykai.kube.memory import MemoryApi
from pykai.kube.operations import bind
from pykai.kube.workqueue import Pace, ReconcileLoop
from pykai.model.params import SchedulerParams
from pykai.objects.crds import manifests
from pykai.plugins import registry
from pykai.scheduler.decision import Judge
from pykai.scheduler.group_membership import ExpectedGroups
from pykai.scheduler.queueing_hints import Debounce
from pykai.scheduler.scheduler import Colocated, Policies, Scheduler, SchedulerOptions
from pykai.scheduler.status_updater import Spacing
from pykai.verify.judge import verify
from tests import builders
from tests.timeouts import TIMEOUT_SECONDS

FAST = SchedulerOptions(
    debounce=Debounce(period=0.05, pause=0.001, burst=0.005),
    spacing=Spacing(first=0.01, longest=0.02),
    backoff=Backoff(0.05, 0.1),
)
GPU = "nvidia.com/gpu"
T = TypeVar("T")
_GLANCES = 5


class RecordingApi(MemoryApi):
    """Notes every write as (verb, kind, name, subresource), and raises what is queued for a verb and kind."""

    def __init__(self) -> None:
        super().__init__(wall, manifests())
        self.writes: list[tuple[str, str, str, str]] = []
        self.failures: dict[tuple[str, str], list[ApiError]] = {}

    def _note(self, verb: str, kind: str, name: str, subresource: str = "") -> None:
        self.writes.append((verb, kind, name, subresource))
        if queued := self.failures.get((verb, kind)):
            raise queued.pop(0)

    async def create(self, resource: Resource, body: Body, namespace: str = "") -> Object:
        assert isinstance(body, dict)
        self._note("create", resource.kind, body["metadata"]["name"])
        return await super().create(resource, body, namespace)

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        self._note("patch", ref.resource.kind, ref.name, ref.subresource)
        return await super().patch(ref, patch)

    async def delete(self, ref: Ref, how: Deletion | None = None) -> None:
        self._note("delete", ref.resource.kind, ref.name)
        await super().delete(ref, how or Deletion())

    async def post(self, ref: Ref, body: Body) -> Object:
        self._note("post", ref.resource.kind, ref.name, ref.subresource)
        return await super().post(ref, body)

    def count(self, verb: str, kind: str) -> int:
        return sum(1 for write in self.writes if write[:2] == (verb, kind))


class FlakyWritesApi(RecordingApi):
    """Fails a part of all writes, before or after they were carried out, and now and then ends all watches."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)
        self.peace = True

    async def perhaps(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        lot = 1.0 if self.peace else self.chance.random()
        await asyncio.sleep(self.chance.random() * 0.01)
        if lot < 0.1:
            raise self.chance.choice((Timeout, Unavailable, TooManyRequests, ApiError))("before")
        done = await work()
        if lot < 0.2:
            raise Timeout("after")
        if lot < 0.22:
            self.disconnect()
        return done

    async def create(self, resource: Resource, body: Body, namespace: str = "") -> Object:
        return await self.perhaps(partial(super().create, resource, body, namespace))

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        return await self.perhaps(partial(super().patch, ref, patch))

    async def delete(self, ref: Ref, how: Deletion | None = None) -> None:
        await self.perhaps(partial(super().delete, ref, how))


@dataclass
class Rig:
    """A running scheduler. `seen` reads an object or None; `until` waits for a check that may be a coroutine."""

    api: RecordingApi
    scheduler: Scheduler
    options: SchedulerOptions
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    async def seen(self, resource: Resource, name: str, namespace: str = "team") -> Object | None:
        ref = resource.ref(name, namespace if resource.namespaced else "")
        try:
            return await self.api.get(ref, Object)
        except NotFound:
            return None

    async def until(self, check: Callable[[], Any], seconds: float = TIMEOUT_SECONDS) -> Any:
        async with asyncio.timeout(seconds):
            while True:
                value = check()
                value = await value if asyncio.iscoroutine(value) else value
                if value:
                    return value
                await asyncio.sleep(0.002)

    async def request(self, pod: str) -> Object:
        """The bind request of a pod, once it is there."""
        found: Object = await self.until(lambda: self.seen(BIND_REQUEST, pod))
        return found

    async def requests(self) -> list[Object]:
        return list((await self.api.list(BIND_REQUEST, Object)).items)

    async def events(self, reason: str = "") -> list[Object]:
        listed = (await self.api.list(EVENT, Object)).items
        return [event for event in listed if reason in ("", event["reason"])]

    async def at_least(self, count: int, reason: str) -> list[Object]:
        """The events of a reason, once there are so many."""
        found = await self.events(reason)
        return found if len(found) >= count else []

    async def quiet(self, seconds: float = 0.15) -> None:
        """Let everything that is going on end: until for so long no cycle has run and nothing was written."""
        before, now = None, (self.scheduler.cycles, len(self.api.writes))
        while before != now:
            for _ in range(_GLANCES):
                await asyncio.sleep(seconds / _GLANCES)
            before, now = now, (self.scheduler.cycles, len(self.api.writes))

    async def bound(self, pod: str) -> None:
        """Play the binder: bind the pod where its request says, and note success."""
        request = await self.request(pod)
        await bind(self.api, POD.ref(pod, "team"), request["spec"]["selectedNode"])
        done = Patch.merge({"status": {"phase": "Succeeded"}})
        await self.api.patch(BIND_REQUEST.ref(pod, "team").sub("status"), done)


@contextlib.asynccontextmanager
async def rig(
    api: RecordingApi | None = None,
    options: SchedulerOptions = FAST,
    judge: Judge = verify,
    *,
    takes_over: bool = False,
    direct: bool = False,
    grouped: bool = False,
) -> AsyncIterator[Rig]:
    """A scheduler that runs while the block does; `direct`: with a binder in its process, `grouped`: with a grouper."""
    api = api or RecordingApi()
    watches = InformerFactory(api)
    mind = Policies(policy(SchedulerConfig(), registry.make, registry.BUILT_IN), judge)
    loop = ReconcileLoop[Hashable]("status", Pace(workers=5, first_seconds=0.01))
    binder = Binder(api, watches, BinderSettings(pace=Pace(4, 0.05, 0.1))) if direct else None
    expected = ExpectedGroups() if grouped else None
    live = Scheduler(api, watches, mind, loop, options, Colocated(binder.direct if binder else None, expected))
    made = Rig(api, live, options)
    work: list[Coroutine[Any, Any, None]] = [watches.run(), live.run(takes_over=takes_over)]
    work += [binder.run()] if binder else []
    work += [PodGrouper(api, watches, PodGrouperSettings(), expected).run(asyncio.Event())] if grouped else []
    made.tasks = [asyncio.create_task(each) for each in work]
    try:
        yield made
        for task in made.tasks:
            assert not task.done(), task
    finally:
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)


def params(**given: Any) -> SchedulerParams:
    return SchedulerParams(**given)


# ------------------------------------------------------------------------------------------------------------ manifests
def node(name: str, gpus: int = 8, **labels: str) -> Object:
    """A node of 32 cores with devices of 40 GB; `__` stands for the slash of a label."""
    given = {"nvidia.com/gpu.memory": "40000", **{key.replace("__", "/"): value for key, value in labels.items()}}
    amounts = {"cpu": "32", "memory": "256Gi", GPU: str(gpus)}
    return builders.node(name, gpus, given, amounts)


def queue(name: str, parent: str = "", **resource: float) -> Object:
    """A queue with the same share of every resource."""
    return builders.queue(name, parent, cpu=resource, memory=resource, gpu=resource)


def group(name: str, least: int = 1, **spec: Any) -> Object:
    return builders.pod_group(name, min_member=least, metadata={"namespace": "team"}, **{"queue": "test", **spec})


def pod(name: str, gpus: int = 1, gang: str = "", annotations: Mapping[str, str] | None = None) -> Object:
    """A pod of namespace `team`; its uid is the API server's."""
    made = builders.pod(name, gang or name, requests={"gpu": gpus} if gpus else {}, namespace="team")
    made["metadata"]["annotations"] |= annotations or {}
    del made["metadata"]["uid"], made["status"]
    return made


async def furnish(api: Api, nodes: int = 2, gpus: int = 8, limit: float = -1) -> None:
    """Nodes, the queues `default` and `test`, and the namespace `team`."""
    from pykai.kube.api_resources import NAMESPACE

    await api.create(NAMESPACE, {"metadata": {"name": "team"}})
    for number in range(nodes):
        await api.create(NODE, node(f"node-{number}", gpus))
    await api.create(QUEUE, queue("default"))
    await api.create(QUEUE, queue("test", "default", limit=limit))


async def submit(api: Api, *pods: Object, least: int = 1, **spec: Any) -> None:
    """A PodGroup for each gang the pods name, and the pods."""
    for name in dict.fromkeys(each["metadata"]["annotations"]["pod-group-name"] for each in pods):
        await api.create(POD_GROUP, group(name, least, **spec))
    for each in pods:
        await api.create(POD, each)
