"""Telling people: conditions of pods and PodGroups, and the events beside them, written when they change.

What was told is remembered, so an unchanged reason costs one comparison per cycle. Events are repeated now and then,
because the server forgets them after an hour. A pod's condition is written against the version we know: a pod that was
bound meanwhile cannot be told that it waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pykai.cache.assumed import Assumptions
from pykai.cache.cluster import ClusterCache
from pykai.cache.pods import request_failed, request_is_for
from pykai.kube.api import Api, Object, Patch
from pykai.kube.errors import Conflict, NotFound
from pykai.kube.events import EventRecorder, Regarding
from pykai.kube.resources import POD, POD_GROUP
from pykai.model.plan import Timestamp
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Pod, PodGroup
from pykai.objects.units import rfc3339
from pykai.scheduler.homeless import is_homeless
from pykai.scheduler.notices import GangNotice, Notices, PodNotice
from pykai.scheduler.outbox import Outbox

Key = tuple[str, str]
REPEAT_SECONDS = 1800.0
TRUST_SECONDS = 30.0
MARKS = {
    "last-start": names.LAST_START_TIMESTAMP,
    "last-eviction": names.LAST_EVICTION_TIMESTAMP,
    "stale": names.STALE_TIMESTAMP,
}
_COMPARED = ("type", "nodePool", "reason", "message", "status")


def about_pod(pod: Pod) -> Regarding:
    """The pod as the subject of an event."""
    meta = pod.metadata
    return Regarding("v1", "Pod", meta.name, meta.namespace, meta.uid)


def about_gang(group: PodGroup) -> Regarding:
    """The PodGroup as the subject of an event."""
    meta = group.metadata
    return Regarding(POD_GROUP.api_version, "PodGroup", meta.name, meta.namespace, meta.uid)


@dataclass(frozen=True)
class Outlets:
    """Where words go: `clock` gives seconds since the epoch."""

    api: Api
    recorder: EventRecorder
    outbox: Outbox
    clock: Callable[[], float]


class Teller:
    """Compares what is to be said with what was said. Reads the live cache when it writes."""

    def __init__(self, outlets: Outlets, cache: ClusterCache, assumptions: Assumptions) -> None:
        self._out = outlets
        self._cache = cache
        self._assumptions = assumptions
        self._pods: dict[Key, tuple[PodNotice, float]] = {}
        self._gangs: dict[Key, tuple[GangNotice, float]] = {}
        self._notes: dict[Key, dict[str, str | None]] = {}

    def tell(self, notices: Notices) -> None:
        """Say what is new; whoever is not mentioned any more is forgotten."""
        self._pods = self._news("pod", self._pods, notices.pods)
        self._gangs = self._news("gang", self._gangs, notices.gangs)
        for gang in notices.content:
            self._out.outbox.post(("gang", *gang), partial(self._clear_condition, gang))

    def _news(self, what: str, said: dict[Key, Any], to_say: Mapping[Key, Any]) -> dict[Key, Any]:
        now, latest = self._out.clock(), {}
        say: Callable[[Key, Any], Awaitable[None]] = self._say_pod if what == "pod" else self._say_gang
        for key, notice in to_say.items():
            known = said.get(key)
            if known is not None and known[0] == notice and now - known[1] < REPEAT_SECONDS:
                latest[key] = known
                continue
            latest[key] = (notice, now)
            self._out.outbox.post((what, *key), partial(say, key, notice))
        for key in said.keys() - latest.keys():
            self._out.outbox.cancel((what, *key))
        return latest

    # ------------------------------------------------------------------------------------------------------------ pods
    def mark_pod(self, key: Key, notice: PodNotice) -> None:
        """Write PodScheduled=False with this reason into the pod, unless it has a place by then."""
        self._out.outbox.post(("pod", *key), partial(self._write_pod, key, notice))

    def placed(self, key: Key) -> None:
        """The pod has a place: do not say any more that it waits."""
        self._out.outbox.cancel(("pod", *key))
        self._pods.pop(key, None)

    async def _say_pod(self, key: Key, notice: PodNotice) -> None:
        if await self._write_pod(key, notice):
            about = Regarding("v1", "Pod", key[1], key[0], notice.uid)
            self._out.recorder.record(about, names.UNSCHEDULABLE, notice.message, "Warning")
        elif key in self._pods and self._pods[key][0] is notice:
            del self._pods[key]  # it was not said: if it is true after all, the next cycle says it

    async def _write_pod(self, key: Key, notice: PodNotice) -> bool:
        """Bring the pod's condition up to date; False where there is nothing to say any more."""
        pod = self._cache.of(Pod).get(key)
        if pod is None or pod.metadata.uid != notice.uid or self._has_place(pod):
            return False
        known = next((c for c in pod.status.conditions or () if c.type == names.POD_SCHEDULED), None)
        said = None if known is None else (known.status, known.reason, known.message)
        if not notice.marked or said == ("False", notice.condition, notice.message):
            return True
        condition = {"type": names.POD_SCHEDULED, "status": "False", "reason": notice.condition}
        condition["message"] = notice.message
        if said is None or said[0] != "False":
            condition["lastTransitionTime"] = rfc3339(self._out.clock())
        body = {"metadata": {"resourceVersion": pod.metadata.resource_version}, "status": {"conditions": [condition]}}
        await self._out.api.patch(POD.ref(key[1], key[0]).sub("status"), Patch.strategic(body))
        return True

    def _has_place(self, pod: Pod) -> bool:
        key = (pod.metadata.namespace, pod.metadata.name)
        if pod.spec.node_name or self._assumptions.assumes_bind(key):
            return True
        request = self._cache.of(BindRequest).get(key)
        if request is None or not request_is_for(request, pod):
            return False
        return not request_failed(request) and not is_homeless(request, self._cache)

    # ----------------------------------------------------------------------------------------------------------- gangs
    async def _say_gang(self, key: Key, notice: GangNotice) -> None:
        group = self._cache.of(PodGroup).get(key)
        if group is None or group.metadata.uid != notice.uid or not notice.uid:
            return  # an expected group has no uid: once it exists the next cycle writes it
        if notice.condition is not None:
            await self._write_condition(group, notice.condition)
        for reason, message in notice.events:
            self._out.recorder.record(about_gang(group), reason, message)

    async def _write_condition(self, group: PodGroup, condition: Object) -> None:
        """Append the condition as the newest, instead of older ones of the same node pool."""
        known = group.status.scheduling_conditions or []
        if known and _newest(known) is known[-1] and _same(known[-1], condition):
            return
        ref = POD_GROUP.ref(group.metadata.name, group.metadata.namespace)
        others: list[Object] = []
        if any(c.node_pool != condition["nodePool"] for c in known):
            full = await self._out.api.get(ref, Object)
            listed = (full.get("status") or {}).get("schedulingConditions") or []
            others = [entry for entry in listed if entry.get("nodePool") != condition["nodePool"]]
        last = max((_number(c.transition_id) for c in known), default=0)
        stamp = {"transitionID": str(last + 1), "lastTransitionTime": rfc3339(self._out.clock())}
        body = {"status": {"schedulingConditions": [*others, {**condition, **stamp}]}}
        await self._out.api.patch(ref.sub("status"), Patch.merge(body))

    async def _clear_condition(self, key: Key) -> None:
        group = self._cache.of(PodGroup).get(key)
        if group is not None and group.status.scheduling_conditions:
            body: Object = {"status": {"schedulingConditions": None}}
            await self._out.api.patch(POD_GROUP.ref(key[1], key[0]).sub("status"), Patch.merge(body))

    # ----------------------------------------------------------------------------------------------------- annotations
    def mark(self, marks: tuple[Timestamp, ...]) -> None:
        """Note instants on PodGroups; they count at once, even while they are not written yet."""
        for mark in marks:
            note = {MARKS[mark.what]: None if mark.at is None else rfc3339(mark.at)}
            self._assumptions.note(mark.gang, note)
            self._notes.setdefault(mark.gang, {}).update(note)
            self._out.outbox.post(("notes", *mark.gang), partial(self._write_notes, mark.gang))

    async def _write_notes(self, key: Key) -> None:
        notes, group = self._notes.pop(key, {}), self._cache.of(PodGroup).get(key)
        try:
            if group is not None and not group.metadata.uid:
                raise Conflict(f"pod group {key[0]}/{key[1]} is not written yet")
            if group is not None and not _shows(group, notes):
                body = {"metadata": {"annotations": notes}}
                note = replace(Patch.merge(body), patient=True)
                await self._out.api.patch(POD_GROUP.ref(key[1], key[0]), note)
        except NotFound:
            raise
        except Exception:
            self._notes[key] = {**notes, **self._notes.get(key, {})}
            raise
        self._assumptions.trust_notes(key, self._out.clock() + TRUST_SECONDS)


def _shows(group: PodGroup, notes: Mapping[str, str | None]) -> bool:
    known = group.metadata.annotations or {}
    return all(known.get(name) == value for name, value in notes.items())


def _same(known: Any, condition: Object) -> bool:
    said = (known.type, known.node_pool, known.reason, known.message, known.status)
    return said == tuple(condition[field] for field in _COMPARED)


def _newest(conditions: list[Any]) -> Any:
    return max(conditions, key=lambda condition: _number(condition.transition_id))


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
