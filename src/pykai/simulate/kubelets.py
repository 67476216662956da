"""The hollow kubelets of a simulation: they follow the nodes there are and play the pods that are bound to them.

The nodes come from manifests, not from shapes, so every node has as many devices as it offers GPUs. Node leases are not
renewed: no controller of a simulation waits for them.
"""

from __future__ import annotations

import asyncio
import uuid

from pykai.hollow.hollow_node import Device, NodeLedger
from pykai.hollow.kubelet_settings import KubeletSettings
from pykai.hollow.pod_lives import PodLives
from pykai.kube.api import Api, EventType, Object
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import Change
from pykai.kube.resources import NODE, POD
from pykai.objects import names
from pykai.objects.units import amount

_NAMESPACE = uuid.UUID("0f6a3c8e-8a53-5d0c-9a7e-3f1f0a5b7c11")


class Kubelets:
    """Plays all nodes; `devices` are the GPUs of every node, in the order of their numbers."""

    def __init__(self, api: Api, watches: InformerFactory, settings: KubeletSettings) -> None:
        self.devices: dict[str, tuple[Device, ...]] = {}
        self._ledgers: dict[str, NodeLedger] = {}
        self._lives = PodLives(api, self._ledgers, settings)
        self._nodes = watches.of(NODE, Object)
        self._pods = watches.of(POD, Object)

    async def run(self) -> None:
        """Play until cancelled; the watches run beside."""
        await self._nodes.synced()
        self._nodes.subscribe(self._node_changed)
        await self._pods.synced()
        self._pods.subscribe(self._pod_changed)
        try:
            await asyncio.Event().wait()
        finally:
            await self._lives.close()

    @property
    def will_change(self) -> bool:
        """Whether a pod is about to start, to end or to leave by the clock."""
        return self._lives.will_change

    def held(self, node: str, uid: str) -> tuple[int, ...]:
        """The numbers of the devices that a pod's kubelet gave it."""
        ledger = self._ledgers.get(node)
        return tuple(device.index for device in ledger.devices_of(uid)) if ledger else ()

    def _node_changed(self, change: Change[Object]) -> None:
        name = change.key[1]
        if change.type is EventType.DELETED:
            self._ledgers.pop(name, None)
            return
        offered = (change.object.get("status") or {}).get("allocatable") or {}
        if name not in self._ledgers:
            self.devices[name] = _devices(change.object, int(amount(offered.get(names.NVIDIA_GPU, 0))))
            self._ledgers[name] = NodeLedger(self.devices[name], offered)
        self._ledgers[name].resize(offered)

    def _pod_changed(self, change: Change[Object]) -> None:
        if change.type is EventType.DELETED:
            self._lives.gone(change.object)
        elif change.object["spec"].get("nodeName"):
            self._lives.seen(change.object)


def _devices(node: Object, count: int) -> tuple[Device, ...]:
    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    memory = labels.get(names.GPU_MEMORY_LABEL, "")
    product = labels.get("nvidia.com/gpu.product", "")
    return tuple(
        Device(number, f"GPU-{uuid.uuid5(_NAMESPACE, f'{name}/{number}')}", product, int(memory or 0))
        for number in range(count)
    )
