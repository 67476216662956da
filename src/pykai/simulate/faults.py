"""Faults by a seed: the product on an API server that misbehaves, killed at any write, among users who delete things.

Errors before a write (429, 500, 503, time-out) and after it (the answer is lost); watches that break or are compacted;
components killed between any two writes and started again; nodes lost and returned; pods and PodGroups deleted.

While this goes on, and when the cluster is at rest again, `Checks` compares what is with what must be. A run depends on
nothing but its seed. Kubelets, users and checks have the true server; only the product sees the faults.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from random import Random
from typing import TypeVar, cast

from pykai.hollow.settings import OnStart
from pykai.kube.api import (
    ALL_AT_ONCE,
    AS_SERVER_LIKES,
    EVERYTHING,
    Api,
    Body,
    Deletion,
    Object,
    Page,
    Paging,
    Patch,
    Ref,
    Resource,
    Selection,
    WatchEvent,
)
from pykai.kube.errors import AlreadyExists, ApiError, Gone, NotFound, Timeout, TooManyRequests, Unavailable
from pykai.kube.memory import Admission, MemoryApi
from pykai.kube.resources import NODE, POD, POD_GROUP
from pykai.simulate.cluster import Hooks, Product
from pykai.simulate.invariants import Checks

T = TypeVar("T")
FAULTY_SECONDS, REST_SECONDS, RESTARTED_SECONDS = 300.0, 700.0, 200.0
"""How long faults go on, how long the cluster then has to come to rest, and how long a restart is watched."""
END_SECONDS = FAULTY_SECONDS + REST_SECONDS + RESTARTED_SECONDS + 1.0
WRITE_FAULTS, READ_FAULTS, WATCH_FAULTS, KILLS = 0.06, 0.02, 0.01, 0.004
"""Chances per write, read, event of a watch, and write."""
_BEFORE = (TooManyRequests, ApiError, Unavailable, Timeout)


class FaultyApi:
    """An `Api` that fails by chance while `active`; `on_kill` is called between two writes now and then."""

    def __init__(self, api: Api, chance: Random, on_kill: Callable[[], None]) -> None:
        self.active = True
        self.faults: Counter[str] = Counter()
        self._api = api
        self._chance = chance
        self._on_kill = on_kill

    def _happens(self, rate: float) -> bool:
        return self.active and self._chance.random() < rate

    async def _read(self, ask: Callable[[], Awaitable[T]]) -> T:
        if self._happens(READ_FAULTS):
            self.faults["read failed"] += 1
            raise Unavailable("the server is overloaded")
        return await ask()

    async def _write(self, write: Callable[[], Awaitable[T]]) -> T:
        before = self._happens(WRITE_FAULTS)
        if before:
            error = self._chance.choice(_BEFORE)
            self.faults[f"{error.__name__} before the write"] += 1
            raise error("the write was not made")
        answer = await write()
        if self._happens(KILLS):
            self.faults["components killed"] += 1
            self._on_kill()
        if self._happens(WRITE_FAULTS):
            self.faults["answer lost after the write"] += 1
            raise Timeout("the answer was lost")
        return answer

    async def get(self, ref: Ref, into: type[T]) -> T:
        """See `Api.get`."""
        return await self._read(lambda: self._api.get(ref, into))

    async def list(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, paging: Paging = ALL_AT_ONCE
    ) -> Page[T]:
        """See `Api.list`."""
        return await self._read(lambda: self._api.list(resource, into, where, paging))

    async def create(self, resource: Resource, body: Body, namespace: str = "") -> Object:
        """See `Api.create`."""
        return await self._write(lambda: self._api.create(resource, body, namespace))

    async def update(self, ref: Ref, body: Body) -> Object:
        """See `Api.update`."""
        return await self._write(lambda: self._api.update(ref, body))

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        """See `Api.patch`."""
        return await self._write(lambda: self._api.patch(ref, patch))

    async def delete(self, ref: Ref, how: Deletion = AS_SERVER_LIKES) -> None:
        """See `Api.delete`."""
        await self._write(lambda: self._api.delete(ref, how))

    async def post(self, ref: Ref, body: Body) -> Object:
        """See `Api.post`."""
        return await self._write(lambda: self._api.post(ref, body))

    async def watch(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, version: str = ""
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """See `Api.watch`."""
        async with aclosing(self._api.watch(resource, into, where, version)) as events:
            async for event in events:
                yield event
                if self._happens(WATCH_FAULTS):
                    gone = self._chance.random() < 0.5
                    self.faults["watch compacted" if gone else "watch broken"] += 1
                    raise Gone("too old resource version") if gone else Unavailable("the connection broke")


class FaultyProduct:
    """A product among faults; `violations` is what the checks found, `faults` of the API how many there were."""

    def __init__(self, product: Product, seed: int) -> None:
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self._product = product
        self._chance = Random(f"{seed}/faults")
        self._running: asyncio.Task[None] | None = None
        self._killed = asyncio.Event()

    def admission(self, queues: Callable[[], Mapping[str, Object]], warn: Callable[[str], None]) -> Sequence[Admission]:
        """See `cluster.Product`."""
        return self._product.admission(queues, warn)

    def definitions(self) -> Sequence[Object]:
        """See `cluster.Product`."""
        return self._product.definitions()

    def programs(self, api: Api) -> OnStart:
        """See `cluster.Product`."""
        return self._product.programs(api)

    def faults(self) -> Sequence[str]:
        """See `cluster.Product`."""
        return self._product.faults()

    async def run(self, api: Api, hooks: Hooks, ready: asyncio.Event) -> None:
        """Run the product among faults, let it come to rest, and restart it; then idle until cancelled."""
        server = cast(MemoryApi, api)
        faulty = FaultyApi(api, self._chance, self._killed.set)
        checks = Checks(api, self.violations.append)
        keeping = asyncio.create_task(self._kept_running(faulty, hooks))
        checking = asyncio.create_task(checks.run())
        users = asyncio.create_task(self._users(server))
        try:
            await asyncio.sleep(FAULTY_SECONDS)
            users.cancel()
            faulty.active = False
            self.counts += faulty.faults
            await asyncio.sleep(REST_SECONDS)
            await checks.at_rest()
            before = await checks.placements()
            self._killed.set()
            await asyncio.sleep(RESTARTED_SECONDS)
            for pod, place in (await checks.placements()).items():
                if before.get(pod, "absent") != place:
                    self.violations.append(f"a restart moved {pod} from {before.get(pod, 'absent')!r} to {place!r}")
            ready.set()
            await asyncio.Event().wait()
        finally:
            for task in (keeping, checking, users):
                task.cancel()
            await asyncio.gather(keeping, checking, users, return_exceptions=True)

    async def _kept_running(self, api: FaultyApi, hooks: Hooks) -> None:
        """Run the components, and start them anew whenever they are killed or end."""
        while True:
            self._killed.clear()
            running = asyncio.create_task(self._product.run(api, hooks, asyncio.Event()))
            killed = asyncio.create_task(self._killed.wait())
            try:
                await asyncio.wait([running, killed], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (running, killed):
                    task.cancel()
                await asyncio.gather(running, killed, return_exceptions=True)
            await asyncio.sleep(1.0)

    async def _users(self, api: MemoryApi) -> None:
        """Delete pods and PodGroups, lose a node and bring it back, compact the server."""
        while True:
            await asyncio.sleep(self._chance.uniform(5.0, 30.0))
            deed = self._chance.choice((self._delete_a_pod, self._delete_a_group, self._lose_a_node, self._compact))
            with suppress(NotFound, AlreadyExists):
                await deed(api)

    async def _delete_a_pod(self, api: MemoryApi) -> None:
        await self._delete_one(api, POD)

    async def _delete_a_group(self, api: MemoryApi) -> None:
        await self._delete_one(api, POD_GROUP)

    async def _delete_one(self, api: MemoryApi, resource: Resource) -> None:
        found = (await api.list(resource, Object)).items
        if found:
            meta = self._chance.choice(found)["metadata"]
            self.counts[f"{resource.kind} deleted by a user"] += 1
            await api.delete(resource.ref(meta["name"], meta["namespace"]))

    async def _lose_a_node(self, api: MemoryApi) -> None:
        """Take a node away with its pods, as the garbage collector of pods does, and bring it back later."""
        nodes = (await api.list(NODE, Object)).items
        if len(nodes) < 2:
            return
        node = self._chance.choice(nodes)
        name = node["metadata"]["name"]
        self.counts["node lost"] += 1
        await api.delete(NODE.ref(name))
        for pod in (await api.list(POD, Object, Selection(fields=f"spec.nodeName={name}"))).items:
            meta = pod["metadata"]
            with suppress(NotFound):
                await api.delete(POD.ref(meta["name"], meta["namespace"]), Deletion(grace_seconds=0))
        await asyncio.sleep(self._chance.uniform(5.0, 40.0))
        kept = {key: value for key, value in node["metadata"].items() if key in ("name", "labels", "annotations")}
        await api.create(NODE, {"metadata": kept, "spec": node.get("spec") or {}, "status": node["status"]})

    async def _compact(self, api: MemoryApi) -> None:
        self.counts["server compacted and restarted"] += 1
        api.compact()
        api.disconnect()
