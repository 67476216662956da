"""Assumed writes: decisions that the watches do not show yet already count, so that no capacity is allocated twice.

Three writes are assumed: a created BindRequest holds its capacity, an evicted pod is terminating, and a PodGroup has
the timestamps written to it. An assumption ends when the watch shows its effect, when its pod is deleted or replaced by
another of the same name, or some time after the write. It never overrides newer watched state, and it does not expire
while the write is in flight, however long that takes. A BindRequest that the server has confirmed is read before its
assumption expires, because a watch may lag longer than expected. A BindRequest that assigns devices or NUMA zones is
assumed until it is watched itself: the bound pod does not show them, and the watch of claims may lag, too.

A BindRequest that ended holds its capacity until the watch of pods has reached the resourceVersion of its end: before
it ended, the binder may have bound the pod or reserved its devices, and only that watch shows it.

A shared device whose request ended, or whose pod was deleted before it was bound, may still get a reservation pod: its
creation may be in flight. It counts as existing until the watch shows it, or for some time.

Gangs can also be in backoff after a failed bind: their unplaced pods are hidden from snapshots.

Times are seconds since the epoch. The owner of the ClusterCache also owns this object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from msgspec import Raw, json, structs

from pykai.cache.cluster import Change, ClusterCache
from pykai.cache.pods import request_failed, request_is_for
from pykai.objects import names
from pykai.objects.kinds import BindRequest, ObjectMeta, Pod, PodGroup, PodSpec, PodStatus

Key = tuple[str, str]
Device = tuple[str, str]
"""The node of a shared device, and its GPU group."""
NEVER = float("inf")
Notes = Mapping[str, str | None]
"""Annotations to set; None removes one."""


@dataclass(frozen=True)
class _Bind:
    order: BindRequest
    """The request as decided: the identity of the write."""
    request: BindRequest
    """The request as the server returned it; until then as decided."""
    uid: str
    """The uid of the pod."""
    until: float = NEVER


@dataclass(frozen=True)
class _Eviction:
    uid: str
    at: float
    until: float = NEVER


@dataclass(frozen=True)
class _Ended:
    request: BindRequest
    """The request before it ended."""
    uid: str
    """The uid of the pod."""
    version: int
    """The resourceVersion at which it had ended."""
    until: float


@dataclass(frozen=True)
class _Noted:
    annotations: Notes
    until: float = NEVER


_ONE_GPU = Raw(json.encode([{"name": "main", "resources": {"requests": {names.NVIDIA_GPU: "1"}}}]))


class Assumptions:
    """All assumptions, by (namespace, name) of the pod or PodGroup."""

    def __init__(self) -> None:
        self._binds: dict[Key, _Bind] = {}
        self._ended: dict[Key, _Ended] = {}
        self._reservations: dict[Device, float] = {}
        """Until when the reservation pod of a device may appear."""
        self._evictions: dict[Key, _Eviction] = {}
        self._notes: dict[Key, _Noted] = {}
        self._held: dict[Key, float] = {}

    # ---------------------------------------------------------------------------------------------------- beginnings
    def bind(self, request: BindRequest, uid: str) -> None:
        """Assume a request that is being created for the pod of this uid, until the write completes."""
        self._binds[_subject(request)] = _Bind(request, request, uid)

    def wants(self, order: BindRequest) -> bool:
        """Whether exactly this request is still assumed: it was not watched yet, and its pod was not replaced."""
        known = self._binds.get(_subject(order))
        return known is not None and known.order is order

    def created(self, order: BindRequest, request: BindRequest, until: float) -> None:
        """Assume the request as the server returned it; no effect if the watch was faster."""
        if self.wants(order):
            key = _subject(order)
            self._binds[key] = replace(self._binds[key], request=request, until=until)

    def evict(self, pod: Pod, now: float) -> None:
        """Assume from now on that a pod is terminating, while its deletion is in flight."""
        self._evictions[_key(pod)] = _Eviction(pod.metadata.uid, now)

    def note(self, gang: Key, annotations: Notes) -> None:
        """Assume annotations that are being written to a PodGroup."""
        known = self._notes.get(gang)
        self._notes[gang] = _Noted({**(known.annotations if known else {}), **annotations})

    # ------------------------------------------------------------------------------------------ written, but not seen
    def trust_bind(self, order: BindRequest, until: float) -> None:
        """Assume a request that may or may not have been created until `until`, so that the watch can show it."""
        if self.wants(order):
            _trust(self._binds, _subject(order), until)

    def trust_eviction(self, pod: Pod, until: float) -> None:
        """Assume a completed deletion of a pod until `until`, so that the watch can show it."""
        if self.evicts(pod):
            _trust(self._evictions, _key(pod), until)

    def trust_notes(self, gang: Key, until: float) -> None:
        """Assume written annotations until `until`, so that the watch can show them."""
        _trust(self._notes, gang, until)

    # ------------------------------------------------------------------------------------ ended, but pods are not seen
    def request_ended(self, request: BindRequest, pod: Pod, version: int, until: float) -> None:
        """Handle the end, at this resourceVersion, of a request for an unbound pod: the pod may have been bound."""
        self._ended[_key(pod)] = _Ended(request, pod.metadata.uid, version, until)

    def pods_seen(self, version: int) -> bool:
        """Record that the watch of pods has reached this version; return whether that ended an assumption."""
        over = [key for key, ended in self._ended.items() if ended.version <= version]
        for key in over:
            del self._ended[key]
        return bool(over)

    def request_for(self, pod: Key) -> BindRequest | None:
        """Return the request that is assumed for this pod and that the watch has not shown."""
        return self._binds[pod].request if pod in self._binds else None

    def reservation_coming(self, device: Device, until: float) -> None:
        """Assume that the binder is creating the reservation pod of a device that no watch has shown."""
        self._reservations[device] = until

    def reservation_seen(self, device: Device) -> None:
        """Handle that the watch shows the reservation pod of a device."""
        self._reservations.pop(device, None)

    # -------------------------------------------------------------------------------------------------------- backoff
    def hold(self, gang: Key, until: float) -> None:
        """Hide the gang's unplaced pods from snapshots until `until`."""
        self._held[gang] = max(until, self._held.get(gang, 0.0))

    # ---------------------------------------------------------------------------------------------------------- ends
    def bind_failed(self, order: BindRequest) -> None:
        """Drop the assumption of a request that was not created."""
        if self.wants(order):
            del self._binds[_subject(order)]

    def eviction_failed(self, pod: Pod) -> None:
        """Drop the assumption of a deletion that failed."""
        if self.evicts(pod):
            del self._evictions[_key(pod)]

    def evicts(self, pod: Pod) -> bool:
        """Whether exactly this pod is assumed to be terminating and no watch has shown it."""
        known = self._evictions.get(_key(pod))
        return known is not None and known.uid == pod.metadata.uid

    def assumes_bind(self, pod: Key) -> bool:
        """Whether a request is assumed for this pod that the watch has not shown."""
        return pod in self._binds

    def seen(self, change: Change) -> None:
        """Handle a watch event: drop the assumptions that it confirms."""
        obj = change.obj
        if isinstance(obj, BindRequest):
            self._seen_request(obj, change.gone)
        elif isinstance(obj, Pod):
            self._seen_pod(obj, change.gone)
        elif isinstance(obj, PodGroup) and (known := self._notes.get(_key(obj))) is not None:
            shown = obj.metadata.annotations or {}
            if change.gone or all(shown.get(name) == value for name, value in known.annotations.items()):
                del self._notes[_key(obj)]

    def _seen_request(self, request: BindRequest, gone: bool) -> None:
        """Handle an event of a request; failure or deletion of another one for the same pod ends no assumption."""
        key = _subject(request)
        if not (gone or request_failed(request)):
            self._ended.pop(key, None)
        known = self._binds.get(key)
        if known is None or not _owned_by(request, known.uid):
            return
        ours = known.request.metadata.uid == request.metadata.uid
        if ours or (not (gone or request_failed(request)) and _place(request) == _place(known.request)):
            del self._binds[key]

    def _seen_pod(self, pod: Pod, gone: bool) -> None:
        key, uid = _key(pod), pod.metadata.uid
        bind, eviction = self._binds.get(key), self._evictions.get(key)
        if bind is not None and (_over(bind.uid, uid, gone) or (pod.spec.node_name and not _says_more(bind.request))):
            del self._binds[key]
        if eviction is not None and (_over(eviction.uid, uid, gone) or pod.metadata.deletion_timestamp is not None):
            del self._evictions[key]

    def overdue(self, now: float) -> list[BindRequest]:
        """Return confirmed requests that no watch showed in time; they stay assumed while the caller reads them."""
        late = {key: bind for key, bind in self._binds.items() if bind.until <= now and bind.request.metadata.uid}
        self._binds |= {key: replace(bind, until=NEVER) for key, bind in late.items()}
        return [bind.order for bind in late.values()]

    def expire(self, now: float) -> list[str]:
        """Drop expired assumptions and backoffs; return descriptions of the assumptions.

        Call it after `overdue`, so that a lagging watch does not free capacity that a confirmed request holds.
        """
        self._held = {gang: until for gang, until in self._held.items() if until > now}
        lost = []
        self._reservations = {device: until for device, until in self._reservations.items() if until > now}
        for ended in [key for key, one in self._ended.items() if one.until <= now]:
            del self._ended[ended]
        for what, assumed in _each(self._binds, self._evictions, self._notes):
            for key in [key for key, one in assumed.items() if one.until <= now]:
                del assumed[key]
                lost.append(f"{what} of {'/'.join(key)}")
        return lost

    def next_end(self) -> float | None:
        """Return when the next assumption or backoff expires; None if there is none."""
        ends = [
            one.until for _, assumed in _each(self._binds, self._evictions, self._notes) for one in assumed.values()
        ]
        ends += [ended.until for ended in self._ended.values()]
        first = min([*ends, *self._reservations.values(), *self._held.values()], default=NEVER)
        return None if first == NEVER else first

    # ------------------------------------------------------------------------------------------------------ the view
    def lay_over(self, cache: ClusterCache) -> None:
        """Change a copy of the cache to the state after all assumed writes."""
        pods, groups = cache.of(Pod), cache.of(PodGroup)
        requests: list[tuple[Key, _Ended | _Bind]] = [*self._ended.items(), *self._binds.items()]
        for key, placed in requests:
            pod = pods.get(key)
            if pod is None or pod.metadata.uid != placed.uid:
                continue
            if not pod.spec.node_name or _says_more(placed.request):
                cache.apply(Change(placed.request))
        for device in self._reservations:
            cache.apply(Change(_reservation(device, cache.params.reservation_app)))
        for key, eviction in self._evictions.items():
            pod = pods.get(key)
            if pod is not None and pod.metadata.uid == eviction.uid and pod.metadata.deletion_timestamp is None:
                leaving = datetime.fromtimestamp(eviction.at, UTC)
                cache.apply(Change(_with_metadata(_in_place(pod, cache), deletion_timestamp=leaving)))
        for key, noted in self._notes.items():
            if (group := groups.get(key)) is not None:
                annotations = {**(group.metadata.annotations or {}), **noted.annotations}
                kept = {name: value for name, value in annotations.items() if value is not None}
                cache.apply(Change(_with_metadata(group, annotations=kept)))
        for pod in list(_without_place(cache, self._held)):
            cache.apply(Change(pod, gone=True))


def _in_place(pod: Pod, cache: ClusterCache) -> Pod:
    """Return the pod on the node of its BindRequest: the binder may bind it before its deletion takes effect."""
    request = cache.of(BindRequest).get(_key(pod))
    if request is None or pod.spec.node_name or not _in_force(request, pod):
        return pod
    return structs.replace(pod, spec=structs.replace(pod.spec, node_name=request.spec.selected_node))


def _reservation(device: Device, app: str) -> Pod:
    """Return what a snapshot needs of a reservation pod."""
    node, group = device
    name = f"reservation-of-{group}"
    labels = {names.APP_LABEL: app, names.GPU_GROUP_LABEL: group}
    meta = ObjectMeta(name, node, uid=f"{node}/{name}", labels=labels)
    return Pod(meta, PodSpec(_ONE_GPU, node_name=node), PodStatus("Running"))


def _without_place(cache: ClusterCache, gangs: Mapping[Key, float]) -> Iterator[Pod]:
    """Yield pods of these gangs that have neither a node nor an active BindRequest."""
    requests = cache.of(BindRequest)
    for key, pod in cache.of(Pod).items() if gangs else ():
        group = (pod.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION, "")
        if (key[0], group) in gangs and not pod.spec.node_name and not _in_force(requests.get(key), pod):
            yield pod


def _in_force(request: BindRequest | None, pod: Pod) -> bool:
    return request is not None and request_is_for(request, pod) and not request_failed(request)


def _says_more(request: BindRequest) -> bool:
    """Whether a request assigns devices or NUMA zones, which the bound pod does not show."""
    spec = request.spec
    return bool(spec.resource_claim_allocations or spec.extended_resource_claim_allocation or spec.predicted_numa_zones)


def _trust(assumed: dict[Key, Any], key: Key, until: float) -> None:
    if key in assumed:
        assumed[key] = replace(assumed[key], until=until)


def _over(assumed: str, seen: str, gone: bool) -> bool:
    """Whether an event about a pod of the same name shows that the pod of the assumed uid no longer exists."""
    return gone if assumed == seen else not gone


def _each(*assumed: dict[Key, Any]) -> Iterator[tuple[str, dict[Key, Any]]]:
    return zip(("bind", "eviction", "annotations"), assumed, strict=True)


def _key(obj: Pod | PodGroup) -> Key:
    return obj.metadata.namespace, obj.metadata.name


def _subject(request: BindRequest) -> Key:
    """Return the key of the pod of a request."""
    return request.metadata.namespace, request.spec.pod_name


def _place(request: BindRequest) -> tuple[str, list[str]]:
    return request.spec.selected_node, request.spec.gpu_groups


def _owned_by(request: BindRequest, uid: str) -> bool:
    return any(owner.uid == uid for owner in request.metadata.owner_references or ())


def _with_metadata(obj: Any, **fields: Any) -> Any:
    return structs.replace(obj, metadata=structs.replace(obj.metadata, **fields))
