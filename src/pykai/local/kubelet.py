"""Hollow kubelets: any number of nodes that exist only as objects, played by one set of asyncio tasks.

To the control plane they are kubelets: nodes are registered and stay ready, bound pods are admitted or refused, run and
end, deleted pods go, `kubectl logs` is answered. What a pod runs is the caller's business: a program of ours
(`KubeletSettings.on_start`) or its containers (a `Runtime`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from pykai.hollow.ledger import NodeLedger
from pykai.hollow.pod_lives import PodLives
from pykai.hollow.pod_log import PodLog
from pykai.hollow.settings import KubeletSettings, Runtime
from pykai.hollow.shapes import NodeShape, allocatable, devices
from pykai.kube.api import Api, EventType, Object, Selection
from pykai.kube.errors import NotFound
from pykai.kube.informer import SharedInformer
from pykai.kube.informer_store import Change
from pykai.kube.resources import NODE, POD
from pykai.local.kubelet_server import serving
from pykai.local.registration import Registration, is_ready
from pykai.objects import names

_BOUND = Selection(fields="spec.nodeName!=")


class HollowKubelets:
    """The kubelets of `shapes`; `run` plays them until cancelled, `ready` is set once pods can be bound to them."""

    def __init__(
        self,
        api: Api,
        shapes: Iterable[NodeShape],
        settings: KubeletSettings | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        self._api = api
        self._first = tuple(shapes)
        self._ledgers: dict[str, NodeLedger] = {}
        self._lives = PodLives(api, self._ledgers, settings or KubeletSettings(), runtime)
        self._pods = SharedInformer(api, POD, Object, _BOUND)
        self._nodes = SharedInformer(api, NODE, Object)
        self._registration = Registration(api, kubelet_port=0)
        self._healing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Play the kubelets; whatever goes wrong for good is raised."""
        async with serving(self._lives.log_of) as port:
            self._registration = Registration(self._api, port)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pods.run())
                    group.create_task(self._nodes.run())
                    await self.add(self._first)
                    await self._take_up()
                    self.ready.set()
                    await self._registration.keep_renewing(self._ledgers)
            finally:
                await self._lives.close()

    def log_of(self, namespace: str, pod: str, previous: bool = False) -> PodLog | None:
        """What the pod's first container says, or said in its run before; None if there is no such log."""
        return self._lives.log_of(namespace, pod, previous=previous)

    def nodes(self) -> list[str]:
        """The names of the nodes it plays."""
        return list(self._ledgers)

    async def add(self, shapes: Iterable[NodeShape]) -> None:
        """Add nodes; a node of that name that is already there is taken over."""
        new = list(shapes)
        for shape in new:
            self._ledgers[shape.name] = NodeLedger(devices(shape), allocatable(shape))
        await self._registration.register(new)

    async def remove(self, node: str) -> None:
        """Take a node away, as a machine that is switched off and forgotten; its pods are left to the cluster."""
        self._ledgers.pop(node, None)
        try:
            await self._api.delete(NODE.ref(node))
        except NotFound:
            return

    async def _take_up(self) -> None:
        """Follow pods and nodes; pods that run already come first, so that they keep the devices they have."""
        await self._nodes.synced()
        self._nodes.subscribe(self._node_changed)
        await self._pods.synced()
        for pod in sorted((pod for _, pod in self._pods.items()), key=_claim_on_devices):
            self._lives.seen(pod)
        self._pods.subscribe(self._pod_changed)

    def _pod_changed(self, change: Change[Object]) -> None:
        if change.type is EventType.DELETED:
            self._lives.gone(change.object)
        else:
            self._lives.seen(change.object)

    def _node_changed(self, change: Change[Object]) -> None:
        ledger = self._ledgers.get(change.key[1])
        if ledger is None or change.type is EventType.DELETED:
            return
        ledger.resize(change.object["status"].get("allocatable") or {})
        if not is_ready(change.object):
            healing = asyncio.create_task(self._registration.heal(change.key[1]))
            self._healing.add(healing)
            healing.add_done_callback(self._healing.discard)


def _claim_on_devices(pod: Object) -> int:
    """0 for a pod whose device is on record, 1 for one that runs, 2 for a new one."""
    if names.RESERVED_GPU_INDEX in (pod["metadata"].get("annotations") or {}):
        return 0
    return 1 if (pod.get("status") or {}).get("phase") == "Running" else 2


@asynccontextmanager
async def hollow_nodes(
    api: Api, shapes: Iterable[NodeShape], settings: KubeletSettings | None = None, runtime: Runtime | None = None
) -> AsyncIterator[HollowKubelets]:
    """Kubelets that play while the block runs; the nodes are removed after it."""
    kubelets = HollowKubelets(api, shapes, settings, runtime)
    playing = asyncio.create_task(kubelets.run())
    try:
        ready = asyncio.create_task(kubelets.ready.wait())
        await asyncio.wait([ready, playing], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if playing.done():
            playing.result()
        yield kubelets
    finally:
        playing.cancel()
        (ended,) = await asyncio.gather(playing, return_exceptions=True)
        for node in kubelets.nodes():
            await kubelets.remove(node)
        if isinstance(ended, Exception):
            raise ended
