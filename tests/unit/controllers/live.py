"""An API server in memory that keeps a diary of writes, and components that run on it for the length of a block."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any

from pykai.kube.api import SERVER_DEFAULTS, Api, Body, Deletion, Object, Patch, Ref, Resource
from pykai.kube.api_resources import JOB, POD, POD_GROUP, PRIORITY_CLASS, QUEUE
from pykai.kube.errors import ApiError, Timeout
from pykai.kube.informer import InformerFactory
from pykai.kube.memory import MemoryApi
from pykai.objects import names
from pykai.objects.crds import manifests
from tests import builders
from tests.timeouts import TIMEOUT_SECONDS

Run = Callable[[Any, InformerFactory, Any, asyncio.Event], Coroutine[Any, Any, None]]


class DiaryApi(MemoryApi):
    """Writes are noted as (verb, kind, name); `refusals` are raised, each once, for the write they are filed under."""

    def __init__(self, definitions: Iterable[Object] = ()) -> None:
        super().__init__(time.time, [*manifests(), *definitions])
        self.writes: list[tuple[str, str, str]] = []
        self.reads: list[tuple[str, str]] = []
        self.lists: list[str] = []
        self.refusals: dict[tuple[str, str], list[ApiError]] = {}
        self.lost_answers: set[tuple[str, str]] = set()
        """Patches that are carried out, but raise a time-out, each once."""
        self.stalled: dict[str, asyncio.Event] = {}
        """Watches of these kinds show nothing more until the event is set."""

    def count(self, verb: str, kind: str) -> int:
        """How many such writes there were, refused ones included."""
        return sum(1 for write in self.writes if write[:2] == (verb, kind))

    def _note(self, verb: str, kind: str, name: str) -> None:
        self.writes.append((verb, kind, name))
        if self.refusals.get((verb, kind)):
            raise self.refusals[verb, kind].pop(0)

    async def get(self, ref: Ref, into: type[Any]) -> Any:
        self.reads.append((ref.resource.kind, ref.name))
        return await super().get(ref, into)

    async def list(self, resource: Resource, *rest: Any, **more: Any) -> Any:
        self.lists.append(resource.kind)
        return await super().list(resource, *rest, **more)

    async def watch(self, resource: Resource, *rest: Any, **more: Any) -> Any:
        async for event in super().watch(resource, *rest, **more):
            if (resumed := self.stalled.get(resource.kind)) is not None:
                await resumed.wait()
            yield event

    async def create(self, resource: Resource, body: Body, namespace: str = "") -> Object:
        assert isinstance(body, dict)
        await asyncio.sleep(0)
        self._note("create", resource.kind, body["metadata"].get("name", ""))
        return await super().create(resource, body, namespace)

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        await asyncio.sleep(0)
        kind = f"{ref.resource.kind}{f'/{ref.subresource}' if ref.subresource else ''}"
        self._note("patch", kind, ref.name)
        patched = await super().patch(ref, patch)
        if ("patch", kind) in self.lost_answers:
            self.lost_answers.remove(("patch", kind))
            raise Timeout("the answer was lost")
        return patched

    async def delete(self, ref: Ref, how: Deletion = SERVER_DEFAULTS) -> None:
        await asyncio.sleep(0)
        self._note("delete", ref.resource.kind, ref.name)
        await super().delete(ref, how)


@contextlib.asynccontextmanager
async def running(api: Api, run: Run, settings: object) -> AsyncIterator[InformerFactory]:
    """A component on the API server, ready when the block begins."""
    watches, ready = InformerFactory(api), asyncio.Event()
    tasks = [asyncio.create_task(run(api, watches, settings, ready)), asyncio.create_task(watches.run())]
    try:
        await first(asyncio.create_task(ready.wait()), *tasks)
        yield watches
        for task in tasks:
            assert not task.done(), task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def first(*tasks: asyncio.Task[Any]) -> None:
    """Wait for the first task, not for ever; raises what it raised."""
    done, _ = await asyncio.wait(tasks, timeout=TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    assert done, "nothing happened"
    for task in done:
        task.result()


async def eventually(check: Callable[[], Awaitable[Any]], seconds: float = TIMEOUT_SECONDS) -> Any:
    """The first true value of `check()`."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while True:
        value = await check()
        if value:
            return value
        assert clock() < deadline, f"still {value!r}"
        await asyncio.sleep(0.002)


async def make_pod(api: MemoryApi, name: str, namespace: str = "default", **parts: Any) -> Object:
    """A pod of our scheduler; `spec` and `requests` add to it, everything else goes to its metadata."""
    requests = parts.pop("requests", {"cpu": "1"})
    container = {"name": "main", "image": "x", "resources": {"requests": requests}}
    spec = {"schedulerName": "kai-scheduler", "containers": [container], **parts.pop("spec", {})}
    return await api.create(POD, {"metadata": {"name": name, "namespace": namespace, **parts}, "spec": spec})


async def make_job(api: MemoryApi, name: str, **metadata: Any) -> Object:
    """A Job without pods: in memory nobody makes them."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    body = {"metadata": {"name": name, "namespace": "default", **metadata}, "spec": {"template": template}}
    return await api.create(JOB, body)


async def make_queue(api: MemoryApi, name: str, parent: str = "", **spec: Any) -> Object:
    """A queue without limits."""
    return await api.create(QUEUE, builders.queue(name, parent, **spec))


async def make_priority_classes(api: MemoryApi) -> None:
    """The four classes of an installation."""
    for name, value in (("train", 50), ("build-preemptible", 75), ("build", 100), ("inference", 125)):
        await api.create(PRIORITY_CLASS, {"metadata": {"name": name}, "value": value})


async def group_name(api: MemoryApi, pod: str = "p") -> str | None:
    """The PodGroup that a pod names."""
    found = await api.get(POD.ref(pod, "default"), Object)
    return (found["metadata"].get("annotations") or {}).get(names.POD_GROUP_ANNOTATION)


async def grouped(api: MemoryApi, pod: str) -> Object:
    """The PodGroup of a pod, once it has one."""
    name = await eventually(lambda: group_name(api, pod))
    found: Object = await api.get(POD_GROUP.ref(name, "default"), Object)
    return found


async def groups(api: MemoryApi) -> list[Object]:
    """All PodGroups."""
    return list((await api.list(POD_GROUP, Object)).items)


def owned_by(owner: Object) -> list[Object]:
    """The owner references of an object's child."""
    metadata = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    return [{**reference, "name": metadata["name"], "uid": metadata["uid"]}]
