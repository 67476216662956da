"""ClusterCache: the state of the cluster as known from watches. Watch events in, Snapshot out.

State changes only by `apply` and `load`. A snapshot is built from the objects on demand; what is expensive to read from
an object (its template, its hardware) is cached from one snapshot to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

import numpy as np

from pykai.cache.classes import ClassContext, KindMemo
from pykai.cache.nodes import UNKNOWN_GPU_MEMORY, NodeMemo, widened
from pykai.cache.podgroups import GroupMemo, Groups, gang_rows, gang_table, priorities
from pykai.cache.pods import PodContext, PodReader, pod_table
from pykai.cache.queues import queue_table
from pykai.cache.readings import Derived, Kept, Numbers, column
from pykai.cache.requests import gpus_per_node
from pykai.cache.store import Choice, Key, Store
from pykai.model.params import SchedulerParams
from pykai.model.resources import Rows
from pykai.model.snapshot import ClusterObjects, NodeTable, Snapshot
from pykai.objects import kinds

KINDS: tuple[type[Any], ...] = (
    kinds.Node,
    kinds.Pod,
    kinds.Queue,
    kinds.PodGroup,
    kinds.BindRequest,
    kinds.PriorityClass,
    kinds.Namespace,
    kinds.PodDisruptionBudget,
    kinds.ConfigMap,
    kinds.PersistentVolumeClaim,
    kinds.PersistentVolume,
    kinds.StorageClass,
    kinds.CSIStorageCapacity,
    kinds.CSIDriver,
    kinds.CSINode,
    kinds.Topology,
    kinds.ResourceClaim,
    kinds.ResourceSlice,
    kinds.DeviceClass,
    kinds.DeviceTaintRule,
    kinds.NodeResourceTopology,
)
PARTITIONED = frozenset({kinds.Node, kinds.Queue, kinds.PodGroup})
"""Kinds that belong to one node pool each."""
_NO_LABELS: dict[str, str] = {}
MOST_GONE = 1_000
"""Numbered things beyond twice the objects that are kept before everything is read again."""
Fact = TypeVar("Fact")


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
        self._stores = {kind: Store(_choice(kind, params)) for kind in KINDS}
        self._read = ReadState(params)

    def apply(self, change: Change) -> None:
        """Apply one watch event; an object of another node pool counts as deleted."""
        self.revision += 1
        self._stores[type(change.obj)].put(change.obj, change.gone)

    def copy(self) -> ClusterCache:
        """Return a copy with the present objects: its snapshot can be built while this cache applies further events.

        What was read from objects is shared; only one of the copies may build a snapshot at a time.
        """
        made = ClusterCache(self.params)
        made.revision = self.revision
        made._stores = {kind: store.copy() for kind, store in self._stores.items()}
        made._read = self._read
        return made

    def load(self, objects: Iterable[Any]) -> None:
        """Add many objects at once; no two of a kind may have the same name."""
        for kind, some in groupby(objects, key=type):
            self._stores[kind].add(some)
        self.revision += 1

    def of(self, kind: type[Any]) -> Mapping[Key, Any]:
        return self._stores[kind].by_key

    def _all(self, kind: type[Any]) -> list[Any]:
        return self._stores[kind].objects()

    def snapshot(self, now: float, usage: Mapping[str, tuple[float, float, float]] | None = None) -> Snapshot:
        """Return the cluster as columns; `usage`: by queue the normalized past usage, for time-based fair share."""
        objects, read = self._cluster_objects(), self._read
        read.reset_if_outgrown(sum(map(len, self._stores.values())))
        slices = objects.resource_slices if self.params.dra_enabled else ()
        nodes, space = read.nodes.table(self._stores[kinds.Node], gpus_per_node(slices))
        topologies = self._all(kinds.Topology)
        gangs = gang_rows(self._schedulable_groups(), _aliases(topologies))
        read.number_nodes(nodes.rows)
        pods = read.pods.follow(self._stores[kinds.Pod], read.pod_reader.read)
        context = PodContext(
            node_rows=nodes.rows,
            rows_by_number=read.node_rows(nodes.rows),
            gangs=gangs,
            bind_requests=objects.bind_requests,
            classes=ClassContext(space, bool(objects.numa_topologies), objects, self.params.schedule_csi_storage),
            now=now,
        )
        table, stray, space = pod_table(pods, read.pods.lookup(), read.pod_reader, context)
        queues = self._derived(queue_table, kinds.Queue, dict(usage or {}), self.params.full_hierarchy_fairness)
        classes = self._derived(priorities, kinds.PriorityClass)
        known = _known_memory(nodes)
        return Snapshot(
            space=space,
            nodes=widened(nodes, space.size),
            pods=table,
            gangs=gang_table(gangs, table, stray, queues, classes),
            queues=queues,
            topologies={t.metadata.name: tuple(level.node_label for level in t.spec.levels) for t in topologies},
            objects=objects,
            params=self.params,
            min_gpu_memory=float(known.min()) if known.size else 0.0,
            max_gpu_memory=float(known.max()) if known.size else 0.0,
            observed_at=now,
            revision=self.revision,
        )

    def _schedulable_groups(self) -> Groups:
        """Return the PodGroups without those that allow one attempt per node pool and had it."""
        groups = self._read.groups.read(self._stores[kinds.PodGroup])
        once = groups.stating(lambda spec: spec.scheduling_backoff not in (None, -1))
        return groups.without([row for row in once if self._gave_up(groups.objects[row])])

    def _gave_up(self, group: kinds.PodGroup) -> bool:
        if not group.status.scheduling_conditions:
            return False
        newest = max(group.status.scheduling_conditions, key=lambda c: _transition(c.transition_id))
        pool = (group.metadata.labels or {}).get(self.params.node_pool_key, "default")
        return newest.node_pool == pool

    def _derived(self, function: Callable[..., Fact], kind: type[Any], *about: Any) -> Fact:
        """Return `function(objects of the kind, *about)`, cached while these stay equal; the function must be pure."""
        return self._read.derived.of(function, kind, self._stores[kind], *about)

    def _cluster_objects(self) -> ClusterObjects:
        return ClusterObjects(
            namespaces=self._derived(_by_name, kinds.Namespace),
            disruption_budgets=self._derived(_by_key, kinds.PodDisruptionBudget),
            config_maps=self._derived(_keys, kinds.ConfigMap),
            volume_claims=self._derived(_by_key, kinds.PersistentVolumeClaim),
            volumes=self._derived(_by_name, kinds.PersistentVolume),
            storage_classes=self._derived(_by_name, kinds.StorageClass),
            storage_capacities=tuple(self._all(kinds.CSIStorageCapacity)),
            csi_drivers=self._derived(_by_name, kinds.CSIDriver),
            csi_nodes=self._derived(_by_name, kinds.CSINode),
            resource_claims=self._derived(_by_key, kinds.ResourceClaim),
            resource_slices=self._derived(tuple, kinds.ResourceSlice),
            device_classes=self._derived(_by_name, kinds.DeviceClass),
            device_taint_rules=self._derived(tuple, kinds.DeviceTaintRule),
            numa_topologies=self._derived(_by_name, kinds.NodeResourceTopology),
            bind_requests={
                (request.metadata.namespace, request.spec.pod_name): request for request in self._all(kinds.BindRequest)
            },
        )


def _by_name(objects: Iterable[Any]) -> dict[str, Any]:
    return {obj.metadata.name: obj for obj in objects}


def _by_key(objects: Iterable[Any]) -> dict[Key, Any]:
    return {((meta := obj.metadata).namespace, meta.name): obj for obj in objects}


def _keys(objects: Iterable[Any]) -> frozenset[Key]:
    return frozenset(_by_key(objects))


def _choice(kind: type[Any], params: SchedulerParams) -> Choice:
    """Return the filter for objects of a kind: no failed pods, and of partitioned kinds only this node pool."""
    if kind is kinds.Pod:
        return lambda pods: [pod for pod in pods if pod.status.phase != "Failed"]
    if kind not in PARTITIONED:
        return list
    key, pool = params.pool_label
    workers = {params.gpu_worker_key, params.cpu_worker_key}

    def in_pool(objects: Iterable[Any]) -> list[Any]:
        return [obj for obj in objects if (obj.metadata.labels or _NO_LABELS).get(key) == pool]

    def workers_in_pool(nodes: Iterable[Any]) -> list[Any]:
        return [node for node in in_pool(nodes) if workers.intersection(node.metadata.labels or ())]

    return workers_in_pool if kind is kinds.Node and params.restrict_nodes else in_pool


def _transition(text: str | None) -> int:
    """The number of a condition; one that cannot be read is older than all others."""
    try:
        return int(text or 0)
    except ValueError:
        return -1


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


class ReadState:
    """What was read from objects, kept from one snapshot to the next and shared by copies of the cache."""

    def __init__(self, params: SchedulerParams) -> None:
        self.params = params
        self._begin()

    def _begin(self) -> None:
        self.nodes = NodeMemo(self.params.mig_worker_key, self.params.nvfractions, self.params.image_locality)
        self.groups = GroupMemo(self.params)
        self.kinds = KindMemo()
        self.node_numbers: Numbers[str] = Numbers()
        self.pods = Kept()
        self.derived = Derived()
        self._node_rows: tuple[Mapping[str, int], Rows] = {}, np.zeros(0, dtype=np.int64)
        self.pod_reader = PodReader(self.kinds, self.groups.numbers, self.node_numbers, self.params)

    def number_nodes(self, rows: Mapping[str, int]) -> None:
        """Number the nodes before pods name them: many at once."""
        if self._node_rows[0] is not rows:
            self.node_numbers.learn(rows)

    def node_rows(self, rows: Mapping[str, int]) -> Rows:
        """The row of each node by the number its name has here, -1 where there is none."""
        known, found = self._node_rows
        if known is not rows or len(found) != len(self.node_numbers):
            found = column([rows.get(name, -1) for name in self.node_numbers])
            self._node_rows = rows, found
        return found

    def reset_if_outgrown(self, objects: int) -> None:
        """Start again from nothing when most numbered things must be gone; `objects`: the number of objects now."""
        known = len(self.nodes) + len(self.groups) + len(self.kinds) + len(self.node_numbers)
        if known > 2 * objects + MOST_GONE:
            self._begin()
