"""Carry out bind requests: from the scheduler's decision to a bound pod.

Reconciles are keyed by pod and level-triggered: a reconcile does what the observed state allows and returns. To wait
for a device or a volume it returns, too; a watch event enqueues the pod again. Steps are idempotent, so a reconcile
may be repeated, interrupted, or continued by another process at any point.

    open request ─► devices reserved ─► pod labelled ─► steps ─► bound ─► Succeeded
                       └──────────────────┴──────────────┴────────┴─► undone ─► Failed

A failure is final unless the request has a `backoffLimit`. A request that failed for good is not retried: its resources
may belong to another pod by then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from pykai.cache.pods import request_failed
from pykai.controllers.binder.binding import (
    BindAttempt,
    BindError,
    BindStatusUpdater,
    InvalidRequestError,
    Step,
    WaitingStep,
    bind_pod,
    is_retryable,
    label_pod,
    unlabel_pod,
)
from pykai.controllers.binder.device_index import (
    DeviceIndex,
    is_finished,
    is_meant_for,
    is_open,
    is_terminating,
    may_hold,
    request_groups,
    requested_pod,
)
from pykai.controllers.binder.reservations import Reservations
from pykai.controllers.ttl_cache import TTLCache
from pykai.kube.api import Api, Deletion
from pykai.kube.api_resources import BIND_REQUEST, POD
from pykai.kube.clock import steady
from pykai.kube.errors import ApiError, Conflict, NotFound
from pykai.kube.informer import SharedInformer
from pykai.kube.informer_store import Key
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Node, Pod

RESERVATION = "reservation"
DELIVERING = ("gpusharing", "nvfractions")
"""Steps that give a container its share of a GPU; without any of them a share cannot be bound."""
MAX_RETRIES = 5
STALE_POD_SECONDS = 60.0
"""Seconds after an undo for which the pod is read from the API server, because the watch may be stale."""

log = structlog.get_logger("binder")


@dataclass(frozen=True, slots=True)
class BindRules:
    """The scheduler whose pods are bound, and how long a device may take to become known."""

    scheduler_name: str = names.SCHEDULER_NAME
    allocation_seconds: float = 40.0


class RequestLookup:
    """What a bind request refers to: pod, node, shared devices. Raises BindError for whatever is missing."""

    def __init__(
        self, api: Api, pods: SharedInformer[Pod], nodes: SharedInformer[Node], reservations: Reservations
    ) -> None:
        self._api = api
        self._pods = pods
        self._nodes = nodes
        self._reservations = reservations

    def cached_pod(self, key: Key) -> Pod | None:
        """Return the pod according to the watch."""
        return self._pods.get(key[1], key[0])

    async def live_pod(self, key: Key) -> Pod | None:
        """Return the pod according to the API server, None if it does not exist."""
        try:
            return await self._api.get(POD.ref(key[1], key[0]), Pod)
        except NotFound:
            return None

    async def pod(self, request: BindRequest, *, live: bool) -> Pod:
        """Return the request's pod if it is bound or can be; `live`: read from the API server."""
        namespace, name = requested_pod(request)
        if not name:
            raise InvalidRequestError("spec.podName is empty: invalid binding request")
        pod = None if live else self._pods.get(name, namespace)
        try:
            pod = await self._api.get(POD.ref(name, namespace), Pod) if pod is None else pod
        except NotFound as error:
            raise BindError(error.message) from None
        if not is_meant_for(request, pod):
            raise BindError(f'pods "{name}" not found: the pod of that name is not the one of the request')
        if not pod.spec.node_name and (is_finished(pod) or is_terminating(pod)):
            raise BindError(f'pod "{name}" is {"being deleted" if is_terminating(pod) else pod.status.phase}')
        return pod

    def node(self, request: BindRequest) -> Node:
        """Return the selected node."""
        node = self._nodes.get(request.spec.selected_node)
        if node is None:
            raise BindError(f'nodes "{request.spec.selected_node}" not found')
        return node

    def devices(self, request: BindRequest, limit_seconds: float) -> tuple[str, ...] | WaitingStep:
        """Return the ids of the pod's shared devices in the order of its groups; empty for a pod that shares none."""
        if request.spec.received_resource_type != names.RECEIVED_FRACTION:
            return ()
        self.node(request)
        devices = []
        title = "/".join(requested_pod(request))
        for key in request_groups(request):
            failure = f"failed to reserve GPUs for pod {title} in gpu group {key.group}"
            try:
                device = self._reservations.device(key)
            except BindError as error:
                raise BindError(f"{failure}: {error}") from None
            if not device:
                return WaitingStep(RESERVATION, limit_seconds, f"{failure}: {self._reservations.timeout_message(key)}")
            devices.append(device)
        if not devices:
            raise InvalidRequestError("no SelectedGPUGroups for fractional pod: invalid binding request")
        return tuple(devices)

    async def reservation_states(self, request: BindRequest) -> list[str]:
        """Return what is wrong with the containers of the reservation pods of the request's groups."""
        states = [await self._reservations.container_state(key) for key in request_groups(request)]
        return [state for state in states if state]

    def reserved(self, request: BindRequest) -> list[str]:
        """Return the ids of the devices of the request's groups, for log lines."""
        return [self._reservations.held(key) for key in request_groups(request)]


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What reconciles work with; `failures` counts a pod's failed reconciles in a row."""

    api: Api
    index: DeviceIndex
    lookup: RequestLookup
    failures: Callable[[Key], int]


@dataclass(slots=True)
class BindProgress:
    """The in-memory progress of one request; losing it costs only time.

    `failure`: why the attempt failed, until that is written. A failed write may have reached the server, and the
    scheduler may act on it, so no other attempt follows before the failure is written.
    """

    request: BindRequest
    failure: str = ""
    waits: dict[str, float] = field(default_factory=dict)
    not_before: float = 0.0
    closed: bool = False


class BindRequestReconciler:
    """Reconciles the bind requests of all pods."""

    def __init__(
        self, context: RequestContext, steps: tuple[Step, ...], status: BindStatusUpdater, rules: BindRules
    ) -> None:
        self._api = context.api
        self._index = context.index
        self._lookup = context.lookup
        self._context = context
        self._steps = steps
        self._delivers = any(step.name in DELIVERING for step in steps)
        self._status = status
        self._rules = rules
        self._progress: dict[Key, BindProgress] = {}
        self._orphans: set[Key] = set()
        self._undone: TTLCache[Key, bool] = TTLCache(STALE_POD_SECONDS)

    async def find_orphans(self) -> set[Key]:
        """Return pods to reconcile at start, because an earlier process left something prepared for them."""
        for step in self._steps:
            self._orphans.update(await step.orphans())
        return set(self._orphans)

    async def reconcile(self, key: Key) -> float | None:
        """Advance the binding of a pod; returns seconds until the next reconcile."""
        request = next((each for each in self._index.requests_for(key) if is_open(each)), None)
        known = self._progress.get(key)
        if known is None or request is None or known.request.metadata.uid != request.metadata.uid:
            await self._clean_up(key, known)
        if request is None:
            return None
        progress = self._progress.setdefault(key, BindProgress(request))
        rest = progress.not_before - steady()
        if progress.closed or rest > 0:
            return None if progress.closed else rest
        return await self._try_to_bind(request, progress)

    async def _clean_up(self, key: Key, known: BindProgress | None) -> None:
        """Undo the preparation of deleted requests, and forget them."""
        if known is None or known.closed:
            await self._undo_unknown(key)
        else:
            pod = await self._lookup.live_pod(key)
            if pod is not None and not pod.spec.node_name and is_meant_for(known.request, pod):
                await self._undo(known.request, pod)
        self._index.forget(key)
        if self._progress.pop(key, None) is not None:
            for step in self._steps:
                step.forget(key)

    async def _undo_unknown(self, key: Key) -> None:
        """Undo what an earlier process may have prepared for a pod that has no request now."""
        cached = self._lookup.cached_pod(key)
        if cached is None or not (may_hold(cached) or key in self._orphans) or not self._is_unrequested(cached):
            self._orphans.discard(key)
            return
        pod = await self._lookup.live_pod(key)
        if pod is not None and self._is_unrequested(pod):
            await self._undo(None, pod)
        self._orphans.discard(key)

    def _is_unrequested(self, pod: Pod) -> bool:
        """Whether a pod of ours is unbound and has no request."""
        if pod.spec.node_name or pod.spec.scheduler_name != self._rules.scheduler_name:
            return False
        requests = self._index.requests_for(pod.metadata.key)
        return not any(is_meant_for(each, pod) and not request_failed(each) for each in requests)

    # ------------------------------------------------------------------------------------------------- binding
    async def _try_to_bind(self, request: BindRequest, progress: BindProgress) -> float | None:
        key = requested_pod(request)
        if progress.failure:
            return await self._fail(request, progress, progress.failure)
        try:
            return await self._attempt(request, progress)
        except InvalidRequestError as error:
            log.warning("bind request deleted", pod="/".join(key), reason=str(error))
            meta = request.metadata
            with suppress(NotFound, Conflict):
                await self._api.delete(BIND_REQUEST.ref(meta.name, meta.namespace), Deletion(uid=meta.uid))
            progress.closed = True
            return None
        except BindError as error:
            why = str(error)
        except ApiError as error:
            if is_retryable(error) and self._context.failures(key) < MAX_RETRIES:
                raise
            why = error.message
        except Exception as error:
            log.exception("bind request crashed", pod="/".join(key))
            why = f"Internal Error: {error}"
        return await self._fail(request, progress, why)

    async def _attempt(self, request: BindRequest, progress: BindProgress) -> float | None:
        """Bind the pod; return the seconds it may still wait, None if it is bound."""
        key = requested_pod(request)
        pod = await self._lookup.pod(request, live=bool(self._undone.get(key)))
        if pod.spec.node_name:
            self._succeed(request, pod, progress, pod.spec.node_name)
            return None
        devices = self._lookup.devices(request, self._rules.allocation_seconds)
        if isinstance(devices, WaitingStep):
            self._index.forget(key)
            return await self._wait_for_reservation(progress, devices)
        if devices and not self._delivers:
            raise BindError(
                "GPU sharing is disabled: no binder plugin is on that gives a pod its share of a GPU "
                f"({', '.join(DELIVERING)}); see the chart value global.gpuSharingMode"
            )
        attempt = BindAttempt(request, pod, self._lookup.node(request), devices)
        self._index.assume(key, request_groups(request))
        await label_pod(self._api, attempt)
        for step in self._steps:
            waiting = await _prepared(step, attempt)
            if waiting is not None:
                return self._wait(progress, waiting)
        self._check_unchanged(attempt)
        node = await bind_pod(self._api, attempt)
        self._succeed(request, pod, progress, node)
        return None

    def _check_unchanged(self, attempt: BindAttempt) -> None:
        """Conflict if the request was deleted or its devices changed during the preparation."""
        requests = self._index.requests_for(attempt.key)
        if not any(is_open(each) and each.metadata.uid == attempt.request.metadata.uid for each in requests):
            raise Conflict(f"the bind request of pod {attempt.title} was taken back")
        if self._lookup.devices(attempt.request, self._rules.allocation_seconds) != attempt.devices:
            raise Conflict(f"the GPU reservation of pod {attempt.title} changed")

    async def _wait_for_reservation(self, progress: BindProgress, waiting: WaitingStep) -> float:
        """As `_wait`; after a timeout the failure includes the state of the reservation pod's container."""
        try:
            return self._wait(progress, waiting)
        except BindError as error:
            details = await self._lookup.reservation_states(progress.request)
            raise BindError(", ".join([str(error), *details])) from None

    def _wait(self, progress: BindProgress, waiting: WaitingStep) -> float:
        now = steady()
        left = progress.waits.setdefault(waiting.step, now) + waiting.limit_seconds - now
        if left <= 0:
            raise BindError(waiting.failure)
        return left

    # ------------------------------------------------------------------------------------------------- outcome
    def _succeed(self, request: BindRequest, pod: Pod, progress: BindProgress, node: str) -> None:
        self._status.succeeded(request, pod, node)
        log.info("pod bound", pod="/".join(requested_pod(request)), node=node, gpus=self._lookup.reserved(request))
        progress.closed = True

    async def _fail(self, request: BindRequest, progress: BindProgress, why: str) -> float | None:
        """Undo the preparation and write the failure; if the pod turns out to be bound, write success instead."""
        progress.failure = why
        pod = await self._lookup.live_pod(requested_pod(request))
        pod = pod if pod is not None and is_meant_for(request, pod) else None
        if pod is not None and pod.spec.node_name:
            self._succeed(request, pod, progress, pod.spec.node_name)
            return None
        if pod is not None:
            await self._undo(request, pod)
        self._index.forget(requested_pod(request))
        retry = await self._status.failed(request, pod, why)
        title = "/".join(requested_pod(request))
        log.warning("pod not bound", pod=title, node=request.spec.selected_node, reason=why, retry_seconds=retry)
        progress.closed, progress.failure = retry is None, ""
        progress.waits.clear()
        progress.not_before = steady() + (retry or 0.0)
        return retry

    async def _undo(self, request: BindRequest | None, pod: Pod) -> None:
        """Undo all steps; remove the labels last, because they mark a pod that may still hold resources."""
        self._undone.put(pod.metadata.key, True)
        for undo in (*(step.undo for step in self._steps), self._unlabel):
            try:
                await undo(pod, request)
            except ApiError as error:
                if is_retryable(error):
                    raise
                log.warning("preparation not undone", pod=pod.metadata.title, error=error.message)

    async def _unlabel(self, pod: Pod, _: BindRequest | None) -> None:
        await unlabel_pod(self._api, pod)


async def _prepared(step: Step, attempt: BindAttempt) -> WaitingStep | None:
    """Run a step; its final errors become a BindError that names it."""
    try:
        waiting = await step.prepare(attempt)
    except BindError as error:
        raise BindError(f"plugin {step.name} failed in PreBind: {error}") from None
    except ApiError as error:
        if is_retryable(error):
            raise
        raise BindError(f"plugin {step.name} failed in PreBind: {error.message}") from None
    if waiting is None:
        return None
    return WaitingStep(waiting.step, waiting.limit_seconds, f"plugin {step.name} failed in PreBind: {waiting.failure}")
