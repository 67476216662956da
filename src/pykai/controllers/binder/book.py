"""Who uses which shared device, kept up from the watches of pods and bind requests.

Nothing here is remembered that the API server does not know, except which pods have a device in hand: they were told
its id and their bind may be on its way, or done and not seen yet.
Invariant: a device's entry holds every pod on the node that names the group, by label or by its bind request, and every
pod that a request still brings there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from pykai.cache.pods import request_failed
from pykai.controllers.binder.groups import (
    GroupKey,
    Key,
    is_meant_for,
    is_open,
    is_over,
    key_of,
    labelled_groups,
    may_hold,
    pod_groups,
    request_groups,
    requested_pod,
)
from pykai.controllers.binder.sharing import Sharing, is_going
from pykai.kube.api import EventType
from pykai.kube.replica import Change
from pykai.kube.watch import SharedWatch
from pykai.objects.gpu_request import shares_gpu
from pykai.objects.kinds import BindRequest, Pod

H = TypeVar("H", bound=Hashable)
Index = defaultdict[H, set[Key]]


@dataclass(frozen=True, slots=True)
class Bells:
    """Who wants to know: `pod` rings for a pod whose binding may go on, `group` for a device whose users changed."""

    pod: Callable[[Key], None]
    group: Callable[[GroupKey], None]


@dataclass(frozen=True, slots=True)
class Places:
    """Namespaces with a meaning."""

    reservations: str
    scaling: str


class Book:
    """The index. `open` begins to follow the watches, which must be complete by then."""

    def __init__(self, pods: SharedWatch[Pod], requests: SharedWatch[BindRequest], places: Places) -> None:
        self._pods = pods
        self._requests = requests
        self._places = places
        self._on_device: Index[GroupKey] = defaultdict(set)
        self._asking: Index[GroupKey] = defaultdict(set)
        self._requests_of: Index[Key] = defaultdict(set)
        self._scaling: set[Key] = set()
        self._in_hand: dict[Key, tuple[GroupKey, ...]] = {}
        self._bells = Bells(lambda pod: None, lambda group: None)
        self._opening = False

    def open(self, bells: Bells) -> None:
        """Follow pods and requests, and ring for whatever is there now and whatever changes."""
        self._bells = bells
        self._requests.subscribe(self._request_changed)
        self._opening = True
        self._pods.subscribe(self._pod_changed)
        self._opening = False

    # -------------------------------------------------------------------------------------------------- asking
    def requests_for(self, pod: Key) -> list[BindRequest]:
        """The bind requests that name a pod, by name."""
        found = (self._requests.get(name, namespace) for namespace, name in sorted(self._requests_of.get(pod, ())))
        return [request for request in found if request is not None]

    def scaling_up(self) -> bool:
        """Whether a scaling pod waits for a node that is still to come."""
        return bool(self._scaling)

    def sharing(self, key: GroupKey) -> Sharing:
        """One device as the watches show it."""
        known = {*self._on_device.get(key, ()), *(requested_pod(request) for request in self._asking_for(key))}
        return self.sharing_among(key, self._present(sorted(known)))

    def sharing_among(self, key: GroupKey, pods: Iterable[Pod]) -> Sharing:
        """One device as these pods (of its node at least) and the watched requests show it."""
        pods = list(pods)
        reserved = self._places.reservations
        named = [pod for pod in pods if key in pod_groups(pod)]
        users = (pod for pod in pods if pod.metadata.namespace != reserved and self._uses(key, pod))
        coming = self._coming(key)
        open_to = (pod for pod in coming if not is_going(pod) and self._wants(key, pod, is_open))
        return Sharing(
            reservations=tuple(pod for pod in named if pod.metadata.namespace == reserved),
            sharers=tuple(users),
            coming=coming,
            newcomer=next(open_to, None),
            in_hand=any(key in groups for groups in self._in_hand.values()),
        )

    def hand_out(self, pod: Key, groups: tuple[GroupKey, ...]) -> None:
        """The pod is being told its devices: they count as used, whatever becomes of its request, until it is seen."""
        if groups:
            self._in_hand[pod] = groups

    def take_back(self, pod: Key) -> None:
        """The pod was not bound and will not be with the devices it was told."""
        for group in self._in_hand.pop(pod, ()):
            self._bells.group(group)

    def _asking_for(self, key: GroupKey) -> list[BindRequest]:
        found = (self._requests.get(name, namespace) for namespace, name in self._asking.get(key, ()))
        return [request for request in found if request is not None]

    def _coming(self, key: GroupKey) -> tuple[Pod, ...]:
        """Pods on no node yet that a request brings to the device; one that succeeded may be ahead of its pod."""
        asking = {requested_pod(request) for request in self._asking_for(key)}
        told = {pod for pod, groups in self._in_hand.items() if key in groups}
        pods = [pod for pod in self._present(sorted(asking | told)) if not pod.spec.node_name and not is_over(pod)]
        return tuple(pod for pod in pods if key_of(pod) in told or self._wants(key, pod, _not_failed))

    def _uses(self, key: GroupKey, pod: Pod) -> bool:
        """Whether a pod is on the device, by its label (if it asked for a share at all) or by its request."""
        if pod.spec.node_name != key.node or is_over(pod):
            return False
        labelled = key in pod_groups(pod) and shares_gpu(pod.metadata.annotations or {})
        return labelled or self._wants(key, pod, _any)

    def _wants(self, key: GroupKey, pod: Pod, which: Callable[[BindRequest], bool]) -> bool:
        requests = self.requests_for(key_of(pod))
        return any(key in request_groups(r) and is_meant_for(r, pod) and which(r) for r in requests)

    def _present(self, keys: Iterable[Key]) -> list[Pod]:
        found = (self._pods.get(name, namespace) for namespace, name in keys)
        return [pod for pod in found if pod is not None]

    # ----------------------------------------------------------------------------------------------- following
    def _request_changed(self, change: Change[BindRequest]) -> None:
        new = None if change.type is EventType.DELETED else change.object
        groups = {*_groups_in(change.old), *_groups_in(new)}
        pods = {requested_pod(request) for request in (change.old, new) if request is not None}
        _move(self._asking, change.key, _groups_in(change.old), _groups_in(new))
        _move(self._requests_of, change.key, _pods_in(change.old), _pods_in(new))
        for group in groups:
            self._bells.group(group)
        for pod in pods:
            self._bells.pod(pod)

    def _pod_changed(self, change: Change[Pod]) -> None:
        new = None if change.type is EventType.DELETED else change.object
        before, after = (pod_groups(pod) if pod else set() for pod in (change.old, new))
        _move(self._on_device, change.key, before, after)
        if new is None or new.spec.node_name or is_over(new):
            self._in_hand.pop(change.key, None)
        if change.key[0] == self._places.scaling:
            self._scaling_changed(change.key, new)
        requests = self.requests_for(change.key)
        groups = before | after | {group for request in requests for group in request_groups(request)}
        for group in groups:
            self._bells.group(group)
        for pod in self._concerned(change.key, new, requests, groups):
            self._bells.pod(pod)

    def _concerned(
        self, key: Key, pod: Pod | None, requests: list[BindRequest], groups: set[GroupKey]
    ) -> Iterable[Key]:
        """Pods that a changed pod lets go on: those who wait for its device, or itself."""
        if key[0] == self._places.reservations:
            asking = [request for group in groups for request in self._asking_for(group)]
            return {requested_pod(request) for request in asking if is_open(request)}
        return [key] if self._is_left_over(pod) or any(is_open(request) for request in requests) else []

    def _is_left_over(self, pod: Pod | None) -> bool:
        """Whether a pod on no node may hold something from a request that is no more.

        Labels tell at any time; claims have to be read to know, so that is done once, when all begins.
        """
        if pod is None or pod.spec.node_name:
            return False
        return may_hold(pod) if self._opening else bool(labelled_groups(pod.metadata.labels))

    def _scaling_changed(self, key: Key, pod: Pod | None) -> None:
        self._scaling.discard(key)
        if pod is not None and not _scheduled(pod):
            self._scaling.add(key)


def _any(request: BindRequest) -> bool:
    return True


def _not_failed(request: BindRequest) -> bool:
    return request.metadata.deletion_timestamp is None and not request_failed(request)


def _scheduled(pod: Pod) -> bool:
    conditions = pod.status.conditions or ()
    return any(condition.type == "PodScheduled" and condition.status == "True" for condition in conditions)


def _groups_in(request: BindRequest | None) -> tuple[GroupKey, ...]:
    return request_groups(request) if request else ()


def _pods_in(request: BindRequest | None) -> tuple[Key, ...]:
    return (requested_pod(request),) if request else ()


def _move(index: Index[Any], key: Key, before: Iterable[Hashable], after: Iterable[Hashable]) -> None:
    """Take a key out of its old places in an index and put it in its new ones."""
    for place in before:
        index[place].discard(key)
        if not index[place]:
            del index[place]
    for place in after:
        index[place].add(key)
