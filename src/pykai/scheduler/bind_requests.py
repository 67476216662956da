"""BindRequests: their bodies and permanent device names, and their idempotent creation and deletion.

The engine names a newly shared device `new-1`, unique only within its plan. The written name is permanent: it is
derived from the node, the first pod on the device and a number, so that a repeated write of a decision is identical.
A name in use (by pods that joined in an earlier attempt) is never assigned again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID, uuid5

import msgspec

from pykai.cache.cluster import ClusterCache
from pykai.cache.pods import request_failed
from pykai.kube.api import Api, Deletion, Object
from pykai.kube.api_resources import BIND_REQUEST
from pykai.kube.backoff import Backoff
from pykai.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Timeout, TooManyRequests
from pykai.model.params import SchedulerParams
from pykai.model.plan import Bind, Evict, Key, Plan
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Node, ObjectMeta, Pod, PodGroup
from pykai.objects.nvfractions import compute_mode

_DEVICES = UUID("6f0d1c52-6a1e-4a53-9d0f-6b2b7a8d3c11")
"""The UUID namespace of the names of shared devices."""
_LABEL_LENGTH = 63
"""The maximum length of a label value; node names may be longer, and the server would reject the request."""


@dataclass(frozen=True)
class FirstStart:
    """A PodGroup that gets resources for the first time, and its queue; `created` in seconds since the epoch."""

    uid: str
    created: float
    queue: str
    queue_title: str


@dataclass(frozen=True)
class Binding:
    """A bind request to create: `body` as it is sent, `request` as the cache holds it.

    `first`: the pod's group if none of its pods was placed before, else None.
    """

    pod: Pod
    bind: Bind
    body: Object
    request: BindRequest
    first: FirstStart | None = None

    @property
    def gang(self) -> Key:
        """The PodGroup of the pod."""
        return self.bind.pod[0], (self.pod.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION, "")


@dataclass(frozen=True)
class PodDeletion:
    """A pod to evict, and its PodGroup."""

    pod: Pod
    group: PodGroup
    evict: Evict


def bindings(snapshot: Snapshot, plan: Plan, view: ClusterCache) -> list[Binding]:
    """Return the requests for all binds of a plan; `view` is the cache the snapshot was taken of."""
    pods = view.of(Pod)
    taken = {group for groups in snapshot.pods.gpu_groups.values() for group in groups}
    shared_names = DeviceNames(taken)
    made, starts = [], FirstStarts(snapshot, plan)
    for bind in plan.binds:
        pod = pods[bind.pod]
        groups = [shared_names.name(group, bind.node, pod.metadata.uid) for group in bind.gpu_groups]
        body = request_body(bind, pod, groups, snapshot.params)
        made.append(Binding(pod, bind, body, msgspec.convert(body, BindRequest), starts.of(bind.pod)))
    return made


class FirstStarts:
    """The PodGroups that get resources for the first time by a plan, as far as their objects show."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self._snapshot = snapshot
        self._rows = snapshot.pods.rows_of([bind.pod for bind in plan.binds])
        self._known: dict[int, FirstStart | None] = {}

    def of(self, pod: Key) -> FirstStart | None:
        """Return the group of a bound pod; None if any of its pods was placed before."""
        gangs, queues, status = self._snapshot.gangs, self._snapshot.queues, self._snapshot.pods.status
        gang = int(self._snapshot.pods.gang[self._rows[pod]])
        if gang < 0:
            return None
        if gang not in self._known:
            queue, uid = gangs.queue[gang], gangs.objects[gang].metadata.uid
            had_place = any(status[pod] not in (Status.PENDING, Status.GATED) for pod in gangs.pods(gang))
            started = had_place or gang in gangs.last_eviction or gangs.last_start(gang) is not None
            self._known[gang] = (
                None
                if started or queue < 0
                else FirstStart(uid, gangs.created(gang), queues.names[queue], queues.titles[queue])
            )
        return self._known[gang]


def evictions(plan: Plan, view: ClusterCache) -> Iterator[PodDeletion]:
    """Return the evictions of a plan."""
    pods, groups = view.of(Pod), view.of(PodGroup)
    for evict in plan.evictions:
        yield PodDeletion(pods[evict.pod], groups[evict.gang], evict)


class DeviceNames:
    """Permanent names for newly shared devices; devices that are already shared keep theirs."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = set(taken)
        self._names = {name: name for name in taken}

    def name(self, group: str, node: str, uid: str) -> str:
        """Return the permanent name of the engine's `group`; `uid` is that of the first pod on the device."""
        if group not in self._names:
            number = 0
            while (name := str(uuid5(_DEVICES, f"{node}/{uid}/{number}"))) in self._taken:
                number += 1
            self._taken.add(name)
            self._names[group] = name
        return self._names[group]


def request_body(bind: Bind, pod: Pod, groups: list[str], params: SchedulerParams) -> Object:
    """Return the BindRequest for a bind: named after its pod, owned by it, annotated with the pod's group."""
    namespace, name = bind.pod
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod.metadata.uid}
    labels = {names.SELECTED_NODE_LABEL: bind.node} if len(bind.node) <= _LABEL_LENGTH else {}
    if params.partitioned and params.node_pool:
        labels[params.node_pool_key] = params.node_pool
    notes = {key: text for key, text in (pod.metadata.annotations or {}).items() if key == names.POD_GROUP_ANNOTATION}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [owner]}
    mode = compute_mode(pod.metadata.annotations) if groups else ""
    optional: Mapping[str, object] = {
        "selectedGPUGroups": groups,
        "selectedFractionalGpuGroups": [{"id": group, "computeSharingMode": mode} for group in groups],
        "resourceClaimAllocations": [{"name": name, "allocation": dict(given)} for name, given in bind.claims],
        "extendedResourceClaimAllocation": bind.extended_claim,
        "predictedNUMAZones": [{"zone": zone, "amount": dict(amount)} for zone, amount in bind.numa_zones],
    }
    return {
        "metadata": {**metadata, **({"annotations": notes} if notes else {})},
        "spec": {
            "podName": name,
            "selectedNode": bind.node,
            "receivedResourceType": bind.resource_type,
            "receivedGPU": {"count": bind.devices, "portion": f"{bind.portion:.2f}"},
            **{field: value for field, value in optional.items() if value},
        },
    }


TRIES = 4
BACKOFF = Backoff(0.25, 2.0)
T = TypeVar("T")


async def create_request(api: Api, body: Object, wanted: Callable[[], bool]) -> BindRequest | None:
    """Create the request or return the existing one; first delete one left by an earlier pod or a failed attempt.

    Nothing is sent once the bind is not `wanted`: a request whose response was lost may have been created, failed, and
    its resources assigned to another pod. Return None if no request is in force then. Raise the server's error; after
    one that `is_uncertain` the request may exist nevertheless.
    """
    may_exist = False
    for attempt in range(1, TRIES + 1):
        if not wanted():
            return await _made_before(api, body) if attempt > 1 else None
        try:
            if (request := await _create_or_find(api, body, wanted)) is not None:
                return request
        except ApiError as error:
            may_exist = may_exist or is_uncertain(error)
            if not may_exist:
                raise
            if attempt == TRIES:
                raise Timeout(error.message) from error  # the outcome of the unanswered attempt stays unknown
            await asyncio.sleep(max(BACKOFF.after(attempt), error.retry_after))
    raise Conflict(f"bind request {body['metadata']['name']}: an old one does not go away")


async def _create_or_find(api: Api, body: Object, wanted: Callable[[], bool]) -> BindRequest | None:
    """Return the request, created or existing; None after deleting another one of the same name."""
    try:
        return msgspec.convert(await api.create(BIND_REQUEST, body), BindRequest)
    except AlreadyExists:
        found = await _existing(api, body)
    if found is not None and _is_wanted(found, body):
        return found
    if found is not None and wanted():
        await delete_request(api, found)
    return None


def is_uncertain(error: ApiError) -> bool:
    """Whether a failed write may have been carried out, or may succeed when repeated.

    This includes 500: a server returns it when its store times out, without knowing the outcome.
    """
    return isinstance(error, TooManyRequests) or error.status >= 500


async def until_certain(write: Callable[[], Awaitable[T]]) -> T:
    """Carry out an idempotent write; repeat it with backoff while its outcome is uncertain."""
    for attempt in range(1, TRIES):
        try:
            return await write()
        except ApiError as error:
            if not is_uncertain(error):
                raise
            await asyncio.sleep(max(BACKOFF.after(attempt), error.retry_after))
    return await write()


async def _existing(api: Api, body: Object) -> BindRequest | None:
    """Return the request of this name, None if there is none; raise Timeout if the server does not answer."""
    metadata = body["metadata"]
    try:
        return await api.get(BIND_REQUEST.ref(metadata["name"], metadata["namespace"]), BindRequest)
    except NotFound:
        return None
    except ApiError as error:
        raise Timeout(error.message) from error


async def _made_before(api: Api, body: Object) -> BindRequest | None:
    """Return the request if an attempt whose response was lost created it and it is in force."""
    try:
        found = await _existing(api, body)
    except ApiError:
        return None
    return found if found is not None and _is_wanted(found, body) else None


def _is_wanted(found: BindRequest, body: Object) -> bool:
    return is_in_force(found, msgspec.convert(body["metadata"], ObjectMeta))


def is_in_force(found: BindRequest, wanted: ObjectMeta) -> bool:
    """Whether the request `found` is for the same pod as `wanted` and has not failed."""
    uids = {owner.uid for owner in wanted.owner_references or ()}
    return any(owner.uid in uids for owner in found.metadata.owner_references or ()) and not request_failed(found)


async def delete_request(api: Api, request: BindRequest) -> None:
    """Delete the request with this uid; it is no error if it is gone or was replaced."""
    meta = request.metadata
    try:
        await api.delete(BIND_REQUEST.ref(meta.name, meta.namespace), Deletion(uid=meta.uid))
    except (NotFound, Conflict):
        return


def reason(error: ApiError) -> str:
    """Return the server's message in one line."""
    return " ".join(error.message.split())


def targets_missing_node(request: BindRequest, cache: ClusterCache) -> bool:
    """Whether a request of this partition is for a node that does not exist."""
    if ("", request.spec.selected_node) in cache.of(Node):
        return False
    params = cache.params
    pool = (request.metadata.labels or {}).get(params.node_pool_key)
    return not params.partitioned or pool == (params.node_pool or None)
