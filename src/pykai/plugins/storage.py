"""Storage as a resource (`--schedule-csi-storage`): claims draw on pools with a size.

A storage class takes part if its volumes are provisioned once a pod has a node and its driver publishes its pools. A
node draws on the one pool of a class that names it; with several the pool is ambiguous, so it has none. Claims of
placed pods whose volumes do not exist yet are subtracted from their pool. A claim that one pod owns is deleted with it,
so its size counts as releasing while that pod leaves; any other claim keeps its storage. All amounts are bytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import ANY, NodeResourceState, Rejection
from pykai.engine.pod_locations import NOWHERE, PodLocations
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Mask, Rows
from pykai.model.snapshot import Key, Snapshot
from pykai.model.status import IS_ACTIVE_USED
from pykai.objects.kinds import CSIStorageCapacity, PersistentVolumeClaim
from pykai.objects.units import amount
from pykai.plugins.volume_claims import (
    WAIT_FOR_POD,
    claim_key,
    claim_size,
    claims_of,
    class_name,
    largest_volume,
    owners,
    pool_nodes,
    publishes_pools,
)

NO_POOL = "no allocatable storage from storageclass {} found"
NO_ROOM = "node(s) did not have enough free storage for storageclass {}"
CLAIMS_DELETED = "task has deleted storage claims: {}"


@dataclass(frozen=True)
class StoragePools:
    """Nodes are feasible if their pools have room for the pod's claims."""

    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        return None if snapshot.params.schedule_csi_storage and pod_class.template.volumes else ANY

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        if not snapshot.params.schedule_csi_storage or not pod_class.template.volumes:
            return ()
        return _rejections(snapshot, pod_class)

    def open(self, cycle: Cycle) -> PoolUse | None:
        return PoolUse(cycle) if cycle.snapshot.params.schedule_csi_storage else None


class PoolUse(NodeResourceState):
    """The current use of the pools, counted again when pods have moved."""

    def __init__(self, cycle: Cycle) -> None:
        self._trial, self._locations = cycle.trial, cycle.pod_locations
        self._snapshot = cycle.snapshot
        self._known: Use | None = None

    def concerns(self, pod_class: PodClass) -> bool:
        return bool(pod_class.template.volumes) and bool(drawing(self._snapshot, pod_class))

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        drawn = self.use()
        free = self._snapshot.derived(pools).size - drawn.pending + drawn.releasing
        return ((NO_ROOM.format(name), short) for name, short in self._short(pod, free))

    def must_wait(self, pod: int, nodes: Rows) -> Mask | None:
        """Nodes whose pools have too little room at the moment."""
        drawn = self.use()
        free = self._snapshot.derived(pools).size - drawn.pending - drawn.leaving
        short = [mask[nodes] for _, mask in self._short(pod, free)]
        return np.logical_or.reduce(short) if short else None

    def use(self) -> Use:
        version = self._locations.refresh()
        if self._known is None or self._known.version != version:
            self._known = _count(self._snapshot, self._locations, version)
        return self._known

    def _short(self, pod: int, free: Column) -> Iterator[tuple[str, Mask]]:
        """Storage classes with the nodes whose pool has too little of it for the pod; `free`: bytes per pool."""
        facts, drawn = self._snapshot.derived(pools), self.use().claims
        by_class: dict[str, list[PersistentVolumeClaim]] = {}
        for claim in drawing(self._snapshot, self._trial.of_class(pod)):
            by_class.setdefault(class_name(claim), []).append(claim)
        for name, claims in by_class.items():
            sizes = [claim_size(claim) for claim in claims if claim_key(claim) not in drawn]
            if sizes:
                short = (facts.largest < max(sizes)) | (free < sum(sizes))
                yield name, np.append(short, True)[facts.of_class[name]]


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


# ---------------------------------------------------------------------------------------------------------------- pools
@dataclass(frozen=True, eq=False)
class Pools:
    """Per storage class and node the row of its pool, -1 for none; per pool its size and its largest volume."""

    of_class: dict[str, Rows]
    size: Column
    largest: Column


def pools(snapshot: Snapshot) -> Pools:
    """The pools of all classes that take part."""
    rows: list[CSIStorageCapacity] = list(snapshot.objects.storage_capacities)
    managed = [
        name
        for name, found in snapshot.objects.storage_classes.items()
        if found.volume_binding_mode == WAIT_FOR_POD and publishes_pools(snapshot, found)
    ]
    return Pools(
        of_class={name: _pool_of_node(snapshot, name, rows) for name in managed},
        size=np.array([amount(pool.capacity) for pool in rows]),
        largest=np.array([largest_volume(pool) for pool in rows]),
    )


def _pool_of_node(snapshot: Snapshot, storage_class: str, rows: list[CSIStorageCapacity]) -> Rows:
    pool_of = np.full(len(snapshot.nodes), NOWHERE)
    several = np.zeros(len(snapshot.nodes), dtype=bool)
    for row, pool in enumerate(rows):
        if pool.storage_class_name == storage_class:
            nodes = pool_nodes(snapshot, pool)
            several |= nodes & (pool_of != NOWHERE)
            pool_of[nodes] = row
    pool_of[several] = NOWHERE
    return pool_of


def drawing(snapshot: Snapshot, c: PodClass) -> list[PersistentVolumeClaim]:
    """The claims of a class for which volumes have yet to be made from pools."""
    managed = snapshot.derived(pools).of_class
    return [claim for claim in claims_of(snapshot, c).delayed if class_name(claim) in managed]


# -------------------------------------------------------------------------------------------------- use of the pools
@dataclass(frozen=True, eq=False)
class Links:
    """Which pods (rows) have which claims: parallel lists."""

    pods: Rows
    claims: list[PersistentVolumeClaim]

    def held(self, nodes: Rows) -> Iterator[tuple[Key, PersistentVolumeClaim, int]]:
        """Each claim of a pod that has a node, with that node."""
        for at in np.flatnonzero(nodes[self.pods] != NOWHERE).tolist():
            yield claim_key(self.claims[at]), self.claims[at], int(nodes[self.pods[at]])


@dataclass(frozen=True, eq=False)
class Use:
    """What is drawn from each pool by claims without a volume (`pending`), and will come back (`releasing`): volumes
    that exist, and of what is drawn in addition the part that is given up (`leaving`)."""

    version: int
    claims: frozenset[Key]
    pending: Column
    releasing: Column
    leaving: Column


def _count(snapshot: Snapshot, where: PodLocations, version: int) -> Use:
    facts, links = snapshot.derived(pools), snapshot.derived(_links)
    pending, releasing, leaving = (np.zeros(len(facts.size)) for _ in range(3))
    left = np.where(np.array(IS_ACTIVE_USED)[snapshot.pods.status], where.leaving, NOWHERE)
    drawn: set[Key] = set()
    for some, nodes in ((links.pending, where.present), (links.lasting, left)):
        for key, claim, node in some.held(nodes):
            if key not in drawn:
                drawn.add(key)
                _charge(facts, pending, claim, node)
    for some, column in ((links.passing, leaving), (links.owned, releasing)):
        for key, claim, node in some.held(left):
            if key not in drawn:
                _charge(facts, column, claim, node)
    return Use(version, frozenset(drawn), pending, releasing, leaving)


def _charge(facts: Pools, column: Column, claim: PersistentVolumeClaim, node: int) -> None:
    pool = facts.of_class[class_name(claim)][node]
    if pool != NOWHERE:
        column[pool] += claim_size(claim)


@dataclass(frozen=True, eq=False)
class AllLinks:
    """Claims without a volume, of which some go with their only owner (`passing`) and some do not (`lasting`), and
    claims with a volume that go with their only owner."""

    pending: Links
    passing: Links
    lasting: Links
    owned: Links


def _links(snapshot: Snapshot) -> AllLinks:
    managed, uids = snapshot.derived(pools).of_class, snapshot.pods.uids
    pending, bound = [], []
    classes = {c.row: claims_of(snapshot, c) for c in snapshot.pods.classes if c.template.volumes}
    for pod in np.flatnonzero(np.isin(snapshot.pods.klass, list(classes))).tolist():
        claims = classes[int(snapshot.pods.klass[pod])]
        pending += [(pod, claim) for claim in claims.delayed if class_name(claim) in managed]
        bound += [(pod, claim) for claim in claims.bound if class_name(claim) in managed]
    passing = [(pod, claim) for pod, claim in pending if owners(claim) == [uids[pod]]]
    lasting = [(pod, claim) for pod, claim in pending if owners(claim) != [uids[pod]]]
    owned = [(pod, claim) for pod, claim in bound if owners(claim) == [uids[pod]]]
    return AllLinks(_as_links(pending), _as_links(passing), _as_links(lasting), _as_links(owned))


def _as_links(pairs: list[tuple[int, PersistentVolumeClaim]]) -> Links:
    return Links(np.array([pod for pod, _ in pairs], dtype=np.int64), [claim for _, claim in pairs])
