"""Storage as a resource (`--schedule-csi-storage`, spec/scheduling.md §15): claims draw on pools with a size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.points import Rejection
from pykai.engine.whereabouts import NOWHERE
from pykai.model.pods import PodClass
from pykai.model.resources import Column
from pykai.model.snapshot import Snapshot
from pykai.plugins.storage_pools import drawing, pools, use
from pykai.plugins.volume_claims import claim_key, claim_size, claims_of, class_name, owners

NO_POOL = "no allocatable storage from storageclass {} found"
NO_ROOM = "node(s) did not have enough free storage for storageclass {}"
CLAIMS_DELETED = "task has deleted storage claims: {}"


@dataclass(frozen=True)
class StoragePools:
    """A pod goes where the pools have room for the claims it brings."""

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        if not snapshot.params.schedule_csi_storage or not pod_class.template.volumes:
            return ()
        return _rejections(snapshot, pod_class)

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        if not cycle.snapshot.params.schedule_csi_storage or not pod_class.template.volumes:
            return False
        return bool(drawing(cycle.snapshot, pod_class))

    def reject(self, cycle: Cycle, pod: int, node: int) -> str | None:
        short = _short(cycle, pod, node, use(cycle).releasing)
        return NO_ROOM.format(short) if short else None

    def must_wait(self, cycle: Cycle, pod: int, node: int) -> bool:
        return bool(_short(cycle, pod, node, np.zeros(len(cycle.snapshot.derived(pools).size))))


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


def _short(cycle: Cycle, pod: int, node: int, besides: Column) -> str:
    """The storage class of which a node has too little, counting what is free and `besides`; empty: none."""
    drawn, facts = use(cycle), cycle.snapshot.derived(pools)
    need: dict[int, float] = {}
    for claim in drawing(cycle.snapshot, cycle.trial.of_class(pod)):
        name = class_name(claim)
        pool = int(facts.of_class[name][node])
        if claim_key(claim) not in drawn.claims:
            need[pool] = need.get(pool, 0.0) + claim_size(claim)
        if pool == NOWHERE or claim_size(claim) > facts.largest[pool]:
            return name
        if need.get(pool, 0.0) > facts.size[pool] - drawn.pending[pool] + besides[pool]:
            return name
    return ""
