"""What the volumes of a class of pods stand on: claims that are bound, claims that wait for a node, or a problem.

All of it is read from PersistentVolumeClaim, PersistentVolume and StorageClass objects and holds for a whole class:
pods of one class name the same claims, and a pod with ephemeral volumes is a class of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pykai.model.pods import PodClass
from pykai.model.snapshot import Key, Snapshot
from pykai.objects.kinds import PersistentVolumeClaim, StorageClass
from pykai.objects.units import amount

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
WAIT_FOR_POD = "WaitForFirstConsumer"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


@dataclass(frozen=True, eq=False)
class PodClaims:
    """The claims of a class. With a `problem` its pods cannot be placed anywhere."""

    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    """Not bound yet, and waiting to learn the node; the smallest first."""
    problem: str | None = None


NO_CLAIMS = PodClaims()


def claims_of(snapshot: Snapshot, c: PodClass) -> PodClaims:
    """The claims of a class, worked out once per snapshot."""
    if not c.template.volumes:
        return NO_CLAIMS
    memo = snapshot.derived(_claims_by_class)
    if c.row not in memo:
        memo[c.row] = _read_claims(snapshot, c)
    return memo[c.row]


def _claims_by_class(_: Snapshot) -> dict[int, PodClaims]:
    return {}


def claim_key(claim: PersistentVolumeClaim) -> Key:
    return claim.metadata.namespace, claim.metadata.name


def claim_size(claim: PersistentVolumeClaim) -> float:
    """Bytes a claim asks for."""
    return amount(((claim.spec.resources or {}).get("requests") or {}).get("storage", 0))


def class_name(claim: PersistentVolumeClaim) -> str:
    return (claim.metadata.annotations or {}).get(CLASS_ANNOTATION) or claim.spec.storage_class_name or ""


def storage_class(snapshot: Snapshot, claim: PersistentVolumeClaim) -> StorageClass | None:
    found: StorageClass | None = snapshot.objects.storage_classes.get(class_name(claim))
    return found


def owners(claim: PersistentVolumeClaim) -> list[str]:
    """Uids of the pods that own a claim: it goes when they go."""
    return [owner.uid for owner in claim.metadata.owner_references or () if owner.kind == "Pod"]


def _read_claims(snapshot: Snapshot, c: PodClass) -> PodClaims:
    bound, delayed = [], []
    for name, owner in dict.fromkeys(_claim_names(snapshot, c)):  # two volumes of a pod may be one claim
        claim: PersistentVolumeClaim | None = snapshot.objects.volume_claims.get((c.namespace, name))
        problem = _problem(snapshot, name, claim, owner)
        if claim is None or problem is not None:
            return PodClaims(problem=problem)
        if is_bound(claim):
            bound.append(claim)
        elif _waits_for_pod(snapshot, claim):
            delayed.append(claim)
        else:
            return PodClaims(problem=UNBOUND)
    return PodClaims(tuple(bound), tuple(sorted(delayed, key=claim_size)))


def _claim_names(snapshot: Snapshot, c: PodClass) -> Iterator[tuple[str, int | None]]:
    """Names of the claims behind the volumes; for ephemeral ones also the pod that must own them."""
    for volume in c.template.volumes:
        if volume.get("persistentVolumeClaim"):
            yield volume["persistentVolumeClaim"].get("claimName", ""), None
        elif volume.get("ephemeral") is not None:
            pod = int(np.argmax(snapshot.pods.klass == c.row))
            yield f"{snapshot.pods.names[pod]}-{volume.get('name', '')}", pod


def _problem(snapshot: Snapshot, name: str, claim: PersistentVolumeClaim | None, owner: int | None) -> str | None:
    """Why no pod can use a claim; None where it is sound."""
    if claim is None:
        if owner is not None:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return f'persistentvolumeclaim "{name}" not found'
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if owner is not None and snapshot.pods.uids[owner] not in owners(claim):
        pods = snapshot.pods
        return f"PVC {pods.namespaces[owner]}/{name} was not created for pod {pods.title(owner)} (pod is not owner)"
    return None


def is_bound(claim: PersistentVolumeClaim) -> bool:
    completed = BIND_COMPLETED in (claim.metadata.annotations or {})
    return bool(claim.spec.volume_name) and (completed or claim.status.phase == "Bound")


def _waits_for_pod(snapshot: Snapshot, claim: PersistentVolumeClaim) -> bool:
    found = storage_class(snapshot, claim)
    return found is not None and found.volume_binding_mode == WAIT_FOR_POD and not claim.spec.volume_name
