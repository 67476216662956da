"""Announcing to a scheduler in the same process which group a pod will be in, before anything is written.

Announced is only what can be derived again from the pod alone: a process may end between the bind of a pod and the
creation of its group, and the next grouper must then create the same group. Groups with sub-groups are not announced,
because a pod's sub-group is a label, which a bind does not write.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from pykai.controllers.grouping import GroupSpec, Settings, pod_group_to_write
from pykai.controllers.grouping.default import group_name
from pykai.controllers.ttl_cache import TTLCache
from pykai.controllers.unstructured import Object
from pykai.kube.replica import Key
from pykai.objects import kinds, names

REMEMBERED_SECONDS = 10.0
WRITTEN_WITH_BIND = {names.POD_GROUP_ANNOTATION, names.RECEIVED_RESOURCE_TYPE}
FINISHED = ("Succeeded", "Failed")


class Expectations(Protocol):
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


class Announcer:
    """Announces groups to the scheduler of this process; does nothing without one (`expectations` None)."""

    def __init__(self, expectations: Expectations | None, settings: Settings, wall: Callable[[], float]) -> None:
        self._expectations = expectations
        self._settings = settings
        self._wall = wall
        self._groups: TTLCache[Key, tuple[GroupSpec, kinds.PodGroup]] = TTLCache(REMEMBERED_SECONDS)

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


def without_unwritten_name(pod: kinds.Pod, found: Object, exists: Callable[[Key], bool]) -> Object:
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
