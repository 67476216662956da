"""Volumes of claims that wait to learn their node: say which node it is, then wait until they are bound.

Binding itself is the work of Kubernetes' volume controller and of the storage drivers. A driver that gives up takes the
node off the claim again: that is a failure, and the scheduler may try elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import structlog

from pykai.controllers.binder.attempt import Attempt, BindError, Waiting
from pykai.controllers.binder.groups import Key
from pykai.controllers.binder.volume_match import best_volume, check_usable, check_waits, is_settled, pod_claims, settle
from pykai.kube.api import Api, Patch
from pykai.kube.replica import Change
from pykai.kube.resources import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS
from pykai.kube.watches import Watches
from pykai.objects.kinds import BindRequest, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from pykai.plugins.volume_claims import class_name
from pykai.plugins.volume_options import SELECTED_NODE

log = structlog.get_logger("binder")


class Volumes:
    """The step `volumebinding`; `wake` is called for a pod whose claims changed."""

    name = "volumebinding"

    def __init__(self, api: Api, watches: Watches, limit_seconds: float, wake: Callable[[Key], None]) -> None:
        self._api = api
        self._claims = watches.of(PERSISTENT_VOLUME_CLAIM, PersistentVolumeClaim)
        self._volumes = watches.of(PERSISTENT_VOLUME, PersistentVolume)
        self._classes = watches.of(STORAGE_CLASS, StorageClass)
        self._limit_seconds = limit_seconds
        self._wake = wake
        self._waiting: defaultdict[Key, set[Key]] = defaultdict(set)
        self._given_up: set[Key] = set()
        self._claims.subscribe(self._claim_changed)

    async def prepare(self, attempt: Attempt) -> Waiting | None:
        """See that every claim of the pod is bound to a volume that the node can reach."""
        unsettled = []
        for name, own in pod_claims(attempt.pod):
            found = self._claims.get(name, attempt.key[0])
            claim = check_usable(name, found, attempt.pod if own else None)
            if not is_settled(claim, self._by_name(claim), attempt.node):
                unsettled.append(claim)
        for claim in unsettled:
            await self._settle(attempt, claim)
        if not unsettled:
            return None
        waited = ", ".join(f'"{claim.metadata.name}"' for claim in unsettled)
        return Waiting(
            self.name, self._limit_seconds, f"timed out waiting for persistentvolumeclaim {waited} to be bound"
        )

    async def undo(self, pod: Pod, request: BindRequest | None) -> None:
        """Nothing: the node stays chosen until the driver takes it back, as with Kubernetes' own scheduler."""

    def forget(self, pod: Key) -> None:
        """Nobody waits for the pod's claims any more."""
        for claim in [claim for claim, pods in self._waiting.items() if pod in pods]:
            self._waiting[claim].discard(pod)
            if not self._waiting[claim]:
                del self._waiting[claim]
                self._given_up.discard(claim)

    async def _settle(self, attempt: Attempt, claim: PersistentVolumeClaim) -> None:
        meta = claim.metadata
        self._waiting[meta.namespace, meta.name].add(attempt.key)
        found = self._classes.get(class_name(claim))
        if claim.spec.volume_name:
            return
        check_waits(claim, found)
        assert found is not None
        volume = best_volume(claim, (volume for _, volume in self._volumes.items()), attempt.node)
        if volume is None and (meta.namespace, meta.name) in self._given_up:
            raise BindError(f'provisioning failed for PVC "{meta.name}"')
        write = settle(claim, volume, found, attempt.node)
        if write is None:
            return
        if write.volume:
            await self._api.patch(PERSISTENT_VOLUME.ref(write.volume), Patch.merge(write.body))
        else:
            await self._api.patch(PERSISTENT_VOLUME_CLAIM.ref(meta.name, meta.namespace), Patch.merge(write.body))
        log.info(
            "volume requested", pod=attempt.title, claim=meta.name, volume=write.volume, node=attempt.node.metadata.name
        )

    def _by_name(self, claim: PersistentVolumeClaim) -> dict[str, PersistentVolume]:
        volume = self._volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        return {} if volume is None else {volume.metadata.name: volume}

    def _claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        waiting = self._waiting.get(change.key, ())
        if waiting and _chosen(change.old) and not _chosen(change.object):
            self._given_up.add(change.key)
        for pod in waiting:
            self._wake(pod)


def _chosen(claim: PersistentVolumeClaim | None) -> bool:
    """Whether a node is written on the claim."""
    return claim is not None and SELECTED_NODE in (claim.metadata.annotations or {})
