"""A cluster in memory for the binder: an API server, kubelets that hand out devices, and a way to kill the binder.

Time stands still unless a test moves it. Every write of the binder is counted and may be its last.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pykai.controllers.binder.bind_reconciler import BindRules
from pykai.controllers.binder.binder import Binder, BinderSettings
from pykai.controllers.binder.plugins import read_plugins
from pykai.controllers.binder.reservations import ReservationTemplate
from pykai.kube.api import (
    ALL_AT_ONCE,
    EVERYTHING,
    SERVER_DEFAULTS,
    Api,
    Body,
    Deletion,
    EventType,
    Object,
    Page,
    Paging,
    Patch,
    Ref,
    Resource,
    Selection,
    WatchEvent,
)
from pykai.kube.api_resources import BIND_REQUEST, CONFIG_MAP, NAMESPACE, NODE, POD
from pykai.kube.clock import wall
from pykai.kube.errors import NotFound
from pykai.kube.informer import InformerFactory, SharedInformer
from pykai.kube.informer_store import WatchChange
from pykai.kube.memory import MemoryApi
from pykai.kube.workqueue import Pace
from pykai.objects import names
from pykai.objects.crds import manifests
from tests.virtual_time import advance, set_jitter, settle

T = TypeVar("T")
TEAM = "team"
GLANCE = 0.02
"""Seconds between two looks of a late watch."""


class KilledError(BaseException):
    """The process is gone."""


class WatchedApi:
    """The server as one process sees it: writes are counted, and the `last`-th is its last one.

    With `after` the last write is carried out before the process dies, else not. `refuse` may raise instead of a write,
    `lose` after it: the write was carried out and the answer is lost. Informers of the kinds in `late` show no news.
    A write takes `turns` turns of the event loop on its way.
    """

    def __init__(self, inner: MemoryApi, last: int = 0, *, after: bool = False) -> None:
        self.writes: list[str] = []
        self.dead = False
        self.refuse: Callable[[str], None] = lambda write: None
        self.lose: Callable[[str], None] = lambda write: None
        self.late: set[Resource] = set()
        self.turns = 3
        self._inner = inner
        self._last = last
        self._after = after

    async def _write(self, what: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            await self._send(what)
        except BaseException:
            work.close()
            raise
        done = await work
        if self.dead:
            raise KilledError
        self.lose(what)
        return done

    async def _send(self, what: str) -> None:
        """What happens to a write before it is carried out."""
        self._check_alive()
        self.refuse(what)
        self.writes.append(what)
        number = len(self.writes)
        for _ in range(self.turns):
            await asyncio.sleep(0)
        self._check_alive()
        self.dead = number == self._last
        if not self._after:
            self._check_alive()

    def _check_alive(self) -> None:
        if self.dead:
            raise KilledError

    async def get(self, ref: Ref, into: type[T]) -> T:
        return await self._inner.get(ref, into)

    async def list(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, paging: Paging = ALL_AT_ONCE
    ) -> Page[T]:
        return await self._inner.list(resource, into, where, paging)

    async def watch(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, version: str = ""
    ) -> AsyncGenerator[WatchEvent[T], None]:
        async with contextlib.aclosing(self._inner.watch(resource, into, where, version)) as events:
            async for event in events:
                while resource in self.late:
                    await asyncio.sleep(GLANCE)
                yield event

    async def create(self, resource: Resource, body: Body, namespace: str = "") -> Object:
        return await self._write(f"create {resource.plural}", self._inner.create(resource, body, namespace))

    async def update(self, ref: Ref, body: Body) -> Object:
        return await self._write(f"update {_title(ref)}", self._inner.update(ref, body))

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        return await self._write(f"patch {_title(ref)}", self._inner.patch(ref, patch))

    async def delete(self, ref: Ref, how: Deletion = SERVER_DEFAULTS) -> None:
        await self._write(f"delete {_title(ref)}", self._inner.delete(ref, how))

    async def post(self, ref: Ref, body: Body) -> Object:
        return await self._write(f"post {_title(ref)}", self._inner.post(ref, body))


def _title(ref: Ref) -> str:
    return f"{ref.resource.plural}/{ref.subresource}" if ref.subresource else ref.resource.plural


class Kubelets:
    """Pods on nodes become Running; a pod that asks for a GPU gets a free device, a reservation pod says which."""

    def __init__(self, api: Api, devices: dict[str, list[str]]) -> None:
        self.reserves = True
        self._api = api
        self._free = {node: list(each) for node, each in devices.items()}
        self._held: dict[str, tuple[str, str]] = {}
        self._seen: set[str] = set()

    async def run(self) -> None:
        pods = SharedInformer(self._api, POD, Object)
        news: asyncio.Queue[WatchChange[Object]] = asyncio.Queue()
        pods.subscribe(news.put_nowait)
        async with asyncio.TaskGroup() as group:
            group.create_task(pods.run())
            while True:
                event = await news.get()
                if event.object["spec"].get("nodeName"):
                    await self._play(event)

    async def resume(self) -> None:
        """Take up work, and what came in the meantime."""
        self.reserves = True
        for pod in (await self._api.list(POD, Object, Selection(fields="spec.nodeName!="))).items:
            await self._play(WatchChange(EventType.ADDED, ("", ""), pod, None))

    async def _play(self, event: WatchChange[Object]) -> None:
        pod, uid = event.object, event.object["metadata"]["uid"]
        ref = POD.ref(pod["metadata"]["name"], pod["metadata"]["namespace"])
        if event.type is EventType.DELETED:
            self._release(uid)
        elif "deletionTimestamp" in pod["metadata"]:
            with contextlib.suppress(NotFound):
                await self._api.delete(ref, Deletion(grace_seconds=0, uid=uid))
        elif uid not in self._seen and self.reserves:
            self._seen.add(uid)
            await self._start(ref, pod)

    async def _start(self, ref: Ref, pod: Object) -> None:
        node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
        wants = any(names.NVIDIA_GPU in (c.get("resources") or {}).get("limits", {}) for c in pod["spec"]["containers"])
        free = self._free.get(node, [])
        if wants and not free:
            refusal = {"phase": "Failed", "reason": f"OutOf{names.NVIDIA_GPU}", "message": "no GPU left"}
            await self._patch(ref.sub("status"), {"status": refusal})
            return
        if wants:
            self._held[uid] = node, free.pop(0)
        if ref.namespace == names.RESERVATION_NAMESPACE:
            await self._patch(ref, {"metadata": {"annotations": {names.RESERVED_GPU_INDEX: self._held[uid][1]}}})
        await self._patch(ref.sub("status"), {"status": {"phase": "Running"}})

    async def _patch(self, ref: Ref, body: Object) -> None:
        with contextlib.suppress(NotFound):
            await self._api.patch(ref, Patch.merge(body))

    def _release(self, uid: str) -> None:
        node, device = self._held.pop(uid, ("", ""))
        if device:
            self._free[node].append(device)


class World:
    """The cluster: `nodes` is the number of devices by node name."""

    def __init__(self, nodes: dict[str, int] | None = None, **settings: Any) -> None:
        self.api = MemoryApi(wall, manifests())
        self.devices = {node: [f"GPU-{node}-{i}" for i in range(n)] for node, n in (nodes or {"n1": 8}).items()}
        self.kubelets = Kubelets(self.api, self.devices)
        self.seen_by_binder: WatchedApi = WatchedApi(self.api)
        self._tasks: list[asyncio.Task[Any]] = []
        self._binder: list[asyncio.Task[Any]] = []
        self._settings = settings

    async def __aenter__(self) -> World:
        set_jitter(0.5)
        for space in (TEAM, "other", names.RESERVATION_NAMESPACE, names.SCALING_NAMESPACE):
            await self.api.create(NAMESPACE, {"metadata": {"name": space}})
        for node in self.devices:
            labels = {names.GPU_MEMORY_LABEL: "15360", names.HOSTNAME_LABEL: node}
            await self.api.create(NODE, {"metadata": {"name": node, "labels": labels}})
        self._tasks.append(asyncio.create_task(self.kubelets.run()))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_binder()
        await _end(self._tasks)

    # ------------------------------------------------------------------------------------------------ the binder
    async def start_binder(self, last: int = 0, *, after: bool = False) -> WatchedApi:
        """Start a binder whose `last`-th write, if not 0, is its last."""
        api = self.seen_by_binder = WatchedApi(self.api, last, after=after)
        watches = InformerFactory(api)
        binder = Binder(api, watches, self._made())
        self._binder = [asyncio.create_task(watches.run()), asyncio.create_task(binder.run())]
        await settle(600)
        return api

    def _made(self) -> BinderSettings:
        given = dict(self._settings)
        return BinderSettings(
            rules=BindRules(),
            reservations=given.pop("template", ReservationTemplate()),
            plugins=read_plugins(given.pop("plugins", "")),
            pace=Pace(workers=given.pop("workers", 10), first_seconds=1.0),
        )

    async def stop_binder(self) -> None:
        await _end(self._binder)
        self._binder = []

    async def settle(self, seconds: float = 0.0) -> None:
        """Let everything happen that can, after so many seconds."""
        await advance(seconds or 2 * GLANCE)
        await settle(1200)

    # ------------------------------------------------------------------------------------------------ the objects
    async def pod(self, name: str, namespace: str = TEAM, **more: Any) -> Object:
        """A waiting pod; with `share` (a dict of annotations) as admission leaves it."""
        share, spec = more.pop("share", None), more.pop("spec", {})
        container: Object = {"name": "main", "image": "cuda"}
        annotations = more.pop("annotations", {})
        if share is not None:
            annotations |= {**share, names.SHARED_GPU_CONFIGMAP: f"{name}-abc-shared-gpu"}
            key = {"name": f"{name}-abc-shared-gpu-0", "key": "NVIDIA_VISIBLE_DEVICES"}
            container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": key}}]
        body = {
            "metadata": {"name": name, "annotations": annotations, **more},
            "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **spec},
        }
        return await self.api.create(POD, body, namespace)

    async def request(self, pod: Object, node: str = "n1", **spec: Any) -> Object:
        """The scheduler's request to bind a pod; with `groups` for a share of their devices."""
        meta, groups = pod["metadata"], spec.pop("groups", None)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        given: Object = {"podName": meta["name"], "selectedNode": node, "receivedResourceType": "Regular"}
        if groups is not None:
            gpu = {"count": len(groups), "portion": spec.pop("portion", "0.50")}
            given |= {"receivedResourceType": "Fraction", "selectedGPUGroups": groups, "receivedGPU": gpu}
        body = {"metadata": {"name": meta["name"], "ownerReferences": [owner]}, "spec": {**given, **spec}}
        return await self.api.create(BIND_REQUEST, body, meta["namespace"])

    async def share(self, name: str, groups: list[str], node: str = "n1", **more: Any) -> Object:
        """A waiting pod with half of each device and the request to bind it."""
        spec = more.pop("request", {})
        devices = {names.GPU_FRACTION_DEVICES: str(len(groups))} if len(groups) > 1 else {}
        pod = await self.pod(name, share={names.GPU_FRACTION: "0.5", **devices}, **more)
        await self.request(pod, node, groups=groups, **spec)
        return pod

    async def now(self, resource: Resource, name: str, namespace: str = TEAM) -> Object:
        return await self.api.get(resource.ref(name, namespace), Object)

    async def reservations(self) -> list[Object]:
        where = Selection(namespace=names.RESERVATION_NAMESPACE)
        return list((await self.api.list(POD, Object, where)).items)

    async def status(self, name: str, namespace: str = TEAM) -> Object:
        """Status of the bind request of a pod."""
        return (await self.now(BIND_REQUEST, name, namespace)).get("status") or {}

    async def remove(self, name: str, namespace: str = TEAM) -> None:
        await self.api.delete(POD.ref(name, namespace))

    async def told_devices(self, name: str, namespace: str = TEAM) -> str:
        """What the pod's container finds in NVIDIA_VISIBLE_DEVICES."""
        found = await self.now(CONFIG_MAP, f"{name}-abc-shared-gpu-0", namespace)
        return str((found.get("data") or {}).get("NVIDIA_VISIBLE_DEVICES", ""))

    async def picture(self) -> Object:
        """What users see at the end, without anything that depends on the way there."""
        pods = (await self.api.list(POD, Object)).items
        maps = (await self.api.list(CONFIG_MAP, Object)).items
        requests = (await self.api.list(BIND_REQUEST, Object)).items
        return {
            "pods": sorted(map(_pod_picture, pods), key=str),
            "maps": sorted((m["metadata"]["name"], _group_names(m.get("data") or {}, pods)) for m in maps),
            "requests": sorted((r["metadata"]["name"], (r.get("status") or {}).get("phase", "")) for r in requests),
        }


def _group_names(data: Object, pods: Sequence[Object]) -> tuple[tuple[str, str], ...]:
    """The content of a ConfigMap, with the group that holds a device in place of the device."""
    group_of = {
        pod["metadata"]["annotations"].get(names.RESERVED_GPU_INDEX): pod["metadata"]["labels"][names.GPU_GROUP_LABEL]
        for pod in pods
        if pod["metadata"]["namespace"] == names.RESERVATION_NAMESPACE
    }
    told = {key: ",".join(group_of.get(part, part) for part in text.split(",")) for key, text in data.items()}
    return tuple(sorted(told.items()))


def _pod_picture(pod: Object) -> tuple[Any, ...]:
    meta = pod["metadata"]
    hidden = (names.SHARED_GPU_CONFIGMAP, names.RESERVED_GPU_INDEX)
    shown = {key: text for key, text in (meta.get("annotations") or {}).items() if key not in hidden}
    labels = sorted((meta.get("labels") or {}).items())
    return meta["name"], pod["spec"].get("nodeName", ""), tuple(labels), tuple(sorted(shown.items()))


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
