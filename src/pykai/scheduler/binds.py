"""Bind pods: directly where possible, else by a BindRequest, which is deleted once it cannot succeed.

A failed bind holds back its whole gang with backoff, because half a running gang is worse than a pending one.
`Takeover` lists the last writes of the previous leader before the first cycle, because no watch may show them yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import structlog
from msgspec import Struct, structs

from pykai.cache.assumed import Assumptions
from pykai.cache.cluster import ClusterCache
from pykai.cache.pods import request_failed, request_is_for
from pykai.kube.api import Api, Page, Patch, Selection
from pykai.kube.api_resources import BIND_REQUEST, POD
from pykai.kube.backoff import Backoff, ItemBackoff
from pykai.kube.clock import wall
from pykai.kube.errors import ApiError, NotFound
from pykai.kube.events import Regarding
from pykai.model.params import SchedulerParams
from pykai.model.plan import Key
from pykai.objects import names
from pykai.objects.kinds import BindRequest, BindRequestSpec, ObjectMeta, OwnerReference, Pod, PodGroup
from pykai.observe.metrics import Metrics
from pykai.scheduler.bind_requests import Binding, create_request, delete_request, is_in_force, is_uncertain, reason
from pykai.scheduler.cycle_metrics import queue_labels
from pykai.scheduler.plan_conditions import PodCondition
from pykai.scheduler.status_updater import TRUST_SECONDS, StatusUpdater, WriteAccess

AT_ONCE = 32
"""The maximum number of concurrent binds."""
SPARE_STARTS = 1_000
"""The number of PodGroups that are gone whose first start may be remembered, beside as many as exist."""

log = structlog.get_logger(component="scheduler")


class DirectBind(Protocol):
    """A binder in the same process (`controllers.binder.binder.DirectBinder`)."""

    async def bind(self, order: BindRequest) -> str:
        """Bind the pod of `order` and return its node, which may differ; "" if the bind needs a BindRequest.

        Raise the server's error if it is unknown whether the pod is bound.
        """
        ...


@dataclass(frozen=True)
class WriterContext:
    """What every writer needs. `request_cycle(instant)` requests a cycle by that time (seconds since the epoch).

    `direct` None: every bind is a BindRequest.
    """

    access: WriteAccess
    status: StatusUpdater
    assumptions: Assumptions
    metrics: Metrics
    request_cycle: Callable[[float], None]
    backoff: ItemBackoff
    direct: DirectBind | None = None

    def until(self) -> float:
        """Return the instant until which a write made now is assumed without confirmation."""
        return wall() + TRUST_SECONDS

    def hold(self, gang: Key, item: object) -> None:
        """Hold back a gang with exponential backoff, counted by consecutive failures of `item`."""
        until = self.backoff.failed(item, wall())
        self.assumptions.hold(gang, until)
        self.request_cycle(until)

    def retry_soon(self) -> None:
        """Request another cycle in a second."""
        self.request_cycle(wall() + 1.0)


class MeasuredStarts:
    """Uids of the PodGroups whose first start was measured, so that a restart is not measured as one."""

    def __init__(self) -> None:
        self._uids: set[str] = set()

    def __len__(self) -> int:
        return len(self._uids)

    def add(self, uid: str) -> bool:
        """Remember a PodGroup; return whether it was not remembered before."""
        is_new = uid not in self._uids
        self._uids.add(uid)
        return is_new

    def forget_gone(self, existing: Sequence[PodGroup]) -> None:
        """Forget PodGroups that are gone, whenever they are more than those that exist."""
        if len(self._uids) > 2 * len(existing) + SPARE_STARTS:
            self._uids.intersection_update(group.metadata.uid for group in existing)


class BindWriter:
    """Binds pods, at most `AT_ONCE` at a time."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._leaving: set[str] = set()
        """Uids of requests that are being deleted."""
        self._remaining: list[tuple[BindRequest, str]] = []
        """Failed requests that could not be deleted, and the reason to delete them."""
        self.starts = MeasuredStarts()

    async def place(self, binding: Binding, params: SchedulerParams) -> None:
        """Bind the pod directly or create its BindRequest; record the result as events and metrics."""
        order, assumptions = binding.request, self._context.assumptions
        async with self._turns:
            began = time.perf_counter()
            try:
                request = await self._written(binding)
            except ApiError as error:
                self._failed(binding, error)
                return
            finally:
                assumptions.trust_bind(order, self._context.until())
            took = time.perf_counter() - began
        if request is None:
            return
        assumptions.created(order, request, self._context.until())
        if request.spec.selected_node != binding.bind.node:
            where = {"node": request.spec.selected_node, "wanted": binding.bind.node}
            log.info("bind request exists already", pod="/".join(binding.bind.pod), **where)
            self._context.retry_soon()
            return
        self._record(binding, request, params)
        self._measure(binding, took)
        await self._label(binding.pod, params)

    async def _written(self, binding: Binding) -> BindRequest | None:
        """Return the created request, or the equivalent of a direct bind; None if the bind is no longer wanted.

        After a direct bind whose response was lost, a request for the same node is safe: both have the same effect.
        """
        order, wanted = binding.request, partial(self._context.assumptions.wants, binding.request)
        direct_error: ApiError | None = None
        if self._context.direct is not None and wanted():
            try:
                if node := await self._context.direct.bind(order):
                    return _as_bound(order, binding.pod, node)
            except ApiError as error:
                direct_error = error
        try:
            return await create_request(self._context.access.api, binding.body, wanted)
        except ApiError as error:
            raise direct_error or error from error

    def _record(self, binding: Binding, request: BindRequest, params: SchedulerParams) -> None:
        bind, spec = binding.bind, request.spec
        devices = {"gpu_groups": ",".join(spec.gpu_groups)} if spec.gpu_groups else {}
        title, gpus = "/".join(bind.pod), round(bind.devices * bind.portion, 2)
        log.info("pod scheduled", pod=title, node=spec.selected_node, gpus=gpus, **devices)
        where = f"node {spec.selected_node} at node-pool {params.pool_title}"
        about = Regarding.of(POD, binding.pod.metadata)
        self._context.access.recorder.record(about, "Scheduled", f"Successfully assigned pod {title} to {where}")

    def _measure(self, binding: Binding, took: float) -> None:
        metrics, created = self._context.metrics, binding.pod.metadata.creation_timestamp
        now, first = wall(), binding.first
        metrics.observe("task_bind_latency_milliseconds", took * 1000)
        if created is not None:
            metrics.observe("task_scheduling_latency_milliseconds", max(now - created.timestamp(), 0.0) * 1000)
        if first is not None and self.starts.add(first.uid):
            labels = queue_labels(first.queue, first.queue_title)
            metrics.observe("pod_group_first_start_wait_seconds", max(now - first.created, 0.0), labels)

    def _failed(self, binding: Binding, error: ApiError) -> None:
        """Drop the assumption of a failed bind; keep it for TRUST_SECONDS if the write may have succeeded.

        A bind that is no longer wanted has not failed: the watch has shown it, or its pod is gone.
        """
        pod, bind = binding.pod, binding.bind
        if not self._context.assumptions.wants(binding.request):
            return
        if is_uncertain(error):
            self._context.request_cycle(self._context.until())
        else:
            self._context.assumptions.bind_failed(binding.request)
        title = "/".join(bind.pod)
        message = f"Failed to bind pod {title} to node {bind.node}. {reason(error)}"
        log.warning("bind request not created", pod=title, node=bind.node, error=reason(error))
        self._context.access.recorder.record(Regarding.of(POD, pod.metadata), "FailedBinding", message, "Warning")
        if not (is_uncertain(error) or isinstance(error, NotFound)):
            self._context.status.mark_pod(bind.pod, PodCondition(pod.metadata.uid, message, reason="BindingError"))
        self._context.hold(binding.gang, (bind.pod, pod.metadata.uid))

    async def _label(self, pod: Pod, params: SchedulerParams) -> None:
        """Label the pod with the node pool of this scheduler."""
        meta = pod.metadata
        known = (meta.labels or {}).get(params.node_pool_key)
        if not params.partitioned or not params.node_pool or known == params.node_pool:
            return
        body = {"metadata": {"uid": meta.uid, "labels": {params.node_pool_key: params.node_pool}}}
        try:
            await self._context.access.api.patch(POD.ref(meta.name, meta.namespace), Patch.merge(body))
        except ApiError as error:
            log.warning("pod not labelled", pod=meta.title, error=reason(error))

    async def confirm(self, order: BindRequest) -> None:
        """Check a bind that no watch has shown with the API server; drop its assumption if it does not exist there."""
        assumptions, meta = self._context.assumptions, order.metadata
        try:
            found = await self._in_force(order)
        except ApiError as error:
            log.warning("bind request not read", pod=meta.title, error=reason(error))
            assumptions.trust_bind(order, self._context.until())
            return
        if found is not None:
            assumptions.created(order, found, self._context.until())
        else:
            assumptions.bind_failed(order)
            self._context.retry_soon()

    async def _in_force(self, order: BindRequest) -> BindRequest | None:
        """Return the bind according to the API server: its request, or one for its bound pod; None without either."""
        api, meta = self._context.access.api, order.metadata
        try:
            found = await api.get(BIND_REQUEST.ref(meta.name, meta.namespace), BindRequest)
            if is_in_force(found, meta):
                return found
        except NotFound:
            pass
        try:
            pod = await api.get(POD.ref(order.spec.pod_name, meta.namespace), Pod)
        except NotFound:
            return None
        return _as_bound(order, pod, pod.spec.node_name) if pod.spec.node_name and request_is_for(order, pod) else None

    # ------------------------------------------------------------------------------------------------------------ ends
    def hold_gang(self, request: BindRequest, pod: Pod | None) -> None:
        """Hold back the gang of a pod whose request failed in the binder; `pod` None: it is gone."""
        if pod is not None and not pod.spec.node_name and request_is_for(request, pod):
            meta = pod.metadata
            group = (meta.annotations or {}).get(names.POD_GROUP_ANNOTATION, "")
            self._context.hold((meta.namespace, group), (meta.key, meta.uid))

    async def delete(self, request: BindRequest, why: str) -> None:
        """Delete a request; a request without uid (not created yet) is left to the next cycle.

        A failed request that cannot be deleted is kept in `remaining`; requests for missing nodes recur in each cycle.
        """
        uid = request.metadata.uid
        if not uid or uid in self._leaving:
            return
        self._leaving.add(uid)
        title = f"{request.metadata.namespace}/{request.spec.pod_name}"
        try:
            await delete_request(self._context.access.api, request)
            log.info("bind request deleted", pod=title, node=request.spec.selected_node, why=why)
        except ApiError as error:
            log.warning("bind request not deleted", pod=title, error=reason(error))
            if request_failed(request):
                self._remaining.append((request, why))
            self._context.retry_soon()
        finally:
            self._leaving.discard(uid)

    def remaining(self) -> list[tuple[BindRequest, str]]:
        """Return the failed requests that could not be deleted since the last call, with the reason to delete them."""
        remaining, self._remaining = self._remaining, []
        return remaining


def _as_bound(order: BindRequest, pod: Pod, node: str) -> BindRequest:
    """Return the request as if it had bound the pod to the node; it takes the uid of the pod."""
    metadata = structs.replace(order.metadata, uid=pod.metadata.uid)
    return structs.replace(order, metadata=metadata, spec=structs.replace(order.spec, selected_node=node))


T = TypeVar("T")


class _BoundSpec(Struct, rename="camel", frozen=True):
    node_name: str = ""


class _BoundPod(Struct, frozen=True):
    metadata: ObjectMeta
    spec: _BoundSpec


class Takeover:
    """Assumes the previous leader's writes that the watches do not show yet."""

    def __init__(self, api: Api, cache: ClusterCache, backoff: Backoff) -> None:
        self._api = api
        self._cache = cache
        self._backoff = backoff

    async def take(self, assumptions: Assumptions, context: WriterContext) -> None:
        """Assume all of them; pods bound without a request are listed only with a direct binder."""
        known = self._cache.of(BindRequest)
        before = dict(known)
        listed = await self._listed(partial(self._api.list, BIND_REQUEST, BindRequest))
        bound = [] if context.direct is None else [request async for request in self._bound()]
        until = context.until()
        for request in (*listed, *bound):
            meta = request.metadata
            key = meta.key
            shown, owner = before.get(key), next((o.uid for o in meta.owner_references or () if o.kind == "Pod"), "")
            is_new = shown is None or shown.metadata.uid != meta.uid
            if owner and is_new and known.get(key) is shown:
                assumptions.bind(request, owner)
                assumptions.trust_bind(request, until)

    async def _bound(self) -> AsyncIterator[BindRequest]:
        """Yield a request for each bound pod that the watch does not show as bound."""
        ours = f"spec.schedulerName={self._cache.params.scheduler_name}"
        where = Selection(fields=f"{ours},spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
        listed, known = await self._listed(partial(self._api.list, POD, _BoundPod, where)), self._cache.of(Pod)
        for pod in listed:
            meta, shown = pod.metadata, known.get(pod.metadata.key)
            if shown is None or shown.metadata.uid != meta.uid or not shown.spec.node_name:
                owner = OwnerReference(name=meta.name, kind="Pod", uid=meta.uid)
                yield BindRequest(
                    metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, owner_references=[owner]),
                    spec=BindRequestSpec(pod_name=meta.name, selected_node=pod.spec.node_name),
                )

    async def _listed(self, ask: Callable[[], Awaitable[Page[T]]]) -> Sequence[T]:
        """Return the listed objects, retrying with backoff until the list succeeds."""
        failures = 0
        while True:
            try:
                return (await ask()).items
            except ApiError as error:
                log.warning("writes of the previous leader not read yet", error=error.message)
            failures += 1
            await asyncio.sleep(self._backoff.after(failures))
