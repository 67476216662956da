"""Write conditions and events of pods and PodGroups, and fair shares of queues, when they change.

The updater remembers what it sent last: an unchanged reason costs one comparison per cycle, and a text that reverts to
an earlier one is written even while the watch still shows the earlier one. Events are repeated periodically, because
the server expires them after an hour. Pod conditions are written with optimistic concurrency (resourceVersion), so a
pod that was bound meanwhile is never marked as unschedulable.

Writes are low-priority: at most one is pending per object, the latest wins, and none delays a bind. A write is a
function that reads the current state when it runs, and does nothing if that is up to date. An object is written at
most once a second, and less often the longer it keeps changing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog
from msgspec import Struct

from pykai.cache.assumed import Assumptions
from pykai.cache.cluster import ClusterCache
from pykai.cache.pods import request_failed, request_is_for
from pykai.kube.api import Api, Object, Patch
from pykai.kube.api_resources import POD, POD_GROUP, QUEUE
from pykai.kube.clock import steady, wall
from pykai.kube.codec import version_number
from pykai.kube.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from pykai.kube.events import EventRecorder, Regarding
from pykai.kube.workqueue import ReconcileLoop
from pykai.model.plan import Key, Timestamp, Triple
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Pod, PodGroup, Queue
from pykai.objects.units import rfc3339
from pykai.scheduler.bind_requests import targets_missing_node
from pykai.scheduler.plan_conditions import NOT_READY, Conditions, GangCondition, PodCondition, core_pods, resource_list

REPEAT_SECONDS = 1800.0
TRUST_SECONDS = 30.0
"""Seconds for which a write is assumed without confirmation by a watch."""
TIMESTAMPS = {
    "last-start": names.LAST_START_TIMESTAMP,
    "last-eviction": names.LAST_EVICTION_TIMESTAMP,
    "stale": names.STALE_TIMESTAMP,
}
NOT_READY_SECONDS = 2.0
"""Delay before pods of an incomplete gang report it: the workload may still be creating the others."""
_COMPARED = ("type", "nodePool", "reason", "message", "status")
"""Without the queues' amounts: they change in every cycle, and each change would be a write per pending gang."""
Write = Callable[[], Awaitable[object]]
_POINTLESS = (BadRequest, Forbidden, Invalid)
_REMEMBERED = 10_000

log = structlog.get_logger(component="scheduler")


# ---------------------------------------------------------------------------------------------------------- write queue
@dataclass(frozen=True)
class Spacing:
    """Minimum seconds between two writes of an object: `first`, doubled up to `longest`, reset after `quiet`."""

    first: float = 1.0
    longest: float = 10.0
    quiet: float = 60.0


class WriteQueue:
    """Pending writes by key."""

    def __init__(self, loop: ReconcileLoop[Hashable], spacing: Spacing | None = None) -> None:
        self._loop = loop
        self._spacing = spacing or Spacing()
        self._writes: dict[Hashable, Write] = {}
        self._sent: dict[Hashable, tuple[float, float]] = {}
        """Key -> time of the last write, and minimum seconds until the next."""

    def post(self, key: Hashable, write: Write, after: float = 0.0) -> None:
        """Enqueue a write in place of the pending one of this key; it runs after `after` seconds or later."""
        self._writes[key] = write
        self._loop.add_after(key, after)

    def cancel(self, key: Hashable) -> None:
        """Drop the pending write of this key."""
        self._writes.pop(key, None)

    async def run(self) -> None:
        """Run pending writes until cancelled."""
        await self._loop.run(self._send)

    async def _send(self, key: Hashable) -> float | None:
        write = self._writes.get(key)
        if write is None:
            return None
        last, rest = self._sent.get(key, (float("-inf"), 0.0))
        wait = last + rest - steady()
        if wait > 0:
            return wait
        del self._writes[key]
        try:
            await write()
        except NotFound:
            return None
        except _POINTLESS as error:
            log.warning("write rejected", object=key, error=error.message)
            return None
        except Exception:
            self._writes.setdefault(key, write)
            raise
        now, spacing = steady(), self._spacing
        longer = min(rest * 2, spacing.longest) if now - last < spacing.quiet else spacing.first
        self._sent[key] = (now, longer)
        if len(self._sent) > _REMEMBERED:
            self._sent = {known: entry for known, entry in self._sent.items() if now - entry[0] < spacing.quiet}
        return None


# -------------------------------------------------------------------------------------------------------------- writing
def _event_type(reason: str) -> str:
    """Return "Normal" while a gang lacks pods, "Warning" for every other reason."""
    return "Normal" if reason == NOT_READY else "Warning"


@dataclass(frozen=True)
class WriteAccess:
    """Where writes go: at once (`api`), as events, or queued (`queue`)."""

    api: Api
    recorder: EventRecorder
    queue: WriteQueue


class _Sent(Struct, frozen=True):
    """A condition as it was sent: the object's uid, the content, and the resulting resourceVersion and transition."""

    uid: str
    content: object
    version: int
    transition: int = 0

    def is_newer(self, uid: str, version: str) -> bool:
        """Whether the object at this resourceVersion does not show the condition yet."""
        return self.uid == uid and self.version > version_number(version)


class StatusUpdater:
    """Compares conditions with the last ones sent and writes the difference; each write reads the live cache."""

    def __init__(self, access: WriteAccess, cache: ClusterCache, assumptions: Assumptions) -> None:
        self._access = access
        self._cache = cache
        self._assumptions = assumptions
        self._pods: dict[Key, tuple[PodCondition, float]] = {}
        self._gangs: dict[Key, tuple[GangCondition, float]] = {}
        self._sent: dict[tuple[str, Key], _Sent] = {}
        """The latest condition sent for each pending pod and gang, and the latest fair share of each queue."""
        self._notes: dict[Key, dict[str, str | None]] = {}
        self._fair_shares: dict[str, tuple[Queue, Triple]] = {}
        """Each queue's fair share at the last comparison, and the queue object at that time."""

    def update(self, latest: Conditions) -> None:
        """Enqueue writes for what changed; forget objects without a condition."""
        self._pods = self._changed("pod", self._pods, latest.pods)
        self._gangs = self._changed("gang", self._gangs, latest.gangs)
        for gang in latest.cleared:
            self._access.queue.post(("gang", *gang), partial(self._clear_condition, gang))
        for gang, pods in latest.core_pods.items():
            self._access.queue.post(("core", *gang), partial(self._write_core, gang, pods))
        self._update_fair_shares(latest.fair_shares)

    def _changed(self, what: str, known: dict[Key, Any], latest: Mapping[Key, Any]) -> dict[Key, Any]:
        now, kept = wall(), {}
        write: Callable[[Key, Any], Awaitable[None]] = self._write_pod if what == "pod" else self._write_gang
        for key, condition in latest.items():
            before = known.get(key)
            unchanged = before is not None and before[0] == condition and now - before[1] < REPEAT_SECONDS
            if unchanged and not (self._was_removed(key) if what == "gang" else self._was_overwritten(key)):
                kept[key] = before
                continue
            kept[key] = (condition, now)
            after = NOT_READY_SECONDS if what == "pod" and condition.reason == NOT_READY else 0.0
            self._access.queue.post((what, *key), partial(write, key, condition), after)
        for key in known.keys() - kept.keys():
            self._access.queue.cancel((what, *key))
        for kind, key in [each for each in self._sent if each[0] == what and each[1] not in kept]:
            del self._sent[kind, key]
        return kept

    def _was_removed(self, key: Key) -> bool:
        """Whether another writer has removed the condition that was sent."""
        sent, group = self._sent.get(("gang", key)), self._cache.of(PodGroup).get(key)
        if sent is None or group is None or group.status.scheduling_conditions:
            return False
        return not sent.is_newer(group.metadata.uid, group.metadata.resource_version)

    def _was_overwritten(self, key: Key) -> bool:
        """Whether a pod shows another condition than was sent, such as one that a killed process wrote late."""
        sent, pod = self._sent.get(("pod", key)), self._cache.of(Pod).get(key)
        if sent is None or pod is None or version_number(pod.metadata.resource_version) <= sent.version:
            return False
        return pod.metadata.uid == sent.uid and _shown_condition(pod) != sent.content

    # ------------------------------------------------------------------------------------------------------------ pods
    def mark_pod(self, key: Key, condition: PodCondition) -> None:
        """Enqueue the condition PodScheduled=False with this reason; it is not written if the pod is placed by then."""
        self._access.queue.post(("pod", *key), partial(self._write_pod_condition, key, condition))

    def placed(self, key: Key) -> None:
        """Cancel pending writes about a pod that has been placed."""
        self._access.queue.cancel(("pod", *key))
        self._pods.pop(key, None)
        self._sent.pop(("pod", key), None)

    async def _write_pod(self, key: Key, condition: PodCondition) -> None:
        if await self._write_pod_condition(key, condition):
            about = Regarding("v1", "Pod", key[1], key[0], condition.uid)
            self._access.recorder.record(about, condition.reason, condition.message, _event_type(condition.reason))
        elif key in self._pods and self._pods[key][0] is condition:
            del self._pods[key]  # not written: if it still holds, the next cycle writes it

    async def _write_pod_condition(self, key: Key, condition: PodCondition) -> bool:
        """Update the pod's condition; False if the pod is no longer pending."""
        pod = self._cache.of(Pod).get(key)
        if pod is None or pod.metadata.uid != condition.uid or self._has_place(pod):
            return False
        shown = next((c for c in pod.status.conditions or () if c.type == names.POD_SCHEDULED), None)
        content: object = _shown_condition(pod)
        sent = self._sent.get(("pod", key))
        if sent is not None and sent.is_newer(pod.metadata.uid, pod.metadata.resource_version):
            content = sent.content
        wanted = ("False", condition.reason, condition.message)
        if not condition.written:
            return True
        if content == wanted:
            version = version_number(pod.metadata.resource_version)
            self._sent["pod", key] = _Sent(condition.uid, wanted, max(version, sent.version if sent else 0))
            return True
        body = {"type": names.POD_SCHEDULED, "status": "False", "reason": condition.reason}
        body["message"] = condition.message
        if shown is None or shown.status != "False":
            body["lastTransitionTime"] = rfc3339(wall())
        patch = {"metadata": {"resourceVersion": pod.metadata.resource_version}, "status": {"conditions": [body]}}
        stored = await self._access.api.patch(POD.ref(key[1], key[0]).sub("status"), Patch.strategic(patch))
        self._sent["pod", key] = _Sent(condition.uid, wanted, _version(stored))
        return True

    def _has_place(self, pod: Pod) -> bool:
        key = pod.metadata.key
        if pod.spec.node_name or self._assumptions.assumes_bind(key):
            return True
        request = self._cache.of(BindRequest).get(key)
        if request is None or not request_is_for(request, pod):
            return False
        return not request_failed(request) and not targets_missing_node(request, self._cache)

    # ----------------------------------------------------------------------------------------------------------- gangs
    async def _write_gang(self, key: Key, condition: GangCondition) -> None:
        group = self._cache.of(PodGroup).get(key)
        if group is None or group.metadata.uid != condition.uid or not condition.uid:
            return  # an expected group has no uid: once it exists the next cycle writes it
        if condition.scheduling is not None:
            await self._write_scheduling_condition(group, condition.scheduling)
        for reason, message in condition.events:
            self._access.recorder.record(Regarding.of(POD_GROUP, group.metadata), reason, message, _event_type(reason))

    async def _write_scheduling_condition(self, group: PodGroup, condition: Object) -> None:
        """Append the condition and remove older ones of the same node pool."""
        meta, shown = group.metadata, group.status.scheduling_conditions or []
        codes = tuple(reason["reason"] for reason in condition["reasons"])
        key, wanted = meta.key, (*(condition[field] for field in _COMPARED), codes)
        sent = self._sent.get(("gang", key))
        if sent is not None and sent.is_newer(meta.uid, meta.resource_version):
            content, last = sent.content, sent.transition
        else:
            newest = max(shown, key=lambda each: _number(each.transition_id), default=None)
            content = _compared_fields(newest) if newest is not None and newest is shown[-1] else None
            last = 0 if newest is None else _number(newest.transition_id)
        if content == wanted:
            return
        ref = POD_GROUP.ref(meta.name, meta.namespace)
        others: list[Object] = []
        if any(c.node_pool != condition["nodePool"] for c in shown):
            full = await self._access.api.get(ref, Object)
            listed = (full.get("status") or {}).get("schedulingConditions") or []
            others = [entry for entry in listed if entry.get("nodePool") != condition["nodePool"]]
        stamp = {"transitionID": str(last + 1), "lastTransitionTime": rfc3339(wall())}
        body = {"status": {"schedulingConditions": [*others, {**condition, **stamp}]}}
        stored = await self._access.api.patch(ref.sub("status"), Patch.merge(body))
        self._sent["gang", key] = _Sent(meta.uid, wanted, _version(stored), last + 1)

    async def _clear_condition(self, key: Key) -> None:
        group = self._cache.of(PodGroup).get(key)
        if group is not None and group.status.scheduling_conditions:
            body: Object = {"status": {"schedulingConditions": None}}
            await self._access.api.patch(POD_GROUP.ref(key[1], key[0]).sub("status"), Patch.merge(body))

    async def _write_core(self, key: Key, pods: tuple[str, ...]) -> None:
        """Write the core pods to the group's status."""
        group = self._cache.of(PodGroup).get(key)
        if group is not None and group.metadata.uid and core_pods(group) != pods:
            body = {"status": {"schedulingState": {"corePods": list(pods)}}}
            await self._access.api.patch(POD_GROUP.ref(key[1], key[0]).sub("status"), Patch.merge(body))

    # ---------------------------------------------------------------------------------------------------------- queues
    def _update_fair_shares(self, shares: Mapping[str, Triple]) -> None:
        """Enqueue the write of each fair share that changed or whose queue object changed."""
        queues, known = self._cache.of(Queue), self._fair_shares
        self._fair_shares = {
            name: (queue, share) for name, share in shares.items() if (queue := queues.get(("", name))) is not None
        }
        for name, (queue, share) in self._fair_shares.items():
            before = known.get(name)
            if before is None or before[0] is not queue or before[1] != share:
                self._access.queue.post(("queue", name), partial(self._write_fair_share, name, resource_list(share)))
        for name in known.keys() - self._fair_shares.keys():
            self._sent.pop(("queue", ("", name)), None)

    async def _write_fair_share(self, name: str, share: dict[str, str]) -> None:
        queue = self._cache.of(Queue).get(("", name))
        if queue is None:
            return
        shown: object = queue.status.fair_share
        sent = self._sent.get(("queue", ("", name)))
        if sent is not None and sent.is_newer(queue.metadata.uid, queue.metadata.resource_version):
            shown = sent.content
        if shown == share:
            return
        body = {"metadata": {"uid": queue.metadata.uid}, "status": {"fairShare": share}}
        stored = await self._access.api.patch(QUEUE.ref(name).sub("status"), Patch.merge(body))
        self._sent["queue", ("", name)] = _Sent(queue.metadata.uid, share, _version(stored))

    # ------------------------------------------------------------------------------------------------------ timestamps
    def write_timestamps(self, timestamps: tuple[Timestamp, ...]) -> None:
        """Write timestamps to annotations of PodGroups; they are assumed at once, before they are written."""
        for each in timestamps:
            note = {TIMESTAMPS[each.what]: None if each.at is None else rfc3339(each.at)}
            self._assumptions.note(each.gang, note)
            self._notes.setdefault(each.gang, {}).update(note)
            self._access.queue.post(("notes", *each.gang), partial(self._write_notes, each.gang))

    async def _write_notes(self, key: Key) -> None:
        notes, group = self._notes.pop(key, {}), self._cache.of(PodGroup).get(key)
        try:
            if group is not None and not group.metadata.uid:
                raise Conflict(f"pod group {key[0]}/{key[1]} is not written yet")
            known = (group.metadata.annotations or {}) if group is not None else {}
            if group is not None and any(known.get(name) != value for name, value in notes.items()):
                body = {"metadata": {"annotations": notes}}
                note = replace(Patch.merge(body), low_priority=True)
                await self._access.api.patch(POD_GROUP.ref(key[1], key[0]), note)
        except NotFound:
            raise
        except Exception:
            self._notes[key] = {**notes, **self._notes.get(key, {})}
            raise
        self._assumptions.trust_notes(key, wall() + TRUST_SECONDS)


def _shown_condition(pod: Pod) -> tuple[str, str, str] | None:
    """Return status, reason and message of the pod's condition PodScheduled."""
    shown = next((c for c in pod.status.conditions or () if c.type == names.POD_SCHEDULED), None)
    return None if shown is None else (shown.status, shown.reason, shown.message)


def _compared_fields(condition: Any) -> tuple[object, ...]:
    codes = tuple(reason.reason for reason in condition.reasons or ())
    return condition.type, condition.node_pool, condition.reason, condition.message, condition.status, codes


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _version(stored: Object) -> int:
    return version_number(str((stored.get("metadata") or {}).get("resourceVersion", "")))
