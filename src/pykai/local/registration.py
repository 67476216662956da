"""Hollow nodes as the cluster sees them: registered, their leases renewed, their conditions kept healthy.

Renewals are spread evenly and made seldom where nodes are many, so that hollow nodes do not become the load one
measures; the control plane's grace (`parts.NODE_GRACE_SECONDS`) is three times the longest pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from pykai.hollow.shapes import NodeShape, conditions, node_object
from pykai.kube.api import Api, Object, Patch
from pykai.kube.clock import wall
from pykai.kube.errors import AlreadyExists, ApiError, NotFound
from pykai.kube.resources import LEASE, NODE
from pykai.local.parts import NODE_GRACE_SECONDS
from pykai.objects import units

LEASE_NAMESPACE = "kube-node-lease"
_RENEWALS_PER_SECOND = 20
_PAUSE_SECONDS = (10.0, NODE_GRACE_SECONDS / 3)
_STEP_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_AT_ONCE = 32


def pause_between_renewals(nodes: int) -> float:
    """Seconds between two renewals of one node's lease."""
    shortest, longest = _PAUSE_SECONDS
    return min(longest, max(shortest, nodes / _RENEWALS_PER_SECOND))


def _micro_time() -> str:
    return datetime.fromtimestamp(wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _lease(node: Object) -> Object:
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    return {
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": NODE_GRACE_SECONDS, "renewTime": _micro_time()},
    }


class Registration:
    """The Node objects and leases of hollow nodes; `kubelet_port` is where their logs are served."""

    def __init__(self, api: Api, kubelet_port: int) -> None:
        self._api = api
        self._kubelet_port = kubelet_port

    async def register(self, shapes: Iterable[NodeShape]) -> list[Object]:
        """Make every node known and ready, or take over the one that is there; the Node objects."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(shape: NodeShape) -> Object:
            async with limit:
                return await self._register(shape)

        return await asyncio.gather(*map(one, shapes))

    async def _register(self, shape: NodeShape) -> Object:
        body = node_object(shape, units.rfc3339(wall()), self._kubelet_port)
        try:
            node = await self._api.create(NODE, body)
        except AlreadyExists:
            labels = {"metadata": {"labels": body["metadata"]["labels"]}}
            await self._api.patch(NODE.ref(shape.name), Patch.merge(labels))
            node = await self._patch_status(shape.name, body["status"])
        await self._renew_or_create(node)
        return node

    async def _renew_or_create(self, node: Object) -> None:
        try:
            await self._api.create(LEASE, _lease(node))
        except AlreadyExists:
            await self.renew(node["metadata"]["name"])

    async def _patch_status(self, name: str, status: Object) -> Object:
        return await self._api.patch(NODE.ref(name).sub("status"), Patch.strategic({"status": status}))

    async def heal(self, name: str) -> None:
        """Say again that the node is ready, after somebody said that it is not."""
        while True:
            try:
                await self._patch_status(name, {"conditions": conditions(units.rfc3339(wall()))})
            except NotFound:
                return
            except ApiError:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def renew(self, name: str) -> None:
        """Renew the node's lease; a failure is left to the next time."""
        lease = LEASE.ref(name, LEASE_NAMESPACE)
        try:
            await self._api.patch(lease, Patch.merge({"spec": {"renewTime": _micro_time()}}))
        except ApiError:
            return

    async def keep_renewing(self, names: Collection[str]) -> None:
        """Renew the leases for ever, evenly spread; `names` may change meanwhile."""
        while True:
            present = list(names)
            steps = int(pause_between_renewals(len(present)) / _STEP_SECONDS)
            for step in range(steps):
                await asyncio.gather(*map(self.renew, present[step::steps]))
                await asyncio.sleep(_STEP_SECONDS)


def is_ready(node: Object) -> bool:
    """Whether the node's conditions say that it can run pods."""
    found = (node.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in found)
