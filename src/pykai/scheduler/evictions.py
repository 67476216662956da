"""Evict pods: delete them with their own grace period; events on pod and PodGroup, and a condition, give the reason.

With the annotation `kai.scheduler/eviction-strategy: suspend` on the PodGroup, its owner is suspended instead and
deletes the pods itself. Pods evicted to move are always deleted, because nothing would resume their workload.
"""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from pykai.cache.requests import gpu_request, pod_amounts
from pykai.kube.api import Deletion, Object, Patch, Resource
from pykai.kube.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from pykai.kube.resources import POD
from pykai.model.params import SchedulerParams
from pykai.objects import names
from pykai.objects.kinds import OwnerReference, Pod
from pykai.objects.pod_template import decode_template
from pykai.objects.units import rfc3339
from pykai.scheduler.bind_requests import PodDeletion, reason, until_certain
from pykai.scheduler.metrics import workload_labels
from pykai.scheduler.status import about_gang, about_pod
from pykai.scheduler.writer_context import WriterContext

log = structlog.get_logger(component="scheduler")


class EvictionWriter:
    """Evicts pods, at most `at_once` at a time."""

    def __init__(self, context: WriterContext, at_once: int) -> None:
        self._context = context
        self._turns = asyncio.Semaphore(at_once)
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
                self._context.soon()
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
        asked = (group.metadata.annotations or {}).get(names.EVICTION_STRATEGY) == "suspend"
        if not asked or evict.moves_to or evict.action == "consolidation":
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
        """Record what the pod loses, and to whom, as events on pod and PodGroup and in the log."""
        evict, pod, group = eviction.evict, eviction.pod, eviction.group
        node = pod.spec.node_name
        facts = {names.EVICTED_PODS: str(evict.victims), names.EVICTOR_ACTION: evict.action}
        if evict.evictor is not None:
            facts |= {names.EVICTOR_NAMESPACE: evict.evictor[0], names.EVICTOR_NAME: evict.evictor[1]}
        request = gpu_request(pod_amounts(decode_template(pod.spec)), pod.metadata.annotations or {})
        facts |= {names.EVICTED_QUEUE: group.spec.queue, names.EVICTED_NODE: node}
        facts[names.EVICTED_GPUS] = f"{request.gpus:g}"
        if started := (group.metadata.annotations or {}).get(names.LAST_START_TIMESTAMP, ""):
            facts[names.EVICTED_STARTED] = started
        for about in (about_gang(group), about_pod(pod)):
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
            "lastTransitionTime": rfc3339(self._context.access.clock()),
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
