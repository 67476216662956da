"""Pods that need not name their group before they are bound: the bind writes the name, or this does if none comes soon.

Most pods are bound a moment after their group was made, and a bind carries annotations at no cost: a write to every
single pod is saved, and everybody who watches pods is spared a change. Nothing depends on it: a scheduler knows a pod
that names no group by the group that the pod owns (`scheduler/group_membership.py`), and one in this process hears of
all others (`announcing.py`).
Invariant: a pod that was left to its bind is looked at again, after a while and until it names its group, unless
another group was found for it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from pykai.controllers.loop import Pace, ReconcileLoop
from pykai.controllers.podgrouper.assignments import GroupWriter
from pykai.controllers.podgrouper.podgroup import pod_group_to_write
from pykai.controllers.podgrouper.rules.defaults import group_name
from pykai.controllers.podgrouper.rules.workload import GroupingSettings, GroupSpec
from pykai.controllers.ttl_cache import TTLCache
from pykai.controllers.unstructured import Object
from pykai.kube.replica import Key
from pykai.kube.watch import SharedWatch
from pykai.objects import kinds, names

PUBLISHED_SECONDS = 10.0
WRITTEN_WITH_BIND = {names.POD_GROUP_ANNOTATION, names.RECEIVED_RESOURCE_TYPE}
FINISHED = ("Succeeded", "Failed")


class ExpectedGroups(Protocol):
    """The scheduler's part (`scheduler.expected_groups`)."""

    def expect(self, pod: Key, uid: str, group: kinds.PodGroup) -> bool:
        """The pod of this uid belongs in this group, which is being written or there; False: there are too many."""
        ...

    def withdraw(self, uid: str) -> None:
        """The announcement of this pod is void."""
        ...

    def group_of(self, uid: str) -> str:
        """The name of the group a pod belongs in; empty where none was announced."""
        ...


class GroupPublisher:
    """Announces groups to the scheduler of this process; does nothing without one (`expectations` None)."""

    def __init__(
        self, expectations: ExpectedGroups | None, settings: GroupingSettings, wall: Callable[[], float]
    ) -> None:
        self._expectations = expectations
        self._settings = settings
        self._wall = wall
        self._groups: TTLCache[Key, tuple[GroupSpec, kinds.PodGroup]] = TTLCache(PUBLISHED_SECONDS)

    def announce(self, pod: kinds.Pod, spec: GroupSpec) -> None:
        """The pod belongs in this group."""
        meta = pod.metadata
        if self._expectations is None:
            return
        found_again = bool(meta.owner_references) or spec.name == own_group_name(pod)
        if found_again and not spec.sub_groups:
            self._expectations.expect((meta.namespace, meta.name), meta.uid, self._group(spec))
        else:
            self._expectations.withdraw(meta.uid)

    def withdraw(self, pod: kinds.Pod) -> None:
        """The pod belongs in no group, or its group cannot be written; one on a node stays where it is counted."""
        if self._expectations is not None and not pod.spec.node_name:
            self._expectations.withdraw(pod.metadata.uid)

    def has_announced(self, pod: kinds.Pod, spec: GroupSpec) -> bool:
        """Whether the scheduler expects the pod in this group."""
        return self._expectations is not None and self._expectations.group_of(pod.metadata.uid) == spec.name

    def _group(self, spec: GroupSpec) -> kinds.PodGroup:
        """The group as it will be written; the pods of a workload that come together share one."""
        key = (spec.namespace, spec.name)
        known = self._groups.get(key)
        if known is not None and known[0] == spec:
            return known[1]
        group = msgspec.convert(pod_group_to_write(spec, None, self._settings), kinds.PodGroup)
        created = datetime.fromtimestamp(int(self._wall()), UTC)
        group = msgspec.structs.replace(
            group, metadata=msgspec.structs.replace(group.metadata, creation_timestamp=created)
        )
        self._groups.put(key, (spec, group))
        return group


def own_group_name(pod: kinds.Pod) -> str:
    """The name of the group that a pod without owners has by itself."""
    return group_name({"metadata": {"name": pod.metadata.name, "uid": pod.metadata.uid}})


def without_unwritten_group(pod: kinds.Pod, found: Object, exists: Callable[[Key], bool]) -> Object:
    """The pod as rules read it (`found`); a bind that named its unwritten group is left out."""
    if not names_own_group(pod) or pod.status.phase in FINISHED:
        return found
    if exists((pod.metadata.namespace, own_group_name(pod))):
        return found
    return {**found, "metadata": {**found["metadata"], "annotations": before_bind(pod)}}


def names_own_group(pod: kinds.Pod) -> bool:
    """Whether a pod without owners says that it is in its own group, as a bind writes it."""
    meta = pod.metadata
    name = (meta.annotations or {}).get(names.POD_GROUP_ANNOTATION)
    return bool(name) and not meta.owner_references and name == own_group_name(pod)


def before_bind(pod: kinds.Pod) -> dict[str, str]:
    """The annotations of a pod without those that came with its bind, where it is in its own group."""
    held = pod.metadata.annotations or {}
    return {key: held[key] for key in held if key not in WRITTEN_WITH_BIND} if names_own_group(pod) else held


WAIT_SECONDS = 0.5
PUBLISHED_WAIT_SECONDS = 2.0
"""How long a pod is left to its bind; longer where the scheduler was told, because a gang waits for its last pod."""
WRITERS = 4
"""Few, because they wait for a quiet moment: whoever is bound meanwhile need not be written to."""


class DeferredAssignments:
    """Pods that were left to their bind; `failed(pod, error)` is told why one could not be written to."""

    def __init__(
        self,
        pods: SharedWatch[kinds.Pod],
        writer: GroupWriter,
        announcer: GroupPublisher,
        failed: Callable[[kinds.Pod, Exception], None],
    ) -> None:
        self._pods = pods
        self._writer = writer
        self._announcer = announcer
        self._failed = failed
        self._specs: dict[Key, tuple[str, GroupSpec]] = {}
        """By pod: its uid and its group."""
        self._loop: ReconcileLoop[Key] = ReconcileLoop("pod-group-name", Pace(WRITERS, first_seconds=1.0))

    def leave_to_bind(self, pod: kinds.Pod, spec: GroupSpec) -> bool:
        """Whether the pod's bind may write all there is to write; if so, it is seen to that somebody does."""
        meta = pod.metadata
        announced = self._announcer.has_announced(pod, spec)
        alone = spec.owner.get("uid") == meta.uid and spec.sub_group_of(meta.namespace, meta.name) is None
        if not (alone or announced) or pod.spec.node_name or _names_group(pod):
            return False
        key = (meta.namespace, meta.name)
        self._specs[key] = meta.uid, spec
        self._loop.add_after(key, PUBLISHED_WAIT_SECONDS if announced else WAIT_SECONDS)
        return True

    def forget(self, pod: Key) -> None:
        """The pod is being looked at anew: what it was left with does not count any more."""
        self._specs.pop(pod, None)

    async def run(self) -> None:
        """Write to pods that are not bound in time, until cancelled."""
        await self._loop.run(self._write)

    async def _write(self, key: Key) -> None:
        left, pod = self._specs.pop(key, None), self._pods.get(key[1], key[0])
        if left is None or pod is None or pod.metadata.uid != left[0] or _names_group(pod):
            return
        try:
            await self._writer.assign(pod, left[1], patient=True)
        except Exception as error:
            self._specs.setdefault(key, left)
            self._failed(pod, error)
            raise


def _names_group(pod: kinds.Pod) -> bool:
    return names.POD_GROUP_ANNOTATION in (pod.metadata.annotations or {})
