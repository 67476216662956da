"""Binds: directly where that is possible, else by a bind request, which is deleted where it has no future.

A bind that fails holds its whole gang for a while: half a gang that starts is worse than one that waits.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

import structlog
from msgspec import structs

from pykai.cache.pods import request_failed, request_is_for
from pykai.kube.api import Patch
from pykai.kube.errors import ApiError, NotFound
from pykai.kube.resources import BIND_REQUEST, POD
from pykai.model.params import SchedulerParams
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Pod
from pykai.scheduler.hands import Hands
from pykai.scheduler.notices import PodNotice
from pykai.scheduler.orders import Binding
from pykai.scheduler.requests import create_request, delete_request, is_in_force, is_uncertain, reason
from pykai.scheduler.telling import about_pod

log = structlog.get_logger(component="scheduler")


class Placer:
    """Writes bind requests, at most `at_once` at a time."""

    def __init__(self, hands: Hands, at_once: int) -> None:
        self._hands = hands
        self._turns = asyncio.Semaphore(at_once)
        self._leaving: set[str] = set()
        """Uids of requests that are being deleted."""
        self._remaining: list[tuple[BindRequest, str]] = []
        """Failed requests that could not be deleted, and why they should be."""

    async def place(self, binding: Binding, params: SchedulerParams) -> None:
        """Bind the pod, or create the request to bind it, and tell about it."""
        order, assumptions = binding.request, self._hands.assumptions
        async with self._turns:
            began = time.perf_counter()
            try:
                request = await self._written(binding)
            except ApiError as error:
                self._failed(binding, error)
                return
            finally:
                assumptions.trust_bind(order, self._hands.until())
            took = time.perf_counter() - began
        if request is None:
            return
        assumptions.created(order, request, self._hands.until())
        if request.spec.selected_node != binding.bind.node:
            where = {"node": request.spec.selected_node, "wanted": binding.bind.node}
            log.info("bind request exists already", pod="/".join(binding.bind.pod), **where)
            self._hands.soon()
            return
        self._tell(binding, request, params)
        self._measure(binding.pod, took)
        await self._label(binding.pod, params)

    async def _written(self, binding: Binding) -> BindRequest | None:
        """The request that was created, or what it would have been where the pod was bound without one; None where the
        bind is not wanted any more.

        A request after a direct bind whose answer got lost is for the same node: whichever of the two is carried out.
        """
        order, wanted = binding.request, partial(self._hands.assumptions.wants, binding.request)
        doubt: ApiError | None = None
        if self._hands.direct is not None and wanted():
            try:
                if node := await self._hands.direct.bind(order):
                    return _carried_out(order, binding.pod, node)
            except ApiError as error:
                doubt = error
        try:
            return await create_request(self._hands.out.api, binding.body, wanted)
        except ApiError as error:
            raise doubt or error from error

    def _tell(self, binding: Binding, request: BindRequest, params: SchedulerParams) -> None:
        bind, spec = binding.bind, request.spec
        devices = {"gpu_groups": ",".join(spec.selected_gpu_groups)} if spec.selected_gpu_groups else {}
        title, gpus = "/".join(bind.pod), round(bind.devices * bind.portion, 2)
        log.info("pod scheduled", pod=title, node=spec.selected_node, gpus=gpus, **devices)
        where = f"node {spec.selected_node} at node-pool {params.pool_title}"
        self._hands.out.recorder.record(
            about_pod(binding.pod), "Scheduled", f"Successfully assigned pod {title} to {where}"
        )

    def _measure(self, pod: Pod, took: float) -> None:
        metrics, created = self._hands.metrics, pod.metadata.creation_timestamp
        metrics.observe("task_bind_latency_milliseconds", took * 1000)
        if created is not None:
            waited = max(self._hands.out.clock() - created.timestamp(), 0.0)
            metrics.observe("task_scheduling_latency_milliseconds", waited * 1000)

    def _failed(self, binding: Binding, error: ApiError) -> None:
        """Take the bind back; one that may exist all the same is counted until the watch has had time to show it.

        One that is not wanted any more has not failed: the watch has shown it, or its pod is gone.
        """
        pod, bind = binding.pod, binding.bind
        if not self._hands.assumptions.wants(binding.request):
            return
        if is_uncertain(error):
            self._hands.wanted(self._hands.until())
        else:
            self._hands.assumptions.bind_failed(binding.request)
        title = "/".join(bind.pod)
        message = f"Failed to bind pod {title} to node {bind.node}. {reason(error)}"
        log.warning("bind request not created", pod=title, node=bind.node, error=reason(error))
        self._hands.out.recorder.record(about_pod(pod), "FailedBinding", message, "Warning")
        if not (is_uncertain(error) or isinstance(error, NotFound)):
            self._hands.teller.mark_pod(bind.pod, PodNotice(pod.metadata.uid, message, condition="BindingError"))
        self._hands.hold(binding.gang, (bind.pod, pod.metadata.uid))

    async def _label(self, pod: Pod, params: SchedulerParams) -> None:
        """The pod carries the label of the node pool it was given a place in."""
        meta = pod.metadata
        known = (meta.labels or {}).get(params.node_pool_key)
        if not params.partitioned or not params.node_pool or known == params.node_pool:
            return
        body = {"metadata": {"uid": meta.uid, "labels": {params.node_pool_key: params.node_pool}}}
        try:
            await self._hands.out.api.patch(POD.ref(meta.name, meta.namespace), Patch.merge(body))
        except ApiError as error:
            log.warning("pod not labelled", pod=f"{meta.namespace}/{meta.name}", error=reason(error))

    async def confirm(self, order: BindRequest) -> None:
        """Ask the server about a bind that no watch has shown: it counts while its request, or its pod, says so."""
        assumptions, meta = self._hands.assumptions, order.metadata
        try:
            found = await self._in_force(order)
        except ApiError as error:
            log.warning("bind request not asked about", pod=f"{meta.namespace}/{meta.name}", error=reason(error))
            assumptions.trust_bind(order, self._hands.until())
            return
        if found is not None:
            assumptions.created(order, found, self._hands.until())
        else:
            assumptions.bind_failed(order)
            self._hands.soon()

    async def _in_force(self, order: BindRequest) -> BindRequest | None:
        """What the server knows of an order: its request, or that its pod is bound; None where it knows neither."""
        api, meta = self._hands.out.api, order.metadata
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
        return (
            _carried_out(order, pod, pod.spec.node_name) if pod.spec.node_name and request_is_for(order, pod) else None
        )

    # ------------------------------------------------------------------------------------------------------------ ends
    def given_up(self, request: BindRequest, pod: Pod | None) -> None:
        """Hold the gang of a pod whose request the binder has given up; None: the pod is gone."""
        if pod is not None and not pod.spec.node_name and request_is_for(request, pod):
            meta = pod.metadata
            group = (meta.annotations or {}).get(names.POD_GROUP_ANNOTATION, "")
            self._hands.hold((meta.namespace, group), ((meta.namespace, meta.name), meta.uid))

    async def delete(self, request: BindRequest, why: str) -> None:
        """Delete a request; one that the server has not answered yet is left to the next cycle.

        One that failed and could not be deleted is among those `remaining`; a node that is gone shows in every cycle.
        """
        uid = request.metadata.uid
        if not uid or uid in self._leaving:
            return
        self._leaving.add(uid)
        title = f"{request.metadata.namespace}/{request.spec.pod_name}"
        try:
            await delete_request(self._hands.out.api, request)
            log.info("bind request deleted", pod=title, node=request.spec.selected_node, why=why)
        except ApiError as error:
            log.warning("bind request not deleted", pod=title, error=reason(error))
            if request_failed(request):
                self._remaining.append((request, why))
            self._hands.soon()
        finally:
            self._leaving.discard(uid)

    def remaining(self) -> list[tuple[BindRequest, str]]:
        """Failed requests that could not be deleted since the last call, and why they should be."""
        remaining, self._remaining = self._remaining, []
        return remaining


def _carried_out(order: BindRequest, pod: Pod, node: str) -> BindRequest:
    """An order whose pod is on a node without a request: the pod stands for it."""
    metadata = structs.replace(order.metadata, uid=pod.metadata.uid)
    return structs.replace(order, metadata=metadata, spec=structs.replace(order.spec, selected_node=node))
