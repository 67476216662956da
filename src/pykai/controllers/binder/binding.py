"""One attempt to bind a pod: its value, the base of the steps that prepare it, the writes to the pod, and its status.

Everything that a bind adds to the pod (its group, the kind of share, NUMA zones) travels with the bind, which the API
server carries out as one change. Labels cannot, so they are written first: a bound pod always names its device.

The outcome is shown in the bind request's status, the pod's condition and an event. A success costs one write besides
the bind, because the condition is written only after a PodBound=False. That write does not delay the next bind: after a
restart the binder finds the pod bound and the request open, and writes the status then. The request is closed last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from msgspec import json, to_builtins

from pykai.controllers.binder.device_index import group_labels, label_changes, labelled_groups, requested_pod
from pykai.controllers.ttl_cache import TTLCache
from pykai.kube.api import Api, Object, Patch
from pykai.kube.api_resources import BIND_REQUEST, POD
from pykai.kube.backoff import Backoff
from pykai.kube.clock import wall
from pykai.kube.errors import ApiError, Conflict, Gone, NotFound, Timeout, TooManyRequests, Unauthorized, Unavailable
from pykai.kube.events import EventRecorder, Regarding
from pykai.kube.informer_store import Key
from pykai.kube.operations import bind
from pykai.objects import names
from pykai.objects.kinds import BindRequest, BindRequestStatus, Condition, Node, Pod
from pykai.objects.units import rfc3339

_RETRYABLE = (Conflict, Gone, Timeout, TooManyRequests, Unauthorized, Unavailable)

log = structlog.get_logger("binder")


class BindError(Exception):
    """The pod cannot be bound as requested; users read the text."""


class InvalidRequestError(BindError):
    """The request itself is invalid: the binder deletes it, and the scheduler decides again."""


def is_retryable(error: ApiError) -> bool:
    """Whether the same write may succeed later."""
    return isinstance(error, _RETRYABLE) or type(error) is ApiError


@dataclass(frozen=True, slots=True)
class WaitingStep:
    """A step waits for a watch event, which enqueues the pod; after `limit_seconds` the bind fails with `failure`."""

    step: str
    limit_seconds: float
    failure: str


@dataclass(frozen=True, slots=True)
class BindAttempt:
    """A bind in progress. `devices` are the ids of the pod's shared GPUs, in the order of its groups.

    `annotations`: what steps add to the pod with the bind.
    """

    request: BindRequest
    pod: Pod
    node: Node
    devices: tuple[str, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """(namespace, name) of the pod."""
        return self.pod.metadata.key

    @property
    def title(self) -> str:
        """The pod in messages."""
        return "/".join(self.key)


class Step:
    """A PreBind plugin. Steps run in order of priority, and a pod is bound after all of them have succeeded.

    Every step is idempotent: it may run again after it succeeded, or after another process got half-way. By default it
    leaves nothing behind, in the cluster or in memory.
    """

    name: str
    """The name in configuration and messages."""

    async def prepare(self, attempt: BindAttempt) -> WaitingStep | None:
        """Prepare the bind; return a WaitingStep to wait for an event. Raise BindError, or ApiError to retry."""
        raise NotImplementedError

    async def undo(self, pod: Pod, request: BindRequest | None) -> None:
        """Remove what `prepare` may have left for an unbound pod; None: its request is unknown."""

    async def orphans(self) -> Iterable[Key]:
        """Pods that hold what an earlier process prepared and that their own fields do not show; called at start."""
        return ()

    def forget(self, pod: Key) -> None:
        """Drop the state of a pod whose binding has ended, in success or failure."""


async def label_pod(api: Api, attempt: BindAttempt) -> None:
    """Set the labels of the request's GPU groups on the pod, and remove all others of the kind."""
    groups = attempt.request.spec.gpu_groups if attempt.devices else []
    wanted = group_labels(attempt.pod.metadata.annotations, groups)
    changes = label_changes(attempt.pod.metadata.labels, wanted)
    if not changes:
        return
    try:
        await api.patch(*_label_patch(attempt.pod, changes))
    except ApiError as error:
        if is_retryable(error):
            raise
        raise BindError(f"failed to patch pod {attempt.title} with GPU group label: {error.message}") from None


async def unlabel_pod(api: Api, pod: Pod) -> None:
    """Remove the group labels of an unbound pod; one that has been bound meanwhile keeps them."""
    try:
        now = await api.get(POD.ref(pod.metadata.name, pod.metadata.namespace), Pod)
        if now.metadata.uid != pod.metadata.uid or now.spec.node_name or not labelled_groups(now.metadata.labels):
            return
        await api.patch(*_label_patch(now, label_changes(now.metadata.labels, {}), now.metadata.resource_version))
    except NotFound:
        return
    log.info("GPU group labels removed", pod=pod.metadata.title)


async def bind_pod(api: Api, attempt: BindAttempt) -> str:
    """Bind the pod and return its node, which differs if another client bound it first."""
    (namespace, name), uid = attempt.key, attempt.pod.metadata.uid
    node = attempt.request.spec.selected_node
    try:
        added = {**bind_annotations(attempt.request, attempt.pod), **attempt.annotations}
        await bind(api, POD.ref(name, namespace), node, uid, added)
    except Conflict as error:
        now = await api.get(POD.ref(name, namespace), Pod)
        if now.metadata.uid == uid and now.spec.node_name:
            return now.spec.node_name
        if now.metadata.uid == uid and now.metadata.deletion_timestamp is None:
            raise
        raise BindError(_failure(attempt, error)) from None
    except ApiError as error:
        if is_retryable(error):
            raise
        raise BindError(_failure(attempt, error)) from None
    return node


def bind_annotations(request: BindRequest, pod: Pod) -> dict[str, str]:
    """Return the annotations that the bind adds; the group's name only if the pod does not carry one."""
    added = {names.RECEIVED_RESOURCE_TYPE: request.spec.received_resource_type}
    if names.POD_GROUP_ANNOTATION not in (pod.metadata.annotations or {}):
        added[names.POD_GROUP_ANNOTATION] = (request.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION, "")
    if request.spec.predicted_numa_zones:
        added[names.NUMA_PREDICTED] = json.encode(to_builtins(request.spec.predicted_numa_zones)).decode()
    return {name: text for name, text in added.items() if text}


def _failure(attempt: BindAttempt, error: ApiError) -> str:
    return f"failed to bind pod {attempt.title} to node {attempt.request.spec.selected_node}: {error.message}"


def _label_patch(pod: Pod, changes: Mapping[str, str | None], version: str = "") -> tuple[Any, Patch]:
    """Return the address and the patch that change labels; with `version` only of that version of the pod."""
    metadata: Object = {"uid": pod.metadata.uid, "labels": dict(changes)}
    if version:
        metadata["resourceVersion"] = version
    return POD.ref(pod.metadata.name, pod.metadata.namespace), Patch.merge({"metadata": metadata})


BOUND, BINDING_ERROR = "Bound", "BindingError"
UNBOUND_SECONDS = 60.0
"""Seconds for which a written condition PodBound=False is assumed before the watch shows it."""
BACKOFF = Backoff(initial=1.0, maximum=3600.0)
"""Between the attempts of a request with a `backoffLimit`."""
_FIELDS = {"phase": "phase", "reason": "reason", "failedAttempts": "failed_attempts"}


@dataclass(frozen=True, slots=True)
class PendingSuccess:
    """A bound pod whose status is not written yet."""

    request: BindRequest
    pod: Pod
    text: str


class BindStatusUpdater:
    """Writes the status of attempts.

    `enqueue(key)` gets every success to write; `write_success` with the same key writes it.
    """

    def __init__(self, api: Api, recorder: EventRecorder, enqueue: Callable[[Key], None]) -> None:
        self._api = api
        self._recorder = recorder
        self._enqueue = enqueue
        self._successes: dict[Key, PendingSuccess] = {}
        self._unbound: TTLCache[str, bool] = TTLCache(UNBOUND_SECONDS)

    def shows_unbound(self, pod: Pod) -> bool:
        """Whether the pod has the condition PodBound=False, or a write of it is not visible in the watch yet."""
        shown = _bound_condition(pod)
        return bool(self._unbound.get(pod.metadata.uid)) or (shown is not None and shown.status != "True")

    def bound(self, pod: Pod, node: str) -> str:
        """Record the event of a bound pod; returns its text."""
        text = f"Pod bound successfully to node {node}"
        self._recorder.record(Regarding.of(POD, pod.metadata), BOUND, text)
        return text

    def succeeded(self, request: BindRequest, pod: Pod, node: str) -> None:
        """Record a success and enqueue its status; the node may be another one than selected."""
        success = PendingSuccess(request, pod, self.bound(pod, node))
        self._successes[requested_pod(request)] = success
        self._enqueue(requested_pod(request))

    async def write_success(self, key: Key) -> None:
        """Write the status of a success; raises retryable errors of the server."""
        success = self._successes.get(key)
        if success is None:
            return
        request, pod = success.request, success.pod
        if self.shows_unbound(pod):
            condition = Condition(type=names.POD_BOUND, status="True", reason=BOUND, message=success.text)
            await self._write_condition(pod, condition)
        await self._write(request, BindRequestStatus(phase="Succeeded", failed_attempts=request.status.failed_attempts))
        self._unbound.drop(pod.metadata.uid)
        if self._successes.get(key) is success:
            del self._successes[key]

    async def failed(self, request: BindRequest, pod: Pod | None, why: str) -> float | None:
        """Write a failure; returns seconds until the next attempt, None after the last. `pod` None: it is gone."""
        attempts = request.status.failed_attempts
        status = BindRequestStatus(phase="Failed", reason=why, failed_attempts=attempts + 1)
        await self._write(request, status)
        if pod is not None:
            title = pod.metadata.title
            text = f"Failed to bind pod {title} to node {request.spec.selected_node}: {why}"
            self._recorder.record(Regarding.of(POD, pod.metadata), BINDING_ERROR, text, "Warning")
            condition = Condition(type=names.POD_BOUND, status="False", reason=BINDING_ERROR, message=text)
            if _bound_condition(pod) != condition:
                self._unbound.put(pod.metadata.uid, True)
                try:
                    await self._write_condition(pod, condition)
                except ApiError as error:  # no reason to repeat the bind
                    log.warning("pod condition not written", pod=title, error=error.message)
        limit = request.spec.backoff_limit
        return BACKOFF.after(attempts + 1) if limit is not None and attempts + 1 < limit else None

    async def _write(self, request: BindRequest, status: BindRequestStatus) -> None:
        meta, before = request.metadata, request.status
        body: Object = {
            "phase": status.phase,
            "reason": status.reason or None,
            "failedAttempts": status.failed_attempts,
        }
        patch = {key: value for key, value in body.items() if value or getattr(before, _FIELDS[key])}
        ref = BIND_REQUEST.ref(meta.name, meta.namespace)
        try:
            await self._api.patch(ref.sub("status"), Patch.merge({"metadata": {"uid": meta.uid}, "status": patch}))
        except NotFound:
            log.info("bind request is gone", request=meta.title)
        except Conflict:
            if (await self._api.get(ref, BindRequest)).metadata.uid == meta.uid:
                raise
            log.info("bind request was replaced", request=meta.title)

    async def _write_condition(self, pod: Pod, condition: Condition) -> None:
        """Set a condition if the pod still exists; raises retryable errors of the server."""
        shown = {"type": condition.type, "status": condition.status, "reason": condition.reason}
        shown |= {"message": condition.message, "lastTransitionTime": rfc3339(wall())}
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [shown]}}
        ref = POD.ref(pod.metadata.name, pod.metadata.namespace).sub("status")
        try:
            await self._api.patch(ref, Patch.strategic(body))
        except NotFound:
            log.info("pod is gone", pod=f"{ref.namespace}/{ref.name}")
        except Conflict:
            if (await self._api.get(POD.ref(ref.name, ref.namespace), Pod)).metadata.uid == pod.metadata.uid:
                raise
            log.info("pod was replaced", pod=f"{ref.namespace}/{ref.name}")
        except ApiError as error:
            if is_retryable(error):
                raise
            log.warning("pod condition not written", pod=f"{ref.namespace}/{ref.name}", error=error.message)


def _bound_condition(pod: Pod) -> Condition | None:
    return next((each for each in pod.status.conditions or () if each.type == names.POD_BOUND), None)
