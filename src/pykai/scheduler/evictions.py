"""Evictions: the pod is deleted with its own grace period, with an event on its PodGroup that says why."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from pykai.kube.api import Deletion, Patch
from pykai.kube.errors import ApiError, Conflict, NotFound
from pykai.kube.resources import POD
from pykai.model.params import SchedulerParams
from pykai.objects import names
from pykai.objects.kinds import Pod
from pykai.objects.units import rfc3339
from pykai.scheduler.bind_requests import Eviction, reason, until_certain
from pykai.scheduler.status import about_gang
from pykai.scheduler.writer_context import WriterContext

log = structlog.get_logger(component="scheduler")


class EvictionWriter:
    """Evicts pods, at most `at_once` at a time."""

    def __init__(self, context: WriterContext, at_once: int) -> None:
        self._context = context
        self._turns = asyncio.Semaphore(at_once)

    async def evict(self, eviction: Eviction, params: SchedulerParams) -> None:
        """Delete the very pod that was meant; a failure means that it is decided anew."""
        evict = eviction.evict
        async with self._turns:
            self._record(eviction)
            try:
                if params.update_eviction_condition:
                    await self._announce(eviction)
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
        labels = {"podgroup": evict.gang[1], "namespace": evict.gang[0], "uid": eviction.group.metadata.uid}
        labels |= {"nodepool": params.pool_title, "action": evict.action}
        self._context.metrics.add("pod_group_evicted_pods_total", 1.0, labels)

    async def _delete(self, pod: Pod) -> None:
        """Delete the pod, unless a watch has shown by now that it leaves."""
        meta = pod.metadata
        if self._context.assumptions.evicts(pod):
            await self._context.access.api.delete(POD.ref(meta.name, meta.namespace), Deletion(uid=meta.uid))

    def _record(self, eviction: Eviction) -> None:
        evict = eviction.evict
        facts = {names.EVICTED_PODS: str(evict.victims), names.EVICTOR_ACTION: evict.action}
        if evict.evictor is not None:
            facts |= {names.EVICTOR_NAMESPACE: evict.evictor[0], names.EVICTOR_NAME: evict.evictor[1]}
        self._context.access.recorder.record(about_gang(eviction.group), "Evict", evict.message, annotations=facts)
        evictor = "/".join(evict.evictor) if evict.evictor else "-"
        node = eviction.pod.spec.node_name
        log.info("pod evicted", pod="/".join(evict.pod), node=node, action=evict.action, evictor=evictor)

    async def _announce(self, eviction: Eviction) -> None:
        """Mark the pod as disrupted on purpose, for controllers that count failures."""
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
