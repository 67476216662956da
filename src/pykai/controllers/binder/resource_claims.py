"""Resource claims (DRA): write the scheduler's allocations and reserve the claims for the pod.

A claim that has an allocation keeps it, because another pod that shares the claim uses it already. The exception is an
allocation that an earlier request left for the same pod alone. Writes use optimistic concurrency (resourceVersion), so
two pods that reserve one claim at the same time both end up in `reservedFor`.

A pod whose extended resources are served by DRA gets a claim of its own. The claim's name is a function of the pod, so
it is created once; a claim of another name is recognised by its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import structlog

from pykai.controllers.binder.binding import BindAttempt, BindError, Step, WaitingStep, is_retryable
from pykai.kube.api import Api, Fields, Object, Patch, Ref, Selection
from pykai.kube.api_resources import POD, RESOURCE_CLAIM
from pykai.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from pykai.kube.informer_store import Key
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Pod
from pykai.objects.pod_template import decode_template

MAX_CONFLICTS = 5
_NAME_LENGTH = 200

log = structlog.get_logger("binder")


class ResourceClaims(Step):
    """The step `dynamicresources`; all its writes for one pod must finish within `limit_seconds`."""

    name = "dynamicresources"

    def __init__(self, api: Api, limit_seconds: float) -> None:
        self._api = api
        self._limit_seconds = limit_seconds
        self._orphaned: set[str] = set()
        """uids of pods that owned an extended claim when this process started."""

    async def prepare(self, attempt: BindAttempt) -> WaitingStep | None:
        """Allocate and reserve the claims of the request."""
        spec = attempt.request.spec
        try:
            async with asyncio.timeout(self._limit_seconds):
                for ref, allocation in _requested_claims(attempt):
                    await allocate(self._api, ref, attempt.pod, allocation)
                if spec.extended_resource_claim_allocation:
                    await _prepare_extended(self._api, attempt, spec.extended_resource_claim_allocation)
        except TimeoutError:
            raise BindError(f"resource claims were not written within {self._limit_seconds:g} s") from None
        return None

    async def undo(self, pod: Pod, request: BindRequest | None) -> None:
        """Release the pod's claims; devices without another user are free again."""
        for claim in claim_names(pod).values():
            await release(self._api, RESOURCE_CLAIM.ref(claim, pod.metadata.namespace), pod.metadata.uid)
        extended = request is not None and bool(request.spec.extended_resource_claim_allocation)
        if extended or pod.metadata.uid in self._orphaned:
            await _undo_extended(self._api, pod)
            self._orphaned.discard(pod.metadata.uid)

    async def orphans(self) -> Iterable[Key]:
        """Owners of extended claims: the pod itself does not show the claim before its status is written."""
        try:
            page = await self._api.list(RESOURCE_CLAIM, Object, Selection(metadata_only=True))
        except ApiError as error:
            if is_retryable(error):
                raise
            return ()  # a cluster without DRA
        owners = {
            (claim["metadata"]["namespace"], owner["name"]): owner["uid"]
            for claim in page.items
            for owner in _extended_owners(claim)
        }
        self._orphaned = set(owners.values())
        return owners.keys()


def claim_names(pod: Pod) -> dict[str, str]:
    """ResourceClaims by their names in the pod, without those that do not exist yet or are not needed."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses or ()}
    claims = decode_template(pod.spec).claims
    named = {claim.name: claim.resource_claim_name or made.get(claim.name, "") for claim in claims}
    return {name: claim for name, claim in named.items() if claim}


def _requested_claims(attempt: BindAttempt) -> list[tuple[Ref, Fields]]:
    """Return the claims of the request with their allocations; BindError if one is not known."""
    allocations = attempt.request.spec.resource_claim_allocations or ()
    claims = claim_names(attempt.pod) if allocations else {}
    found: list[tuple[Ref, Fields]] = []
    for given in allocations:
        if given.name not in claims:
            raise BindError(f"failed to find claim {given.name} of pod {attempt.title}")
        if given.allocation is None:
            raise BindError(f"empty status for claim {given.name} in bind request for pod {attempt.title}")
        found.append((RESOURCE_CLAIM.ref(claims[given.name], attempt.key[0]), given.allocation))
    return found


# ------------------------------------------------------------------------------------------------- claim status
def reserved(claim: Object, pod: Pod, allocation: Fields) -> Object | None:
    """Return the claim's status with an allocation and the pod among its users; None if it has both."""
    status = claim.get("status") or {}
    users = status.get("reservedFor") or []
    if status.get("allocation") and any(user.get("uid") == pod.metadata.uid for user in users):
        return None
    me = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
    others = [user for user in users if user.get("uid") != pod.metadata.uid]
    return {**status, "allocation": status.get("allocation") or dict(allocation), "reservedFor": [*others, me]}


def released(claim: Object, uid: str) -> Object | None:
    """Return the claim's status without a pod, and without allocation if no other uses it; None if nothing changes."""
    status = claim.get("status") or {}
    users = status.get("reservedFor") or []
    others = [user for user in users if user.get("uid") != uid]
    if len(others) == len(users):
        return None
    dropped = ("reservedFor",) if others else ("reservedFor", "allocation")
    kept = {name: value for name, value in status.items() if name not in dropped}
    return {**kept, "reservedFor": others} if others else kept


def has_stale_allocation(claim: Object, pod: Pod, allocation: Fields) -> bool:
    """Whether the claim has other devices than the allocation, for this unbound pod alone."""
    status = claim.get("status") or {}
    users = [user.get("uid") for user in status.get("reservedFor") or ()]
    return users == [pod.metadata.uid] and _devices(status.get("allocation")) != _devices(allocation)


def _devices(allocation: Fields | None) -> list[tuple[Any, ...]]:
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    return [tuple(result.get(part) for part in ("request", "driver", "pool", "device")) for result in results]


async def allocate(api: Api, ref: Ref, pod: Pod, allocation: Fields) -> None:
    """Write the allocation to the claim, unless it has one, and the pod among its users."""
    for _ in range(MAX_CONFLICTS):
        claim = await _protected(api, ref)
        stale = has_stale_allocation(claim, pod, allocation)
        status = released(claim, pod.metadata.uid) if stale else reserved(claim, pod, allocation)
        if status is None:
            return
        try:
            await api.update(ref.sub("status"), {**claim, "status": status})
        except Conflict:
            continue
        if stale:  # an allocation cannot be changed, only removed and written anew
            continue
        log.info("resource claim allocated", pod=f"{ref.namespace}/{pod.metadata.name}", claim=ref.name)
        return
    raise Conflict(f"resource claim {ref.namespace}/{ref.name} keeps changing")


async def _protected(api: Api, ref: Ref) -> Object:
    """Return the claim, with the finalizer that protects an allocated claim from deletion."""
    claim = await api.get(ref, Object)
    finalizers = claim["metadata"].get("finalizers") or []
    if names.DRA_FINALIZER in finalizers or (claim.get("status") or {}).get("allocation"):
        return claim
    version = claim["metadata"]["resourceVersion"]
    metadata = {"resourceVersion": version, "finalizers": [*finalizers, names.DRA_FINALIZER]}
    return await api.patch(ref, Patch.merge({"metadata": metadata}))


async def release(api: Api, ref: Ref, uid: str) -> None:
    """Remove the pod from the claim's users; a missing claim is none of its own."""
    try:
        claim = await api.get(ref, Object)
        status = released(claim, uid)
        if status is not None:
            await api.update(ref.sub("status"), {**claim, "status": status})
    except NotFound:
        return


# ----------------------------------------------------------------------------------------------- extended claim
async def _prepare_extended(api: Api, attempt: BindAttempt, given: Fields) -> None:
    """Create the claim, allocate it, and write to the pod's status which container uses what of it."""
    if not given.get("allocation"):
        raise BindError(f"empty status for the extended resources in bind request for pod {attempt.title}")
    meta, claim = attempt.pod.metadata, await _find_extended(api, attempt.pod)
    own = f"{meta.name[:_NAME_LENGTH]}-extended-resources-{meta.uid[:8]}"
    name = claim["metadata"]["name"] if claim else own
    if claim is None:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
        metadata = {
            "name": name,
            "annotations": {names.EXTENDED_RESOURCE_CLAIM: "true"},
            "finalizers": [names.DRA_FINALIZER],
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        }
        spec = {"devices": {"requests": list(given.get("deviceRequests") or ())}}
        with suppress(AlreadyExists):
            await api.create(RESOURCE_CLAIM, {"metadata": metadata, "spec": spec}, meta.namespace)
    await allocate(api, RESOURCE_CLAIM.ref(name, meta.namespace), attempt.pod, given["allocation"])
    mappings = list(given.get("containerMappings") or ())
    await _write_extended_status(api, attempt.pod, {"resourceClaimName": name, "requestMappings": mappings})


async def _undo_extended(api: Api, pod: Pod) -> None:
    """Remove the claim from the pod's status, then delete it: as long as it exists, another undo finds it."""
    claim = await _find_extended(api, pod)
    if claim is None:
        return
    with suppress(NotFound):
        await _write_extended_status(api, pod, None)
    ref = RESOURCE_CLAIM.ref(claim["metadata"]["name"], pod.metadata.namespace)
    await release(api, ref, pod.metadata.uid)
    kept = [each for each in claim["metadata"].get("finalizers") or () if each != names.DRA_FINALIZER]
    with suppress(NotFound):
        await api.patch(ref, Patch.merge({"metadata": {"finalizers": kept or None}}))
        await api.delete(ref)
    log.info("extended resource claim deleted", pod=f"{ref.namespace}/{pod.metadata.name}", claim=ref.name)


async def _find_extended(api: Api, pod: Pod) -> Object | None:
    page = await api.list(RESOURCE_CLAIM, Object, Selection(namespace=pod.metadata.namespace))
    for claim in page.items:
        if any(owner["uid"] == pod.metadata.uid for owner in _extended_owners(claim)):
            return claim
    return None


def _extended_owners(claim: Object) -> list[Object]:
    """Return the controllers of a live claim for extended resources; none for any other claim."""
    metadata = claim["metadata"]
    marked = (metadata.get("annotations") or {}).get(names.EXTENDED_RESOURCE_CLAIM) == "true"
    if not marked or "deletionTimestamp" in metadata:
        return []
    return [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]


async def _write_extended_status(api: Api, pod: Pod, status: Object | None) -> None:
    ref = POD.ref(pod.metadata.name, pod.metadata.namespace).sub("status")
    body = {"metadata": {"uid": pod.metadata.uid}, "status": {"extendedResourceClaimStatus": status}}
    await api.patch(ref, Patch.merge(body))
