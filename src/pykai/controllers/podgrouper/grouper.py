"""Two loops: one finds the group of a pod, the other writes a group and puts its pods in it.

The first is keyed by pod and nearly always works in memory. It hands pods to the second, which is keyed by group and
waits a few milliseconds, so that the pods a workload creates together are written about together: one PodGroup, then
one patch per pod, or none where the pod owns its group (`own_groups.py`). Whatever fails is tried again later, and the
pods it keeps waiting say why in an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog
from msgspec import Struct

from pykai.controllers.loop import Meters, Pace, ReconcileLoop, RetryLater, unmetered
from pykai.controllers.podgrouper.assignments import Assignments, GroupWriter
from pykai.controllers.podgrouper.deferred import (
    DeferredAssignments,
    ExpectedGroups,
    GroupPublisher,
    before_bind,
    without_unwritten_group,
)
from pykai.controllers.podgrouper.grouping import group_of, has_labels, ignored_settings, workload_of
from pykai.controllers.podgrouper.reader import KARTA, ClusterLookup, Informers, NotCachedError, ObjectCache, ObjectKey
from pykai.controllers.podgrouper.rules import karta
from pykai.controllers.podgrouper.rules.fields import GroupingError, group_version_kind
from pykai.controllers.podgrouper.rules.kinds import known
from pykai.controllers.podgrouper.rules.workload import ForbiddenError, GroupingSettings, GroupSpec, Workload
from pykai.controllers.unstructured import Object, unstructured_pod
from pykai.kube.api import EVERYTHING, Api, EventType, Selection
from pykai.kube.clock import wall
from pykai.kube.errors import ApiError, Conflict, NotFound, Timeout, TooManyRequests, Unavailable
from pykai.kube.events import EventRecorder, Regarding
from pykai.kube.replica import Change, Key
from pykai.kube.resources import NAMESPACE, POD, POD_GROUP, PRIORITY_CLASS
from pykai.kube.watches import Watches
from pykai.objects import kinds, names


@dataclass(slots=True)
class Recheck:
    """One group: `spec` is how `pod` was grouped, `since` when the last of the `pods` was looked at."""

    pod: Key
    spec: GroupSpec
    since: float
    questions: set[ObjectKey] = field(default_factory=set)
    pods: set[Key] = field(default_factory=set)


class Rechecks:
    """The groups to look at once more, by (namespace, name)."""

    def __init__(self, answers: ObjectCache) -> None:
        self._answers = answers
        self._groups: dict[Key, Recheck] = {}

    def note(self, pod: Key, spec: GroupSpec, asked: Set[ObjectKey], began: float) -> bool:
        """A look at a pod that began at this moment ended so: whether its group is worth another one."""
        older = self._answers.older(asked, began)
        if not older:
            return False
        doubt = self._groups.setdefault((spec.namespace, spec.name), Recheck(pod, spec, began))
        doubt.since = began
        doubt.questions |= older
        doubt.pods.add(pod)
        return True

    def take(self, group: Key) -> Recheck | None:
        """The doubt about a group, to be cleared now: what was read before its last pod came is forgotten."""
        doubt = self._groups.pop(group, None)
        if doubt is not None:
            self._answers.forget(self._answers.older(doubt.questions, doubt.since))
        return doubt


WARNING = "PodGrouperWarning"
GATHER_SECONDS = 0.005
PUBLISHED_GATHER_SECONDS = 0.1
"""For how long pods of a group are gathered; longer where a scheduler knows them already: their binds come first."""
RECHECK_SECONDS = 2.0
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
_QUESTIONS = 50
_PATCHES_AT_ONCE = 16
_RETRYABLE = (Conflict, RetryLater, Timeout, TooManyRequests, Unavailable)

T = TypeVar("T")
log = structlog.get_logger("pod-grouper")


@dataclass(frozen=True)
class PodGrouperSettings:
    """How pods are grouped, and which: `pods` is what is watched, the label maps are what a pod must carry, and its
    namespace. `workers` is how many pods, and how many groups, are worked on at once."""

    grouping: GroupingSettings = GroupingSettings()
    pods: Selection = EVERYTHING
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    workers: int = 10
    meters: Meters = unmetered


class Namespace(Struct, frozen=True):
    """A namespace, of which only labels count."""

    metadata: kinds.ObjectMeta


class PodGrouper:
    """The grouper on one API server; `run` works until cancelled. `expectations`: a scheduler's, in this process."""

    def __init__(
        self, api: Api, watches: Watches, settings: PodGrouperSettings, expectations: ExpectedGroups | None = None
    ) -> None:
        self._api = api
        self._settings = settings
        self._pods = watches.of(POD, kinds.Pod, settings.pods)
        self._groups = watches.of(POD_GROUP, kinds.PodGroup)
        self._classes = watches.of(PRIORITY_CLASS, kinds.PriorityClass)
        self._kartas = watches.of(KARTA, Object, optional=True) if settings.grouping.karta_fallback else None
        names_only = Selection(metadata_only=True)
        self._namespaces = watches.of(NAMESPACE, Namespace, names_only) if settings.namespace_labels else None
        self._writer = GroupWriter(api, self._groups, settings.grouping)
        self._answers = ObjectCache(api)
        self._doubts = Rechecks(self._answers)
        self._watched = Informers(self._pods, self._classes, self._kartas, self._writer.existing)
        self._events = EventRecorder(api, "pod-grouper", wall)
        pace = Pace(settings.workers, FIRST_SECONDS, LONGEST_SECONDS)
        self._pod_loop: ReconcileLoop[Key] = ReconcileLoop("pod-grouper", pace, settings.meters("pod-grouper"))
        self._group_loop: ReconcileLoop[Key] = ReconcileLoop("pod-group", pace, settings.meters("pod-group"))
        self._doubt_loop: ReconcileLoop[Key] = ReconcileLoop("pod-group-again", pace)
        self._decisions = Assignments()
        self._announcer = GroupPublisher(expectations, settings.grouping, wall)
        self._own_groups = DeferredAssignments(self._pods, self._writer, self._announcer, self._not_written)

    async def run(self, ready: asyncio.Event) -> None:
        """Group pods until cancelled; `ready` is set once every pod there is has been looked at."""
        for watch in (self._pods, self._groups, self._classes, self._kartas, self._namespaces):
            if watch is not None:
                await watch.synced()
        leave = [self._groups.subscribe(self._writer.seen), self._pods.subscribe(self._pod_changed)]
        if self._namespaces is not None:
            leave.append(self._namespaces.subscribe(self._namespace_changed))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._events.run())
                tasks.create_task(self._pod_loop.run(self._find_group))
                tasks.create_task(self._group_loop.run(self._write_group))
                tasks.create_task(self._doubt_loop.run(self._look_again))
                tasks.create_task(self._own_groups.run())
                await self._pod_loop.quiet()
                ready.set()
        finally:
            for unsubscribe in leave:
                unsubscribe()

    # ------------------------------------------------------------------------------------------------ what changed
    def _pod_changed(self, change: Change[kinds.Pod]) -> None:
        if change.type is EventType.DELETED:
            self._decisions.withdraw(change.key)
            return
        if not self._is_ours(change.object):
            return
        old, new = change.old, change.object
        if old is not None and _metadata_inputs(old) != _metadata_inputs(new) and self._writer.is_echo(old, new):
            self._writer.confirm(new)
            if _status_inputs(old) == _status_inputs(new):
                return
        if old is None or (_metadata_inputs(old), _status_inputs(old)) != (_metadata_inputs(new), _status_inputs(new)):
            self._pod_loop.forget(change.key)
            self._pod_loop.add(change.key)

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        for key, pod in self._pods.items():
            if key[0] == change.key[1] and self._is_ours(pod):
                self._pod_loop.add(key)

    def _is_ours(self, pod: kinds.Pod) -> bool:
        settings = self._settings
        return pod.spec.scheduler_name == settings.grouping.scheduler_name and has_labels(
            pod.metadata.labels, settings.pod_labels
        )

    def _in_our_namespace(self, pod: kinds.Pod) -> bool:
        if self._namespaces is None:
            return True
        namespace = self._namespaces.get(pod.metadata.namespace)
        return namespace is not None and has_labels(namespace.metadata.labels, self._settings.namespace_labels)

    # -------------------------------------------------------------------------------------------- the group of a pod
    async def _find_group(self, key: Key) -> None:
        pod = self._pods.get(key[1], key[0])
        if pod is None or not self._is_ours(pod) or not self._in_our_namespace(pod):
            return
        lookup, began = ClusterLookup(self._watched, self._answers), self._answers.clock()
        try:
            spec = await self._grouped(pod, lookup)
        except (GroupingError, ForbiddenError) as error:
            self._warn(pod, str(error))
            raise RetryLater(str(error)) from error
        if not self._is_there(pod):
            return
        self._own_groups.forget(key)
        if spec is None:
            self._decisions.withdraw(key)
            self._announcer.withdraw(pod)
            return
        self._announcer.announce(pod, spec)
        group = self._decisions.decide(key, spec)
        announced = self._announcer.has_announced(pod, spec)
        self._group_loop.add_after(group, PUBLISHED_GATHER_SECONDS if announced else GATHER_SECONDS)
        if _is_new(pod, spec) and self._doubts.note(key, spec, lookup.asked, began):
            self._doubt_loop.add_after(group, RECHECK_SECONDS)

    def _is_there(self, pod: kinds.Pod) -> bool:
        """Whether this pod, not another of its name, exists still."""
        found = self._pods.get(pod.metadata.name, pod.metadata.namespace)
        return found is not None and found.metadata.uid == pod.metadata.uid

    async def _look_again(self, group: Key) -> None:
        """Look at all pods of a group again if one of them would be grouped otherwise by now."""
        doubt = self._doubts.take(group)
        if doubt is None or await self._is_still(doubt):
            return
        for key in doubt.pods:
            self._pod_loop.add(key)

    async def _is_still(self, doubt: Recheck) -> bool:
        """Whether the doubt's pod would be grouped as it is; a workload in error or on its way out changes nothing."""
        pod = self._pods.get(doubt.pod[1], doubt.pod[0])
        try:
            lookup = ClusterLookup(self._watched, self._answers)
            return pod is not None and await self._grouped(pod, lookup) in (doubt.spec, None)
        except (GroupingError, ForbiddenError):
            return True
        except (ApiError, RetryLater):
            return False

    async def _grouped(self, pod: kinds.Pod, lookup: ClusterLookup) -> GroupSpec | None:
        try:
            found = without_unwritten_group(
                pod, unstructured_pod(pod), lambda key: self._writer.existing(key) is not None
            )
            work = await self._asked(lambda: workload_of(found, lookup, self._settings.grouping))
            if work is None:
                return None
            work = await self._with_whole_pod(work)
            for line in await self._asked(lambda: ignored_settings(work)):
                self._warn(pod, line)
            return await self._asked(lambda: group_of(work))
        except GroupingError:
            self._answers.forget(lookup.asked)
            raise

    async def _asked(self, rule: Callable[[], T]) -> T:
        """What a rule says once everything it asks for has been read."""
        for _ in range(_QUESTIONS):
            try:
                return rule()
            except NotCachedError as unknown:
                await self._answers.learn(unknown.question)
        raise RetryLater("the objects behind the pod change faster than they can be read")

    async def _with_whole_pod(self, work: Workload) -> Workload:
        """The workload with all fields of its pod where a Karta may look at any of them."""
        if not work.settings.karta_fallback or known(*group_version_kind(work.top)) or not karta.candidates(work):
            return work
        metadata = work.pod["metadata"]
        try:
            pod = await self._api.get(POD.ref(metadata["name"], metadata["namespace"]), Object)
        except NotFound:
            raise RetryLater("the pod was deleted meanwhile") from None
        return replace(work, pod=pod)

    # ------------------------------------------------------------------------------------------- a group and its pods
    async def _write_group(self, group: Key) -> None:
        members = self._decisions.take(group)
        if not members:
            return
        try:
            await self._writer.write(list(members.values())[-1])
            await self._assign(members)
        except Exception as error:
            self._decisions.put_back(group, members)
            for key in members:
                if pod := self._pods.get(key[1], key[0]):
                    self._not_written(pod, error)
            raise

    async def _assign(self, members: dict[Key, GroupSpec]) -> None:
        """Put pods in their group and strike them off; raises the first failure after all were tried."""
        limit = asyncio.Semaphore(_PATCHES_AT_ONCE)

        async def one(key: Key, spec: GroupSpec) -> None:
            async with limit:
                pod = self._pods.get(key[1], key[0])
                if pod is not None and self._decisions.holds(key, spec):
                    if not self._own_groups.leave_to_bind(pod, spec):
                        await self._writer.assign(pod, spec)
                    self._decisions.done(key, spec)
                del members[key]

        outcomes = await asyncio.gather(*(one(*member) for member in list(members.items())), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def _not_written(self, pod: kinds.Pod, error: Exception) -> None:
        """Tell a pod what keeps its group from being written, unless that passes by itself."""
        if not isinstance(error, _RETRYABLE):
            self._announcer.withdraw(pod)
            self._warn(pod, str(error))

    def _warn(self, pod: kinds.Pod, message: str) -> None:
        meta = pod.metadata
        self._events.record(Regarding("v1", "Pod", meta.name, meta.namespace, meta.uid), WARNING, message, "Warning")
        log.warning("pod not grouped as asked", pod=f"{meta.namespace}/{meta.name}", reason=message)


def _is_new(pod: kinds.Pod, spec: GroupSpec) -> bool:
    """Whether the pod has not been in its group before."""
    return (pod.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION) != spec.name


def _metadata_inputs(pod: kinds.Pod) -> tuple[object, ...]:
    return pod.metadata.labels, before_bind(pod)


def _status_inputs(pod: kinds.Pod) -> tuple[object, ...]:
    """What else of a pod can change its group; nothing else of one that nobody owns."""
    owners = pod.metadata.owner_references
    return (owners, pod.spec.node_name, pod.status.phase) if owners else ()


async def run(
    api: Api,
    watches: Watches,
    settings: PodGrouperSettings,
    ready: asyncio.Event,
    expectations: ExpectedGroups | None = None,
) -> None:
    """Group pods until cancelled."""
    await PodGrouper(api, watches, settings, expectations).run(ready)
