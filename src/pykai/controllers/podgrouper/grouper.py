"""The pod grouper: one reconcile loop finds the group of a pod, another writes a group and annotates its pods.

The first is keyed by pod and reads mostly from informers. It passes pods to the second, which is keyed by group and
collects them for a few milliseconds, so that pods created together cost one PodGroup create and one patch per pod, or
none if the bind writes the annotation (`deferred`). Failures are requeued with backoff, and the affected pods get an
event.

Invariant: the newest pod of a group defines the group's spec, regardless of the order of events and of restarts; when
that pod is deleted, the newest remaining pod does. A group that is deleted while its pods exist is re-created, even if
the watch never showed it, and user edits of the spec are reverted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from pykai.controllers.podgrouper.assignments import Assignments, GroupWriter, MemberIndex
from pykai.controllers.podgrouper.deferred import (
    DeferredAssignments,
    GroupExpectations,
    GroupPublisher,
    before_bind,
    without_unwritten_group,
)
from pykai.controllers.podgrouper.grouping import group_of, has_labels, ignored_settings, workload_of
from pykai.controllers.podgrouper.reader import (
    KARTA,
    ClusterLookup,
    NotCachedError,
    NotEvaluatedError,
    ObjectCache,
    Rechecks,
    RuleInformers,
)
from pykai.controllers.podgrouper.rules import karta
from pykai.controllers.podgrouper.rules.workload import (
    ForbiddenError,
    GroupingError,
    GroupingSettings,
    GroupSpec,
    Workload,
    group_version_kind,
)
from pykai.controllers.podgrouper.rules.workload_kinds import known
from pykai.controllers.podgrouper.scheduling_groups import SchedulingGroups
from pykai.controllers.ttl_cache import MUTATION_SECONDS
from pykai.controllers.unstructured import unstructured_pod
from pykai.kube.api import EVERYTHING, Api, EventType, Object, Selection
from pykai.kube.api_resources import NAMESPACE, POD, POD_GROUP, PRIORITY_CLASS
from pykai.kube.clock import steady
from pykai.kube.errors import ApiError, Conflict, NotFound, Timeout, TooManyRequests, Unavailable
from pykai.kube.events import EventRecorder, Regarding
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import Key, WatchChange
from pykai.kube.workqueue import Meters, Pace, ReconcileLoop, RetryLater, unmetered
from pykai.objects import kinds, names

WARNING = "PodGrouperWarning"
GATHER_SECONDS = 0.005
PUBLISHED_GATHER_SECONDS = 0.1
"""Seconds for which pods of a group are collected; longer for published groups, because binds come first."""
RECHECK_SECONDS = 2.0
DEPARTURE_SECONDS = 1.0
"""Seconds from the deletion of a pod or group, or an edit of a group, to the reconcile of the group.

After a deletion usually the whole workload is being deleted; edits are collected.
"""
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
_MAX_READS = 200
_PATCHES_AT_ONCE = 16
_RETRYABLE = (Conflict, RetryLater, Timeout, TooManyRequests, Unavailable)

T = TypeVar("T")
log = structlog.get_logger("pod-grouper")


@dataclass(frozen=True)
class PodGrouperSettings:
    """The settings. `pods` selects the pods to watch; the label maps are required labels of pods and namespaces.

    Up to `workers` pods, and as many groups, are reconciled concurrently.
    """

    grouping: GroupingSettings = GroupingSettings()
    pods: Selection = EVERYTHING
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    workers: int = 10
    meters: Meters = unmetered


class PodGrouper:
    """The controller. `expected`: the group expectations of a scheduler in the same process, None without one."""

    def __init__(
        self,
        api: Api,
        watches: InformerFactory,
        settings: PodGrouperSettings,
        expected: GroupExpectations | None = None,
    ) -> None:
        self._api = api
        self._settings = settings
        self._pods = watches.of(POD, kinds.Pod, settings.pods)
        self._groups = watches.of(POD_GROUP, kinds.PodGroup)
        self._classes = watches.of(PRIORITY_CLASS, kinds.PriorityClass)
        self._kartas = watches.of(KARTA, Object, optional=True) if settings.grouping.karta_fallback else None
        labels_only = Selection(metadata_only=True)
        self._namespaces = watches.of(NAMESPACE, kinds.Namespace, labels_only) if settings.namespace_labels else None
        self._writer = GroupWriter(api, self._groups, settings.grouping)
        self._cache = ObjectCache(api)
        self._rechecks = Rechecks(self._cache)
        self._scheduling_groups = SchedulingGroups(
            api, watches, self._regroup, lambda key: self._groups.get(key[1], key[0])
        )
        self._informers = RuleInformers(
            self._pods, self._classes, self._kartas, self._scheduling_groups.informers, self._writer.existing
        )
        self._events = EventRecorder(api, "pod-grouper")
        pace = Pace(settings.workers, FIRST_SECONDS, LONGEST_SECONDS)
        self._pod_loop: ReconcileLoop[Key] = ReconcileLoop("pod-grouper", pace, settings.meters("pod-grouper"))
        self._group_loop: ReconcileLoop[Key] = ReconcileLoop("pod-group", pace, settings.meters("pod-group"))
        self._recheck_loop: ReconcileLoop[Key] = ReconcileLoop("pod-group-recheck", pace)
        self._assignments = Assignments()
        self._unobserved: set[Key] = set()
        """Written groups that the watch has not shown yet."""
        self._members = MemberIndex()
        self._publisher = GroupPublisher(expected, settings.grouping)
        self._deferred = DeferredAssignments(self._pods, self._writer, self._publisher, self._write_failed)

    async def run(self, ready: asyncio.Event) -> None:
        """Group pods until cancelled; sets `ready` after every existing pod was reconciled once."""
        followed = (self._pods, self._groups, self._classes, self._kartas, self._namespaces)
        for watch in (*followed, *self._scheduling_groups.informers.values()):
            if watch is not None:
                await watch.synced()
        subscriptions = [self._groups.subscribe(self._group_changed), self._pods.subscribe(self._pod_changed)]
        subscriptions += self._scheduling_groups.subscribe()
        if self._namespaces is not None:
            subscriptions.append(self._namespaces.subscribe(self._namespace_changed))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._events.run())
                tasks.create_task(self._pod_loop.run(self._find_group))
                tasks.create_task(self._group_loop.run(self._write_group))
                tasks.create_task(self._recheck_loop.run(self._recheck))
                tasks.create_task(self._deferred.run())
                tasks.create_task(self._scheduling_groups.run())
                await self._pod_loop.quiet()
                ready.set()
        finally:
            for unsubscribe in subscriptions:
                unsubscribe()

    # ------------------------------------------------------------------------------------------------ watch events
    def _pod_changed(self, change: WatchChange[kinds.Pod]) -> None:
        if self._is_ours(change.object):
            self._scheduling_groups.pod_changed(change)
        if change.type is EventType.DELETED:
            self._assignments.withdraw(change.key)
            group = self._members.leave(change.key)
            if group is not None:
                self._group_loop.add_after(group, DEPARTURE_SECONDS)
            return
        if not self._is_ours(change.object):
            return
        old, new = change.old, change.object
        if old is None and (name := (new.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION)):
            self._members.join((new.metadata.namespace, name), new)
        if old is not None and _metadata_inputs(old) != _metadata_inputs(new) and self._writer.is_echo(old, new):
            self._writer.confirm(new)
            if _status_inputs(old) == _status_inputs(new):
                return
        if old is None or (_metadata_inputs(old), _status_inputs(old)) != (_metadata_inputs(new), _status_inputs(new)):
            self._regroup(change.key)

    def _group_changed(self, change: WatchChange[kinds.PodGroup]) -> None:
        is_own_write = self._writer.observe(change)
        members = self._members.of(change.key)
        if change.type is EventType.DELETED:
            for pod in members:
                self._pod_loop.add_after(pod, DEPARTURE_SECONDS)
            return
        if change.old is None or change.old.status != change.object.status:
            self._scheduling_groups.own_group_changed(members)
        if change.old is None:
            was_edited = bool(members) and not is_own_write  # before the watch showed it for the first time
        else:
            was_edited = _group_inputs(change.old) != _group_inputs(change.object)
        if was_edited:
            self._group_loop.add_after(change.key, DEPARTURE_SECONDS)

    def _regroup(self, pod: Key) -> None:
        self._pod_loop.forget(pod)
        self._pod_loop.add(pod)

    def _namespace_changed(self, change: WatchChange[kinds.Namespace]) -> None:
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

    def _pod(self, key: Key) -> kinds.Pod | None:
        return self._pods.get(key[1], key[0])

    # -------------------------------------------------------------------------------------------- the group of a pod
    async def _find_group(self, key: Key) -> None:
        pod = self._pod(key)
        if pod is None or not self._is_ours(pod) or not self._in_our_namespace(pod):
            return
        lookup, began = ClusterLookup(self._informers, self._cache), steady()
        try:
            spec = await self._spec_of(pod, lookup)
        except (GroupingError, ForbiddenError) as error:
            self._warn(pod, str(error))
            raise RetryLater(str(error)) from error
        now = self._pod(key)
        if now is None or now.metadata.uid != pod.metadata.uid:
            return
        self._deferred.forget(key)
        if spec is None:
            self._assignments.withdraw(key)
            self._members.leave(key)
            self._publisher.retract(pod)
            return
        self._publisher.publish(pod, spec)
        group = self._assignments.assign(key, spec)
        self._members.join(group, pod)
        published = self._publisher.has_published(pod, spec)
        self._group_loop.add_after(group, PUBLISHED_GATHER_SECONDS if published else GATHER_SECONDS)
        joins = (pod.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION) != spec.name
        if joins and self._rechecks.add(key, spec, lookup.read, began):
            self._recheck_loop.add_after(group, RECHECK_SECONDS)

    async def _recheck(self, group: Key) -> None:
        """Reconcile all pods of a group again if the rule now gives one of them another group."""
        recheck = self._rechecks.take(group)
        if recheck is None:
            return
        pod = self._pod(recheck.pod)
        try:
            lookup = ClusterLookup(self._informers, self._cache)
            if pod is not None and await self._spec_of(pod, lookup) in (recheck.spec, None):
                return
        except (GroupingError, ForbiddenError):
            return  # the workload is invalid or being deleted
        except (ApiError, RetryLater):
            pass
        for key in sorted(recheck.pods):
            self._pod_loop.add(key)

    async def _spec_of(self, pod: kinds.Pod, lookup: ClusterLookup) -> GroupSpec | None:
        try:
            found = without_unwritten_group(
                pod, unstructured_pod(pod), lambda key: self._writer.existing(key) is not None
            )
            work = await self._evaluate(lookup, lambda: workload_of(found, lookup, self._settings.grouping))
            if work is None:
                return None
            work = await self._with_full_pod(replace(work, jq=lookup.jq), lookup)
            for line in await self._evaluate(lookup, lambda: ignored_settings(work)):
                self._warn(pod, line)
            return await self._evaluate(lookup, lambda: group_of(work))
        except GroupingError:
            self._cache.forget(lookup.read)
            raise

    async def _evaluate(self, lookup: ClusterLookup, rule: Callable[[], T]) -> T:
        """Return the result of a rule, after reading all objects that it needs."""
        for _ in range(_MAX_READS):
            try:
                return rule()
            except NotCachedError as error:
                await self._cache.fetch(error.key)
            except NotEvaluatedError as error:
                await lookup.jq.fetch(error)
        raise RetryLater("the objects behind the pod change faster than they can be read")

    async def _with_full_pod(self, work: Workload, lookup: ClusterLookup) -> Workload:
        """Return the workload with its complete pod if a Karta may read any of the pod's fields."""
        if not work.settings.karta_fallback or known(*group_version_kind(work.top)):
            return work
        if not await self._evaluate(lookup, lambda: karta.candidates(work)):
            return work
        metadata = work.pod["metadata"]
        try:
            pod = await self._api.get(POD.ref(metadata["name"], metadata["namespace"]), Object)
        except NotFound:
            raise RetryLater("the pod was deleted in the meantime") from None
        return replace(work, pod=pod)

    # ------------------------------------------------------------------------------------------- a group and its pods
    async def _write_group(self, group: Key) -> None:
        assigned = self._assignments.take(group)
        newest = self._members.newest(group)
        if newest is None or not self._may_exist(group):
            return
        try:
            spec = assigned.get(newest) or await self._newest_spec(newest, group) or next(iter(assigned.values()), None)
            if spec is not None:
                await self._writer.write(spec)
                self._verify_written(group)
            await self._assign(assigned)
        except Exception as error:
            self._assignments.put_back(group, assigned)
            for key in assigned:
                if pod := self._pod(key):
                    self._write_failed(pod, error)
            raise

    def _verify_written(self, group: Key) -> None:
        """Reconcile a group again if the watch does not show it in time: it may have been deleted before that."""

        def verify() -> None:
            self._unobserved.discard(group)
            if self._groups.get(group[1], group[0]) is None:
                self._group_loop.add(group)

        if group not in self._unobserved and self._groups.get(group[1], group[0]) is None:
            self._unobserved.add(group)
            asyncio.get_running_loop().call_later(MUTATION_SECONDS + DEPARTURE_SECONDS, verify)

    def _may_exist(self, group: Key) -> bool:
        """Whether a group exists or may be created; a group of only terminating pods is not created."""
        if self._writer.existing(group) is not None:
            return True
        pods = (self._pod(key) for key in self._members.of(group))
        return any(pod is not None and pod.metadata.deletion_timestamp is None for pod in pods)

    async def _newest_spec(self, key: Key, group: Key) -> GroupSpec | None:
        """Return the group's spec according to its newest pod; None if that pod now has no group or another one."""
        pod = self._pod(key)
        if pod is None:
            return None
        try:
            spec = await self._spec_of(pod, ClusterLookup(self._informers, self._cache))
        except (GroupingError, ForbiddenError):
            return None  # the reconcile of that pod reports the error
        return spec if spec is not None and spec.key == group else None

    async def _assign(self, assigned: dict[Key, GroupSpec]) -> None:
        """Annotate pods with their group and remove them from the map; raise the first error after trying all."""
        limit = asyncio.Semaphore(_PATCHES_AT_ONCE)

        async def one(key: Key, spec: GroupSpec) -> None:
            async with limit:
                pod = self._pod(key)
                if pod is not None and self._assignments.is_current(key, spec):
                    if not self._deferred.defer(pod, spec):
                        await self._writer.assign(pod, spec)
                    self._assignments.done(key, spec)
                del assigned[key]

        outcomes = await asyncio.gather(*(one(*each) for each in list(assigned.items())), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def _write_failed(self, pod: kinds.Pod, error: Exception) -> None:
        """Report a failed write in an event of the pod, unless a retry may succeed."""
        if not isinstance(error, _RETRYABLE):
            self._publisher.retract(pod)
            self._warn(pod, str(error))

    def _warn(self, pod: kinds.Pod, message: str) -> None:
        self._events.record(Regarding.of(POD, pod.metadata), WARNING, message, "Warning")
        log.warning("pod not grouped as asked", pod=pod.metadata.title, reason=message)


def _metadata_inputs(pod: kinds.Pod) -> tuple[object, ...]:
    return pod.metadata.labels, before_bind(pod)


def _status_inputs(pod: kinds.Pod) -> tuple[object, ...]:
    """Return the other fields of a pod that can change its group; none for a pod without owners."""
    owners = pod.metadata.owner_references
    return (owners, pod.spec.node_name, pod.status.phase) if owners else ()


def _group_inputs(group: kinds.PodGroup) -> tuple[object, ...]:
    """Return the fields of a group that the grouper writes."""
    return group.spec, group.metadata.labels, group.metadata.owner_references


async def run(
    api: Api,
    watches: InformerFactory,
    settings: PodGrouperSettings,
    ready: asyncio.Event,
    expected: GroupExpectations | None = None,
) -> None:
    """Group pods until cancelled."""
    await PodGrouper(api, watches, settings, expected).run(ready)
