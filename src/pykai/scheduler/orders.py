"""A plan as orders to write: bind requests with names that last, and evictions with the pods they are about.

The engine names a device that nobody shares yet `new-1`, unique within its plan. Written down it needs a name of its
own for good: it is derived from the node, the pod that opens the device and a number, so a repeated write of the same
decision says the same. A name that is in use already (by pods that joined an earlier attempt) is never taken again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID, uuid5

import msgspec

from pykai.cache.cluster import ClusterCache
from pykai.kube.api import Object
from pykai.model.params import SchedulerParams
from pykai.model.plan import Bind, Evict, Plan
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Pod, PodGroup

Key = tuple[str, str]
_DEVICES = UUID("6f0d1c52-6a1e-4a53-9d0f-6b2b7a8d3c11")
"""The namespace of the names of shared devices."""
_LABEL_LENGTH = 63
"""A node's name may be longer; the server would refuse the whole request for a label that nobody needs."""


@dataclass(frozen=True)
class Binding:
    """A bind request to create: `body` as it is sent, `request` as the cache counts it."""

    pod: Pod
    bind: Bind
    body: Object
    request: BindRequest

    @property
    def gang(self) -> Key:
        """The PodGroup of the pod."""
        return self.bind.pod[0], (self.pod.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION, "")


@dataclass(frozen=True)
class Eviction:
    """A pod to delete, and the PodGroup it belongs to."""

    pod: Pod
    group: PodGroup
    evict: Evict


def bindings(snapshot: Snapshot, plan: Plan, view: ClusterCache) -> list[Binding]:
    """The requests for all binds of a plan; `view` is the cache the snapshot was made of."""
    pods = view.of(Pod)
    taken = {group for groups in snapshot.pods.gpu_groups.values() for group in groups}
    lasting = DeviceNames(taken)
    made = []
    for bind in plan.binds:
        pod = pods[bind.pod]
        groups = [lasting.name(group, bind.node, pod.metadata.uid) for group in bind.gpu_groups]
        body = request_body(bind, pod, groups, snapshot.params)
        made.append(Binding(pod, bind, body, msgspec.convert(body, BindRequest)))
    return made


def evictions(plan: Plan, view: ClusterCache) -> Iterator[Eviction]:
    """The evictions of a plan."""
    pods, groups = view.of(Pod), view.of(PodGroup)
    for evict in plan.evictions:
        yield Eviction(pods[evict.pod], groups[evict.gang], evict)


class DeviceNames:
    """Names that last for devices the engine has just opened; devices that are shared already keep theirs."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = set(taken)
        self._lasting = {name: name for name in taken}

    def name(self, group: str, node: str, uid: str) -> str:
        """The lasting name of the engine's `group`, opened by the pod of this uid unless it was named before."""
        if group not in self._lasting:
            self._lasting[group] = self._fresh(f"{node}/{uid}")
        return self._lasting[group]

    def _fresh(self, stem: str) -> str:
        number = 0
        while (name := str(uuid5(_DEVICES, f"{stem}/{number}"))) in self._taken:
            number += 1
        self._taken.add(name)
        return name


def request_body(bind: Bind, pod: Pod, groups: list[str], params: SchedulerParams) -> Object:
    """The BindRequest for a bind: it has the name of its pod and goes with it, and says in which group the pod is."""
    namespace, name = bind.pod
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod.metadata.uid}
    labels = {names.SELECTED_NODE_LABEL: bind.node} if len(bind.node) <= _LABEL_LENGTH else {}
    if params.partitioned and params.node_pool:
        labels[params.node_pool_key] = params.node_pool
    notes = {key: text for key, text in (pod.metadata.annotations or {}).items() if key == names.POD_GROUP_ANNOTATION}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [owner]}
    return {
        "metadata": {**metadata, **({"annotations": notes} if notes else {})},
        "spec": {
            "podName": name,
            "selectedNode": bind.node,
            "receivedResourceType": bind.resource_type,
            "receivedGPU": {"count": bind.devices, "portion": f"{bind.portion:.2f}"},
            **_where_given(bind, groups),
        },
    }


def _where_given(bind: Bind, groups: list[str]) -> Object:
    claims = [{"name": name, "allocation": dict(allocation)} for name, allocation in bind.claims]
    zones = [{"zone": zone, "amount": dict(amount)} for zone, amount in bind.numa_zones]
    optional: Mapping[str, object] = {
        "selectedGPUGroups": groups,
        "resourceClaimAllocations": claims,
        "extendedResourceClaimAllocation": bind.extended_claim,
        "predictedNUMAZones": zones,
    }
    return {field: value for field, value in optional.items() if value}
