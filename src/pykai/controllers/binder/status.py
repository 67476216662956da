"""Status of bind attempts: the bind request's status, the pod's condition and an event.

A success costs one write besides the bind: the pod itself shows that it is bound, so its condition is written only if
an earlier attempt left a contrary one. The write does not hold up the next bind; a process that starts anew finds the
pod on its node and the request open, and writes the status then. The request is therefore closed last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from pykai.controllers.binder.binding import is_retryable
from pykai.controllers.binder.device_index import Key, requested_pod
from pykai.controllers.ttl_cache import TTLCache
from pykai.kube.api import Api, Object, Patch
from pykai.kube.backoff import Backoff
from pykai.kube.errors import ApiError, Conflict, NotFound
from pykai.kube.events import EventRecorder, Regarding
from pykai.kube.resources import BIND_REQUEST, POD
from pykai.objects import names
from pykai.objects.kinds import BindRequest, BindRequestStatus, Condition, Pod
from pykai.objects.units import rfc3339

BOUND, BINDING_ERROR = "Bound", "BindingError"
UNBOUND_SECONDS = 60.0
"""How long a condition PodBound=False that we wrote counts before the watch shows it."""
BACKOFF = Backoff(initial=1.0, maximum=3600.0)
"""Between the attempts of a request with a `backoffLimit`."""
_FIELDS = {"phase": "phase", "reason": "reason", "failedAttempts": "failed_attempts"}

log = structlog.get_logger("binder")


@dataclass(frozen=True, slots=True)
class PendingSuccess:
    """A bound pod whose status is not written yet."""

    request: BindRequest
    pod: Pod
    text: str


class StatusUpdater:
    """Writes the status of attempts; `wall` gives seconds since 1970.

    `enqueue(key)` gets every success to write; `write_success` with the same key writes it.
    """

    def __init__(
        self, api: Api, recorder: EventRecorder, wall: Callable[[], float], enqueue: Callable[[Key], None]
    ) -> None:
        self._api = api
        self._recorder = recorder
        self._wall = wall
        self._enqueue = enqueue
        self._successes: dict[Key, PendingSuccess] = {}
        self._unbound: TTLCache[str, bool] = TTLCache(UNBOUND_SECONDS, wall)

    def shows_unbound(self, pod: Pod) -> bool:
        """Whether the pod has the condition PodBound=False, or a write of it is not visible in the watch yet."""
        shown = _bound_condition(pod)
        return bool(self._unbound.get(pod.metadata.uid)) or (shown is not None and shown.status != "True")

    def bound(self, pod: Pod, node: str) -> str:
        """Record the event of a bound pod; returns its text."""
        text = f"Pod bound successfully to node {node}"
        self._recorder.record(_about(pod), BOUND, text)
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
            title = f"{pod.metadata.namespace}/{pod.metadata.name}"
            text = f"Failed to bind pod {title} to node {request.spec.selected_node}: {why}"
            self._recorder.record(_about(pod), BINDING_ERROR, text, "Warning")
            condition = Condition(type=names.POD_BOUND, status="False", reason=BINDING_ERROR, message=text)
            if _bound_condition(pod) != condition:
                await self._try_to_write_condition(pod, condition)
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
            log.info("bind request is gone", request=f"{meta.namespace}/{meta.name}")
        except Conflict:
            if (await self._api.get(ref, BindRequest)).metadata.uid == meta.uid:
                raise
            log.info("bind request was replaced", request=f"{meta.namespace}/{meta.name}")

    async def _try_to_write_condition(self, pod: Pod, condition: Condition) -> None:
        """Set the condition of a failure; an error of the server is no reason to repeat the bind."""
        self._unbound.put(pod.metadata.uid, True)
        try:
            await self._write_condition(pod, condition)
        except ApiError as error:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            log.warning("pod condition not written", pod=name, error=error.message)

    async def _write_condition(self, pod: Pod, condition: Condition) -> None:
        """Set a condition if the pod still exists; raises retryable errors of the server."""
        shown = {"type": condition.type, "status": condition.status, "reason": condition.reason}
        shown |= {"message": condition.message, "lastTransitionTime": rfc3339(self._wall())}
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


def _about(pod: Pod) -> Regarding:
    return Regarding("v1", "Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)
