"""One reservation pod for every shared device in use, and none for any other.

The only place that makes and deletes reservation pods. It works on one device at a time (the loop never runs a key
twice at once), from the watched state alone, so it does not matter who was killed when: the next look at the same state
leads to the same end. Before it deletes anything it asks the API server itself who is on the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from pykai.controllers.binder.attempt import BindError, is_passing
from pykai.controllers.binder.book import Book
from pykai.controllers.binder.groups import GroupKey, Key, is_over, key_of
from pykai.controllers.binder.reservation_pod import ReservationTemplate, device_of, manifest, name_for
from pykai.controllers.binder.sharing import Change, Sharing, desired, joinable
from pykai.controllers.recent import Recent
from pykai.kube.api import Api, Deletion, Object, Selection
from pykai.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from pykai.kube.events import EventRecorder, Regarding
from pykai.kube.resources import POD
from pykai.kube.watch import SharedWatch
from pykai.objects.kinds import Node, Pod

RESYNC_SECONDS = 120.0
UNSEEN_SECONDS = 5.0
DELETED_SECONDS = 120.0
"""For how long a reservation pod that we deleted does not count, though the watch may still show it."""
FIRST_REST_SECONDS, LONGEST_REST_SECONDS = 1.0, 16.0
LOST = "ReservationLost"

log = structlog.get_logger("binder")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a device could not be reserved. Only a `final` one is a reason to give up before the time is over."""

    text: str
    final: bool
    times: int = 1
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the service works with; `clock` gives seconds of a steady clock."""

    api: Api
    recorder: EventRecorder
    nodes: SharedWatch[Node]
    clock: Callable[[], float]


class Reservations:
    """The reservation pods of all shared devices; `wake` is called for a pod whose device cannot be had."""

    def __init__(
        self, around: Surroundings, book: Book, template: ReservationTemplate, wake: Callable[[Key], None]
    ) -> None:
        self._api = around.api
        self._recorder = around.recorder
        self._nodes = around.nodes
        self._clock = around.clock
        self._book = book
        self._template = template
        self._wake = wake
        self._troubles: dict[GroupKey, Trouble] = {}
        self._unseen: Recent[GroupKey, str] = Recent(UNSEEN_SECONDS, around.clock)
        self._deleted: Recent[str, bool] = Recent(DELETED_SECONDS, around.clock)

    def held(self, key: GroupKey) -> str:
        """The id of the device that the group stands for; empty if it is not known."""
        holder = self._holder(key)
        return device_of(holder) if holder else ""

    def device(self, key: GroupKey) -> str:
        """The same for a newcomer: empty while it is not known, BindError if it will not be known soon."""
        holder = self._holder(key)
        if holder is not None:
            return device_of(holder)
        if self._book.scaling_up():
            raise BindError("cluster is scaling up, could not create reservation pod")
        trouble = self._troubles.get(key)
        if trouble is not None and trouble.final:
            raise BindError(trouble.text)
        return ""

    def _holder(self, key: GroupKey) -> Pod | None:
        return joinable(key, self._sharing(key).reservations)

    def _sharing(self, key: GroupKey) -> Sharing:
        """The device as the watches show it, without reservation pods that are gone for all we know."""
        sharing = self._book.sharing(key)
        there = tuple(pod for pod in sharing.reservations if not self._deleted.get(pod.metadata.uid))
        return replace(sharing, reservations=there)

    def overdue(self, key: GroupKey) -> str:
        """What to say when a device did not become known in time."""
        trouble = self._troubles.get(key)
        text = f"failed waiting for GPU reservation pod to allocate: {self._title(key)}"
        return f"{text}: {trouble.text}" if trouble else text

    async def reconcile(self, key: GroupKey) -> float | None:
        """Bring one device into order; seconds until it is worth another look, None if nothing is left of it."""
        sharing = self._sharing(key)
        change = desired(sharing)
        if sharing.reservations:
            self._unseen.drop(key)
        if change.deletes:
            sharing = await self._asked(key)
            change = desired(sharing)
            await self._release(key, change, sharing)
            await self._evict(key, change)
        if change.reserve_for is not None:
            return await self._reserve(key, change.reserve_for, sharing.coming)
        if not sharing.coming or joinable(key, sharing.reservations):
            self._troubles.pop(key, None)
        return None if self._book.sharing(key) == Sharing() else RESYNC_SECONDS

    async def _asked(self, key: GroupKey) -> Sharing:
        """The device as the API server knows it at this moment."""
        page = await self._api.list(POD, Pod, Selection(fields=f"spec.nodeName={key.node}"))
        return self._book.sharing_among(key, page.items)

    # ------------------------------------------------------------------------------------------------ reserving
    async def _reserve(self, key: GroupKey, user: Pod, waiting: Iterable[Pod]) -> float | None:
        trouble = self._troubles.get(key)
        rest = trouble.not_before - self._clock() if trouble else 0.0
        if rest > 0:
            return rest
        if self._unseen.get(key):
            return UNSEEN_SECONDS
        if self._nodes.get(key.node) is None or self._book.scaling_up():
            self._wake_all(waiting)
            return RESYNC_SECONDS
        try:
            await self._api.create(POD, manifest(key, user, self._template))
        except AlreadyExists:
            log.debug("GPU reservation exists", reservation=self._title(key), node=key.node, gpu_group=key.group)
        except ApiError as error:
            if is_passing(error):
                raise
            self._refused(key, f"could not create GPU reservation pod {self._title(key)}: {error.message}", final=True)
            self._wake_all(waiting)
        else:
            self._unseen.put(key, name_for(key))
            about = {"reservation": self._title(key), "node": key.node, "gpu_group": key.group}
            log.info("GPU reservation pod created", pod="/".join(key_of(user)), **about)
        return RESYNC_SECONDS

    def _wake_all(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self._wake(key_of(pod))

    def _refused(self, key: GroupKey, text: str, *, final: bool) -> None:
        before = self._troubles.get(key)
        times = before.times + 1 if before else 1
        rest = min(LONGEST_REST_SECONDS, FIRST_REST_SECONDS * 2.0 ** (times - 1))
        self._troubles[key] = Trouble(text, final, times, self._clock() + rest)
        log.warning("GPU reservation refused", node=key.node, gpu_group=key.group, reason=text, rest_seconds=rest)

    # ------------------------------------------------------------------------------------------------ releasing
    async def _release(self, key: GroupKey, change: Change, sharing: Sharing) -> None:
        for pod in change.release:
            if is_over(pod) and sharing.newcomer is not None:
                self._refused(key, await self._why_ended(pod), final=False)
            if await self._delete(pod, Deletion(grace_seconds=0, uid=pod.metadata.uid)):
                self._deleted.put(pod.metadata.uid, True)
            log.info(
                "GPU reservation pod deleted",
                reservation="/".join(key_of(pod)),
                node=key.node,
                gpu_group=key.group,
                gpu=device_of(pod),
                reason="it has ended" if is_over(pod) else "no pod uses the GPU any more",
            )

    async def _why_ended(self, pod: Pod) -> str:
        found: Object = {}
        with suppress(NotFound):
            found = await self._api.get(POD.ref(pod.metadata.name, pod.metadata.namespace), Object)
        words = [(found.get("status") or {}).get(word) for word in ("reason", "message")]
        return f"the pod is {pod.status.phase}" + "".join(f", {word}" for word in words if word)

    async def _evict(self, key: GroupKey, change: Change) -> None:
        for pod in change.evict:
            meta = pod.metadata
            text = f"The reservation of GPU group {key.group} on node {key.node} is gone: the pod is deleted, its GPU "
            about = Regarding("v1", "Pod", meta.name, meta.namespace, meta.uid)
            self._recorder.record(about, LOST, text + "may be given to others", "Warning")
            log.warning(
                "pod without GPU reservation, deleting", pod="/".join(key_of(pod)), node=key.node, gpu_group=key.group
            )
            await self._delete(pod, Deletion(uid=meta.uid))

    async def _delete(self, pod: Pod, how: Deletion) -> bool:
        """Delete this very pod; whether it is known to be gone or going."""
        try:
            await self._api.delete(POD.ref(pod.metadata.name, pod.metadata.namespace), how)
        except Conflict:
            return False
        except NotFound:
            return True
        return True

    def _title(self, key: GroupKey) -> str:
        return f"{self._template.namespace}/{name_for(key)}"
