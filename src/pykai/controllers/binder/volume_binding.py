"""Volume binding for claims with WaitForFirstConsumer: select the node or a volume, then wait until they are bound.

A bound claim must have a volume that the node can reach. An unbound one gets the smallest existing volume that matches
and is reachable; without one its driver provisions a new volume for the node. Binding itself is the work of
Kubernetes' volume controller and of the storage drivers. A driver that gives up removes the selected node from the
claim: the bind fails, and the scheduler may select another node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import structlog
from msgspec import convert

from pykai.cache.claims import is_bound
from pykai.controllers.binder.binding import BindAttempt, BindError, Step, WaitingStep
from pykai.kernels.selectors import meets, selects
from pykai.kube.api import Api, Object, Patch
from pykai.kube.api_resources import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import Key, WatchChange
from pykai.objects.kinds import (
    ABSENT,
    LabelSelector,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from pykai.objects.pod_template import NodeTerm, decode_template
from pykai.plugins.volume_claims import (
    NO_PROVISIONER,
    SELECTED_NODE,
    UNBOUND,
    WAIT_FOR_POD,
    affinity_of,
    claim_problem,
    class_name,
    is_reserved,
    required_terms,
    suits,
    volume_size,
)

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
CONFLICT = "node(s) had volume node affinity conflict"


def pod_claims(pod: Pod) -> Iterator[tuple[str, bool]]:
    """Yield the names of the PersistentVolumeClaims of the pod's volumes, and whether the pod must own them."""
    if pod.spec.volumes is ABSENT:
        return
    for volume in decode_template(pod.spec).volumes:
        if volume.get("persistentVolumeClaim"):
            yield str(volume["persistentVolumeClaim"].get("claimName", "")), False
        elif volume.get("ephemeral") is not None:
            yield f"{pod.metadata.name}-{volume.get('name', '')}", True


def is_bound_on(claim: PersistentVolumeClaim, volume: PersistentVolume | None, node: Node) -> bool:
    """Whether a claim has its volume; BindError if that does not exist or the node cannot reach it."""
    if not is_bound(claim):
        return False
    if volume is None:
        raise BindError(f'persistentvolume "{claim.spec.volume_name}" not found')
    if not is_reachable(volume, node):
        raise BindError(CONFLICT)
    return True


def is_reachable(volume: PersistentVolume, node: Node) -> bool:
    """Whether a volume can be used from a node."""
    required = required_terms(affinity_of(volume))
    return required is None or any(_met(term, node) for term in required.node_selector_terms)


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
    """Return the volume reserved for the claim, else the smallest available match; None if one must be provisioned."""
    selector, wanted_class = claim.spec.selector, class_name(claim)
    wanted = convert(selector, LabelSelector) if selector else LabelSelector()
    matching = [
        volume
        for volume in volumes
        if volume.spec.storage_class_name == wanted_class
        and suits(volume, claim)
        and selects(wanted, volume.metadata.labels or {})
        and is_reachable(volume, node)
    ]
    return min(matching, key=lambda v: (not is_reserved(v, claim), volume_size(v), v.metadata.name), default=None)


@dataclass(frozen=True, slots=True)
class Write:
    """A merge patch to the claim, or to a volume (then `volume` is its name)."""

    body: Object
    volume: str = ""


def start_binding(
    claim: PersistentVolumeClaim, volume: PersistentVolume | None, found: StorageClass, node: Node
) -> Write | None:
    """Return the write that starts binding or provisioning on the node; None if it was made."""
    if volume is not None:
        if (volume.spec.claim_ref or {}).get("uid"):
            return None
        meta = claim.metadata
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": meta.uid}
        metadata = {
            "resourceVersion": volume.metadata.resource_version,
            "annotations": {BOUND_BY_CONTROLLER: "yes"},
        }
        spec = {"claimRef": {**reference, "namespace": meta.namespace, "name": meta.name}}
        return Write({"metadata": metadata, "spec": spec}, volume.metadata.name)
    if found.provisioner in NO_PROVISIONER:
        raise BindError(f'no volume for persistentvolumeclaim "{claim.metadata.name}" on node {node.metadata.name}')
    chosen = (claim.metadata.annotations or {}).get(SELECTED_NODE)
    if chosen == node.metadata.name:
        return None
    if chosen:
        raise BindError(f'a volume for persistentvolumeclaim "{claim.metadata.name}" is being made on node {chosen}')
    version = {"resourceVersion": claim.metadata.resource_version}
    return Write({"metadata": {**version, "annotations": {SELECTED_NODE: node.metadata.name}}})


log = structlog.get_logger("binder")


class Volumes(Step):
    """The step `volumebinding`; `wake` enqueues a pod whose claims changed.

    Nothing is undone: the node stays selected until the driver removes it, as with kube-scheduler.
    """

    name = "volumebinding"

    def __init__(self, api: Api, watches: InformerFactory, limit_seconds: float, wake: Callable[[Key], None]) -> None:
        self._api = api
        self._claims = watches.of(PERSISTENT_VOLUME_CLAIM, PersistentVolumeClaim)
        self._volumes = watches.of(PERSISTENT_VOLUME, PersistentVolume)
        self._classes = watches.of(STORAGE_CLASS, StorageClass)
        self._limit_seconds = limit_seconds
        self._wake = wake
        self._waiting: defaultdict[Key, set[Key]] = defaultdict(set)
        self._gave_up: set[Key] = set()
        self._claims.subscribe(self._claim_changed)

    async def prepare(self, attempt: BindAttempt) -> WaitingStep | None:
        """Bind every claim of the pod to a volume that the node can reach."""
        unbound = []
        for name, own in pod_claims(attempt.pod):
            claim = self._claims.get(name, attempt.key[0])
            problem = claim_problem(name, claim, (attempt.pod.metadata.uid, attempt.title) if own else None)
            if claim is None or problem is not None:
                raise BindError(problem)
            if not is_bound_on(claim, self._volumes.get(claim.spec.volume_name), attempt.node):
                unbound.append(claim)
        for claim in unbound:
            await self._start(attempt, claim)
        if not unbound:
            return None
        waited = ", ".join(f'"{claim.metadata.name}"' for claim in unbound)
        return WaitingStep(
            self.name, self._limit_seconds, f"timed out waiting for persistentvolumeclaim {waited} to be bound"
        )

    def forget(self, pod: Key) -> None:
        """Stop waiting for the pod's claims."""
        for claim in [claim for claim, pods in self._waiting.items() if pod in pods]:
            self._waiting[claim].discard(pod)
            if not self._waiting[claim]:
                del self._waiting[claim]
                self._gave_up.discard(claim)

    async def _start(self, attempt: BindAttempt, claim: PersistentVolumeClaim) -> None:
        meta = claim.metadata
        self._waiting[meta.key].add(attempt.key)
        if claim.spec.volume_name:
            return
        found = self._classes.get(class_name(claim))
        if found is None or found.volume_binding_mode != WAIT_FOR_POD:
            raise BindError(UNBOUND)
        volume = best_volume(claim, (volume for _, volume in self._volumes.items()), attempt.node)
        if volume is None and meta.key in self._gave_up:
            raise BindError(f'provisioning failed for PVC "{meta.name}"')
        write = start_binding(claim, volume, found, attempt.node)
        if write is None:
            return
        if write.volume:
            await self._api.patch(PERSISTENT_VOLUME.ref(write.volume), Patch.merge(write.body))
        else:
            await self._api.patch(PERSISTENT_VOLUME_CLAIM.ref(meta.name, meta.namespace), Patch.merge(write.body))
        log.info(
            "volume requested", pod=attempt.title, claim=meta.name, volume=write.volume, node=attempt.node.metadata.name
        )

    def _claim_changed(self, change: WatchChange[PersistentVolumeClaim]) -> None:
        waiting = self._waiting.get(change.key, ())
        if waiting and _has_node(change.old) and not _has_node(change.object):
            self._gave_up.add(change.key)
        for pod in sorted(waiting):
            self._wake(pod)


def _has_node(claim: PersistentVolumeClaim | None) -> bool:
    """Whether a node is selected for the claim."""
    return claim is not None and SELECTED_NODE in (claim.metadata.annotations or {})
