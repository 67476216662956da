"""Assignment of pods to groups, and the writes: one create per PodGroup, one patch per pod.

Written objects are assumed until the watch shows them, so that a burst of pods of one group causes one create, and
nothing is written twice. Existing groups are changed by merge patches of the fields that differ, which neither
overwrite nor block concurrent writes of other clients.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace

import structlog

from pykai.controllers.podgrouper.grouping import pod_patch
from pykai.controllers.podgrouper.podgroup import pod_group_to_write
from pykai.controllers.podgrouper.rules.workload import POD_GROUP_API, GroupingSettings, GroupSpec
from pykai.controllers.ttl_cache import MUTATION_SECONDS, MutationCache, TTLCache
from pykai.controllers.unstructured import merge_patch_between, to_unstructured, unstructured_pod
from pykai.kube.api import Api, Object, Patch
from pykai.kube.api_resources import POD, POD_GROUP
from pykai.kube.codec import version_number
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.kube.informer import SharedInformer
from pykai.kube.informer_store import Key, WatchChange
from pykai.kube.workqueue import RetryLater
from pykai.objects import kinds

_OWN_METADATA = ("labels", "annotations", "ownerReferences")

log = structlog.get_logger("pod-grouper")


class MemberIndex:
    """The pods of every group, and the newest pod of each: by creation time, then by name."""

    def __init__(self) -> None:
        self._group_of: dict[Key, Key] = {}
        self._uids: dict[Key, dict[Key, str]] = {}
        self._order: dict[Key, list[tuple[float, Key, str]]] = {}
        """Group -> heap of (negative creation time, pod, uid); entries of former members are removed lazily."""

    def join(self, group: Key, pod: kinds.Pod) -> None:
        """Record that the pod belongs to this group only."""
        meta = pod.metadata
        key = meta.key
        if self._uids.get(group, {}).get(key) == meta.uid:
            return
        self.leave(key)
        self._group_of[key] = group
        self._uids.setdefault(group, {})[key] = meta.uid
        created = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
        heapq.heappush(self._order.setdefault(group, []), (-created, key, meta.uid))

    def leave(self, pod: Key) -> Key | None:
        """Remove the pod from its group; return that group if other pods remain in it."""
        group = self._group_of.pop(pod, None)
        if group is None:
            return None
        del self._uids[group][pod]
        if self._uids[group]:
            return group
        del self._uids[group], self._order[group]
        return None

    def of(self, group: Key) -> list[Key]:
        """Return the pods of a group."""
        return list(self._uids.get(group, ()))

    def newest(self, group: Key) -> Key | None:
        """Return the newest pod of a group; None without pods."""
        order, uids = self._order.get(group, []), self._uids.get(group, {})
        while order and uids.get(order[0][1]) != order[0][2]:
            heapq.heappop(order)
        return order[0][1] if order else None


class Assignments:
    """Assignments of pods to groups from the decision to the write; keys are (namespace, name).

    A write may be retried after the pod was deleted, re-created, or changed its owner. Invariant: a pod has one
    assignment, the newest; older ones are never written.
    """

    def __init__(self) -> None:
        self._newest: dict[Key, GroupSpec] = {}
        self._pods: dict[Key, dict[Key, None]] = {}

    def assign(self, pod: Key, spec: GroupSpec) -> Key:
        """Assign the pod to this group, whatever its former assignment; return the key of the group."""
        self._newest[pod] = spec
        waiting = self._pods.setdefault(spec.key, {})
        waiting.pop(pod, None)
        waiting[pod] = None
        return spec.key

    def withdraw(self, pod: Key) -> None:
        """Drop the assignment of a pod that was deleted or is not ours."""
        self._newest.pop(pod, None)

    def is_current(self, pod: Key, spec: GroupSpec) -> bool:
        """Whether this is the pod's assignment."""
        return self._newest.get(pod) is spec

    def take(self, group: Key) -> dict[Key, GroupSpec]:
        """Remove and return the pending assignments of a group, in order to write them."""
        found = {pod: self._newest.get(pod) for pod in self._pods.pop(group, {})}
        return {pod: spec for pod, spec in found.items() if spec is not None and spec.key == group}

    def put_back(self, group: Key, pods: Iterable[Key]) -> None:
        """Make pods whose write failed pending again, before those assigned in the meantime."""
        self._pods[group] = dict.fromkeys(pods) | self._pods.get(group, {})

    def done(self, pod: Key, spec: GroupSpec) -> None:
        """Drop an assignment that was written."""
        if self.is_current(pod, spec):
            del self._newest[pod]


@dataclass(frozen=True, slots=True)
class SentPatch:
    """A patch of a pod and the resulting resourceVersion, which is empty while the patch is in flight."""

    patch: Object
    version: str = ""

    def is_in(self, pod: kinds.Pod) -> bool:
        """Whether a pod has the resourceVersion of the patch or a later one."""
        return bool(self.version) and version_number(pod.metadata.resource_version) >= version_number(self.version)


class GroupWriter:
    """Writes PodGroups and the group annotation of their pods; assumes its writes until the watch shows them."""

    def __init__(self, api: Api, groups: SharedInformer[kinds.PodGroup], settings: GroupingSettings) -> None:
        self._api = api
        self._groups = groups
        self._settings = settings
        self._mutations = MutationCache()
        self._sent: TTLCache[str, SentPatch] = TTLCache(MUTATION_SECONDS)

    def observe(self, change: WatchChange[kinds.PodGroup]) -> bool:
        """Handle a watch event of a group; returns whether it shows exactly our last write."""
        return self._mutations.observe(change)

    def existing(self, key: Key) -> Object | None:
        """Return the group including our last write; None if it does not exist."""
        written = self._mutations.get(key)
        if written is not None:
            return written
        held = self._groups.get(key[1], key[0])
        return None if held is None else to_unstructured(held, apiVersion=POD_GROUP_API, kind="PodGroup")

    async def write(self, spec: GroupSpec) -> None:
        """Create or patch the PodGroup according to the spec; no write if it is up to date."""
        key = spec.key
        existing = self.existing(key)
        wanted = pod_group_to_write(spec, existing, self._settings)
        if wanted is None:
            return
        if existing is None:
            await self._create(spec, wanted)
        else:
            await self._change(key, existing, wanted)

    async def _create(self, spec: GroupSpec, wanted: Object) -> None:
        key = spec.key
        try:
            self._mutations.put(key, await self._api.create(POD_GROUP, wanted))
        except AlreadyExists:
            found = await self._api.get(POD_GROUP.ref(spec.name, spec.namespace), kinds.PodGroup)
            existing = to_unstructured(found, apiVersion=POD_GROUP_API, kind="PodGroup")
            wanted_now = pod_group_to_write(spec, existing, self._settings)
            self._mutations.put(key, existing)
            if wanted_now is not None:
                await self._change(key, existing, wanted_now)
            return
        log.info("pod group created", group=f"{spec.namespace}/{spec.name}", queue=spec.queue, min=spec.min_member)

    async def _change(self, key: Key, existing: Object, wanted: Object) -> None:
        metadata = merge_patch_between(_own_metadata(existing), _own_metadata(wanted))
        spec = merge_patch_between(existing.get("spec") or {}, wanted.get("spec") or {})
        patch = {name: part for name, part in (("metadata", metadata), ("spec", spec)) if part}
        if not patch:
            return
        try:
            self._mutations.put(key, await self._api.patch(POD_GROUP.ref(key[1], key[0]), Patch.merge(patch)))
        except NotFound:
            self._mutations.drop(key)
            raise RetryLater(f"pod group {key[0]}/{key[1]} was deleted in the meantime") from None
        log.info("pod group changed", group=f"{key[0]}/{key[1]}", fields=sorted({*metadata, *spec}))

    async def assign(self, pod: kinds.Pod, spec: GroupSpec, low_priority: bool = False) -> None:
        """Annotate the pod with its group, unless it is up to date or deleted. `low_priority`: a low-priority write."""
        patch = pod_patch(spec, unstructured_pod(pod))
        meta, earlier = pod.metadata, self._sent.get(pod.metadata.uid)
        in_flight = earlier is not None and earlier.patch == patch and not earlier.is_in(pod)
        if patch is None or in_flight:
            return
        body = {"metadata": {"uid": meta.uid, **patch["metadata"]}}
        sent = SentPatch(patch)
        self._sent.put(meta.uid, sent)
        try:
            change = replace(Patch.merge(body), low_priority=low_priority)
            written = await self._api.patch(POD.ref(meta.name, meta.namespace), change)
            if self._sent.get(meta.uid) is sent:  # neither observed nor superseded in the meantime
                self._sent.put(meta.uid, SentPatch(patch, written["metadata"]["resourceVersion"]))
        except NotFound:
            return
        except BaseException:
            self._sent.drop(meta.uid)
            raise
        sub_group = spec.sub_group_of(meta.namespace, meta.name)
        more = {"sub_group": sub_group.name} if sub_group else {}
        log.info("pod grouped", pod=meta.title, group=spec.name, **more)

    def is_echo(self, old: kinds.Pod, new: kinds.Pod) -> bool:
        """Whether the labels and annotations of two states of a pod differ only by our own patch."""
        assigned = self._sent.get(new.metadata.uid)
        if assigned is None:
            return False
        before, after, written = old.metadata, new.metadata, assigned.patch["metadata"]
        pairs = ((before.labels, after.labels, "labels"), (before.annotations, after.annotations, "annotations"))
        return all({**(one or {}), **written.get(part, {})} == (two or {}) for one, two, part in pairs)

    def confirm(self, pod: kinds.Pod) -> None:
        """Drop a patch that the watch shows."""
        self._sent.drop(pod.metadata.uid)


def _own_metadata(group: Object) -> Object:
    metadata = group.get("metadata") or {}
    return {key: metadata[key] for key in _OWN_METADATA if metadata.get(key)}
