"""The status of a ResourceClaim: what it was given, and which pods use it.

A claim that has an allocation keeps it: another pod that shares the claim is there already. Only what an earlier
request left behind for the same pod, which nobody else uses, gives way. Every write is made from the state it was read
in, so two pods that take the same claim at once both end up among its users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from pykai.kube.api import Api, Object, Patch, Ref
from pykai.kube.errors import Conflict, NotFound
from pykai.objects import names
from pykai.objects.kinds import Pod

TRIES = 5

log = structlog.get_logger("binder")


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


def is_left_over(claim: Object, pod: Pod, allocation: Mapping[str, Any]) -> bool:
    """Whether the claim has other devices than the allocation, for this pod alone, which is on no node yet."""
    status = claim.get("status") or {}
    users = [user.get("uid") for user in status.get("reservedFor") or ()]
    return users == [pod.metadata.uid] and _devices(status.get("allocation")) != _devices(allocation)


def _devices(allocation: Mapping[str, Any] | None) -> list[tuple[Any, ...]]:
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    return [tuple(result.get(part) for part in ("request", "driver", "pool", "device")) for result in results]


async def allocate(api: Api, ref: Ref, pod: Pod, allocation: Mapping[str, Any]) -> None:
    """Give the claim the allocation, unless it has one, and note that the pod uses it."""
    for _ in range(TRIES):
        claim = await _protected(api, ref)
        left_over = is_left_over(claim, pod, allocation)
        status = released(claim, pod.metadata.uid) if left_over else reserved(claim, pod, allocation)
        if status is None:
            return
        try:
            await api.update(ref.sub("status"), {**claim, "status": status})
        except Conflict:
            continue
        if left_over:  # what is allocated cannot be changed, only taken back and given anew
            continue
        log.info("resource claim allocated", pod=f"{ref.namespace}/{pod.metadata.name}", claim=ref.name)
        return
    raise Conflict(f"resource claim {ref.namespace}/{ref.name} keeps changing")


async def _protected(api: Api, ref: Ref) -> Object:
    """The claim, with the finalizer that keeps an allocated claim from being deleted."""
    claim = await api.get(ref, Object)
    finalizers = claim["metadata"].get("finalizers") or []
    if names.DRA_FINALIZER in finalizers or (claim.get("status") or {}).get("allocation"):
        return claim
    version = claim["metadata"]["resourceVersion"]
    wish = {"resourceVersion": version, "finalizers": [*finalizers, names.DRA_FINALIZER]}
    return await api.patch(ref, Patch.merge({"metadata": wish}))


async def release(api: Api, ref: Ref, uid: str) -> None:
    """Note that the pod does not use the claim; nothing happens if it does not, or if there is no such claim."""
    try:
        claim = await api.get(ref, Object)
        status = released(claim, uid)
        if status is not None:
            await api.update(ref.sub("status"), {**claim, "status": status})
    except NotFound:
        return
