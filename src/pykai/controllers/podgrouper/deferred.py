"""Deferred writes: groups are published to the scheduler before they are written, annotations are left to the bind.

Most pods are bound soon after their group is created, and a bind can also write annotations, which saves a patch per
pod and an event for every watcher. Correctness does not depend on it: a scheduler finds the group of a pod without the
annotation by the owner reference of the group, and a scheduler in the same process gets all other groups from here.

Only a group that can be derived again from the pod alone is published: the process may end between the bind of a pod
and the creation of its group, and the next grouper must then create the same group. Groups with sub-groups are not
published, because the sub-group of a pod is a label, which a bind cannot write.

Invariant: a pod whose annotation was left to its bind is reconciled again until it names its group.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from pykai.controllers.podgrouper.assignments import GroupWriter
from pykai.controllers.podgrouper.podgroup import pod_group_to_write
from pykai.controllers.podgrouper.rules.defaults import group_name
from pykai.controllers.podgrouper.rules.workload import GroupingSettings, GroupSpec
from pykai.controllers.ttl_cache import TTLCache
from pykai.kube.api import Object
from pykai.kube.clock import wall
from pykai.kube.informer import SharedInformer
from pykai.kube.informer_store import Key
from pykai.kube.workqueue import Pace, ReconcileLoop
from pykai.objects import kinds, names

PUBLISHED_SECONDS = 10.0
WRITTEN_WITH_BIND = {names.POD_GROUP_ANNOTATION, names.RECEIVED_RESOURCE_TYPE}
FINISHED = ("Succeeded", "Failed")


class GroupExpectations(Protocol):
    """The groups that a scheduler in the same process expects (`scheduler.group_membership`)."""

    def expect(self, pod: Key, uid: str, group: kinds.PodGroup) -> bool:
        """Expect this group, existing or being written, for the pod; return False with too many expectations."""
        ...

    def withdraw(self, uid: str) -> None:
        """Withdraw the expectation for this pod."""
        ...

    def group_of(self, uid: str) -> str:
        """Return the name of the expected group of a pod; empty without one."""
        ...


class GroupPublisher:
    """Publishes groups to the scheduler of this process; does nothing without one (`expected` None)."""

    def __init__(self, expected: GroupExpectations | None, settings: GroupingSettings) -> None:
        self._expected = expected
        self._settings = settings
        self._groups: TTLCache[Key, tuple[GroupSpec, kinds.PodGroup]] = TTLCache(PUBLISHED_SECONDS)

    def publish(self, pod: kinds.Pod, spec: GroupSpec) -> None:
        """Publish the group of a pod, or retract it if it cannot be derived again from the pod alone."""
        meta = pod.metadata
        if self._expected is None:
            return
        found_again = bool(meta.owner_references) or spec.name == own_group_name(pod)
        if found_again and not spec.sub_groups:
            self._expected.expect(meta.key, meta.uid, self._group(spec))
        else:
            self._expected.withdraw(meta.uid)

    def retract(self, pod: kinds.Pod) -> None:
        """Retract a pod that has no group or whose group cannot be written, unless the pod is bound."""
        if self._expected is not None and not pod.spec.node_name:
            self._expected.withdraw(pod.metadata.uid)

    def has_published(self, pod: kinds.Pod, spec: GroupSpec) -> bool:
        """Whether the scheduler expects the pod in this group."""
        return self._expected is not None and self._expected.group_of(pod.metadata.uid) == spec.name

    def _group(self, spec: GroupSpec) -> kinds.PodGroup:
        """Return the group as it will be written; pods that are created together share it."""
        key = spec.key
        known = self._groups.get(key)
        if known is not None and known[0] == spec:
            return known[1]
        group = msgspec.convert(pod_group_to_write(spec, None, self._settings), kinds.PodGroup)
        created = datetime.fromtimestamp(int(wall()), UTC)
        group = msgspec.structs.replace(
            group, metadata=msgspec.structs.replace(group.metadata, creation_timestamp=created)
        )
        self._groups.put(key, (spec, group))
        return group


def own_group_name(pod: kinds.Pod) -> str:
    """Return the name of the group of a pod without owners."""
    return group_name({"metadata": {"name": pod.metadata.name, "uid": pod.metadata.uid}})


def without_unwritten_group(pod: kinds.Pod, found: Object, exists: Callable[[Key], bool]) -> Object:
    """Return `found`, the pod as rules read it, without the annotation of a bind that names an unwritten group."""
    if not names_own_group(pod) or pod.status.phase in FINISHED:
        return found
    if exists((pod.metadata.namespace, own_group_name(pod))):
        return found
    return {**found, "metadata": {**found["metadata"], "annotations": before_bind(pod)}}


def names_own_group(pod: kinds.Pod) -> bool:
    """Whether the annotation of a pod without owners names its own group, as a bind writes it."""
    meta = pod.metadata
    name = (meta.annotations or {}).get(names.POD_GROUP_ANNOTATION)
    return bool(name) and not meta.owner_references and name == own_group_name(pod)


def before_bind(pod: kinds.Pod) -> dict[str, str]:
    """Return the annotations of a pod, without those its bind added if it is in its own group."""
    held = pod.metadata.annotations or {}
    return {key: held[key] for key in held if key not in WRITTEN_WITH_BIND} if names_own_group(pod) else held


WAIT_SECONDS = 0.5
PUBLISHED_WAIT_SECONDS = 2.0
"""Seconds to wait for the bind; longer for published groups, because a gang waits for its last pod."""
WRITERS = 4
"""Few workers: these writes are not urgent, and pods that are bound in the meantime need none."""


class DeferredAssignments:
    """Pods whose annotation was left to their bind; `failed(pod, error)` receives errors of writes."""

    def __init__(
        self,
        pods: SharedInformer[kinds.Pod],
        writer: GroupWriter,
        publisher: GroupPublisher,
        failed: Callable[[kinds.Pod, Exception], None],
    ) -> None:
        self._pods = pods
        self._writer = writer
        self._publisher = publisher
        self._failed = failed
        self._specs: dict[Key, tuple[str, GroupSpec]] = {}
        """By pod: its uid and its group."""
        self._loop: ReconcileLoop[Key] = ReconcileLoop("pod-group-name", Pace(WRITERS, first_seconds=1.0))

    def defer(self, pod: kinds.Pod, spec: GroupSpec) -> bool:
        """Leave the annotation to the pod's bind if that writes everything needed; return whether it was left."""
        meta = pod.metadata
        published = self._publisher.has_published(pod, spec)
        alone = spec.owner.get("uid") == meta.uid and spec.sub_group_of(meta.namespace, meta.name) is None
        if not (alone or published) or pod.spec.node_name or _names_group(pod):
            return False
        key = meta.key
        self._specs[key] = meta.uid, spec
        self._loop.add_after(key, PUBLISHED_WAIT_SECONDS if published else WAIT_SECONDS)
        return True

    def forget(self, pod: Key) -> None:
        """Forget a pod that is reconciled again."""
        self._specs.pop(pod, None)

    async def run(self) -> None:
        """Write the annotation of pods that are not bound in time, until cancelled."""
        await self._loop.run(self._write)

    async def _write(self, key: Key) -> None:
        left, pod = self._specs.pop(key, None), self._pods.get(key[1], key[0])
        if left is None or pod is None or pod.metadata.uid != left[0] or _names_group(pod):
            return
        try:
            await self._writer.assign(pod, left[1], low_priority=True)
        except Exception as error:
            self._specs.setdefault(key, left)
            self._failed(pod, error)
            raise


def _names_group(pod: kinds.Pod) -> bool:
    return names.POD_GROUP_ANNOTATION in (pod.metadata.annotations or {})
