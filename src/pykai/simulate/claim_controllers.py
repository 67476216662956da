"""Simulated controllers of claims: ResourceClaims from templates, and dynamic provisioning of volumes.

As with the resource claim controller, a pod that names a template gets its own claim, recorded in its status; a
finished or deleted pod no longer uses its claims, and unused claims are deallocated. As with volume controller and CSI
provisioner, a claim with a selected node gets a new volume accessible from this node, and one that names a volume is
bound to it.
"""

from __future__ import annotations

import asyncio

import structlog

from pykai.kube.api import Api, EventType, Object, Patch
from pykai.kube.api_resources import (
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
)
from pykai.kube.errors import AlreadyExists, ApiError, NotFound
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import WatchChange
from pykai.objects import names
from pykai.plugins.volume_claims import SELECTED_NODE

PROVISION_SECONDS = 1.0
_FINISHED = ("Succeeded", "Failed")
log = structlog.get_logger("claims")
Item = tuple[str, str, str]
"""Kind, namespace and name of an object to reconcile."""


class ClaimControllers:
    """Both controllers on one API server; idle while no pod has claims."""

    def __init__(self, api: Api, watches: InformerFactory) -> None:
        self._api = api
        self._pods = watches.of(POD, Object)
        self._claims = watches.of(RESOURCE_CLAIM, Object)
        self._templates = watches.of(RESOURCE_CLAIM_TEMPLATE, Object)
        self._volume_claims = watches.of(PERSISTENT_VOLUME_CLAIM, Object)
        self._volumes = watches.of(PERSISTENT_VOLUME, Object)
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        self._queued: set[Item] = set()

    async def run(self) -> None:
        """Reconcile until cancelled; the caller runs the watches."""
        for informer in (self._templates, self._claims, self._volumes, self._volume_claims, self._pods):
            await informer.synced()
        self._pods.subscribe(self._pod_changed)
        self._claims.subscribe(self._claim_changed)
        self._volume_claims.subscribe(lambda change: self._enqueue("volume claim", *change.key))
        self._volumes.subscribe(self._volume_changed)
        steps = {"pod": self._make_claims, "claim": self._release, "volume claim": self._bind_volume}
        while True:
            item = await self._queue.get()
            self._queued.discard(item)
            try:
                await steps[item[0]](*item[1:])
            except NotFound:
                continue
            except ApiError as error:
                log.warning("claim refused", name="/".join(item[1:]), error=error.message)

    def _enqueue(self, *item: str) -> None:
        kind, namespace, name = item
        if (kind, namespace, name) not in self._queued:
            self._queued.add((kind, namespace, name))
            self._queue.put_nowait((kind, namespace, name))

    # ------------------------------------------------------------------------------------------------------ devices
    def _pod_changed(self, change: WatchChange[Object]) -> None:
        pod = change.object
        if change.type is not EventType.DELETED and pod["spec"].get("resourceClaims"):
            self._enqueue("pod", *change.key)
        if change.type is EventType.DELETED or _is_finished(pod):
            for claim in _claims_of(pod):
                self._enqueue("claim", change.key[0], claim)

    def _claim_changed(self, change: WatchChange[Object]) -> None:
        self._enqueue("claim", *change.key)
        if change.type is EventType.DELETED:
            for owner in change.object["metadata"].get("ownerReferences") or ():
                self._enqueue("pod", change.key[0], owner["name"])

    async def _make_claims(self, namespace: str, name: str) -> None:
        pod = self._pods.get(name, namespace)
        if pod is None or _is_finished(pod) or "deletionTimestamp" in pod["metadata"]:
            return
        statuses = []
        for wanted in pod["spec"].get("resourceClaims") or ():
            template = self._templates.get(wanted.get("resourceClaimTemplateName") or "", namespace)
            if template is None:
                continue
            made = f"{name}-{wanted['name']}"
            meta = pod["metadata"]
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": meta["uid"], "controller": True}
            own = {**(template["spec"].get("metadata") or {}), "name": made, "ownerReferences": [owner]}
            try:
                await self._api.create(RESOURCE_CLAIM, {"metadata": own, "spec": template["spec"]["spec"]}, namespace)
            except AlreadyExists:
                present = await self._api.get(RESOURCE_CLAIM.ref(made, namespace), Object)
                if meta["uid"] not in [one["uid"] for one in present["metadata"].get("ownerReferences") or ()]:
                    asyncio.get_running_loop().call_later(1.0, self._enqueue, "pod", namespace, name)
                    return
            statuses.append({"name": wanted["name"], "resourceClaimName": made})
        if statuses != ((pod.get("status") or {}).get("resourceClaimStatuses") or []):
            ref = POD.ref(name, namespace).sub("status")
            await self._api.patch(ref, Patch.merge({"status": {"resourceClaimStatuses": statuses}}))

    async def _release(self, namespace: str, name: str) -> None:
        """Remove finished pods from the consumers of a claim; deallocate an unused one, so that it can be deleted."""
        claim = await self._api.get(RESOURCE_CLAIM.ref(name, namespace), Object)
        status = claim.get("status") or {}
        users = status.get("reservedFor") or []
        kept = [user for user in users if self._uses(namespace, user)]
        ref = RESOURCE_CLAIM.ref(name, namespace)
        if len(kept) < len(users):
            rest = {"reservedFor": kept} if kept else {"reservedFor": None, "allocation": None}
            version = {"resourceVersion": claim["metadata"]["resourceVersion"]}
            claim = await self._api.patch(ref.sub("status"), Patch.merge({"metadata": version, "status": rest}))
        finalizers = claim["metadata"].get("finalizers") or []
        free = not (claim.get("status") or {}).get("allocation")
        if free and names.DRA_FINALIZER in finalizers and "deletionTimestamp" in claim["metadata"]:
            left = [each for each in finalizers if each != names.DRA_FINALIZER]
            await self._api.patch(ref, Patch.merge({"metadata": {"finalizers": left}}))

    def _uses(self, namespace: str, user: Object) -> bool:
        pod = self._pods.get(user["name"], namespace)
        return pod is not None and pod["metadata"]["uid"] == user["uid"] and not _is_finished(pod)

    # ------------------------------------------------------------------------------------------------------ volumes
    def _volume_changed(self, change: WatchChange[Object]) -> None:
        claim = (change.object.get("spec") or {}).get("claimRef")
        if claim:
            self._enqueue("volume claim", claim["namespace"], claim["name"])

    async def _bind_volume(self, namespace: str, name: str) -> None:
        claim = self._volume_claims.get(name, namespace)
        if claim is None or claim["spec"].get("volumeName"):
            return
        found = [volume for _, volume in self._volumes.items() if _is_for(volume, claim)]
        node = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if not found and not node:
            return
        if not found:
            await asyncio.sleep(PROVISION_SECONDS)
        volume = found[0] if found else await self._provision(claim, str(node))
        ref = PERSISTENT_VOLUME_CLAIM.ref(name, namespace)
        await self._api.patch(ref, Patch.merge({"spec": {"volumeName": volume["metadata"]["name"]}}))
        await self._api.patch(ref.sub("status"), Patch.merge({"status": {"phase": "Bound"}}))
        await self._api.patch(
            PERSISTENT_VOLUME.ref(volume["metadata"]["name"]).sub("status"),
            Patch.merge({"status": {"phase": "Bound"}}),
        )

    async def _provision(self, claim: Object, node: str) -> Object:
        meta, spec = claim["metadata"], claim["spec"]
        name = f"pvc-{meta['uid']}"
        term = {"key": names.HOSTNAME_LABEL, "operator": "In", "values": [node]}
        body = {
            "metadata": {"name": name},
            "spec": {
                "capacity": (spec.get("resources") or {}).get("requests") or {},
                "accessModes": spec.get("accessModes"),
                "storageClassName": spec.get("storageClassName"),
                "claimRef": {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            },
        }
        try:
            return await self._api.create(PERSISTENT_VOLUME, body)
        except AlreadyExists:
            return await self._api.get(PERSISTENT_VOLUME.ref(name), Object)


def _is_finished(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in _FINISHED


def _claims_of(pod: Object) -> list[str]:
    """Return the claims that a pod names or that were created for it."""
    status = pod.get("status") or {}
    made = [each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()]
    extended = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    named = [each.get("resourceClaimName") for each in pod["spec"].get("resourceClaims") or ()]
    return [name for name in (*made, *named, extended) if name]


def _is_for(volume: Object, claim: Object) -> bool:
    meta = claim["metadata"]
    wanted = volume["spec"].get("claimRef") or {}
    named = (wanted.get("namespace"), wanted.get("name")) == (meta["namespace"], meta["name"])
    return named and wanted.get("uid") in (None, meta["uid"])
