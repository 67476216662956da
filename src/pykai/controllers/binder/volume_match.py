"""Which volume a claim that waits for a node can have there, and what to do about each claim of a pod. Pure functions.

A claim that is bound must have a volume the node can reach. One that waits for its first consumer gets the smallest
existing volume that suits and is reachable, or else a new one is made for the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, convert, json

from pykai.controllers.binder.attempt import BindError
from pykai.kernels.selectors import meets, selects
from pykai.objects.kinds import ABSENT, Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from pykai.objects.pod_template import LabelSelector, NodeSelectorTerms, NodeTerm, decode_template
from pykai.objects.units import amount
from pykai.plugins.volume_claims import UNBOUND, WAIT_FOR_POD, claim_size, class_name, is_bound, owners
from pykai.plugins.volume_options import FILESYSTEM, NO_PROVISIONER, SELECTED_NODE

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
CONFLICT = "node(s) had volume node affinity conflict"


class _VolumeAffinity(Struct):
    required: NodeSelectorTerms | None = None


_AFFINITY = json.Decoder(_VolumeAffinity | None)


def pod_claims(pod: Pod) -> Iterator[tuple[str, bool]]:
    """Name of each PersistentVolumeClaim behind the pod's volumes, and whether it must be the pod's own."""
    if pod.spec.volumes is ABSENT:
        return
    for volume in decode_template(pod.spec).volumes:
        if volume.get("persistentVolumeClaim"):
            yield str(volume["persistentVolumeClaim"].get("claimName", "")), False
        elif volume.get("ephemeral") is not None:
            yield f"{pod.metadata.name}-{volume.get('name', '')}", True


def check_usable(name: str, claim: PersistentVolumeClaim | None, owner: Pod | None) -> PersistentVolumeClaim:
    """The claim if a pod can use it at all; with `owner` it must belong to that pod. BindError says why not."""
    if claim is None:
        if owner is not None:
            raise BindError(f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"')
        raise BindError(f'persistentvolumeclaim "{name}" not found')
    if claim.metadata.deletion_timestamp is not None:
        raise BindError(f'persistentvolumeclaim "{name}" is being deleted')
    if claim.status.phase == "Lost":
        raise BindError(
            f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
        )
    if owner is not None and owner.metadata.uid not in owners(claim):
        title = f"{owner.metadata.namespace}/{owner.metadata.name}"
        raise BindError(f"PVC {claim.metadata.namespace}/{name} was not created for pod {title} (pod is not owner)")
    return claim


def is_settled(claim: PersistentVolumeClaim, volumes: Mapping[str, PersistentVolume], node: Node) -> bool:
    """Whether a claim has its volume; BindError if the node cannot reach it."""
    if not is_bound(claim):
        return False
    volume = volumes.get(claim.spec.volume_name)
    if volume is None:
        raise BindError(f'persistentvolume "{claim.spec.volume_name}" not found')
    if not is_reachable(volume, node):
        raise BindError(CONFLICT)
    return True


def check_waits(claim: PersistentVolumeClaim, found: StorageClass | None) -> None:
    """BindError unless the claim waits to learn its node."""
    if found is None or found.volume_binding_mode != WAIT_FOR_POD:
        raise BindError(UNBOUND)


def is_reachable(volume: PersistentVolume, node: Node) -> bool:
    """Whether a volume can be used from a node."""
    raw = volume.spec.node_affinity
    affinity = None if raw is ABSENT else _AFFINITY.decode(raw)
    if affinity is None or affinity.required is None:
        return True
    return any(_met(term, node) for term in affinity.required.node_selector_terms)


def _met(term: NodeTerm, node: Node) -> bool:
    labels, fields = node.metadata.labels or {}, {"metadata.name": node.metadata.name}
    if not (term.match_expressions or term.match_fields):
        return False
    return all(meets(labels, each) for each in term.match_expressions) and all(
        meets(fields, each) for each in term.match_fields
    )


def best_volume(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], node: Node
) -> PersistentVolume | None:
    """The volume set aside for the claim, else the smallest free one that suits; None if a new one must be made."""
    suiting = [volume for volume in volumes if _suits(volume, claim) and is_reachable(volume, node)]
    return min(suiting, key=lambda v: (not _set_aside(v, claim), _size(v), v.metadata.name), default=None)


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    spec, selector = volume.spec, claim.spec.selector
    wanted = convert(selector, LabelSelector) if selector else LabelSelector()
    return (
        spec.storage_class_name == class_name(claim)
        and (_set_aside(volume, claim) or (spec.claim_ref is None and volume.status.phase in ("", "Available")))
        and volume.metadata.deletion_timestamp is None
        and _size(volume) >= claim_size(claim)
        and set(spec.access_modes or ()) >= set(claim.spec.access_modes or ())
        and (spec.volume_mode or FILESYSTEM) == (claim.spec.volume_mode or FILESYSTEM)
        and selects(wanted, volume.metadata.labels or {})
    )


def _set_aside(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference = volume.spec.claim_ref or {}
    mine = (reference.get("namespace"), reference.get("name")) == (claim.metadata.namespace, claim.metadata.name)
    return mine and reference.get("uid") in (None, "", claim.metadata.uid)


def _size(volume: PersistentVolume) -> float:
    return amount((volume.spec.capacity or {}).get("storage", 0))


@dataclass(frozen=True, slots=True)
class Write:
    """A merge patch to the claim, or to a volume (then `volume` is its name)."""

    body: dict[str, Any]
    volume: str = ""


def settle(
    claim: PersistentVolumeClaim, volume: PersistentVolume | None, found: StorageClass, node: Node
) -> Write | None:
    """What makes the claim's volume come to the node; None if that was done and the rest is others' work."""
    if volume is not None:
        return None if (volume.spec.claim_ref or {}).get("uid") else _take(volume, claim)
    if found.provisioner in NO_PROVISIONER:
        raise BindError(f'no volume for persistentvolumeclaim "{claim.metadata.name}" on node {node.metadata.name}')
    chosen = (claim.metadata.annotations or {}).get(SELECTED_NODE)
    if chosen == node.metadata.name:
        return None
    if chosen:
        raise BindError(f'a volume for persistentvolumeclaim "{claim.metadata.name}" is being made on node {chosen}')
    version = {"resourceVersion": claim.metadata.resource_version}
    return Write({"metadata": {**version, "annotations": {SELECTED_NODE: node.metadata.name}}})


def _take(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Write:
    meta = claim.metadata
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": meta.uid}
    return Write(
        {
            "metadata": {
                "resourceVersion": volume.metadata.resource_version,
                "annotations": {BOUND_BY_CONTROLLER: "yes"},
            },
            "spec": {"claimRef": {**reference, "namespace": meta.namespace, "name": meta.name}},
        },
        volume.metadata.name,
    )
