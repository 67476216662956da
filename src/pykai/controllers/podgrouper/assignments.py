"""What the grouper writes: a PodGroup once per group, and one patch per pod.

What was just written counts as the state of the cluster until the watch shows it, so a burst of pods of one group ends
in one create, and nothing is written twice because a watch is a moment behind. Existing groups are changed by merge
patches of the fields that differ: what others write to a group at the same time is neither lost nor in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import structlog

from pykai.controllers.loop import RetryLater
from pykai.controllers.podgrouper.grouping import pod_patch
from pykai.controllers.podgrouper.podgroup import pod_group_to_write
from pykai.controllers.podgrouper.rules.workload import POD_GROUP_API, GroupingSettings, GroupSpec
from pykai.controllers.ttl_cache import MUTATION_SECONDS, MutationCache, TTLCache
from pykai.controllers.unstructured import Object, merge_patch, to_unstructured, unstructured_pod
from pykai.kube.api import Api, Patch
from pykai.kube.clock import steady
from pykai.kube.codec import version_number
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.kube.replica import Change, Key
from pykai.kube.resources import POD, POD_GROUP
from pykai.kube.watch import SharedWatch
from pykai.objects import kinds


class Assignments:
    """Assignments that wait to be written, by pod and by group, both as (namespace, name)."""

    def __init__(self) -> None:
        self._newest: dict[Key, GroupSpec] = {}
        self._pods: dict[Key, dict[Key, None]] = {}

    def decide(self, pod: Key, spec: GroupSpec) -> Key:
        """The pod belongs in this group, whatever was decided before; answers the group."""
        group = _group_key(spec)
        self._newest[pod] = spec
        waiting = self._pods.setdefault(group, {})
        waiting.pop(pod, None)
        waiting[pod] = None
        return group

    def withdraw(self, pod: Key) -> None:
        """Nothing is to be written about this pod: it has gone, or is not ours to group."""
        self._newest.pop(pod, None)

    def holds(self, pod: Key, spec: GroupSpec) -> bool:
        """Whether this is still what is to be written about the pod."""
        return self._newest.get(pod) is spec

    def take(self, group: Key) -> dict[Key, GroupSpec]:
        """The pods to put in a group now, the newest decision last; they no longer wait."""
        found = {pod: self._newest.get(pod) for pod in self._pods.pop(group, {})}
        return {pod: spec for pod, spec in found.items() if spec is not None and _group_key(spec) == group}

    def put_back(self, group: Key, pods: Iterable[Key]) -> None:
        """These pods were not written to: they wait again, behind what was decided meanwhile."""
        self._pods[group] = dict.fromkeys(pods) | self._pods.get(group, {})

    def done(self, pod: Key, spec: GroupSpec) -> None:
        """This was written."""
        if self.holds(pod, spec):
            del self._newest[pod]


def _group_key(spec: GroupSpec) -> Key:
    return spec.namespace, spec.name


_OWN_METADATA = ("labels", "annotations", "ownerReferences")

log = structlog.get_logger("pod-grouper")


@dataclass(frozen=True, slots=True)
class SentPatch:
    """A patch of a pod, and the version it led to; empty while there is no answer."""

    patch: Object
    version: str = ""

    def is_in(self, pod: kinds.Pod) -> bool:
        """Whether a pod is as the patch left it, or newer."""
        return bool(self.version) and version_number(pod.metadata.resource_version) >= version_number(self.version)


class GroupWriter:
    """PodGroups as the server has them, and the way to change them."""

    def __init__(
        self,
        api: Api,
        groups: SharedWatch[kinds.PodGroup],
        settings: GroupingSettings,
        clock: Callable[[], float] = steady,
    ) -> None:
        self._api = api
        self._groups = groups
        self._settings = settings
        self._unseen = MutationCache(clock)
        self._assigned: TTLCache[str, SentPatch] = TTLCache(MUTATION_SECONDS, clock)

    def seen(self, change: Change[kinds.PodGroup]) -> None:
        """The watch shows a group."""
        self._unseen.observe(change)

    def existing(self, key: Key) -> Object | None:
        """The group as it is, None where there is none."""
        written = self._unseen.get(key)
        if written is not None:
            return written
        held = self._groups.get(key[1], key[0])
        return None if held is None else to_unstructured(held, apiVersion=POD_GROUP_API, kind="PodGroup")

    async def write(self, spec: GroupSpec) -> None:
        """Make the PodGroup what the spec asks for, with no write where it is."""
        key = (spec.namespace, spec.name)
        existing = self.existing(key)
        wanted = pod_group_to_write(spec, existing, self._settings)
        if wanted is None:
            return
        if existing is None:
            await self._create(spec, wanted)
        else:
            await self._change(key, existing, wanted)

    async def _create(self, spec: GroupSpec, wanted: Object) -> None:
        key = (spec.namespace, spec.name)
        try:
            self._unseen.put(key, await self._api.create(POD_GROUP, wanted))
        except AlreadyExists:
            found = await self._api.get(POD_GROUP.ref(spec.name, spec.namespace), kinds.PodGroup)
            existing = to_unstructured(found, apiVersion=POD_GROUP_API, kind="PodGroup")
            wanted_now = pod_group_to_write(spec, existing, self._settings)
            self._unseen.put(key, existing)
            if wanted_now is not None:
                await self._change(key, existing, wanted_now)
            return
        log.info("pod group created", group=f"{spec.namespace}/{spec.name}", queue=spec.queue, min=spec.min_member)

    async def _change(self, key: Key, existing: Object, wanted: Object) -> None:
        metadata = merge_patch(_own_metadata(existing), _own_metadata(wanted))
        spec = merge_patch(existing.get("spec") or {}, wanted.get("spec") or {})
        patch = {name: part for name, part in (("metadata", metadata), ("spec", spec)) if part}
        if not patch:
            return
        try:
            self._unseen.put(key, await self._api.patch(POD_GROUP.ref(key[1], key[0]), Patch.merge(patch)))
        except NotFound:
            self._unseen.drop(key)
            raise RetryLater(f"pod group {key[0]}/{key[1]} was deleted meanwhile") from None
        log.info("pod group changed", group=f"{key[0]}/{key[1]}", fields=sorted({*metadata, *spec}))

    async def assign(self, pod: kinds.Pod, spec: GroupSpec, patient: bool = False) -> None:
        """Put the pod in its group; nothing happens if it is there, or gone. `patient`: nobody waits for it."""
        patch = pod_patch(spec, unstructured_pod(pod))
        meta = pod.metadata
        if patch is None or self._is_on_its_way(pod, patch):
            return
        body = {"metadata": {"uid": meta.uid, **patch["metadata"]}}
        sent = SentPatch(patch)
        self._assigned.put(meta.uid, sent)
        try:
            change = replace(Patch.merge(body), patient=patient)
            written = await self._api.patch(POD.ref(meta.name, meta.namespace), change)
            if self._assigned.get(meta.uid) is sent:  # neither seen already nor followed by another
                self._assigned.put(meta.uid, SentPatch(patch, written["metadata"]["resourceVersion"]))
        except NotFound:
            return
        except BaseException:
            self._assigned.drop(meta.uid)
            raise
        sub_group = spec.sub_group_of(meta.namespace, meta.name)
        log.info(
            "pod grouped",
            pod=f"{meta.namespace}/{meta.name}",
            group=spec.name,
            **({"sub_group": sub_group.name} if sub_group else {}),
        )

    def _is_on_its_way(self, pod: kinds.Pod, patch: Object) -> bool:
        """Whether just that was written to the pod, and the watch is not there yet."""
        assigned = self._assigned.get(pod.metadata.uid)
        return assigned is not None and assigned.patch == patch and not assigned.is_in(pod)

    def is_echo(self, old: kinds.Pod, new: kinds.Pod) -> bool:
        """Whether labels and annotations of a pod differ only by what we just wrote to them."""
        assigned = self._assigned.get(new.metadata.uid)
        if assigned is None:
            return False
        before, after, written = old.metadata, new.metadata, assigned.patch["metadata"]
        pairs = ((before.labels, after.labels, "labels"), (before.annotations, after.annotations, "annotations"))
        return all({**(one or {}), **written.get(part, {})} == (two or {}) for one, two, part in pairs)

    def confirm(self, pod: kinds.Pod) -> None:
        """The watch shows what we wrote to a pod: from now on it is believed."""
        self._assigned.drop(pod.metadata.uid)


def _own_metadata(group: Object) -> Object:
    metadata = group.get("metadata") or {}
    return {key: metadata[key] for key in _OWN_METADATA if metadata.get(key)}
