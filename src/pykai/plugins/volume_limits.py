"""Limits on the use of volumes: claims that only one pod may use (ReadWriteOncePod), disks that pods name without a
claim, and how many volumes of a CSI driver a node can attach (`CSINode`).

A releasing pod still has its volumes: a pod that needs the claim, or an attachment on the node, is pipelined. A volume
that several pods of a node use is attached once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from pykai.cache.claims import ONE_POD
from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import NodeResourceState, Rejection
from pykai.engine.pod_locations import NOWHERE, PodCounts, PodLocations
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Mask, Rows
from pykai.model.snapshot import Key, NodeTable, Snapshot
from pykai.objects.kinds import PersistentVolumeClaim
from pykai.plugins.volume_claims import claim_key, claims_of, storage_class

IN_USE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
DISK_CONFLICT = "node(s) had no available disk"
TOO_MANY = "node(s) exceed max volume count"
Volume = tuple[str, str]
"""A driver, and what it calls the volume, or the claim it will make one for."""


# --------------------------------------------------------------------------------------------------- one pod per claim
def exclusive_claims(snapshot: Snapshot) -> dict[int, list[Key]]:
    """By class the claims that only one pod may use."""
    found: dict[int, list[Key]] = {}
    if any(map(_exclusive, snapshot.objects.volume_claims.values())):
        for c in snapshot.pods.classes:
            claims = claims_of(snapshot, c)
            keys = [claim_key(each) for each in (*claims.bound, *claims.delayed) if _exclusive(each)]
            if keys:
                found[c.row] = keys
    return found


def _classes_by_claim(snapshot: Snapshot) -> dict[Key, list[int]]:
    """The classes that use each of these claims."""
    found: dict[Key, list[int]] = {}
    for row, keys in snapshot.derived(exclusive_claims).items():
        for key in dict.fromkeys(keys):
            found.setdefault(key, []).append(row)
    return found


def _exclusive(claim: PersistentVolumeClaim) -> bool:
    return ONE_POD in (claim.spec.access_modes or ())


@dataclass(frozen=True)
class ExclusiveClaims:
    """A claim with ReadWriteOncePod has one user in the whole cluster."""

    def open(self, cycle: Cycle) -> ClaimUsers | None:
        return ClaimUsers(cycle) if cycle.snapshot.derived(exclusive_claims) else None


class ClaimUsers(NodeResourceState):
    """The pods that use such claims at this moment; all nodes are one domain."""

    def __init__(self, cycle: Cycle) -> None:
        self._trial, self._locations = cycle.trial, cycle.pod_locations
        self._claims = cycle.snapshot.derived(exclusive_claims)
        self._known: dict[Key, PodCounts] = {}

    def concerns(self, pod_class: PodClass) -> bool:
        return pod_class.row in self._claims

    def blockers(self, pod: int) -> Sequence[PodCounts]:
        return [self._users(key) for key in self._claims[self._trial.klass[pod]]]

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        yield from ((IN_USE, users.nodes_present) for users in self.blockers(pod) if users.present.any())

    def must_wait(self, pod: int, nodes: Rows) -> Mask | None:
        leaving = any(users.leaving.any() for users in self.blockers(pod))
        return np.ones(len(nodes), dtype=bool) if leaving else None

    def _users(self, key: Key) -> PodCounts:
        if key not in self._known:
            snapshot = self._trial.snapshot
            rows = snapshot.derived(_classes_by_claim)[key]
            everywhere = np.ones(len(snapshot.nodes), dtype=np.int64)
            self._known[key] = PodCounts(self._locations, snapshot.pods.of_classes(rows), everywhere, 2)
        return self._known[key]


# --------------------------------------------------------------------------------------- disks named by pods themselves
def disks_by_class(snapshot: Snapshot) -> dict[int, list[dict[str, Any]]]:
    """By class the disks that its pods name without a claim."""
    return {c.row: disks for c in snapshot.pods.classes if c.template.volumes and (disks := c.template.disks)}


def _classes_by_disk(snapshot: Snapshot) -> dict[tuple[str, str], list[int]]:
    """The classes that name a disk by kind and name, which may be the same one."""
    found: dict[tuple[str, str], list[int]] = {}
    for row, disks in snapshot.derived(disks_by_class).items():
        for name in _disk_names(disks):
            found.setdefault(name, []).append(row)
    return found


def _disk_names(disks: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Kind and last part of the name of disks: what is equal in two that are the same."""
    return {
        (kind, str(disk[kind].get(keys[-1]))) for disk in disks for kind, keys in _DISK_NAMES.items() if disk.get(kind)
    }


def same_disk(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two volumes are one disk that pods of a node cannot both have; all but EBS may be read together."""
    for kind, keys in _DISK_NAMES.items():
        ours, theirs = a.get(kind), b.get(kind)
        if not ours or not theirs or any(ours.get(key) != theirs.get(key) for key in keys):
            continue
        if kind == "rbd" and not set(ours.get("monitors") or ()) & set(theirs.get("monitors") or ()):
            continue
        return kind == "awsElasticBlockStore" or not (ours.get("readOnly") and theirs.get("readOnly"))
    return False


_DISK_NAMES: Mapping[str, tuple[str, ...]] = {
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "iscsi": ("iqn",),
    "rbd": ("pool", "image"),
}
"""What identifies a disk of each kind."""


@dataclass(frozen=True)
class Disks:
    """Pods that name the same disk are not placed on the same node (`same_disk`)."""

    def open(self, cycle: Cycle) -> DiskUse | None:
        return DiskUse(cycle) if cycle.snapshot.derived(disks_by_class) else None


class DiskUse(NodeResourceState):
    """The pods that have a disk of a class, by node."""

    def __init__(self, cycle: Cycle) -> None:
        self._trial, self._locations = cycle.trial, cycle.pod_locations
        self._disks = cycle.snapshot.derived(disks_by_class)
        self._known: dict[int, PodCounts] = {}

    def concerns(self, pod_class: PodClass) -> bool:
        return pod_class.row in self._disks

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        return [(DISK_CONFLICT, self._users(pod).nodes_present)]

    def blockers(self, pod: int) -> Sequence[PodCounts]:
        return (self._users(pod),)

    def must_wait(self, pod: int, nodes: Rows) -> Mask | None:
        users = self._users(pod)
        return users.leaving[users.domains[nodes]] > 0 if users.leaving.any() else None

    def _users(self, pod: int) -> PodCounts:
        row = self._trial.klass[pod]
        if row not in self._known:
            snapshot, own = self._trial.snapshot, self._disks[row]
            rivals = {other for name in _disk_names(own) for other in snapshot.derived(_classes_by_disk)[name]}
            rows = [other for other in rivals if any(same_disk(a, b) for a, b in product(own, self._disks[other]))]
            pods, nodes = snapshot.pods.of_classes(rows), len(snapshot.nodes)
            self._known[row] = PodCounts(self._locations, pods, np.arange(1, nodes + 1), nodes + 1)
        return self._known[row]


# ---------------------------------------------------------------------------------------------------- volumes per node
def attach_limits(snapshot: Snapshot) -> dict[str, Column]:
    """By driver how many volumes each node can attach; infinite where it does not say."""
    nodes: NodeTable = snapshot.nodes
    found: dict[str, Column] = {}
    for name, node in snapshot.objects.csi_nodes.items():
        row = nodes.rows.get(name)
        for driver in node.spec.drivers if row is not None else ():
            count = (driver.allocatable or {}).get("count")
            if isinstance(count, int):
                found.setdefault(driver.name, np.full(len(nodes), np.inf))[row] = count
    return found


def volumes_by_class(snapshot: Snapshot) -> dict[int, tuple[Volume, ...]]:
    """By class the volumes of limited drivers that its pods attach."""
    limited, found = snapshot.derived(attach_limits), dict[int, tuple[Volume, ...]]()
    for c in snapshot.pods.classes if limited else ():
        volumes = {each for each in _volumes(snapshot, c) if each[0] in limited}
        if volumes:
            found[c.row] = tuple(sorted(volumes))
    return found


def _volumes(snapshot: Snapshot, c: PodClass) -> Iterable[Volume]:
    claims = claims_of(snapshot, c)
    for claim in claims.bound:
        volume = snapshot.objects.volumes.get(claim.spec.volume_name)
        if volume is not None and volume.spec.csi:
            yield str(volume.spec.csi.get("driver", "")), str(volume.spec.csi.get("volumeHandle", ""))
    for claim in claims.delayed:
        known = storage_class(snapshot, claim)
        if known is not None:
            yield known.provisioner, "/".join(claim_key(claim))


@dataclass(frozen=True)
class AttachLimits:
    """A node attaches at most as many volumes of a CSI driver as its CSINode says."""

    def open(self, cycle: Cycle) -> AttachedVolumes | None:
        return AttachedVolumes(cycle) if cycle.snapshot.derived(volumes_by_class) else None


class AttachedVolumes(NodeResourceState):
    """The volumes that are attached to each node, with those of pods that leave and without."""

    def __init__(self, cycle: Cycle) -> None:
        self._trial = cycle.trial
        self._limits = cycle.snapshot.derived(attach_limits)
        self._volumes = cycle.snapshot.derived(volumes_by_class)
        self._staying = Attached(cycle.pod_locations, self._volumes, leaving=False)
        self._all = Attached(cycle.pod_locations, self._volumes, leaving=True)

    def concerns(self, pod_class: PodClass) -> bool:
        return pod_class.row in self._volumes

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        full = self._full(self._staying, pod)
        if full.any():
            yield TOO_MANY, full

    def must_wait(self, pod: int, nodes: Rows) -> Mask | None:
        full = self._full(self._all, pod)
        return full[nodes] if full.any() else None

    def _full(self, attached: Attached, pod: int) -> Mask:
        """Nodes that cannot attach what the pod adds to what is attached."""
        volumes = self._volumes[self._trial.klass[pod]]
        attached.refresh()
        mask = np.zeros(len(self._trial.snapshot.nodes), dtype=bool)
        for driver, number in Counter(driver for driver, _ in volumes).items():
            more = np.full(len(mask), float(number))
            for volume in volumes:
                if volume[0] == driver:
                    more[list(attached.nodes.get(volume, ()))] -= 1
            there = attached.counts.get(driver, 0.0)
            mask |= (more > 0) & (there + more > self._limits[driver])
        return mask


class Attached:
    """The distinct volumes of each driver per node, kept up to date from the log of moves."""

    def __init__(self, where: PodLocations, volumes: Mapping[int, tuple[Volume, ...]], leaving: bool) -> None:
        self._where, self._volumes, self._leaving = where, volumes, leaving
        self._klass = where.trial.klass
        self._size = len(where.trial.snapshot.nodes)
        self.nodes: dict[Volume, Counter[int]] = {}
        """Per volume how many pods use it on which nodes."""
        self.counts: dict[str, Column] = {}
        """Per driver the number of volumes on each node."""
        self._version = where.refresh()
        for pod, row in enumerate(self._klass):
            if row in volumes:
                self._shift(row, NOWHERE, int(where.present[pod]))
                if leaving:
                    self._shift(row, NOWHERE, int(where.leaving[pod]))

    def refresh(self) -> None:
        version = self._where.refresh()
        for move in self._where.moves[self._version : version]:
            row = self._klass[move.pod]
            if row in self._volumes:
                self._shift(row, *move.present)
                if self._leaving:
                    self._shift(row, *move.leaving)
        self._version = version

    def _shift(self, row: int, before: int, after: int) -> None:
        if before == after:
            return
        for volume in self._volumes[row]:
            users = self.nodes.setdefault(volume, Counter())
            counts = self.counts.setdefault(volume[0], np.zeros(self._size))
            if before != NOWHERE:
                users[before] -= 1
                if users[before] == 0:
                    del users[before]
                    counts[before] -= 1
            if after != NOWHERE:
                counts[after] += users[after] == 0
                users[after] += 1
