"""The claim of a pod's own that stands for its extended resources where devices are served by DRA.

Its name is a function of the pod, so it is made once; one that was made under another name is found by its owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pykai.controllers.binder.attempt import Attempt, BindError
from pykai.controllers.binder.claim_status import allocate, release
from pykai.kube.api import Api, Object, Patch, Selection
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.kube.resources import POD, RESOURCE_CLAIM
from pykai.objects import names
from pykai.objects.kinds import Pod

_NAME_LENGTH = 200


def name_for(pod: Pod) -> str:
    """The name of the claim."""
    return f"{pod.metadata.name[:_NAME_LENGTH]}-extended-resources-{pod.metadata.uid[:8]}"


async def prepare(api: Api, attempt: Attempt, given: Mapping[str, Any]) -> None:
    """Make the claim, allocate it, and tell the pod's status which container reads what from it."""
    if not given.get("allocation"):
        raise BindError(f"empty status for the extended resources in bind request for pod {attempt.title}")
    claim = await _find(api, attempt.pod)
    name = claim["metadata"]["name"] if claim else await _create(api, attempt.pod, given)
    await allocate(api, RESOURCE_CLAIM.ref(name, attempt.key[0]), attempt.pod, given["allocation"])
    mappings = list(given.get("containerMappings") or ())
    await _tell(api, attempt.pod, {"resourceClaimName": name, "requestMappings": mappings})


async def undo(api: Api, pod: Pod) -> None:
    """Take the claim, if there is one, out of the pod's status, and delete it: as long as it is there, it is found."""
    claim = await _find(api, pod)
    if claim is None:
        return
    with suppress(NotFound):
        await _tell(api, pod, None)
    ref = RESOURCE_CLAIM.ref(claim["metadata"]["name"], pod.metadata.namespace)
    await release(api, ref, pod.metadata.uid)
    kept = [each for each in claim["metadata"].get("finalizers") or () if each != names.DRA_FINALIZER]
    with suppress(NotFound):
        await api.patch(ref, Patch.merge({"metadata": {"finalizers": kept or None}}))
        await api.delete(ref)


async def _find(api: Api, pod: Pod) -> Object | None:
    page = await api.list(RESOURCE_CLAIM, Object, Selection(namespace=pod.metadata.namespace))
    for claim in page.items:
        metadata = claim["metadata"]
        marked = (metadata.get("annotations") or {}).get(names.EXTENDED_RESOURCE_CLAIM) == "true"
        owners = [owner["uid"] for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
        if marked and pod.metadata.uid in owners and "deletionTimestamp" not in metadata:
            return claim
    return None


async def _create(api: Api, pod: Pod, given: Mapping[str, Any]) -> str:
    meta = pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
    body = {
        "metadata": {
            "name": name_for(pod),
            "annotations": {names.EXTENDED_RESOURCE_CLAIM: "true"},
            "finalizers": [names.DRA_FINALIZER],
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {"devices": {"requests": list(given.get("deviceRequests") or ())}},
    }
    with suppress(AlreadyExists):
        await api.create(RESOURCE_CLAIM, body, meta.namespace)
    return name_for(pod)


async def _tell(api: Api, pod: Pod, status: Object | None) -> None:
    ref = POD.ref(pod.metadata.name, pod.metadata.namespace).sub("status")
    body = {"metadata": {"uid": pod.metadata.uid}, "status": {"extendedResourceClaimStatus": status}}
    await api.patch(ref, Patch.merge(body))
