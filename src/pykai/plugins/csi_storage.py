"""Storage as a resource (`--schedule-csi-storage`, spec/scheduling.md §15): claims draw on pools with a size."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.points import ANY, Rejection
from pykai.engine.whereabouts import NOWHERE
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Mask
from pykai.model.snapshot import Snapshot
from pykai.objects.kinds import PersistentVolumeClaim
from pykai.plugins.storage_pools import drawing, pools, use
from pykai.plugins.volume_claims import claim_key, claim_size, claims_of, class_name, owners

NO_POOL = "no allocatable storage from storageclass {} found"
NO_ROOM = "node(s) did not have enough free storage for storageclass {}"
CLAIMS_DELETED = "task has deleted storage claims: {}"


@dataclass(frozen=True)
class StoragePools:
    """A pod goes where the pools have room for the claims it brings."""

    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        return None if snapshot.params.schedule_csi_storage and pod_class.template.volumes else ANY

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        if not snapshot.params.schedule_csi_storage or not pod_class.template.volumes:
            return ()
        return _rejections(snapshot, pod_class)

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        if not cycle.snapshot.params.schedule_csi_storage or not pod_class.template.volumes:
            return False
        return bool(drawing(cycle.snapshot, pod_class))

    def closed(self, cycle: Cycle, pod: int) -> Iterable[Rejection]:
        drawn = use(cycle)
        free = cycle.snapshot.derived(pools).size - drawn.pending + drawn.releasing
        return ((NO_ROOM.format(name), short) for name, short in _short(cycle, pod, free))

    def must_wait(self, cycle: Cycle, pod: int, node: int) -> bool:
        late = self.late(cycle, pod)
        return late is not None and bool(late[node])

    def late(self, cycle: Cycle, pod: int) -> Mask | None:
        """Nodes whose pools have too little room at the moment."""
        drawn = use(cycle)
        free = cycle.snapshot.derived(pools).size - drawn.pending - drawn.leaving
        short = [mask for _, mask in _short(cycle, pod, free)]
        return np.logical_or.reduce(short) if short else None


def _rejections(snapshot: Snapshot, c: PodClass) -> Iterator[Rejection]:
    gone = _orphaned(snapshot, c)
    if gone:
        yield CLAIMS_DELETED.format(", ".join(gone)), np.ones(len(snapshot.nodes), dtype=bool)
    for name in dict.fromkeys(class_name(claim) for claim in drawing(snapshot, c)):
        yield NO_POOL.format(name), snapshot.derived(pools).of_class[name] == NOWHERE


def _orphaned(snapshot: Snapshot, c: PodClass) -> list[str]:
    """Claims of a class that are about to be deleted because the pod that owned them is gone."""
    alive, claims = snapshot.derived(_uids), claims_of(snapshot, c)
    found = [claim for claim in (*claims.bound, *claims.delayed) if owners(claim) and not alive & set(owners(claim))]
    return sorted("/".join(claim_key(claim)) for claim in found)


def _uids(snapshot: Snapshot) -> frozenset[str]:
    return frozenset(snapshot.pods.uids)


def _short(cycle: Cycle, pod: int, free: Column) -> Iterator[tuple[str, Mask]]:
    """Storage classes with the nodes whose pool has too little of it for the pod; `free`: bytes per pool."""
    facts, drawn = cycle.snapshot.derived(pools), use(cycle).claims
    by_class: dict[str, list[PersistentVolumeClaim]] = {}
    for claim in drawing(cycle.snapshot, cycle.trial.of_class(pod)):
        by_class.setdefault(class_name(claim), []).append(claim)
    for name, claims in by_class.items():
        sizes = [claim_size(claim) for claim in claims if claim_key(claim) not in drawn]
        if sizes:
            short = (facts.largest < max(sizes)) | (free < sum(sizes))
            yield name, np.append(short, True)[facts.of_class[name]]
