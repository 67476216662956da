"""The PodGroup controller: keeps `status.resourcesStatus` of every PodGroup true.

News about a group and its pods are gathered for a second before they are written: a pod that is created, scheduled and
started meanwhile costs one write, and no group is written more often than once a second. What a status should be is
`pykai.controllers.status.pod_group`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import structlog

from pykai.controllers.loop import Meters, Pace, ReconcileLoop, RetryLater, unmetered
from pykai.controllers.plain import Object, PlainView, difference, plain, plain_pod
from pykai.controllers.status.pod_group import Surroundings, desired
from pykai.controllers.status.pods import PodResourcesError
from pykai.controllers.unseen import Unseen
from pykai.kube.api import EVERYTHING, Api, EventType, Patch, Selection
from pykai.kube.errors import NotFound
from pykai.kube.replica import Change, Key
from pykai.kube.resources import NODE, POD, POD_GROUP, PRIORITY_CLASS, RESOURCE_CLAIM
from pykai.kube.watches import Watches
from pykai.objects import kinds, names

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
log = structlog.get_logger("podgroup-controller")


@dataclass(frozen=True)
class PodGroupStatusSettings:
    """Whose pods count, which are watched, and for how many seconds news are gathered before a group is written."""

    scheduler_name: str = names.SCHEDULER_NAME
    pods: Selection = EVERYTHING
    workers: int = 10
    gather_seconds: float = 1.0
    meters: Meters = unmetered


class Members:
    """The pods of every group, by the annotation that pods carry."""

    def __init__(self, scheduler_name: str) -> None:
        self._scheduler_name = scheduler_name
        self._pods: dict[Key, dict[Key, kinds.Pod]] = {}

    def change(self, change: Change[kinds.Pod]) -> set[Key]:
        """Take in a change of a pod; the groups whose status may now be another."""
        now = None if change.type is EventType.DELETED else change.object
        before, after = self._group_of(change.old), self._group_of(now)
        touched = {group for group in (before, after) if group is not None}
        if before is not None and before != after:
            self._remove(before, change.key)
        if after is not None and now is not None:
            self._pods.setdefault(after, {})[change.key] = now
        if before == after and change.old is not None and now is not None and _view(change.old) == _view(now):
            return set()
        return touched

    def of(self, group: Key) -> Iterator[kinds.Pod]:
        """The pods of a group."""
        return iter(self._pods.get(group, {}).values())

    def _group_of(self, pod: kinds.Pod | None) -> Key | None:
        if pod is None or pod.spec.scheduler_name != self._scheduler_name:
            return None
        name = (pod.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION)
        return (pod.metadata.namespace, name) if name else None

    def _remove(self, group: Key, pod: Key) -> None:
        members = self._pods.get(group, {})
        members.pop(pod, None)
        if not members:
            self._pods.pop(group, None)


def _view(pod: kinds.Pod) -> tuple[object, ...]:
    """What of a pod counts in its group's status."""
    status = pod.status
    return (
        status.phase,
        [(each.status, each.reason) for each in status.conditions or () if each.type == "PodScheduled"],
        status.resource_claim_statuses,
        pod.metadata.annotations,
        pod.spec.node_name,
        pod.spec.containers,
    )


class PodGroupStatus:
    """The controller on one API server; `run` works until it is cancelled."""

    def __init__(self, api: Api, watches: Watches, settings: PodGroupStatusSettings) -> None:
        self._api = api
        self._gather_seconds = settings.gather_seconds
        self._groups = watches.of(POD_GROUP, kinds.PodGroup)
        self._pods = watches.of(POD, kinds.Pod, settings.pods)
        self._nodes = watches.of(NODE, kinds.Node)
        self._classes = watches.of(PRIORITY_CLASS, kinds.PriorityClass)
        self._claims = watches.of(RESOURCE_CLAIM, kinds.ResourceClaim, optional=True)
        self._plain_classes: list[Object] = []
        self._members = Members(settings.scheduler_name)
        self._unseen = Unseen()
        pace = Pace(settings.workers, FIRST_SECONDS, LONGEST_SECONDS)
        self._loop: ReconcileLoop[Key] = ReconcileLoop("podgroup-controller", pace, settings.meters("podgroup"))

    async def run(self, ready: asyncio.Event) -> None:
        """Keep statuses true until cancelled."""
        for watch in (self._pods, self._nodes, self._classes, self._claims, self._groups):
            await watch.synced()
        leave = [
            self._classes.subscribe(self._class_changed),
            self._pods.subscribe(self._pod_changed),
            self._groups.subscribe(self._group_changed),
        ]
        ready.set()
        try:
            await self._loop.run(self._reconcile)
        finally:
            for unsubscribe in leave:
                unsubscribe()

    def _pod_changed(self, change: Change[kinds.Pod]) -> None:
        for group in self._members.change(change):
            self._loop.add_after(group, self._gather_seconds)

    def _group_changed(self, change: Change[kinds.PodGroup]) -> None:
        own = self._unseen.seen(change)
        old, new = change.old, change.object
        if own and old is not None and old.spec == new.spec:
            return
        if old is None or old.spec != new.spec or old.status.resources_status != new.status.resources_status:
            self._loop.add_after(change.key, self._gather_seconds)

    def _class_changed(self, change: Change[kinds.PriorityClass]) -> None:
        """A class came, went or changed: groups that name it, or fall back to the default one, may change sides."""
        self._plain_classes = [plain(each) for _, each in self._classes.items()]
        default = change.object.global_default or (change.old is not None and change.old.global_default)
        for key, group in self._groups.items():
            if default or group.spec.priority_class_name == change.key[1]:
                self._loop.add_after(key, self._gather_seconds)

    async def _reconcile(self, key: Key) -> None:
        group = self._groups.get(key[1], key[0])
        if group is None:
            return
        try:
            wanted = desired(plain(group), (plain_pod(pod) for pod in self._members.of(key)), self._surroundings())
        except PodResourcesError as error:
            raise RetryLater(str(error)) from error
        patch = difference(self._status(key, group), wanted)
        if not patch:
            return
        try:
            written = await self._api.patch(POD_GROUP.ref(key[1], key[0]).sub("status"), Patch.merge({"status": patch}))
        except NotFound:
            return
        self._unseen.put(key, written)
        log.info("pod group status written", group=f"{key[0]}/{key[1]}", **wanted["resourcesStatus"])

    def _status(self, key: Key, group: kinds.PodGroup) -> Object:
        """The part of the group's status that is ours, as the server has it."""
        written = self._unseen.get(key)
        status = plain(group)["status"] if written is None else written.get("status") or {}
        return {"resourcesStatus": status.get("resourcesStatus") or {}}

    def _surroundings(self) -> Surroundings:
        nodes: PlainView[str] = PlainView(self._nodes, lambda name: ("", name))
        claims: PlainView[Key] = PlainView(self._claims, lambda key: key)
        return Surroundings(nodes, claims, self._plain_classes)


async def run(api: Api, watches: Watches, settings: PodGroupStatusSettings, ready: asyncio.Event) -> None:
    """Keep the status of PodGroups true until cancelled."""
    await PodGroupStatus(api, watches, settings).run(ready)
