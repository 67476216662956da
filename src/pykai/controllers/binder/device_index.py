"""Index of shared devices: which pods use which GPU group, updated by the informers of pods and bind requests.

A GPU group stands for one shared device of one node; the scheduler chooses its id. A pod that shares one device carries
the id in one label, a pod that shares several carries one label per device.

The index holds nothing that the API server does not know, with one exception: devices assumed for a pod whose bind is
in flight or not yet visible in the watch.
Invariant: the entry of a device contains every bound pod that we assigned to it, by label or bind request, and every
pod whose bind request still selects it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from pykai.cache.pods import request_failed
from pykai.kube.api import EventType
from pykai.kube.informer import SharedInformer
from pykai.kube.informer_store import Key, WatchChange
from pykai.objects import names
from pykai.objects.gpu_request import positive_count, received_share, shares_gpu
from pykai.objects.kinds import ABSENT, BindRequest, Pod

FINISHED = ("Succeeded", "Failed")
SUCCEEDED = "Succeeded"

H = TypeVar("H", bound=Hashable)
Index = defaultdict[H, set[Key]]


class GroupKey(NamedTuple):
    """One shared device: the node and the id of the GPU group."""

    node: str
    group: str


def labelled_groups(labels: Mapping[str, str] | None) -> set[str]:
    """Return the group ids in labels of either form."""
    return {value for label, value in (labels or {}).items() if is_group_label(label) and value}


def is_group_label(label: str) -> bool:
    """Whether a label names a group."""
    return label == names.GPU_GROUP_LABEL or label.startswith(names.GPU_GROUP_LABEL_PREFIX)


def group_labels(annotations: Mapping[str, str] | None, groups: Sequence[str]) -> dict[str, str]:
    """Return the labels of a pod that shares the devices of these groups."""
    devices = positive_count((annotations or {}).get(names.GPU_FRACTION_DEVICES, "1")) or 1
    if devices > 1 or len(groups) > 1:
        return {f"{names.GPU_GROUP_LABEL_PREFIX}{group}": group for group in groups}
    return {names.GPU_GROUP_LABEL: groups[0]} if groups else {}


def may_hold(pod: Pod) -> bool:
    """Whether an unbound pod may hold resources of a deleted request: a device, by its label, or resource claims."""
    return pod.spec.resource_claims is not ABSENT or bool(labelled_groups(pod.metadata.labels))


def label_changes(labels: Mapping[str, str] | None, wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return the changes that leave a pod with exactly the wanted group labels; None removes one."""
    held = {label: value for label, value in (labels or {}).items() if is_group_label(label)}
    gone: dict[str, str | None] = {label: None for label in held if label not in wanted}
    return gone | {label: value for label, value in wanted.items() if held.get(label) != value}


def pod_groups(pod: Pod) -> set[GroupKey]:
    """Return the shared devices in the labels of a bound pod; empty for an unbound one."""
    if not pod.spec.node_name:
        return set()
    return {GroupKey(pod.spec.node_name, group) for group in labelled_groups(pod.metadata.labels)}


def request_groups(request: BindRequest) -> tuple[GroupKey, ...]:
    """Return the shared devices of a bind request, in its order; empty unless it is for a fraction."""
    spec = request.spec
    if spec.received_resource_type != names.RECEIVED_FRACTION:
        return ()
    return tuple(GroupKey(spec.selected_node, group) for group in spec.gpu_groups)


def requested_pod(request: BindRequest) -> Key:
    """Return the pod that a bind request is for."""
    return request.metadata.namespace, request.spec.pod_name


def is_open(request: BindRequest) -> bool:
    """Whether the binder has work left for a request."""
    alive = request.metadata.deletion_timestamp is None
    return alive and request.status.phase != SUCCEEDED and not request_failed(request)


def is_meant_for(request: BindRequest, pod: Pod) -> bool:
    """Whether a request is for the pod with this uid, not for an earlier one of the same name."""
    owners = [owner.uid for owner in request.metadata.owner_references or () if owner.kind == "Pod" and owner.uid]
    return not owners or pod.metadata.uid in owners


def is_finished(pod: Pod) -> bool:
    """Whether all containers of a pod have ended: it no longer uses a device."""
    return pod.status.phase in FINISHED


def is_terminating(pod: Pod) -> bool:
    """Whether a pod is being deleted."""
    return pod.metadata.deletion_timestamp is not None


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One shared device as observed.

    `bound` pods are bound to the node and not finished; `pending` ones are unbound and have a request that did not
    fail; `next_pending` is one of those whose request is still open, None without one. `assumed`: a pod got the id of
    the device and may be bound by now.
    """

    reservations: tuple[Pod, ...] = ()
    bound: tuple[Pod, ...] = ()
    pending: tuple[Pod, ...] = ()
    next_pending: Pod | None = None
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class WakeUps:
    """Callbacks: `pod` enqueues a pod whose binding may continue, `group` a device whose users changed."""

    pod: Callable[[Key], None]
    group: Callable[[GroupKey], None]


@dataclass(frozen=True, slots=True)
class Scope:
    """The scheduler whose pods share devices, and the namespaces of reservation pods and of scaling pods."""

    scheduler_name: str = names.SCHEDULER_NAME
    reservations: str = names.RESERVATION_NAMESPACE
    scaling: str = names.SCALING_NAMESPACE


class DeviceIndex:
    """The index; call `start` once the informers have synced."""

    def __init__(self, pods: SharedInformer[Pod], requests: SharedInformer[BindRequest], scope: Scope) -> None:
        self._pods = pods
        self._requests = requests
        self._scope = scope
        self._labelled: Index[GroupKey] = defaultdict(set)
        self._requesting: Index[GroupKey] = defaultdict(set)
        self._requests_of: Index[Key] = defaultdict(set)
        self._scaling: set[Key] = set()
        self._assumed: dict[Key, tuple[GroupKey, ...]] = {}
        self._wake = WakeUps(lambda pod: None, lambda group: None)
        self._initial = False

    def start(self, wake: WakeUps) -> None:
        """Subscribe to pods and requests; enqueue all existing ones, then those that change."""
        self._wake = wake
        self._requests.subscribe(self._request_changed)
        self._initial = True
        self._pods.subscribe(self._pod_changed)
        self._initial = False

    # ------------------------------------------------------------------------------------------------- queries
    def requests_for(self, pod: Key) -> list[BindRequest]:
        """Return the bind requests for a pod, by name."""
        found = (self._requests.get(name, namespace) for namespace, name in sorted(self._requests_of.get(pod, ())))
        return [request for request in found if request is not None]

    def scaling_up(self) -> bool:
        """Whether a scaling pod waits for a new node."""
        return bool(self._scaling)

    def state(self, key: GroupKey) -> DeviceState:
        """Return one device according to the watches."""
        known = {*self._labelled.get(key, ()), *(requested_pod(request) for request in self._requests_naming(key))}
        return self.state_among(key, self._existing(sorted(known)))

    def state_among(self, key: GroupKey, pods: Iterable[Pod]) -> DeviceState:
        """Return one device according to these pods (at least those of its node) and the watched requests."""
        pods = list(pods)
        reserved = self._scope.reservations
        labelled = [pod for pod in pods if key in pod_groups(pod)]
        users = (pod for pod in pods if pod.metadata.namespace != reserved and self._uses(key, pod))
        # A request may succeed before its pod shows a node.
        assumed = {pod for pod, groups in self._assumed.items() if key in groups}
        requesting = {requested_pod(request) for request in self._requests_naming(key)}
        pending = tuple(
            pod
            for pod in self._existing(sorted(requesting | assumed))
            if not (pod.spec.node_name or is_finished(pod))
            and (pod.metadata.key in assumed or self._requested(key, pod, _not_failed))
        )
        open_to = (pod for pod in pending if not is_terminating(pod) and self._requested(key, pod, is_open))
        return DeviceState(
            reservations=tuple(pod for pod in labelled if pod.metadata.namespace == reserved),
            bound=tuple(users),
            pending=pending,
            next_pending=next(open_to, None),
            assumed=bool(assumed),
        )

    def assume(self, pod: Key, groups: tuple[GroupKey, ...]) -> None:
        """Count devices as used by a pod, regardless of its request, until the watch shows the pod bound or gone."""
        if groups:
            self._assumed[pod] = groups

    def forget(self, pod: Key) -> None:
        """Drop the assumption: the pod is not bound and will not be with these devices."""
        for group in self._assumed.pop(pod, ()):
            self._wake.group(group)

    def _requests_naming(self, key: GroupKey) -> list[BindRequest]:
        found = (self._requests.get(name, namespace) for namespace, name in self._requesting.get(key, ()))
        return [request for request in found if request is not None]

    def _uses(self, key: GroupKey, pod: Pod) -> bool:
        """Whether we assigned the device to the pod; any user can write the label, so the label alone is no proof."""
        if pod.spec.node_name != key.node or is_finished(pod):
            return False
        annotations = pod.metadata.annotations or {}
        received = (
            pod.spec.scheduler_name == self._scope.scheduler_name
            and received_share(annotations, pod.metadata.labels or {})
            and shares_gpu(annotations)
        )
        return (received and key in pod_groups(pod)) or self._requested(key, pod, lambda _: True)

    def _requested(self, key: GroupKey, pod: Pod, which: Callable[[BindRequest], bool]) -> bool:
        requests = self.requests_for(pod.metadata.key)
        return any(key in request_groups(r) and is_meant_for(r, pod) and which(r) for r in requests)

    def _existing(self, keys: Iterable[Key]) -> list[Pod]:
        found = (self._pods.get(name, namespace) for namespace, name in keys)
        return [pod for pod in found if pod is not None]

    # ---------------------------------------------------------------------------------------------- watch events
    def _request_changed(self, change: WatchChange[BindRequest]) -> None:
        old, new = change.old, None if change.type is EventType.DELETED else change.object
        groups, groups_now = (request_groups(request) if request else () for request in (old, new))
        pods, pods_now = ((requested_pod(request),) if request else () for request in (old, new))
        _move(self._requesting, change.key, groups, groups_now)
        _move(self._requests_of, change.key, pods, pods_now)
        for group in sorted({*groups, *groups_now}):
            self._wake.group(group)
        for pod in sorted({*pods, *pods_now}):
            self._wake.pod(pod)

    def _pod_changed(self, change: WatchChange[Pod]) -> None:
        new = None if change.type is EventType.DELETED else change.object
        before, after = (pod_groups(pod) if pod else set() for pod in (change.old, new))
        _move(self._labelled, change.key, before, after)
        assumed: tuple[GroupKey, ...] = ()
        if new is None or new.spec.node_name or is_finished(new):
            assumed = self._assumed.pop(change.key, ())
        if change.key[0] == self._scope.scaling:
            conditions = (new.status.conditions or ()) if new is not None else ()
            if new is None or any(each.type == "PodScheduled" and each.status == "True" for each in conditions):
                self._scaling.discard(change.key)
            else:
                self._scaling.add(change.key)
        requests = self.requests_for(change.key)
        groups = before.union(after, assumed, *map(request_groups, requests))
        for group in sorted(groups):
            self._wake.group(group)
        for pod in sorted(self._affected(change.key, new, requests, groups)):
            self._wake.pod(pod)

    def _affected(self, key: Key, pod: Pod | None, requests: list[BindRequest], groups: set[GroupKey]) -> Iterable[Key]:
        """Return the pods whose binding may continue after a change of this pod: waiters for its device, or itself.

        An unbound pod may hold resources of a deleted request. Labels show it at any time; claims must be read from the
        API server, so they are checked once, at the start.
        """
        if key[0] == self._scope.reservations:
            requesting = [request for group in groups for request in self._requests_naming(group)]
            return {requested_pod(request) for request in requesting if is_open(request)}
        left_over = False
        if pod is not None and not pod.spec.node_name:
            left_over = may_hold(pod) if self._initial else bool(labelled_groups(pod.metadata.labels))
        return [key] if left_over or any(is_open(request) for request in requests) else []


def _not_failed(request: BindRequest) -> bool:
    return request.metadata.deletion_timestamp is None and not request_failed(request)


def _move(index: Index[Any], key: Key, before: Iterable[Hashable], after: Iterable[Hashable]) -> None:
    """Move a key from its old entries of an index to its new ones."""
    for place in before:
        index[place].discard(key)
        if not index[place]:
            del index[place]
    for place in after:
        index[place].add(key)
