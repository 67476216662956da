"""The volume claims of a class of pods: claims that are bound, claims that wait for a node, or a problem.

All of it is read from PersistentVolumeClaim, PersistentVolume and StorageClass objects and holds for a whole class:
pods of one class name the same claims, or claims bound to volumes that can be used from the same nodes, and a pod with
ephemeral volumes is a class of its own.

A claim that waits for a node has options: existing volumes, on the nodes that their node affinity allows, and nodes for
which a new volume can be provisioned, where the storage class allows it and the driver has enough capacity, if it
publishes it. Once a node is selected for the claim, it is the only option until the driver gives up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct, convert, json

from pykai.cache.claims import is_bound
from pykai.kernels.selectors import in_some_term, selected, selects
from pykai.model.pods import PodClass
from pykai.model.resources import Mask
from pykai.model.snapshot import Key, NodeTable, Snapshot
from pykai.objects.kinds import (
    ABSENT,
    CSIStorageCapacity,
    Expression,
    LabelSelector,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from pykai.objects.pod_template import NodeSelectorTerms, NodeTerm
from pykai.objects.units import amount
from pykai.plugins import node_labels

SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = ("", "kubernetes.io/no-provisioner")
FILESYSTEM = "Filesystem"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
WAIT_FOR_POD = "WaitForFirstConsumer"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


@dataclass(frozen=True, eq=False)
class PodClaims:
    """The claims of a class. With a `problem` its pods cannot be placed anywhere."""

    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    """Not bound yet, and waiting for a node; the smallest first."""
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
        problem = claim_problem(
            name, claim, None if owner is None else (snapshot.pods.uids[owner], snapshot.pods.title(owner))
        )
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


def claim_problem(name: str, claim: PersistentVolumeClaim | None, owner: tuple[str, str] | None) -> str | None:
    """Why no pod can use a claim, None if one can; `owner`: uid and title of the pod that must own it, if one must."""
    if claim is None:
        if owner is not None:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return f'persistentvolumeclaim "{name}" not found'
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if owner is not None and owner[0] not in owners(claim):
        return f"PVC {claim.metadata.namespace}/{name} was not created for pod {owner[1]} (pod is not owner)"
    return None


def _waits_for_pod(snapshot: Snapshot, claim: PersistentVolumeClaim) -> bool:
    found = storage_class(snapshot, claim)
    return found is not None and found.volume_binding_mode == WAIT_FOR_POD and not claim.spec.volume_name


# -------------------------------------------------------------------------------------------------- options of a claim
class _VolumeAffinity(Struct):
    required: NodeSelectorTerms | None = None


_AFFINITY = json.Decoder(_VolumeAffinity)


@dataclass(frozen=True, eq=False)
class Options:
    """Suitable volumes with their nodes, the best first; nodes to provision a new one for; nodes short of storage."""

    volumes: tuple[tuple[str, Mask], ...]
    provision: Mask
    short: Mask

    @cached_property
    def somewhere(self) -> Mask:
        """Nodes with any option; read only."""
        mask: Mask = np.logical_or.reduce([self.provision, *(nodes for _, nodes in self.volumes)])
        return mask


def reachable(snapshot: Snapshot, volume: PersistentVolume) -> Mask:
    """The nodes from which a volume can be used, worked out once per snapshot for all with the same node affinity."""
    memo, raw = snapshot.derived(_reach), affinity_of(volume)
    if raw not in memo:
        memo[raw] = _reachable(snapshot, raw)
    return memo[raw]


ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_ZONE_LABELS = {  # a volume's label -> those of a node that answer it
    ZONE: (ZONE,),
    REGION: (REGION,),
    "failure-domain.beta.kubernetes.io/zone": ("failure-domain.beta.kubernetes.io/zone", ZONE),
    "failure-domain.beta.kubernetes.io/region": ("failure-domain.beta.kubernetes.io/region", REGION),
}
Zones = tuple[tuple[str, str], ...]


def zones_of(volume: PersistentVolume) -> Zones:
    """The zones and regions that a volume's labels name."""
    labels = volume.metadata.labels
    return tuple((key, labels[key]) for key in _ZONE_LABELS if key in labels) if labels else ()


def outside(nodes: NodeTable, zones: Zones) -> Mask:
    """Nodes that are in none of the zones or regions of a volume; one without any such label may be anywhere."""
    found = np.zeros(len(nodes), dtype=bool)
    for row, labels in enumerate(nodes.labels):
        if any(key in labels for key in _ZONE_LABELS):
            found[row] = not all(_in_zone(labels, key, value) for key, value in zones)
    return found


def _in_zone(labels: Mapping[str, str], key: str, value: str) -> bool:
    own = next((labels[each] for each in _ZONE_LABELS[key] if each in labels), None)
    return own is not None and own in value.split("__")


def affinity_of(volume: PersistentVolume) -> bytes:
    """The node affinity of a volume as it is written; empty: it has none."""
    raw = volume.spec.node_affinity
    return b"" if raw is ABSENT else bytes(raw)


def required_terms(affinity: bytes) -> NodeSelectorTerms | None:
    """The terms of a volume's node affinity, one of which a node must match; None: every node will do."""
    return None if affinity in (b"", b"null") else _AFFINITY.decode(affinity).required


def _reach(_: Snapshot) -> dict[bytes, Mask]:
    return {}


def _reachable(snapshot: Snapshot, raw: bytes) -> Mask:
    required = required_terms(raw)
    if required is None:
        return np.ones(len(snapshot.nodes), dtype=bool)
    return node_labels.in_terms(snapshot, required.node_selector_terms)


def options_key(snapshot: Snapshot, claim: PersistentVolumeClaim) -> Hashable:
    """Equal for claims that have the same options: they ask for the same, and no volume was set aside for one."""
    spec, key = claim.spec, claim_key(claim)
    return (
        class_name(claim),
        claim_size(claim),
        tuple(spec.access_modes or ()),
        spec.volume_mode,
        json.encode(spec.selector),
        (claim.metadata.annotations or {}).get(SELECTED_NODE),
        key if key in snapshot.derived(_with_reserved) else None,
    )


def _with_reserved(snapshot: Snapshot) -> frozenset[Key]:
    """Claims for which some volume was set aside."""
    references = [volume.spec.claim_ref for volume in snapshot.objects.volumes.values()]
    return frozenset([(ref.get("namespace", ""), ref.get("name", "")) for ref in references if ref is not None])


def options(snapshot: Snapshot, claim: PersistentVolumeClaim) -> Options:
    """What a claim that waits for a node can be given."""
    nowhere = np.zeros(len(snapshot.nodes), dtype=bool)
    volumes = sorted(
        _candidates(snapshot, claim), key=lambda v: (not is_reserved(v, claim), volume_size(v), v.metadata.name)
    )
    found = tuple((volume.metadata.name, reachable(snapshot, volume)) for volume in volumes)
    if volumes and is_reserved(volumes[0], claim):
        return Options(found[:1], nowhere, nowhere)
    allowed = _allowed(snapshot, storage_class(snapshot, claim), claim)
    room = _room(snapshot, claim)
    making = bool((claim.metadata.annotations or {}).get(SELECTED_NODE))
    return Options(() if making else found, allowed & room, allowed & ~room)


def _candidates(snapshot: Snapshot, claim: PersistentVolumeClaim) -> Iterator[PersistentVolume]:
    selector = claim.spec.selector
    wanted = convert(selector, LabelSelector) if selector else LabelSelector()
    for volume in snapshot.derived(_by_class).get(class_name(claim), ()):
        if suits(volume, claim) and selects(wanted, volume.metadata.labels or {}):
            yield volume


def _by_class(snapshot: Snapshot) -> dict[str, list[PersistentVolume]]:
    found: dict[str, list[PersistentVolume]] = {}
    for volume in snapshot.objects.volumes.values():
        found.setdefault(volume.spec.storage_class_name, []).append(volume)
    return found


def suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume of the right class would do; being reserved for another claim rules it out."""
    spec = volume.spec
    return (
        (is_reserved(volume, claim) or (spec.claim_ref is None and volume.status.phase in ("", "Available")))
        and volume.metadata.deletion_timestamp is None
        and volume_size(volume) >= claim_size(claim)
        and set(spec.access_modes or ()) >= set(claim.spec.access_modes or ())
        and (spec.volume_mode or FILESYSTEM) == (claim.spec.volume_mode or FILESYSTEM)
    )


def is_reserved(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume was set aside for this very claim."""
    reference = volume.spec.claim_ref
    if reference is None or (reference.get("namespace"), reference.get("name")) != claim_key(claim):
        return False
    return reference.get("uid") in (None, "", claim.metadata.uid)


def volume_size(volume: PersistentVolume) -> float:
    """The capacity of a volume in bytes."""
    return amount((volume.spec.capacity or {}).get("storage", 0))


def _allowed(snapshot: Snapshot, found: StorageClass | None, claim: PersistentVolumeClaim) -> Mask:
    """Nodes for which the class can make a volume; once a node is selected for the claim, only that one."""
    names = snapshot.nodes.names
    if found is None or found.provisioner in NO_PROVISIONER:
        return np.zeros(len(names), dtype=bool)
    mask = np.ones(len(names), dtype=bool)
    if found.allowed_topologies:
        terms = [_topology_term(term) for term in found.allowed_topologies]
        labels = snapshot.nodes.derived(node_labels.labels)
        mask = in_some_term(labels, snapshot.nodes.derived(node_labels.fields), terms)
    chosen = (claim.metadata.annotations or {}).get(SELECTED_NODE)
    if chosen:
        mask &= np.array([name == chosen for name in names], dtype=bool)
    return mask


def _topology_term(term: dict[str, Any]) -> NodeTerm:
    expressions = term.get("matchLabelExpressions") or ()
    return NodeTerm(
        match_expressions=[
            Expression(key=e.get("key", ""), operator="In", values=list(e.get("values") or ())) for e in expressions
        ]
    )


def _room(snapshot: Snapshot, claim: PersistentVolumeClaim) -> Mask:
    """Nodes with a pool large enough for the claim; all of them where the driver does not publish its pools."""
    found = storage_class(snapshot, claim)
    if found is None or snapshot.params.schedule_csi_storage or not publishes_pools(snapshot, found):
        return np.ones(len(snapshot.nodes), dtype=bool)
    size = claim_size(claim)
    pools = [p for p in snapshot.objects.storage_capacities if p.storage_class_name == found.metadata.name]
    large = [pool_nodes(snapshot, pool) for pool in pools if largest_volume(pool) >= size]
    return np.logical_or.reduce(large) if large else np.zeros(len(snapshot.nodes), dtype=bool)


def publishes_pools(snapshot: Snapshot, found: StorageClass) -> bool:
    """Whether the driver of a class publishes how much storage is left where."""
    driver = snapshot.objects.csi_drivers.get(found.provisioner)
    return driver is not None and driver.spec.storage_capacity


def largest_volume(pool: CSIStorageCapacity) -> float:
    """Bytes of the largest volume a pool can give."""
    return amount(pool.capacity if pool.maximum_volume_size is None else pool.maximum_volume_size)


def pool_nodes(snapshot: Snapshot, pool: CSIStorageCapacity) -> Mask:
    """The nodes that can use a pool of storage; none where it names none."""
    labels = snapshot.nodes.derived(node_labels.labels)
    if pool.node_topology is None:
        return labels.none()
    return selected(labels, convert(pool.node_topology, LabelSelector))
