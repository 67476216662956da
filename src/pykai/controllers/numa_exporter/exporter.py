"""The exporter on one node: what the kubelet says, compared with what was last written, and sometimes with the server.

A poll writes what changed since the last one. The drift check reads the node's pods and puts right what others changed
or a restart forgot. An annotation is never removed: a pod's placement lasts as long as the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

from pykai.controllers.loop import Pace, ReconcileLoop, RetryLater
from pykai.controllers.numa_exporter.grpc import GrpcError, call
from pykai.controllers.numa_exporter.placement import PodResources, placement
from pykai.controllers.numa_exporter.wire import WireError, pods_in
from pykai.kube.api import Api, Patch, Selection
from pykai.kube.errors import ApiError, NotFound
from pykai.kube.replica import Key
from pykai.kube.resources import POD
from pykai.objects import kinds, names

METHOD = "/v1.PodResourcesLister/List"
TIMEOUT_SECONDS = 10.0
List = Callable[[], Awaitable[list[PodResources]]]
Task = Literal["poll", "drift"]
log = structlog.get_logger("numa-placement-exporter")


@dataclass(frozen=True)
class ExporterSettings:
    """The node, its CPUs by NUMA node, and how often to look, in seconds; `drift_seconds` 0: never."""

    node: str
    numa_of_cpu: Mapping[int, int]
    poll_seconds: float = 1.0
    drift_seconds: float = 60.0


class Exporter:
    """The exporter of one node; `pods` asks the kubelet."""

    def __init__(self, api: Api, pods: List, settings: ExporterSettings) -> None:
        self._api = api
        self._pods = pods
        self._settings = settings
        self._written: dict[Key, str] = {}
        pace = Pace(1, min(1.0, settings.poll_seconds), max(30.0, settings.poll_seconds))
        self._loop: ReconcileLoop[Task] = ReconcileLoop("numa-placement-exporter", pace)

    async def run(self, ready: asyncio.Event) -> None:
        """Export until cancelled."""
        self._loop.add("poll")
        if self._settings.drift_seconds:
            self._loop.add_after("drift", self._settings.drift_seconds)
        ready.set()
        await self._loop.run(self._do)

    async def _do(self, task: Task) -> float:
        try:
            found = {(pod.namespace, pod.name): self._placed(pod) for pod in await self._pods()}
        except (GrpcError, WireError) as error:
            raise RetryLater(str(error)) from error
        if task == "poll":
            await self.poll(found)
            return self._settings.poll_seconds
        await self.resync(found)
        return self._settings.drift_seconds

    def _placed(self, pod: PodResources) -> str:
        return placement(pod, self._settings.numa_of_cpu)

    async def poll(self, found: Mapping[Key, str]) -> None:
        """Write what differs from what was written last, and forget pods that are gone."""
        self._written = {key: value for key, value in self._written.items() if key in found}
        for key, value in found.items():
            if value and self._written.get(key) != value:
                await self._write(key, value)

    async def resync(self, found: Mapping[Key, str]) -> None:
        """Write what differs from what the server has."""
        page = await self._api.list(POD, kinds.Pod, Selection(fields=f"spec.nodeName={self._settings.node}"))
        for pod in page.items:
            key = (pod.metadata.namespace, pod.metadata.name)
            value = found.get(key, "")
            if value and (pod.metadata.annotations or {}).get(names.NUMA_OBSERVED) != value:
                await self._write(key, value)

    async def _write(self, key: Key, value: str) -> None:
        """One pod's failure does not keep the others waiting: it is tried again at the next look."""
        body = {"metadata": {"annotations": {names.NUMA_OBSERVED: value}}}
        pod = f"{key[0]}/{key[1]}"
        try:
            await self._api.patch(POD.ref(key[1], key[0]), Patch.merge(body))
        except NotFound:
            return
        except ApiError as error:
            log.warning("placement not written", pod=pod, error=error.message)
            return
        self._written[key] = value
        log.info("placement written", pod=pod, placement=value)


def kubelet(socket: str) -> List:
    """The pods that a kubelet's PodResources socket lists."""

    async def pods() -> list[PodResources]:
        return pods_in(await call(Path(socket), METHOD, TIMEOUT_SECONDS))

    return pods
