"""The node scale adjuster on a live cluster: one pass over the waiting pods whenever one of them changes.

Every pass is a decision of `pykai.controllers.node_scale.scaling.desired`; this writes it. Names of scaling pods are
functions of their origin, so a pass that is repeated creates nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from pykai.controllers.loop import Meters, Pace, ReconcileLoop, unmetered
from pykai.controllers.node_scale.scaling import Settings, desired
from pykai.controllers.node_scale.scaling_pod import UNSCHEDULABLE_STATUS
from pykai.controllers.plain import Object, plain_pod
from pykai.kube.api import EVERYTHING, Api, Patch, Selection
from pykai.kube.clock import steady
from pykai.kube.errors import AlreadyExists, Conflict, NotFound
from pykai.kube.replica import Change
from pykai.kube.resources import POD
from pykai.kube.watches import Watches
from pykai.objects import kinds, names

GATHER_SECONDS = 0.2
_PASS = "all pods"
_SHARES = (names.GPU_FRACTION, names.GPU_MEMORY)
log = structlog.get_logger("node-scale-adjuster")


@dataclass(frozen=True)
class NodeScalerSettings:
    """What decides (`scaling`), which pods are watched, and the clock in seconds that cool-down is measured with."""

    scaling: Settings
    pods: Selection = EVERYTHING
    clock: Callable[[], float] = field(default=steady)
    meters: Meters = unmetered


class NodeScaler:
    """The adjuster on one API server; `run` works until it is cancelled."""

    def __init__(self, api: Api, watches: Watches, settings: NodeScalerSettings) -> None:
        self._api = api
        self._settings = settings
        self._pods = watches.of(POD, kinds.Pod, settings.pods)
        self._last_scale_up: float | None = None
        meter = settings.meters("node-scale-adjuster")
        self._loop: ReconcileLoop[str] = ReconcileLoop("node-scale-adjuster", Pace(workers=1), meter)

    async def run(self, ready: asyncio.Event) -> None:
        """Keep scaling pods as they should be until cancelled."""
        await self._pods.synced()
        leave = self._pods.subscribe(self._changed)
        ready.set()
        try:
            await self._loop.run(self._adjust)
        finally:
            leave()

    def _changed(self, change: Change[kinds.Pod]) -> None:
        if self._counts(change.object) or (change.old is not None and self._counts(change.old)):
            self._loop.add_after(_PASS, GATHER_SECONDS)

    def _counts(self, pod: kinds.Pod) -> bool:
        """Whether a pod can matter: a scaling pod, or one of ours that wants part of a GPU."""
        scaling = self._settings.scaling
        if pod.metadata.namespace == scaling.template.namespace:
            return True
        annotations = pod.metadata.annotations or {}
        return pod.spec.scheduler_name == scaling.scheduler_name and any(key in annotations for key in _SHARES)

    async def _adjust(self, _: str) -> float | None:
        pods = [plain_pod(pod) for _, pod in self._pods.items() if self._counts(pod)]
        decided = desired(pods, self._settings.scaling, self._settings.clock(), self._last_scale_up)
        self._last_scale_up = decided.last_scale_up  # before the deletions: one that fails may be carried out
        for name in decided.delete:
            await self._delete(name)
        for name in decided.mark:
            await self._mark(name, self._version(name))
        for manifest in decided.create:
            await self._create(manifest)
        return decided.retry_after

    async def _delete(self, name: str) -> None:
        try:
            await self._api.delete(POD.ref(name, self._settings.scaling.template.namespace))
        except NotFound:
            return
        log.info("scaling pod deleted", pod=f"{self._settings.scaling.template.namespace}/{name}")

    async def _create(self, manifest: Object) -> None:
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        try:
            created = await self._api.create(POD, manifest)
        except AlreadyExists:
            return
        log.info("scaling pod created", pod=f"{namespace}/{name}")
        await self._mark(name, created["metadata"]["resourceVersion"])

    async def _mark(self, name: str, version: str) -> None:
        """Say that a scaling pod cannot be scheduled, unless something has happened to it since that version."""
        body = {"metadata": {"resourceVersion": version}, "status": UNSCHEDULABLE_STATUS}
        ref = POD.ref(name, self._settings.scaling.template.namespace).sub("status")
        with suppress(NotFound, Conflict):
            await self._api.patch(ref, Patch.strategic(body))

    def _version(self, name: str) -> str:
        seen = self._pods.get(name, self._settings.scaling.template.namespace)
        return seen.metadata.resource_version if seen is not None else ""


async def run(api: Api, watches: Watches, settings: NodeScalerSettings, ready: asyncio.Event) -> None:
    """Keep scaling pods as they should be until cancelled."""
    await NodeScaler(api, watches, settings).run(ready)
