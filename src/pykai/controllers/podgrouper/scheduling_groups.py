"""Kubernetes PodGroups (scheduling.k8s.io, 1.36 and later) that our pods reference, and their conditions.

When the spec of a group changes, its pods are grouped again. A condition states whether the group is scheduled: True,
permanently, once its minimum of pods is bound; before that False, with the reason why our PodGroup is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import structlog

from pykai.controllers.podgrouper.rules.native import min_count
from pykai.controllers.podgrouper.rules.workload import GroupingError
from pykai.kube.api import Api, EventType, Object, Patch
from pykai.kube.api_resources import COMPOSITE_GROUP, SCHEDULING_GROUP
from pykai.kube.clock import wall
from pykai.kube.errors import NotFound
from pykai.kube.informer import InformerFactory, SharedInformer
from pykai.kube.informer_store import Key, WatchChange
from pykai.kube.workqueue import Pace, ReconcileLoop
from pykai.objects import kinds, names
from pykai.objects.units import rfc3339

CONDITION = {"v1alpha2": "PodGroupScheduled"}
LATER_CONDITION = "PodGroupInitiallyScheduled"
GATHER_SECONDS = 1.0

log = structlog.get_logger("pod-grouper")


class SchedulingGroups:
    """The groups, the pods that refer to each, and the loop that writes conditions (`run`).

    `regroup` is called with the pods whose group may have changed; `own_group` returns our PodGroup.
    """

    def __init__(
        self,
        api: Api,
        watches: InformerFactory,
        regroup: Callable[[Key], None],
        own_group: Callable[[Key], kinds.PodGroup | None],
    ) -> None:
        self._api = api
        self._regroup = regroup
        self._own_group = own_group
        self._pods: dict[Key, dict[Key, kinds.Pod]] = {}
        self._loop: ReconcileLoop[Key] = ReconcileLoop("scheduling-group", Pace(2, 1.0, 60.0))
        self.informers: dict[str, SharedInformer[Object]] = {
            resource.kind: watches.of(resource, Object, optional=True)
            for resource in (SCHEDULING_GROUP, COMPOSITE_GROUP)
        }

    def subscribe(self) -> list[Callable[[], None]]:
        """Subscribe to the groups; return the functions that unsubscribe."""
        return [watch.subscribe(partial(self._changed, kind)) for kind, watch in self.informers.items()]

    async def run(self) -> None:
        """Write conditions until cancelled."""
        await self._loop.run(self._reconcile)

    def pod_changed(self, change: WatchChange[kinds.Pod]) -> None:
        """Handle a change of one of our pods, which may have been bound or deleted."""
        reference = change.object.spec.scheduling_group
        if not reference or not reference.pod_group_name:
            return
        group = change.object.metadata.namespace, reference.pod_group_name
        if change.type is EventType.DELETED:
            self._pods.get(group, {}).pop(change.key, None)
            if not self._pods.get(group):
                self._pods.pop(group, None)
        else:
            self._pods.setdefault(group, {})[change.key] = change.object
        self._loop.add_after(group, GATHER_SECONDS)

    def own_group_changed(self, pods: Iterable[Key]) -> None:
        """Handle a new reason why our PodGroup of these pods is pending."""
        if self._pods:
            members = set(pods)
            for group, referring in self._pods.items():
                if not members.isdisjoint(referring):
                    self._loop.add_after(group, GATHER_SECONDS)

    def _changed(self, kind: str, change: WatchChange[Object]) -> None:
        if change.old is not None and change.type is EventType.MODIFIED and _shape(change.old) == _shape(change.object):
            return
        for pod in self._concerned(kind, change):
            self._regroup(pod)
        if kind == SCHEDULING_GROUP.kind:
            self._loop.add_after(change.key, GATHER_SECONDS)

    def _concerned(self, kind: str, change: WatchChange[Object]) -> Iterator[Key]:
        """Yield the pods of the group; for a tree of groups, those of all groups of a tree in its namespace."""
        in_tree = kind == COMPOSITE_GROUP.kind or "parentCompositePodGroupName" in (change.object.get("spec") or {})
        if not in_tree:
            yield from list(self._pods.get(change.key, ()))
            return
        for group, pods in list(self._pods.items()):
            if group[0] == change.key[0]:
                yield from pods

    async def _reconcile(self, key: Key) -> None:
        group = self.informers[SCHEDULING_GROUP.kind].get(key[1], key[0])
        outcome = self._outcome(group, key) if group is not None else None
        if group is None or outcome is None or _shows(group, outcome):
            return
        ref = SCHEDULING_GROUP.ref(key[1], key[0])
        try:
            version = str((await self._api.get(ref, Object)).get("apiVersion", "")).rpartition("/")[2]
            status, reason, message = outcome
            condition = {"type": CONDITION.get(version, LATER_CONDITION), "status": status, "reason": reason}
            condition |= {"message": message, "lastTransitionTime": rfc3339(wall())}
            await self._api.patch(ref.sub("status"), Patch.strategic({"status": {"conditions": [condition]}}))
        except NotFound:
            return
        log.info("scheduling group status written", group="/".join(key), status=status, reason=reason)

    def _outcome(self, group: Object, key: Key) -> tuple[str, str, str] | None:
        """Return status, reason and message of the condition; None if not known yet."""
        pods = self._pods.get(key, {}).values()
        placed = sum(1 for pod in pods if pod.spec.node_name)
        try:
            if placed and placed >= min_count(group):
                return "True", "Scheduled", f"{placed} pods have a node"
        except GroupingError:
            return None
        found = {(key[0], (pod.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION, "")) for pod in pods}
        for own in filter(None, map(self._own_group, sorted(found))):
            if conditions := own.status.scheduling_conditions:
                return "False", names.UNSCHEDULABLE, conditions[-1].message
        return None


def _shape(group: Object) -> tuple[object, object]:
    return group.get("spec"), group["metadata"].get("labels")


def _shows(group: Object, outcome: tuple[str, str, str]) -> bool:
    """Whether the group already has this condition; once True it is never changed."""
    for shown in (group.get("status") or {}).get("conditions") or ():
        if shown.get("type") in (*CONDITION.values(), LATER_CONDITION):
            same = outcome == (shown.get("status"), shown.get("reason"), shown.get("message"))
            return same or shown.get("status") == "True"
    return False
