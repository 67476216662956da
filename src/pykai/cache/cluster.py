"""ClusterCache: the one owner of what we know of the cluster. Watch events in, Snapshot out.

`apply` is the only way state changes. A snapshot is built from the objects on demand; what is expensive about an
object (its template, its hardware) is remembered from one snapshot to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from pykai.cache import claims
from pykai.cache.classes import ClassContext, ClassTable, TemplateMemo
from pykai.cache.gangs import gang_rows, gang_table, priorities
from pykai.cache.nodes import UNKNOWN_GPU_MEMORY, HardwareMemo, node_table, widen
from pykai.cache.pods import PodContext, pod_table
from pykai.cache.queues import queue_table
from pykai.model.nodes import NodeTable
from pykai.model.params import SchedulerParams
from pykai.model.resources import ResourceSpace
from pykai.model.snapshot import ClusterObjects, Snapshot
from pykai.objects import kinds
from pykai.objects.kinds import ObjectMeta

Key = tuple[str, str]
KINDS: tuple[type[Any], ...] = (
    kinds.Node,
    kinds.Pod,
    kinds.Queue,
    kinds.PodGroup,
    kinds.BindRequest,
    kinds.PriorityClass,
    kinds.ConfigMap,
    kinds.PersistentVolumeClaim,
    kinds.PersistentVolume,
    kinds.StorageClass,
    kinds.CSIStorageCapacity,
    kinds.CSIDriver,
    kinds.Topology,
    kinds.ResourceClaim,
    kinds.ResourceSlice,
    kinds.DeviceClass,
    kinds.NodeResourceTopology,
)
PARTITIONED = frozenset({kinds.Node, kinds.Queue, kinds.PodGroup})
"""Kinds that belong to one node pool each."""


@dataclass(frozen=True)
class Change:
    """One watch event: `obj` is the new state, or the last one known when it is gone."""

    obj: Any
    gone: bool = False


class ClusterCache:
    """Objects by kind and key."""

    def __init__(self, params: SchedulerParams) -> None:
        self.params = params
        self.revision = 0
        self._objects: dict[type[Any], dict[Key, Any]] = {kind: {} for kind in KINDS}
        self._templates = TemplateMemo()
        self._hardware = HardwareMemo()

    def apply(self, change: Change) -> None:
        """Take in one event; an object of another node pool counts as gone."""
        meta: ObjectMeta = change.obj.metadata
        store = self._objects[type(change.obj)]
        key = (meta.namespace, meta.name)
        self.revision += 1
        if change.gone or not self._ours(change.obj):
            store.pop(key, None)
        else:
            store[key] = change.obj

    def copy(self) -> ClusterCache:
        """A cache with the same objects now: its snapshot can be built while this one goes on with events.

        What is remembered about templates and hardware is shared; at most one of the copies may be read at a time.
        """
        made = ClusterCache(self.params)
        made.revision = self.revision
        made._objects = {kind: dict(objects) for kind, objects in self._objects.items()}
        made._templates, made._hardware = self._templates, self._hardware
        return made

    def load(self, objects: Iterable[Any]) -> None:
        """Take in many objects at once: `apply` for each."""
        by_kind: dict[type[Any], list[Any]] = {}
        for kind, some in groupby(objects, key=type):
            by_kind.setdefault(kind, []).extend(some)
        for kind, items in by_kind.items():
            ours = self._ours
            self._objects[kind].update({((m := obj.metadata).namespace, m.name): obj for obj in items if ours(obj)})
            self.revision += len(items)

    def _ours(self, obj: Any) -> bool:
        kind = type(obj)
        if kind is kinds.Pod:
            return bool(obj.status.phase != "Failed")
        if kind not in PARTITIONED or not self.params.partitioned:
            return True
        labels = obj.metadata.labels or {}
        pool = labels.get(self.params.node_pool_key)
        if isinstance(obj, kinds.Node) and self.params.restrict_nodes:
            worker = self.params.gpu_worker_key in labels or self.params.cpu_worker_key in labels
            return worker and pool == (self.params.node_pool or None)
        return pool == (self.params.node_pool or None)

    def of(self, kind: type[Any]) -> Mapping[Key, Any]:
        return self._objects[kind]

    def snapshot(self, now: float, usage: Mapping[str, tuple[float, float, float]] | None = None) -> Snapshot:
        """The cluster as columns; `usage` is the normalised history per queue for time-based fair share."""
        objects = self._cluster_objects()
        space = ResourceSpace()
        slices = objects.resource_slices if self.params.dra_enabled else ()
        nodes = node_table(
            list(self.of(kinds.Node).values()), space, self._hardware, claims.gpus_per_node(slices), self.params
        )
        topologies = list(self.of(kinds.Topology).values())
        gangs = gang_rows(self._schedulable_groups(), _aliases(topologies))
        pods = list(self.of(kinds.Pod).values())
        memo = self._templates
        templates = memo.templates(pods)
        labels_matter = any(template.pod_affinity for template in set(templates))
        dra_gpus = claims.gpus_per_pod(pods, objects.resource_claims) if objects.resource_claims else {}
        context = PodContext(
            node_rows=nodes.rows,
            gangs=gangs,
            bind_requests=objects.bind_requests,
            classes=ClassTable(space, memo),
            class_context=ClassContext(labels_matter, bool(objects.numa_topologies), dra_gpus),
            params=self.params,
            now=now,
        )
        table, stray = pod_table(pods, templates, context)
        queues = queue_table(list(self.of(kinds.Queue).values()), usage or {}, self.params.full_hierarchy_fairness)
        classes = priorities(list(self.of(kinds.PriorityClass).values()))
        known = _known_memory(nodes)
        return Snapshot(
            space=space,
            nodes=replace(nodes, allocatable=_frozen(widen(nodes.allocatable, space.size))),
            pods=table,
            gangs=gang_table(gangs, table.gang, stray, queues, classes),
            queues=queues,
            topologies={t.metadata.name: tuple(level.node_label for level in t.spec.levels) for t in topologies},
            objects=objects,
            params=self.params,
            min_gpu_memory=float(known.min()) if known.size else 0.0,
            max_gpu_memory=float(known.max()) if known.size else 0.0,
            observed_at=now,
            revision=self.revision,
        )

    def _schedulable_groups(self) -> list[kinds.PodGroup]:
        """PodGroups without those that asked for one attempt per node pool and had it."""
        return [group for group in self.of(kinds.PodGroup).values() if not self._gave_up(group)]

    def _gave_up(self, group: kinds.PodGroup) -> bool:
        if group.spec.scheduling_backoff in (None, -1) or not group.status.scheduling_conditions:
            return False
        newest = max(group.status.scheduling_conditions, key=lambda c: int(c.transition_id or 0))
        pool = (group.metadata.labels or {}).get(self.params.node_pool_key, "default")
        return newest.node_pool == pool

    def _cluster_objects(self) -> ClusterObjects:
        def by_name(kind: type[Any]) -> dict[str, Any]:
            return {name: obj for (_, name), obj in self.of(kind).items()}

        return ClusterObjects(
            config_maps=frozenset(self.of(kinds.ConfigMap)),
            volume_claims=dict(self.of(kinds.PersistentVolumeClaim)),
            volumes=by_name(kinds.PersistentVolume),
            storage_classes=by_name(kinds.StorageClass),
            storage_capacities=tuple(self.of(kinds.CSIStorageCapacity).values()),
            csi_drivers=by_name(kinds.CSIDriver),
            resource_claims=dict(self.of(kinds.ResourceClaim)),
            resource_slices=tuple(self.of(kinds.ResourceSlice).values()),
            device_classes=by_name(kinds.DeviceClass),
            numa_topologies=by_name(kinds.NodeResourceTopology),
            bind_requests={
                (request.metadata.namespace, request.spec.pod_name): request
                for request in self.of(kinds.BindRequest).values()
            },
        )


def _aliases(topologies: Iterable[kinds.Topology]) -> Any:
    known = {
        (topology.metadata.name, level.alias): level.node_label
        for topology in topologies
        for level in topology.spec.levels
        if level.alias
    }
    return lambda topology, level: known.get((topology, level), level)


def _known_memory(nodes: NodeTable) -> np.ndarray:
    """MiB per device where it is known; nodes at the default count only if there is nothing better."""
    better = nodes.gpu_memory[nodes.gpu_memory > UNKNOWN_GPU_MEMORY]
    return better if better.size else nodes.gpu_memory[nodes.gpu_memory_known]


def _frozen(column: np.ndarray) -> np.ndarray:
    column.flags.writeable = False
    return column
