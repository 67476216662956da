"""Write a decision: bind requests and evictions at once, then status and events.

A write is assumed when it starts (`cache.assumed`), so the next cycle does not wait for the response.

Evicted pods are deleted with their own grace period; events on pod and PodGroup, and a condition, give the reason.
With the annotation `kai.scheduler/eviction-strategy: suspend` on the PodGroup, its owner is suspended instead and
deletes the pods itself. Pods evicted to move are always deleted, because nothing would resume their workload.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

import structlog

from pykai.cache.requests import gpu_request, pod_amounts
from pykai.kube.api import Deletion, Object, Patch, Resource
from pykai.kube.api_resources import POD, POD_GROUP
from pykai.kube.clock import wall
from pykai.kube.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from pykai.kube.events import Regarding
from pykai.model.params import SchedulerParams
from pykai.model.plan import Key
from pykai.objects import names
from pykai.objects.kinds import BindRequest, OwnerReference, Pod
from pykai.objects.pod_template import decode_template
from pykai.objects.units import rfc3339
from pykai.scheduler.bind_requests import PodDeletion, reason, until_certain
from pykai.scheduler.binds import BindWriter, WriterContext
from pykai.scheduler.cycle_metrics import workload_labels
from pykai.scheduler.decision import Decision

AT_ONCE = 16
"""The maximum number of concurrent evictions."""

log = structlog.get_logger(component="scheduler")


class InFlightWrites:
    """Writes in flight, as tasks; an unhandled exception in one is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a write."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("write crashed", exc_info=error)

    async def close(self) -> None:
        """Cancel all writes in flight."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Writer:
    """Starts writes without waiting for them."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._binder = BindWriter(context)
        self._evicter = EvictionWriter(context)
        self._nominated: dict[Key, str] = {}
        self.in_flight = InFlightWrites()

    def carry_out(self, decision: Decision) -> None:
        """Start writing a decision."""
        now, assumptions, params = wall(), self._context.assumptions, decision.snapshot.params
        self._binder.starts.forget_gone(decision.snapshot.gangs.objects)
        for binding in decision.bindings:
            assumptions.bind(binding.request, binding.pod.metadata.uid)
            self._context.status.placed(binding.bind.pod)
            self.in_flight.start(self._binder.place(binding, params))
        for eviction in decision.evictions:
            assumptions.evict(eviction.pod, now)
            self.in_flight.start(self._evicter.evict(eviction, params))
        for request in decision.missing_node:
            why = f"node {request.spec.selected_node} does not exist"
            self.in_flight.start(self._binder.delete(request, why))
        self._nominate(decision)
        self._context.status.write_timestamps(decision.plan.timestamps)
        self._context.status.update(decision.conditions)

    def delete_failed(self, failed: Iterable[tuple[BindRequest, Pod | None]]) -> None:
        """Delete `failed` bind requests (pod None: it is gone) and those that could not be deleted before."""
        for request, why in self._binder.remaining():
            self.in_flight.start(self._binder.delete(request, why))
        for request, pod in failed:
            self._binder.hold_gang(request, pod)
            self.in_flight.start(self._binder.delete(request, f"binding failed: {request.status.reason}"))

    def confirm(self, orders: Iterable[BindRequest]) -> None:
        """Check with the API server bind requests that were written but that no watch has shown."""
        for order in orders:
            self.in_flight.start(self._binder.confirm(order))

    def _nominate(self, decision: Decision) -> None:
        """Record an event once per pod and nominated node; pods evicted to move have the eviction event instead."""
        leaving = {eviction.evict.pod for eviction in decision.evictions}
        nominated = {each.pod: each.node for each in decision.plan.nominations if each.pod not in leaving}
        for pod, node in nominated.items():
            if self._nominated.get(pod) != node:
                meta = decision.pods[pod].metadata
                about, title = Regarding.of(POD, meta), meta.title
                self._context.access.recorder.record(about, "Pipelined", f"Pod {title} was pipelined to node {node}")
                log.info("pod nominated", pod=title, node=node)
        self._nominated = nominated


class EvictionWriter:
    """Evicts pods, at most `AT_ONCE` at a time."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._suspending: dict[str, asyncio.Task[bool]] = {}
        """By owner uid: all pods of one owner share one write."""

    async def evict(self, eviction: PodDeletion, params: SchedulerParams) -> None:
        """Evict the pod with this uid; after a failure drop the assumption and request a cycle."""
        evict = eviction.evict
        async with self._turns:
            self._record(eviction)
            try:
                if params.update_eviction_condition:
                    await self._announce(eviction)
                if not await self._suspended(eviction):
                    await until_certain(partial(self._delete, eviction.pod))
            except (NotFound, Conflict):
                return
            except ApiError as error:
                log.warning("pod not evicted", pod="/".join(evict.pod), error=reason(error))
                self._context.assumptions.eviction_failed(eviction.pod)
                self._context.retry_soon()
                return
            finally:
                self._context.assumptions.trust_eviction(eviction.pod, self._context.until())
        if params.workload_eviction_metrics:
            labels = workload_labels(eviction.group, evict.action, params)
            labels["subgroup"] = (eviction.pod.metadata.labels or {}).get(names.SUBGROUP_LABEL, "")
        else:
            labels = {"podgroup": evict.gang[1], "namespace": evict.gang[0], "uid": eviction.group.metadata.uid}
            labels |= {"nodepool": params.pool_title, "action": evict.action}
        self._context.metrics.add("pod_group_evicted_pods_total", 1.0, labels)

    async def _delete(self, pod: Pod) -> None:
        """Delete the pod, unless a watch already shows it terminating or gone."""
        meta = pod.metadata
        if self._context.assumptions.evicts(pod):
            await self._context.access.api.delete(POD.ref(meta.name, meta.namespace), Deletion(uid=meta.uid))

    async def _suspended(self, eviction: PodDeletion) -> bool:
        """Suspend the workload if its PodGroup requests that; False: delete the pod instead."""
        group, evict = eviction.group, eviction.evict
        suspends = (group.metadata.annotations or {}).get(names.EVICTION_STRATEGY) == "suspend"
        if not suspends or evict.moves_to or evict.action == "consolidation":
            return False
        owner = next(iter(group.metadata.owner_references or ()), None)
        if owner is None:
            log.warning("pod group has no owner to suspend", group="/".join(evict.gang))
            return False
        task = self._suspending.get(owner.uid)
        if task is None:
            task = self._suspending[owner.uid] = asyncio.create_task(self._suspend(owner, evict.gang[0]))
            task.add_done_callback(lambda _: self._suspending.pop(owner.uid, None))
        return await asyncio.shield(task)

    async def _suspend(self, owner: OwnerReference, namespace: str) -> bool:
        """Suspend the owner; return whether it is suspended: not if it lacks the field or may not be written."""
        api_group, _, version = owner.api_version.rpartition("/")
        resource = Resource(api_group, version, f"{owner.kind.lower()}s", owner.kind)
        body: Object = {"metadata": {"uid": owner.uid}, "spec": {"suspend": True}}
        try:
            stored = await self._context.access.api.patch(resource.ref(owner.name, namespace), Patch.merge(body))
        except (BadRequest, Forbidden, Invalid, NotFound) as error:
            log.warning("owner not suspended", owner=f"{owner.kind} {namespace}/{owner.name}", error=reason(error))
            return False
        return bool((stored.get("spec") or {}).get("suspend"))

    def _record(self, eviction: PodDeletion) -> None:
        """Record what the pod loses, and for which evictor, as events on pod and PodGroup and in the log."""
        evict, pod, group = eviction.evict, eviction.pod, eviction.group
        node = pod.spec.node_name
        facts = {names.EVICTED_PODS: str(evict.victims), names.EVICTOR_ACTION: evict.action}
        if evict.evictor is not None:
            facts |= {names.EVICTOR_NAMESPACE: evict.evictor[0], names.EVICTOR_NAME: evict.evictor[1]}
        request = gpu_request(pod_amounts(decode_template(pod.spec)), pod.metadata.annotations or {})
        facts |= {names.EVICTED_QUEUE: group.spec.queue, names.EVICTED_NODE: node}
        facts[names.EVICTED_GPUS] = f"{request.gpus:g}"
        if pod.status.start_time is not None:
            facts[names.EVICTED_STARTED] = rfc3339(pod.status.start_time.timestamp())
        elif started := (group.metadata.annotations or {}).get(names.LAST_START_TIMESTAMP, ""):
            facts[names.EVICTED_STARTED] = started
        for about in (Regarding.of(POD_GROUP, group.metadata), Regarding.of(POD, pod.metadata)):
            self._context.access.recorder.record(about, "Evict", evict.message, "Warning", facts)
        evictor = "/".join(evict.evictor) if evict.evictor else "-"
        log.info("pod evicted", pod="/".join(evict.pod), node=node, action=evict.action, evictor=evictor)

    async def _announce(self, eviction: PodDeletion) -> None:
        """Set the condition DisruptionTarget, so that controllers do not count the pod as failed."""
        meta = eviction.pod.metadata
        condition = {
            "type": names.DISRUPTION_TARGET,
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": eviction.evict.message,
            "lastTransitionTime": rfc3339(wall()),
        }
        body = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
        try:
            await self._context.access.api.patch(
                POD.ref(meta.name, meta.namespace).sub("status"), Patch.strategic(body)
            )
        except (NotFound, Conflict):
            raise
        except ApiError as error:
            log.warning("eviction not announced", pod="/".join(eviction.evict.pod), error=reason(error))
