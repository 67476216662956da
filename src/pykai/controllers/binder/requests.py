"""Carry out bind requests: from the scheduler's decision to a pod on its node.

Work is keyed by pod. A run looks at the watched state, does what can be done now and ends; where it must wait (for a
device, for a volume) it gives up its worker and news bring it back. So a run may be repeated, interrupted or begun by
another process at any point: what is done already is left as it is.

    open request ─► devices reserved ─► pod labelled ─► steps ─► bound ─► Succeeded
                       └──────────────────┴──────────────┴────────┴─► undone ─► Failed

A failure is final unless the request has a `backoffLimit`. A request that failed for good is not tried again: its
place may be given to another pod by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from pykai.cache.pods import request_failed
from pykai.controllers.binder.attempt import Attempt, BindError, InvalidRequestError, Step, Waiting, is_passing
from pykai.controllers.binder.binding import bind_pod, label_pod, unlabel_pod
from pykai.controllers.binder.book import Book
from pykai.controllers.binder.groups import (
    Key,
    is_meant_for,
    is_open,
    key_of,
    may_hold,
    request_groups,
    requested_pod,
)
from pykai.controllers.binder.lookup import Lookup
from pykai.controllers.binder.outcomes import Outcomes
from pykai.controllers.recent import Recent
from pykai.kube.api import Api, Deletion
from pykai.kube.errors import ApiError, Conflict, NotFound
from pykai.kube.resources import BIND_REQUEST
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Pod

MOST_TRIES = 5
UNSEEN_SECONDS = 60.0
"""For how long a pod from which we took something is read from the API server: the watch may not show it yet."""

log = structlog.get_logger("binder")


@dataclass(frozen=True, slots=True)
class Sources:
    """What requests are judged against; `tries` tells how often a pod's run failed in a row, `clock` steady seconds."""

    api: Api
    book: Book
    lookup: Lookup
    tries: Callable[[Key], int]
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Rules:
    """Whose pods they are, and how long a device may take to become known."""

    scheduler_name: str = names.SCHEDULER_NAME
    allocation_seconds: float = 40.0


@dataclass(slots=True)
class Progress:
    """How far this process got with one request; losing it costs time, nothing else.

    `failure`: why the attempt failed, until that is written. The server may know it already, and the scheduler act on
    it, so it is not taken back by another attempt.
    """

    request: BindRequest
    failure: str = ""
    waits: dict[str, float] = field(default_factory=dict)
    not_before: float = 0.0
    closed: bool = False


class Requests:
    """All bind requests, by the pod they are about."""

    def __init__(self, sources: Sources, steps: tuple[Step, ...], outcomes: Outcomes, rules: Rules) -> None:
        self._api = sources.api
        self._book = sources.book
        self._lookup = sources.lookup
        self._sources = sources
        self._steps = steps
        self._outcomes = outcomes
        self._rules = rules
        self._progress: dict[Key, Progress] = {}
        self._undone: Recent[Key, bool] = Recent(UNSEEN_SECONDS, sources.clock)

    async def reconcile(self, key: Key) -> float | None:
        """Get on with binding a pod; seconds until it is worth another look."""
        request = next((each for each in self._book.requests_for(key) if is_open(each)), None)
        known = self._progress.get(key)
        if known is None or request is None or known.request.metadata.uid != request.metadata.uid:
            await self._end(key, known)
        if request is None:
            return None
        progress = self._progress.setdefault(key, Progress(request))
        rest = progress.not_before - self._sources.clock()
        if progress.closed or rest > 0:
            return None if progress.closed else rest
        return await self._carry_out(request, progress)

    async def _end(self, key: Key, known: Progress | None) -> None:
        """Leave nothing behind of requests that are no more, and forget them."""
        if known is not None and not known.closed:
            await self._withdraw(key, known.request)
        else:
            await self._tidy(key)
        self._book.take_back(key)
        if self._progress.pop(key, None) is not None:
            for step in self._steps:
                step.forget(key)

    async def _withdraw(self, key: Key, request: BindRequest) -> None:
        """Take away what was prepared for a request that was taken back."""
        pod = await self._lookup.pod_now(key)
        if pod is not None and not pod.spec.node_name and is_meant_for(request, pod):
            await self._undo(request, pod)

    async def _tidy(self, key: Key) -> None:
        """Take away what an earlier process may have left with a pod that no request brings to a node."""
        seen = self._lookup.pod_seen(key)
        if seen is None or not may_hold(seen) or not self._is_left_alone(seen):
            return
        pod = await self._lookup.pod_now(key)
        if pod is not None and self._is_left_alone(pod):
            await self._undo(None, pod)

    def _is_left_alone(self, pod: Pod) -> bool:
        """Whether a pod of ours is on no node, and no request brings it to one."""
        if pod.spec.node_name or pod.spec.scheduler_name != self._rules.scheduler_name:
            return False
        requests = self._book.requests_for(key_of(pod))
        return not any(is_meant_for(each, pod) and not request_failed(each) for each in requests)

    # -------------------------------------------------------------------------------------------------- trying
    async def _carry_out(self, request: BindRequest, progress: Progress) -> float | None:
        key = requested_pod(request)
        if progress.failure:
            return await self._fail(request, progress, progress.failure)
        try:
            return await self._attempt(request, progress)
        except InvalidRequestError as error:
            await self._discard(request, error)
            progress.closed = True
            return None
        except BindError as error:
            why = str(error)
        except ApiError as error:
            if is_passing(error) and self._sources.tries(key) < MOST_TRIES:
                raise
            why = error.message
        except Exception as error:
            log.exception("bind request crashed", pod="/".join(key))
            why = f"Internal Error: {error}"
        return await self._fail(request, progress, why)

    async def _attempt(self, request: BindRequest, progress: Progress) -> float | None:
        """Bind the pod; seconds to wait at most, None if it is bound."""
        pod = await self._lookup.pod(request, fresh=bool(self._undone.get(requested_pod(request))))
        if pod.spec.node_name:
            self._succeed(request, pod, progress, pod.spec.node_name)
            return None
        devices = self._lookup.devices(request)
        if isinstance(devices, Waiting):
            self._book.take_back(requested_pod(request))
            return self._wait(progress, devices)
        attempt = Attempt(request, pod, self._lookup.node(request), devices)
        self._book.hand_out(attempt.key, request_groups(request))
        await label_pod(self._api, attempt)
        for step in self._steps:
            waiting = await _prepared(step, attempt)
            if waiting is not None:
                return self._wait(progress, waiting)
        self._check_unchanged(attempt)
        node = await bind_pod(self._api, attempt)
        self._succeed(request, pod, progress, node)
        return None

    def _check_unchanged(self, attempt: Attempt) -> None:
        """Conflict if the request was taken back or its devices changed while the pod was being prepared."""
        requests = self._book.requests_for(attempt.key)
        if not any(is_open(each) and each.metadata.uid == attempt.request.metadata.uid for each in requests):
            raise Conflict(f"the bind request of pod {attempt.title} was taken back")
        if self._lookup.devices(attempt.request) != attempt.devices:
            raise Conflict(f"the GPU reservation of pod {attempt.title} changed")

    def _wait(self, progress: Progress, waiting: Waiting) -> float:
        now = self._sources.clock()
        left = progress.waits.setdefault(waiting.step, now) + waiting.limit_seconds - now
        if left <= 0:
            raise BindError(waiting.failure)
        return left

    # -------------------------------------------------------------------------------------------------- ending
    def _succeed(self, request: BindRequest, pod: Pod, progress: Progress, node: str) -> None:
        self._outcomes.succeeded(request, pod, node)
        log.info("pod bound", pod="/".join(requested_pod(request)), node=node, gpus=self._lookup.gpus(request))
        progress.closed = True

    async def _fail(self, request: BindRequest, progress: Progress, why: str) -> float | None:
        """Undo what was prepared and say why; a pod that is bound after all is a success."""
        progress.failure = why
        pod = await self._lookup.pod_now(requested_pod(request))
        pod = pod if pod is not None and is_meant_for(request, pod) else None
        if pod is not None and pod.spec.node_name:
            self._succeed(request, pod, progress, pod.spec.node_name)
            return None
        if pod is not None:
            await self._undo(request, pod)
        self._book.take_back(requested_pod(request))
        again = await self._outcomes.failed(request, pod, why)
        title = "/".join(requested_pod(request))
        log.warning("pod not bound", pod=title, node=request.spec.selected_node, reason=why, retry_seconds=again)
        progress.closed, progress.failure = again is None, ""
        progress.waits.clear()
        progress.not_before = self._sources.clock() + (again or 0.0)
        return again

    async def _undo(self, request: BindRequest | None, pod: Pod) -> None:
        self._undone.put(key_of(pod), True)
        for undo in (*(step.undo for step in self._steps), self._unlabel):
            try:
                await undo(pod, request)
            except ApiError as error:
                if is_passing(error):
                    raise
                log.warning("preparation not undone", pod="/".join(key_of(pod)), error=error.message)

    async def _unlabel(self, pod: Pod, _: BindRequest | None) -> None:
        await unlabel_pod(self._api, pod)

    async def _discard(self, request: BindRequest, error: InvalidRequestError) -> None:
        meta = request.metadata
        log.warning("bind request deleted", pod="/".join(requested_pod(request)), reason=str(error))
        try:
            await self._api.delete(BIND_REQUEST.ref(meta.name, meta.namespace), Deletion(uid=meta.uid))
        except (NotFound, Conflict):
            return


async def _prepared(step: Step, attempt: Attempt) -> Waiting | None:
    """A step's answer; what it refuses is a BindError that names it."""
    try:
        waiting = await step.prepare(attempt)
    except BindError as error:
        raise BindError(f"plugin {step.name} failed in PreBind: {error}") from None
    except ApiError as error:
        if is_passing(error):
            raise
        raise BindError(f"plugin {step.name} failed in PreBind: {error.message}") from None
    if waiting is None:
        return None
    return Waiting(waiting.step, waiting.limit_seconds, f"plugin {step.name} failed in PreBind: {waiting.failure}")
