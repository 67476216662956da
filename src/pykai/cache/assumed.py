"""What was decided and the watches do not show yet: it counts already, so that nothing is given out twice.

Three things are assumed: a bind request that was created holds its place, a pod that was evicted is on its way out, and
a PodGroup has the timestamps that were noted on it. An assumption ends when the watch shows its effect, when the pod
it is about is gone or another one, or some time after it was written; it never replaces something newer that was
watched, and it does not expire while the write is under way, however long that takes. A request that the server has
confirmed is looked up before it counts no more: a watch may be late for longer than expected. One that says which
devices or NUMA zones its pod gets counts until it is seen itself: the bound pod does not say it, and the watch of
claims may be late, too.

A request that ended keeps its place until the watch of pods has come as far as its end: before it ended, the binder may
have bound the pod or reserved its devices, and only that watch shows it.

Gangs can also be held back for a while, after a bind has failed: their pods that have no place are left out of sight.

Instants are seconds since the epoch. The owner of the ClusterCache owns this, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from pykai.cache.cluster import Change, ClusterCache
from pykai.cache.pods import request_failed, request_is_for
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Pod, PodGroup

Key = tuple[str, str]
NEVER = float("inf")
Notes = Mapping[str, str | None]
"""Annotations to have, None for one to be without."""


@dataclass(frozen=True)
class _Bind:
    order: BindRequest
    """The request as it was decided: the identity of the write."""
    request: BindRequest
    """As the server answered it, once it has."""
    uid: str
    """Of the pod."""
    until: float = NEVER


@dataclass(frozen=True)
class _Eviction:
    uid: str
    at: float
    until: float = NEVER


@dataclass(frozen=True)
class _Ended:
    request: BindRequest
    """As it was while it was in force."""
    uid: str
    """Of the pod."""
    version: int
    """Of the server when it had ended."""
    until: float


@dataclass(frozen=True)
class _Noted:
    annotations: Notes
    until: float = NEVER


class Assumptions:
    """By (namespace, name) of the pod or PodGroup they are about."""

    def __init__(self) -> None:
        self._binds: dict[Key, _Bind] = {}
        self._ended: dict[Key, _Ended] = {}
        self._evictions: dict[Key, _Eviction] = {}
        self._notes: dict[Key, _Noted] = {}
        self._held: dict[Key, float] = {}

    # ---------------------------------------------------------------------------------------------------- beginnings
    def bind(self, request: BindRequest, uid: str) -> None:
        """Count a request that is being created for the pod of this uid, for as long as that takes."""
        self._binds[_subject(request)] = _Bind(request, request, uid)

    def wants(self, order: BindRequest) -> bool:
        """Whether this very request still counts by itself: it was not seen yet, and its pod is still the same."""
        known = self._binds.get(_subject(order))
        return known is not None and known.order is order

    def created(self, order: BindRequest, request: BindRequest, until: float) -> None:
        """Count the request as the server answered it; the watch may have been faster, then there is nothing to do."""
        if self.wants(order):
            key = _subject(order)
            self._binds[key] = replace(self._binds[key], request=request, until=until)

    def evict(self, pod: Pod, now: float) -> None:
        """Count a pod as leaving from now on, while it is being deleted."""
        self._evictions[_key(pod)] = _Eviction(pod.metadata.uid, now)

    def note(self, gang: Key, annotations: Notes) -> None:
        """Count annotations that are being written to a PodGroup."""
        known = self._notes.get(gang)
        self._notes[gang] = _Noted({**(known.annotations if known else {}), **annotations})

    # ------------------------------------------------------------------------------------------ written, but not seen
    def trust_bind(self, order: BindRequest, until: float) -> None:
        """The request may have been created or not: it counts until the watch has had time to show it."""
        if self.wants(order):
            _trust(self._binds, _subject(order), until)

    def trust_eviction(self, pod: Pod, until: float) -> None:
        """The pod was deleted: that counts until the watch has had time to show it."""
        if self.evicts(pod):
            _trust(self._evictions, _key(pod), until)

    def trust_notes(self, gang: Key, until: float) -> None:
        """The annotations were written: they count until the watch has had time to show them."""
        _trust(self._notes, gang, until)

    # ------------------------------------------------------------------------------------ ended, but pods are not seen
    def request_ended(self, request: BindRequest, pod: Pod, version: int, until: float) -> None:
        """A request for a pod without a node ended at this version of the server: its place may be taken for good."""
        self._ended[_key(pod)] = _Ended(request, pod.metadata.uid, version, until)

    def pods_seen(self, version: int) -> bool:
        """The watch of pods has come as far as this version; whether that ended an assumption."""
        over = [key for key, ended in self._ended.items() if ended.version <= version]
        for key in over:
            del self._ended[key]
        return bool(over)

    # -------------------------------------------------------------------------------------------------------- backoff
    def hold(self, gang: Key, until: float) -> None:
        """Leave the gang's pods without a place out of sight for a while."""
        self._held[gang] = max(until, self._held.get(gang, 0.0))

    # ---------------------------------------------------------------------------------------------------------- ends
    def bind_failed(self, order: BindRequest) -> None:
        """The request was not created after all."""
        if self.wants(order):
            del self._binds[_subject(order)]

    def eviction_failed(self, pod: Pod) -> None:
        """The pod was not deleted after all."""
        if self.evicts(pod):
            del self._evictions[_key(pod)]

    def evicts(self, pod: Pod) -> bool:
        """Whether this very pod counts as leaving and no watch has shown that it does."""
        known = self._evictions.get(_key(pod))
        return known is not None and known.uid == pod.metadata.uid

    def assumes_bind(self, pod: Key) -> bool:
        """Whether a request counts for this pod that the watch has not shown."""
        return pod in self._binds

    def seen(self, change: Change) -> None:
        """A watch delivered an event: what it shows need not be assumed any more."""
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
        """An event about an earlier request of the same name, or for the same pod, says nothing about ours."""
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
        """Orders that were carried out and that no watch shows in time: they keep counting while they are looked up."""
        late = {key: bind for key, bind in self._binds.items() if bind.until <= now and bind.request.metadata.uid}
        self._binds |= {key: replace(bind, until=NEVER) for key, bind in late.items()}
        return [bind.order for bind in late.values()]

    def expire(self, now: float) -> list[str]:
        """Drop what was never confirmed, and say what that was; gangs whose time is over are held no longer.

        To be called after `overdue`: a watch that is late is no reason to give a place out again.
        """
        self._held = {gang: until for gang, until in self._held.items() if until > now}
        lost = []
        for ended in [key for key, one in self._ended.items() if one.until <= now]:
            del self._ended[ended]
        for what, assumed in _each(self._binds, self._evictions, self._notes):
            for key in [key for key, one in assumed.items() if one.until <= now]:
                del assumed[key]
                lost.append(f"{what} of {'/'.join(key)}")
        return lost

    def next_end(self) -> float | None:
        """When the next assumption expires or a gang is held no longer; None where there is none."""
        ends = [
            one.until for _, assumed in _each(self._binds, self._evictions, self._notes) for one in assumed.values()
        ]
        ends += [ended.until for ended in self._ended.values()]
        first = min([*ends, *self._held.values()], default=NEVER)
        return None if first == NEVER else first

    # ------------------------------------------------------------------------------------------------------ the view
    def lay_over(self, cache: ClusterCache) -> None:
        """Change a copy of the cache to what it will show once all of this is confirmed."""
        pods, groups = cache.of(Pod), cache.of(PodGroup)
        requests: list[tuple[Key, _Ended | _Bind]] = [*self._ended.items(), *self._binds.items()]
        for key, placed in requests:
            pod = pods.get(key)
            if pod is None or pod.metadata.uid != placed.uid:
                continue
            if not pod.spec.node_name or _says_more(placed.request):
                cache.apply(Change(placed.request))
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
        if self._held:
            for pod in list(_without_place(cache, self._held)):
                cache.apply(Change(pod, gone=True))


def _in_place(pod: Pod, cache: ClusterCache) -> Pod:
    """The pod on the node it is being bound to: until it is known to leave, the binder may be faster than we are."""
    request = cache.of(BindRequest).get(_key(pod))
    if request is None or pod.spec.node_name or not _in_force(request, pod):
        return pod
    return structs.replace(pod, spec=structs.replace(pod.spec, node_name=request.spec.selected_node))


def _without_place(cache: ClusterCache, gangs: Mapping[Key, float]) -> Iterator[Pod]:
    """Pods of these gangs that have neither a node nor a bind request in force."""
    requests = cache.of(BindRequest)
    for key, pod in cache.of(Pod).items():
        group = (pod.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION, "")
        if (key[0], group) in gangs and not pod.spec.node_name and not _in_force(requests.get(key), pod):
            yield pod


def _in_force(request: BindRequest | None, pod: Pod) -> bool:
    return request is not None and request_is_for(request, pod) and not request_failed(request)


def _says_more(request: BindRequest) -> bool:
    """Whether a request says what a bound pod does not: which devices or NUMA zones it got."""
    spec = request.spec
    return bool(spec.resource_claim_allocations or spec.extended_resource_claim_allocation or spec.predicted_numa_zones)


def _trust(assumed: dict[Key, Any], key: Key, until: float) -> None:
    if key in assumed:
        assumed[key] = replace(assumed[key], until=until)


def _over(assumed: str, seen: str, gone: bool) -> bool:
    """Whether the pod of the assumed uid exists no more, by an event about a pod of its name."""
    return gone if assumed == seen else not gone


def _each(*assumed: dict[Key, Any]) -> Iterator[tuple[str, dict[Key, Any]]]:
    return zip(("bind", "eviction", "annotations"), assumed, strict=True)


def _key(obj: Pod | PodGroup) -> Key:
    return obj.metadata.namespace, obj.metadata.name


def _subject(request: BindRequest) -> Key:
    """The pod a request is about."""
    return request.metadata.namespace, request.spec.pod_name


def _place(request: BindRequest) -> tuple[str, list[str]]:
    return request.spec.selected_node, request.spec.gpu_groups


def _owned_by(request: BindRequest, uid: str) -> bool:
    return any(owner.uid == uid for owner in request.metadata.owner_references or ())


def _with_metadata(obj: Any, **fields: Any) -> Any:
    return structs.replace(obj, metadata=structs.replace(obj.metadata, **fields))
