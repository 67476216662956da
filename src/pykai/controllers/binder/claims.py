"""Resource claims (DRA): write what the scheduler chose into the claims, and that the pod uses them.

A claim that has an allocation keeps it: another pod that shares the claim is there already. Devices that stand for a
pod's extended resources live in a claim of the pod's own, whose name is a function of the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from pykai.controllers.binder.attempt import Attempt, BindError, Waiting
from pykai.controllers.binder.groups import Key
from pykai.kube.api import Api, Object, Patch, Ref, Selection
from pykai.kube.errors import AlreadyExists, Conflict, NotFound
from pykai.kube.resources import POD, RESOURCE_CLAIM
from pykai.objects import names
from pykai.objects.kinds import Pod
from pykai.objects.pod_template import decode_template

TRIES = 5
_NAME_LENGTH = 200

log = structlog.get_logger("binder")


def claim_names(pod: Pod) -> dict[str, str]:
    """ResourceClaim by the name a claim has in the pod; one that does not exist yet, or is not needed, is missing."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses or ()}
    claims = decode_template(pod.spec).claims
    named = {claim.name: claim.resource_claim_name or made.get(claim.name, "") for claim in claims}
    return {name: claim for name, claim in named.items() if claim}


def reserved(claim: Object, pod: Pod, allocation: Mapping[str, Any]) -> Object | None:
    """The claim's status with an allocation and the pod among its users; None if it has both."""
    status = claim.get("status") or {}
    users = status.get("reservedFor") or []
    if status.get("allocation") and any(user.get("uid") == pod.metadata.uid for user in users):
        return None
    me = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
    others = [user for user in users if user.get("uid") != pod.metadata.uid]
    return {**status, "allocation": status.get("allocation") or dict(allocation), "reservedFor": [*others, me]}


def released(claim: Object, uid: str) -> Object | None:
    """The claim's status without a pod, and without its allocation if no other uses it; None if nothing changes."""
    status = claim.get("status") or {}
    users = status.get("reservedFor") or []
    others = [user for user in users if user.get("uid") != uid]
    if len(others) == len(users):
        return None
    dropped = ("reservedFor",) if others else ("reservedFor", "allocation")
    kept = {name: value for name, value in status.items() if name not in dropped}
    return {**kept, "reservedFor": others} if others else kept


def extended_claim_name(pod: Pod) -> str:
    """The name of the claim that stands for a pod's extended resources."""
    return f"{pod.metadata.name[:_NAME_LENGTH]}-extended-resources-{pod.metadata.uid[:8]}"


class Claims:
    """The step `dynamicresources`."""

    name = "dynamicresources"

    def __init__(self, api: Api) -> None:
        self._api = api

    async def prepare(self, attempt: Attempt) -> Waiting | None:
        """Allocate and reserve the claims that the request has an answer for."""
        spec = attempt.request.spec
        if spec.resource_claim_allocations:
            claims = claim_names(attempt.pod)
            for given in spec.resource_claim_allocations:
                if given.name not in claims:
                    raise BindError(f"failed to find claim {given.name} of pod {attempt.title}")
                if given.allocation is None:
                    raise BindError(
                        f"empty status for claim {given.name} in bind request for pod {attempt.title}"
                    )
                ref = RESOURCE_CLAIM.ref(claims[given.name], attempt.key[0])
                await self._allocate(ref, attempt.pod, given.allocation)
        if spec.extended_resource_claim_allocation:
            await self._prepare_extended(attempt, spec.extended_resource_claim_allocation)
        return None

    async def undo(self, attempt: Attempt) -> None:
        """Take the pod out of its claims; devices that nobody else uses are free again."""
        spec = attempt.request.spec
        claims = claim_names(attempt.pod) if spec.resource_claim_allocations else {}
        for given in spec.resource_claim_allocations or ():
            if given.name in claims:
                await self._release(RESOURCE_CLAIM.ref(claims[given.name], attempt.key[0]), attempt.pod.metadata.uid)
        if spec.extended_resource_claim_allocation:
            await self._undo_extended(attempt)

    def forget(self, pod: Key) -> None:
        """Nothing is remembered."""

    async def _allocate(self, ref: Ref, pod: Pod, allocation: Mapping[str, Any]) -> None:
        for _ in range(TRIES):
            claim = await self._protected(ref)
            status = reserved(claim, pod, allocation)
            if status is None:
                return
            try:
                await self._api.update(ref.sub("status"), {**claim, "status": status})
            except Conflict:
                continue
            log.info("resource claim allocated", pod=f"{ref.namespace}/{pod.metadata.name}", claim=ref.name)
            return
        raise Conflict(f"resource claim {ref.namespace}/{ref.name} keeps changing")

    async def _protected(self, ref: Ref) -> Object:
        """The claim, with the finalizer that keeps an allocated claim from being deleted."""
        claim = await self._api.get(ref, Object)
        finalizers = claim["metadata"].get("finalizers") or []
        if names.DRA_FINALIZER in finalizers or (claim.get("status") or {}).get("allocation"):
            return claim
        version = claim["metadata"]["resourceVersion"]
        wish = {"resourceVersion": version, "finalizers": [*finalizers, names.DRA_FINALIZER]}
        return await self._api.patch(ref, Patch.merge({"metadata": wish}))

    async def _release(self, ref: Ref, uid: str) -> None:
        try:
            claim = await self._api.get(ref, Object)
            status = released(claim, uid)
            if status is not None:
                await self._api.update(ref.sub("status"), {**claim, "status": status})
        except NotFound:
            return

    # ---------------------------------------------------------------------------------------- extended resources
    async def _prepare_extended(self, attempt: Attempt, given: Mapping[str, Any]) -> None:
        if not given.get("allocation"):
            raise BindError(f"empty status for the extended resources in bind request for pod {attempt.title}")
        name = await self._extended_claim(attempt, given)
        await self._allocate(RESOURCE_CLAIM.ref(name, attempt.key[0]), attempt.pod, given["allocation"])
        status = {"resourceClaimName": name, "requestMappings": list(given.get("containerMappings") or ())}
        await self._tell_pod(attempt, status)

    async def _extended_claim(self, attempt: Attempt, given: Mapping[str, Any]) -> str:
        """The name of the pod's own claim, which is made if it is not there."""
        existing = await self._find_extended(attempt)
        if existing:
            return existing
        meta = attempt.pod.metadata
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
        body = {
            "metadata": {
                "name": extended_claim_name(attempt.pod),
                "annotations": {names.EXTENDED_RESOURCE_CLAIM: "true"},
                "finalizers": [names.DRA_FINALIZER],
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {"devices": {"requests": list(given.get("deviceRequests") or ())}},
        }
        try:
            await self._api.create(RESOURCE_CLAIM, body, meta.namespace)
        except AlreadyExists:
            pass
        return extended_claim_name(attempt.pod)

    async def _find_extended(self, attempt: Attempt) -> str:
        page = await self._api.list(RESOURCE_CLAIM, Object, Selection(namespace=attempt.key[0]))
        for claim in page.items:
            metadata = claim["metadata"]
            marked = (metadata.get("annotations") or {}).get(names.EXTENDED_RESOURCE_CLAIM) == "true"
            owners = [o["uid"] for o in metadata.get("ownerReferences") or () if o.get("controller")]
            if marked and attempt.pod.metadata.uid in owners and "deletionTimestamp" not in metadata:
                return str(metadata["name"])
        return ""

    async def _undo_extended(self, attempt: Attempt) -> None:
        name = await self._find_extended(attempt)
        if name:
            ref = RESOURCE_CLAIM.ref(name, attempt.key[0])
            await self._release(ref, attempt.pod.metadata.uid)
            await self._api.patch(ref, Patch.merge({"metadata": {"finalizers": None}}))
            await self._delete(ref)
            await self._tell_pod(attempt, None)

    async def _delete(self, ref: Ref) -> None:
        try:
            await self._api.delete(ref)
        except NotFound:
            return

    async def _tell_pod(self, attempt: Attempt, status: Object | None) -> None:
        namespace, name = attempt.key
        body = {"metadata": {"uid": attempt.pod.metadata.uid}, "status": {"extendedResourceClaimStatus": status}}
        await self._api.patch(POD.ref(name, namespace).sub("status"), Patch.merge(body))
