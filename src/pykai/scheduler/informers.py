"""All kinds the scheduler reads, as one table of informers, and the handlers that apply their changes to the cache.

In its own process the scheduler lists and watches only the objects of its partition. Where it shares informers with
other components (`kai all`), it receives all objects and the cache drops those of other partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pykai.cache.assumed import Assumptions, Device
from pykai.cache.cluster import PARTITIONED, Change, ClusterCache
from pykai.cache.pods import request_failed, request_is_for
from pykai.kube import api_resources
from pykai.kube.api import EventType, Resource, Selection
from pykai.kube.clock import wall
from pykai.kube.informer import InformerFactory, InformerState, SharedInformer
from pykai.kube.informer_store import WatchChange
from pykai.model.params import SchedulerParams
from pykai.model.plan import Key
from pykai.objects import kinds, names
from pykai.objects.kinds import BindRequest, Pod, PodGroup
from pykai.scheduler.group_membership import ExpectedGroups, OwnGroups
from pykai.scheduler.queueing_hints import Hint, queueing_hint

OnHint = Callable[[Hint], None]
PODS_SECONDS = 30.0
"""Seconds for which node and devices of an ended bind request are assumed until the pod watch shows the outcome."""


@dataclass(frozen=True)
class Source:
    """One kind to watch: `section` is its name in a snapshot file, an `optional` kind need not be installed.

    `names_only`: only the metadata is read.
    """

    resource: Resource
    kind: type[Any]
    section: str
    optional: bool = False
    names_only: bool = False
    for_csi: bool = False
    """Watched only with `--schedule-csi-storage`."""


SOURCES: tuple[Source, ...] = (
    Source(api_resources.NODE, kinds.Node, "nodes"),
    Source(api_resources.QUEUE, kinds.Queue, "queues"),
    Source(api_resources.PRIORITY_CLASS, kinds.PriorityClass, "priorityClasses"),
    Source(api_resources.TOPOLOGY, kinds.Topology, "topologies", optional=True),
    Source(api_resources.POD_GROUP, kinds.PodGroup, "podGroups"),
    Source(api_resources.BIND_REQUEST, kinds.BindRequest, "bindRequests"),
    Source(api_resources.POD, kinds.Pod, "pods"),
    Source(api_resources.NAMESPACE, kinds.Namespace, "namespaces", names_only=True),
    Source(api_resources.DISRUPTION_BUDGET, kinds.PodDisruptionBudget, "podDisruptionBudgets", optional=True),
    Source(api_resources.CONFIG_MAP, kinds.ConfigMap, "configMaps", names_only=True),
    Source(api_resources.PERSISTENT_VOLUME, kinds.PersistentVolume, "persistentVolumes"),
    Source(api_resources.PERSISTENT_VOLUME_CLAIM, kinds.PersistentVolumeClaim, "persistentVolumeClaims"),
    Source(api_resources.STORAGE_CLASS, kinds.StorageClass, "storageClasses"),
    Source(api_resources.CSI_CAPACITY, kinds.CSIStorageCapacity, "csiStorageCapacities", optional=True, for_csi=True),
    Source(api_resources.CSI_DRIVER, kinds.CSIDriver, "csiDrivers", optional=True, for_csi=True),
    Source(api_resources.CSI_NODE, kinds.CSINode, "csiNodes", optional=True),
    Source(api_resources.RESOURCE_CLAIM, kinds.ResourceClaim, "resourceClaims", optional=True),
    Source(api_resources.RESOURCE_SLICE, kinds.ResourceSlice, "resourceSlices", optional=True),
    Source(api_resources.DEVICE_CLASS, kinds.DeviceClass, "deviceClasses", optional=True),
    Source(api_resources.DEVICE_TAINT_RULE, kinds.DeviceTaintRule, "deviceTaintRules", optional=True),
    Source(api_resources.NODE_TOPOLOGY, kinds.NodeResourceTopology, "nodeResourceTopologies", optional=True),
)


def partition_selector(params: SchedulerParams) -> str:
    """Return the label selector of the scheduler's node pool; "" without node pools."""
    if not params.partitioned:
        return ""
    return f"{params.node_pool_key}={params.node_pool}" if params.node_pool else f"!{params.node_pool_key}"


def selection(source: Source, params: SchedulerParams, selective: bool) -> Selection:
    """Return which objects of a kind to list and watch; all of them unless `selective`."""
    labels = partition_selector(params) if selective and source.kind in PARTITIONED else ""
    fields = "status.phase!=Failed" if selective and source.kind is kinds.Pod else ""
    return Selection(labels=labels, fields=fields, metadata_only=source.names_only)


class Informers:
    """Applies the changes of all sources to one cache; `hint` gets the queueing hint of each change."""

    def __init__(  # noqa: PLR0913 - what informers feed
        self,
        watches: InformerFactory,
        cache: ClusterCache,
        assumptions: Assumptions,
        hint: OnHint,
        *,
        selective: bool = True,
        expected: ExpectedGroups | None = None,
    ) -> None:
        self._cache = cache
        self._assumptions = assumptions
        self._hint = hint
        self._failed: dict[Key, BindRequest] = {}
        self._reserved: set[Device] = set()
        """The shared devices whose reservation pod the watch shows."""
        self._own_groups = OwnGroups()
        self._expected = expected or ExpectedGroups()
        self._watches: dict[type[Any], SharedInformer[Any]] = {}
        for source in SOURCES:
            if source.for_csi and not cache.params.schedule_csi_storage:
                continue
            where = selection(source, cache.params, selective)
            watch = watches.of(source.resource, source.kind, where, optional=source.optional)
            watch.subscribe(self._take)
            self._watches[source.kind] = watch
        groups = self._watches[PodGroup]
        self._expected.listen(self._expect, self._update_pod, lambda key: groups.get(key[1], key[0]) is not None)

    async def synced(self) -> None:
        """Return when all informers have synced."""
        for watch in self._watches.values():
            await watch.synced()
        self.note_installed()

    def note_installed(self) -> None:
        """Update the parameters: does the cluster serve dynamic resource allocation?"""
        served = self._watches[kinds.ResourceClaim].state is not InformerState.ABSENT
        if served != self._cache.params.dra_enabled:
            self._cache.params = replace(self._cache.params, dra_enabled=served)

    def note_observed_pods(self) -> None:
        """Drop assumptions that the resourceVersion of the pod watch has passed; capacity may be free then."""
        if self._assumptions.pods_seen(self._watches[Pod].version):
            self._hint(Hint.CAPACITY)

    def take_failed(self) -> list[BindRequest]:
        """Return the bind requests that failed since the last call and still exist."""
        known, failed = self._cache.of(BindRequest), list(self._failed.items())
        self._failed = {}
        return [request for key, request in failed if known.get(key) is request]

    def _take(self, seen: WatchChange[Any]) -> None:
        obj, gone = seen.object, seen.type is EventType.DELETED
        if isinstance(obj, PodGroup):
            self._expected.shown(seen.key)
        if isinstance(obj, BindRequest) and (gone or request_failed(obj)):
            self._request_ended(seen.key)
        if isinstance(obj, Pod):
            self._note_reservation(obj, gone)
            if gone:
                self._pod_deleted(seen.key)
        self._apply(seen.key, Change(self._joined(obj, gone) if isinstance(obj, Pod) else obj, gone))
        if isinstance(obj, BindRequest) and not gone and request_failed(obj):
            self._failed[seen.key] = obj
        if isinstance(obj, PodGroup):
            for owner in sorted(self._own_groups.change(seen.old, None if gone else obj)):
                self._update_pod(owner)
        if isinstance(obj, Pod):
            self.note_observed_pods()

    def _request_ended(self, key: Key) -> None:
        """Keep assuming a bind whose request ended, unless the pod watch already shows the outcome."""
        request, version = self._cache.of(BindRequest).get(key), self._watches[BindRequest].version
        if request is None or request_failed(request):
            return
        pod = self._cache.of(Pod).get((key[0], request.spec.pod_name))
        if pod is None or pod.spec.node_name or not request_is_for(request, pod):
            return
        self._assume_reservations(request)
        if self._watches[Pod].version < version:
            self._assumptions.request_ended(request, pod, version, wall() + PODS_SECONDS)

    def _pod_deleted(self, key: Key) -> None:
        """Keep assuming the devices of a pod that was deleted while it was being bound."""
        pod = self._cache.of(Pod).get(key)
        request = self._assumptions.request_for(key) or self._cache.of(BindRequest).get(key)
        if pod is not None and not pod.spec.node_name and request is not None and request_is_for(request, pod):
            self._assume_reservations(request)

    def _assume_reservations(self, request: BindRequest) -> None:
        """Assume the reservation pods of its devices that no watch has shown: the binder may be creating them."""
        for group in request.spec.gpu_groups:
            device = (request.spec.selected_node, group)
            if device not in self._reserved:
                self._assumptions.reservation_coming(device, wall() + PODS_SECONDS)

    def _note_reservation(self, pod: Pod, gone: bool) -> None:
        labels = pod.metadata.labels
        if not labels or labels.get(names.APP_LABEL) != self._cache.params.reservation_app:
            return
        device = (pod.spec.node_name, labels.get(names.GPU_GROUP_LABEL, ""))
        if gone:
            self._reserved.discard(device)
        else:
            self._reserved.add(device)
            self._assumptions.reservation_seen(device)

    def _update_pod(self, key: Key) -> None:
        """Apply a pod again, because the group it belongs to was added or removed."""
        pod = self._watches[Pod].get(key[1], key[0]) if Pod in self._watches else None
        if pod is not None:
            self._apply(key, Change(self._joined(pod)))

    def _joined(self, pod: Pod, gone: bool = False) -> Pod:
        """Return the pod annotated with the group it belongs to."""
        uid = pod.metadata.uid
        joined = self._own_groups.joined(pod, self._expected.group_of(uid))
        if gone:
            self._expected.gone(uid)
        elif joined is pod and names.POD_GROUP_ANNOTATION in (pod.metadata.annotations or {}):
            self._expected.named(uid)
        return joined

    def _expect(self, group: PodGroup, gone: bool) -> None:
        """Apply an expected group, or its withdrawal (`gone`)."""
        meta = group.metadata
        self._apply(meta.key, Change(group, gone))

    def _apply(self, key: Key, change: Change) -> None:
        held = self._cache.of(type(change.obj))
        before = held.get(key)
        self._cache.apply(change)
        self._assumptions.seen(change)
        hint = queueing_hint(before, held.get(key), self._cache)
        if hint is not Hint.SKIP:
            self._hint(hint)
