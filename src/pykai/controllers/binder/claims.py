"""Resource claims (DRA): write what the scheduler chose into the claims, and that the pod uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pykai.controllers.binder import extended_claim
from pykai.controllers.binder.attempt import Attempt, BindError, Waiting
from pykai.controllers.binder.claim_status import allocate, release
from pykai.controllers.binder.groups import Key
from pykai.kube.api import Api, Ref
from pykai.kube.resources import RESOURCE_CLAIM
from pykai.objects.kinds import BindRequest, Pod
from pykai.objects.pod_template import decode_template


def claim_names(pod: Pod) -> dict[str, str]:
    """ResourceClaim by the name a claim has in the pod; one that does not exist yet, or is not needed, is missing."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses or ()}
    claims = decode_template(pod.spec).claims
    named = {claim.name: claim.resource_claim_name or made.get(claim.name, "") for claim in claims}
    return {name: claim for name, claim in named.items() if claim}


class Claims:
    """The step `dynamicresources`; all its writes for one pod must be done within `limit_seconds`."""

    name = "dynamicresources"

    def __init__(self, api: Api, limit_seconds: float) -> None:
        self._api = api
        self._limit_seconds = limit_seconds

    async def prepare(self, attempt: Attempt) -> Waiting | None:
        """Allocate and reserve the claims that the request has an answer for."""
        spec = attempt.request.spec
        try:
            async with asyncio.timeout(self._limit_seconds):
                for ref, allocation in _given(attempt):
                    await allocate(self._api, ref, attempt.pod, allocation)
                if spec.extended_resource_claim_allocation:
                    await extended_claim.prepare(self._api, attempt, spec.extended_resource_claim_allocation)
        except TimeoutError:
            raise BindError(f"resource claims were not written within {self._limit_seconds:g} s") from None
        return None

    async def undo(self, pod: Pod, request: BindRequest | None) -> None:
        """Take the pod out of its claims; devices that nobody else uses are free again."""
        for claim in claim_names(pod).values():
            await release(self._api, RESOURCE_CLAIM.ref(claim, pod.metadata.namespace), pod.metadata.uid)
        if request is not None and request.spec.extended_resource_claim_allocation:
            await extended_claim.undo(self._api, pod)

    def forget(self, pod: Key) -> None:
        """Nothing is remembered."""


def _given(attempt: Attempt) -> list[tuple[Ref, Mapping[str, Any]]]:
    """The claims the request has an allocation for; BindError if one of them cannot be told."""
    allocations = attempt.request.spec.resource_claim_allocations or ()
    claims = claim_names(attempt.pod) if allocations else {}
    found: list[tuple[Ref, Mapping[str, Any]]] = []
    for given in allocations:
        if given.name not in claims:
            raise BindError(f"failed to find claim {given.name} of pod {attempt.title}")
        if given.allocation is None:
            raise BindError(f"empty status for claim {given.name} in bind request for pod {attempt.title}")
        found.append((RESOURCE_CLAIM.ref(claims[given.name], attempt.key[0]), given.allocation))
    return found
