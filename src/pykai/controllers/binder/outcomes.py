"""What is written about an attempt: the bind request's status, the pod's condition and an event.

A success costs one write beside the bind: the pod shows by itself that it is bound, so its condition is only written
when an earlier attempt left it saying the opposite. Nobody waits for that write: the next pod is bound meanwhile, and a
process that starts anew finds the pod on its node and the request open, and writes it then. So the request is closed
last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from pykai.controllers.binder.attempt import is_passing
from pykai.controllers.binder.groups import Key, requested_pod
from pykai.controllers.recent import Recent
from pykai.kube.api import Api, Object, Patch
from pykai.kube.errors import ApiError, Conflict, NotFound
from pykai.kube.events import EventRecorder, Regarding
from pykai.kube.resources import BIND_REQUEST, POD
from pykai.objects import names
from pykai.objects.kinds import BindRequest, BindRequestStatus, Condition, Pod
from pykai.objects.units import rfc3339

BOUND, BINDING_ERROR = "Bound", "BindingError"
DENIED_SECONDS = 60.0
"""For how long we remember which pods were told that they are not bound: until the watch shows it."""

log = structlog.get_logger("binder")


@dataclass(frozen=True, slots=True)
class Success:
    """A pod that is on its node, and what is said about it."""

    request: BindRequest
    pod: Pod
    text: str


class Outcomes:
    """Writes how attempts ended; `wall` gives seconds since 1970.

    `later(key)` is told of successes to write: each is written by a call of `write_success` with the same key.
    """

    def __init__(
        self, api: Api, recorder: EventRecorder, wall: Callable[[], float], later: Callable[[Key], None]
    ) -> None:
        self._api = api
        self._recorder = recorder
        self._wall = wall
        self._later = later
        self._successes: dict[Key, Success] = {}
        self._denied: Recent[str, bool] = Recent(DENIED_SECONDS, wall)

    def denies(self, pod: Pod) -> bool:
        """Whether the pod says that it is not bound, or was told so and the watch does not show it yet."""
        shown = _bound_condition(pod)
        return bool(self._denied.get(pod.metadata.uid)) or (shown is not None and shown.status != "True")

    def bound(self, pod: Pod, node: str) -> str:
        """Say that the pod is on a node, without a request to close; returns what is said."""
        text = f"Pod bound successfully to node {node}"
        self._recorder.record(_about(pod), BOUND, text)
        return text

    def succeeded(self, request: BindRequest, pod: Pod, node: str) -> None:
        """The pod is on a node: the one that was selected, or one that somebody else chose."""
        success = Success(request, pod, self.bound(pod, node))
        self._successes[requested_pod(request)] = success
        self._later(requested_pod(request))

    async def write_success(self, key: Key) -> None:
        """Write a success that was told of; what the server refuses for the moment is raised."""
        success = self._successes.get(key)
        if success is None:
            return
        request, pod = success.request, success.pod
        if self.denies(pod):
            await self._show(pod, Condition(type=names.POD_BOUND, status="True", reason=BOUND, message=success.text))
        await self._write(request, BindRequestStatus(phase="Succeeded", failed_attempts=request.status.failed_attempts))
        self._denied.drop(pod.metadata.uid)
        if self._successes.get(key) is success:
            del self._successes[key]

    async def failed(self, request: BindRequest, pod: Pod | None, why: str) -> float | None:
        """The attempt failed: seconds until the next one, None if it was the last. `pod` None: there is none."""
        attempts = request.status.failed_attempts
        status = BindRequestStatus(phase="Failed", reason=why, failed_attempts=attempts + 1)
        await self._write(request, status)
        if pod is not None:
            title = f"{pod.metadata.namespace}/{pod.metadata.name}"
            text = f"Failed to bind pod {title} to node {request.spec.selected_node}: {why}"
            self._recorder.record(_about(pod), BINDING_ERROR, text, "Warning")
            condition = Condition(type=names.POD_BOUND, status="False", reason=BINDING_ERROR, message=text)
            if _bound_condition(pod) != condition:
                await self._try_to_show(pod, condition)
        limit = request.spec.backoff_limit
        return 2.0**attempts if limit is not None and attempts + 1 < limit else None

    async def _write(self, request: BindRequest, status: BindRequestStatus) -> None:
        meta, before = request.metadata, request.status
        body: Object = {
            "phase": status.phase,
            "reason": status.reason or None,
            "failedAttempts": status.failed_attempts,
        }
        wish = {key: value for key, value in body.items() if value or getattr(before, _FIELDS[key])}
        ref = BIND_REQUEST.ref(meta.name, meta.namespace)
        try:
            await self._api.patch(ref.sub("status"), Patch.merge({"metadata": {"uid": meta.uid}, "status": wish}))
        except NotFound:
            log.info("bind request is gone", request=f"{meta.namespace}/{meta.name}")
        except Conflict:
            if (await self._api.get(ref, BindRequest)).metadata.uid == meta.uid:
                raise
            log.info("bind request was replaced", request=f"{meta.namespace}/{meta.name}")

    async def _try_to_show(self, pod: Pod, condition: Condition) -> None:
        """Set a condition of a failure; a server that does not answer is no reason to try the bind again."""
        self._denied.put(pod.metadata.uid, True)
        try:
            await self._show(pod, condition)
        except ApiError as error:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            log.warning("pod condition not written", pod=name, error=error.message)

    async def _show(self, pod: Pod, condition: Condition) -> None:
        """Set a condition, if the pod is still there; what the server refuses for the moment is raised."""
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
            if is_passing(error):
                raise
            log.warning("pod condition not written", pod=f"{ref.namespace}/{ref.name}", error=error.message)


_FIELDS = {"phase": "phase", "reason": "reason", "failedAttempts": "failed_attempts"}


def _bound_condition(pod: Pod) -> Condition | None:
    return next((each for each in pod.status.conditions or () if each.type == names.POD_BOUND), None)


def _about(pod: Pod) -> Regarding:
    return Regarding("v1", "Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)
