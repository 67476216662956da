"""GPUs behind DRA objects: what a node offers and what a pod's claims ask for (spec/scheduling.md §2.3, §14)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pykai.objects import names
from pykai.objects.kinds import Pod, ResourceClaim, ResourceSlice
from pykai.objects.pod_template import PodClaim, decode_template

Key = tuple[str, str]
LARGEST = 2**63 - 1


def gpus_per_node(slices: Iterable[ResourceSlice]) -> dict[str, int]:
    """Devices of GPU drivers by node; slices not tied to one node are not counted."""
    found: dict[str, int] = {}
    for item in slices:
        node = item.spec.get("nodeName") or ""
        if node and "gpu" in str(item.spec.get("driver", "")).lower():
            found[node] = found.get(node, 0) + len(item.spec.get("devices") or ())
    return found


def device_requests(claim: ResourceClaim) -> Iterator[dict[str, Any]]:
    """The claim's exact device requests."""
    for request in (claim.spec.get("devices") or {}).get("requests") or ():
        yield {"name": request.get("name", ""), **(request.get("exactly") or {})}


def claim_gpus(claim: ResourceClaim) -> int:
    """Devices of GPU classes a claim asks for; `All` counts as one."""
    total = 0
    for request in device_requests(claim):
        if "gpu" in str(request.get("deviceClassName", "")).lower():
            exact = request.get("allocationMode", "ExactCount") == "ExactCount"
            total += max(int(request.get("count") or 1), 1) if exact else 1
    return min(total, LARGEST)


def claim_names(pod: Pod, claims: Sequence[PodClaim]) -> Iterator[tuple[str, str]]:
    """(name in the pod, ResourceClaim name) of a pod's claims; generated ones from status."""
    generated = {s.name: s.resource_claim_name for s in pod.status.resource_claim_statuses or ()}
    for claim in claims:
        name = claim.resource_claim_name or generated.get(claim.name) or ""
        yield claim.name, name


def gpus_per_pod(pods: Iterable[Pod], claims: Mapping[Key, ResourceClaim]) -> dict[Key, float]:
    """GPU devices asked for through claims, by (namespace, pod name).

    A claim made for a pod's extended resources is left out: the pod's own requests count for it.
    """
    owned: dict[Key, list[str]] = {}
    for (namespace, name), claim in claims.items():
        if (claim.metadata.annotations or {}).get(names.EXTENDED_RESOURCE_CLAIM) == "true":
            continue
        for pod_name in _holders(claim):
            owned.setdefault((namespace, pod_name), []).append(name)
    found: dict[Key, float] = {}
    for pod in pods:
        meta = pod.metadata
        key = (meta.namespace, meta.name)
        wanted = set(owned.get(key, ()))
        if bytes(pod.spec.resource_claims):
            wanted |= {name for _, name in claim_names(pod, decode_template(pod.spec).claims)}
        total = sum(claim_gpus(claims[meta.namespace, name]) for name in wanted if (meta.namespace, name) in claims)
        if total:
            found[key] = float(min(total, LARGEST))
    return found


def _holders(claim: ResourceClaim) -> Iterator[str]:
    """Names of the pods a claim belongs to by what it says itself: its owner, and the first it is reserved for."""
    for owner in claim.metadata.owner_references or ():
        if owner.kind == "Pod":
            yield owner.name
    for consumer in ((claim.status or {}).get("reservedFor") or ())[:1]:
        if consumer.get("resource") == "pods":
            yield str(consumer.get("name", ""))
