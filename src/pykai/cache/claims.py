"""The identities of claims in pod classes: pods that differ only in the names of equivalent claims are of one class.

A claim for devices is identified by its request, as long as one pod uses it and nothing is allocated to it; a bound
claim for a volume by the nodes from which the volume can be used. Every other claim is identified by its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import json

from pykai.cache.readings import Numbers, Readings
from pykai.model.resources import Rows
from pykai.model.snapshot import ClusterObjects
from pykai.objects import names
from pykai.objects.kinds import ABSENT, PersistentVolume, PersistentVolumeClaim, Pod, ResourceClaim
from pykai.objects.pod_template import PodClaim, decode_claims

Key = tuple[str, str]
"""Namespace and name."""
LARGEST = 2**63 - 1
ONE_POD = "ReadWriteOncePod"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


# ------------------------------------------------------------------------------------------------------------- devices
class DeviceClaims(NamedTuple):
    """What a pod requests through claims: GPU devices, and the identities of the claims it names, in order."""

    gpus: float = 0.0
    asked: tuple[Hashable, ...] = ()


NO_CLAIMS = DeviceClaims()


def claim_gpus(claim: ResourceClaim) -> int:
    """Devices of GPU classes a claim asks for; `All` counts as one."""
    total = 0
    for request in (claim.spec.get("devices") or {}).get("requests") or ():
        asked = request.get("exactly") or {}
        if "gpu" in str(asked.get("deviceClassName", "")).lower():
            exact = asked.get("allocationMode", "ExactCount") == "ExactCount"
            total += max(int(asked.get("count") or 1), 1) if exact else 1
    return min(total, LARGEST)


def claim_names(pod: Pod, claims: Sequence[PodClaim]) -> Iterator[str]:
    """The ResourceClaims of a pod's claims; generated ones from status, "" for one that is not made yet."""
    generated = {s.name: s.resource_claim_name for s in pod.status.resource_claim_statuses or ()}
    for claim in claims:
        yield claim.resource_claim_name or generated.get(claim.name) or ""


class ClaimMemo:
    """What ResourceClaims ask for: each is read once, what they ask for is compared once."""

    def __init__(self) -> None:
        self._readings = Readings()
        self._numbers: Numbers[bytes] = Numbers()
        self._asked: list[tuple[bytes, int]] = []
        """By number: the devices of a spec, and how many of them count as GPUs."""

    def read(self, claims: Mapping[Key, ResourceClaim]) -> dict[Key, _Claim]:
        """By key: what each claim asks for, and whether devices are allocated to it or it is reserved for pods."""
        numbers, given = self._readings.block(list(claims.values()), self._block).tolist()
        asked = self._asked
        return {key: (*asked[at], taken) for key, at, taken in zip(claims, numbers, given, strict=True)}

    def _block(self, claims: Sequence[ResourceClaim]) -> Rows:
        return np.array([[self._number(c) for c in claims], [_given(c) for c in claims]], dtype=np.int64)

    def _number(self, claim: ResourceClaim) -> int:
        spec = json.encode(claim.spec.get("devices") or {}, order="deterministic")
        number = self._numbers[spec]
        if number == len(self._asked):
            self._asked.append((spec, claim_gpus(claim)))
        return number


_Claim = tuple[bytes, int, int]


def device_claims(pods: Iterable[Pod], claims: Mapping[Key, ResourceClaim], memo: ClaimMemo) -> dict[int, DeviceClaims]:
    """What pods ask for through claims, by their row among `pods`; those that ask for nothing are left out.

    A claim made for a pod's extended resources is left out: the pod's own requests count for it.
    """
    owned: dict[Key, list[str]] = {}
    for (namespace, name), claim in claims.items():
        if (claim.metadata.annotations or {}).get(names.EXTENDED_RESOURCE_CLAIM) == "true":
            continue
        for pod_name in _holders(claim):
            owned.setdefault((namespace, pod_name), []).append(name)
    stated: list[tuple[int, Pod, Sequence[str], Sequence[str]]] = []
    for row, pod in enumerate(pods):
        own = owned.get((pod.metadata.namespace, pod.metadata.name), ())
        if own or pod.spec.resource_claims is not ABSENT:
            stated.append((row, pod, list(claim_names(pod, decode_claims(pod.spec))), own))
    users = Counter([(pod.metadata.namespace, name) for _, pod, found, _ in stated for name in dict.fromkeys(found)])
    known = memo.read(claims)
    return {row: _asked(pod, (found, own), known, users) for row, pod, found, own in stated}


def _asked(
    pod: Pod, named: tuple[Sequence[str], Sequence[str]], known: Mapping[Key, _Claim], users: Counter[Key]
) -> DeviceClaims:
    """What a pod asks for by the claims that it states, and by those that belong to it. `users`: how many pods state a
    claim."""
    stated, owned = named
    namespace, placed = pod.metadata.namespace, bool(pod.spec.node_name)
    gpus, identities = 0, dict[str, Hashable]()
    for name in dict.fromkeys([*stated, *owned]):
        claim = known.get((namespace, name))
        identities[name] = name
        if claim is not None:
            spec, devices, given = claim
            gpus += devices
            if users[namespace, name] <= 1 and (placed or not given):
                identities[name] = spec
    return DeviceClaims(float(min(gpus, LARGEST)), tuple([identities[name] for name in stated]))


def _given(claim: ResourceClaim) -> bool:
    """Whether devices are allocated to a claim, or it is reserved for pods."""
    status = claim.status or {}
    return bool(status.get("allocation") or status.get("reservedFor"))


def _holders(claim: ResourceClaim) -> Iterator[str]:
    """Yield the names of the pods that a claim belongs to: its owner, and the first pod it is reserved for."""
    for owner in claim.metadata.owner_references or ():
        if owner.kind == "Pod":
            yield owner.name
    for consumer in ((claim.status or {}).get("reservedFor") or ())[:1]:
        if consumer.get("resource") == "pods":
            yield str(consumer.get("name", ""))


# ------------------------------------------------------------------------------------------------------------- volumes
def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether a claim has its volume for good."""
    completed = BIND_COMPLETED in (claim.metadata.annotations or {})
    return bool(claim.spec.volume_name) and (completed or claim.status.phase == "Bound")


def volume_reach(objects: ClusterObjects) -> Callable[[Key], Hashable | None]:
    """Return a function from a claim to its identity: the node affinity and zones of its volume. None: its name, as it
    has problems or no volume yet, only one pod may use it, or its driver limits volumes per node."""
    claims, volumes = objects.volume_claims, objects.volumes
    limited = {
        driver.name
        for node in objects.csi_nodes.values()
        for driver in node.spec.drivers
        if (driver.allocatable or {}).get("count") is not None
    }

    def reach(key: Key) -> Hashable | None:
        claim: PersistentVolumeClaim | None = claims.get(key)
        if claim is None or not is_bound(claim) or claim.metadata.deletion_timestamp is not None:
            return None
        volume: PersistentVolume | None = volumes.get(claim.spec.volume_name)
        if volume is None or claim.status.phase == "Lost" or ONE_POD in (claim.spec.access_modes or ()):
            return None
        if volume.spec.csi and volume.spec.csi.get("driver") in limited:
            return None
        labels = volume.metadata.labels or {}
        zones = [(label, labels[label]) for label in sorted(labels) if label.endswith(("/zone", "/region"))]
        return bytes(volume.spec.node_affinity), *zones

    return reach
