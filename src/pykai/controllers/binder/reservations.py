"""Reservation pods: one for every shared device in use, none for any other.

A reservation pod holds a whole device on its node, so that the kubelet gives the device to no other pod. This is the
only module that creates and deletes them. It reconciles one device at a time from the observed state alone, so a crash
between any two writes costs time and nothing else. Before it deletes anything, it lists the pods of the node from the
API server instead of the watch.

    pods on the device   reservation   action
    none                 yes           delete the reservation
    bound                no            delete the pods: the kubelet may give their device to another pod at any time
    pending              no            create a reservation, if its name is free and no pod assumes the former one
    bound or pending      yes           none

A reservation pod that has ended holds nothing. A terminating one still holds the device, but no pod may join.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog
from msgspec import json

from pykai.controllers.binder.binding import BindError, is_retryable
from pykai.controllers.binder.device_index import DeviceIndex, DeviceState, GroupKey, is_finished, is_terminating
from pykai.controllers.ttl_cache import TTLCache
from pykai.kube.api import Api, Deletion, Fields, Object, Selection
from pykai.kube.api_resources import POD
from pykai.kube.backoff import Backoff
from pykai.kube.clock import steady
from pykai.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from pykai.kube.events import EventRecorder, Regarding
from pykai.kube.informer import SharedInformer
from pykai.kube.informer_store import Key
from pykai.objects import names, nvfractions
from pykai.objects.kinds import ABSENT, Node, Pod

CONTAINER = "resource-reservation"
FAKE_IMAGE, FAKE_ARGUMENTS = "ubuntu", ("sleep", "infinity")
USUAL_REQUESTS = {"requests": {"cpu": "1m", "memory": "32Mi"}}
"""With QoS class BestEffort, reservation pods would be evicted first under node pressure."""
_ENVIRONMENT = (("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace"))
RESYNC_SECONDS = 120.0
CREATED_SECONDS = 5.0
"""Seconds for which a created reservation pod is assumed before the watch shows it."""
DELETED_SECONDS = 120.0
"""Seconds for which a deleted reservation pod is ignored while the watch still shows it."""
BACKOFF = Backoff(initial=1.0, maximum=16.0)
LOST = "ReservationLost"

log = structlog.get_logger("binder")


@dataclass(frozen=True, slots=True)
class ReservationTemplate:
    """What all reservation pods share; an empty `runtime_class` sets none, `resources` cannot change the one GPU.

    With `fake_gpus` the pod only sleeps, and the fake GPU operator writes the device into its annotation.
    """

    namespace: str = names.RESERVATION_NAMESPACE
    service_account: str = names.RESERVATION_NAMESPACE
    app: str = names.RESERVATION_APP
    image: str = "registry/local/kai-scheduler/resource-reservation"
    runtime_class: str = "nvidia"
    resources: Fields = field(default_factory=lambda: USUAL_REQUESTS)
    pod_security: Fields = field(default_factory=dict)
    container_security: Fields = field(default_factory=dict)
    fake_gpus: bool = False


def reservation_name(key: GroupKey) -> str:
    """Return the name of the reservation pod, a function of node and group: concurrent creators converge on one pod."""
    return f"gpu-reservation-{hashlib.sha256(f'{key.node}/{key.group}'.encode()).hexdigest()[:16]}"


def reserved_device(reservation: Pod) -> str:
    """Return the id of the device that a reservation pod holds; empty while it is unknown."""
    return (reservation.metadata.annotations or {}).get(names.RESERVED_GPU_INDEX, "")


def reservation_manifest(
    key: GroupKey, user: Pod, template: ReservationTemplate, mode: str = names.TIME_SLICING
) -> Object:
    """Return the reservation pod to create; it tolerates what the pod tolerates that shares the device.

    `mode`: the compute sharing mode of the device, which pods that join later read here.
    """
    raw = user.spec.tolerations
    annotations = {names.KARPENTER_DO_NOT_DISRUPT: "true"}
    if mode != names.TIME_SLICING:
        annotations[nvfractions.key(CONTAINER, nvfractions.COMPUTE_MODE)] = mode
    spec: Object = {
        "nodeName": key.node,
        "serviceAccountName": template.service_account,
        "containers": [_container(template)],
    }
    optional = {
        "tolerations": [] if raw is ABSENT else json.decode(raw, type=list[Object] | None),
        "runtimeClassName": template.runtime_class,
        "securityContext": dict(template.pod_security),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": reservation_name(key),
            "namespace": template.namespace,
            "labels": {names.APP_LABEL: template.app, names.GPU_GROUP_LABEL: key.group},
            "annotations": annotations,
        },
        "spec": spec | {field: value for field, value in optional.items() if value},
    }


def _container(template: ReservationTemplate) -> Object:
    resources = {
        kind: {**(template.resources.get(kind) or {}), names.NVIDIA_GPU: "1"} for kind in ("requests", "limits")
    }
    container: Object = {
        "name": CONTAINER,
        "image": FAKE_IMAGE if template.fake_gpus else template.image,
        "imagePullPolicy": "IfNotPresent",
        "resources": resources,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _ENVIRONMENT],
    }
    if template.fake_gpus:
        container["args"] = list(FAKE_ARGUMENTS)
    if template.container_security:
        container["securityContext"] = dict(template.container_security)
    return container


def described_container(reservation: Object) -> str:
    """Why the container of a reservation pod does not run and how it ended last; empty if it runs and never failed."""
    statuses: list[Object] = (reservation.get("status") or {}).get("containerStatuses") or []
    status = statuses[0] if statuses else {}
    state = status.get("state") or {}
    parts = []
    if waiting := state.get("waiting"):
        parts.append(f"is waiting: {waiting.get('message') or waiting.get('reason') or 'no reason given'}")
    if ended := state.get("terminated") or (status.get("lastState") or {}).get("terminated"):
        message = (ended.get("message") or "").strip().rpartition("\n")[2]
        code = f"exit code {ended.get('exitCode', 0)}"
        parts.append(
            f"ended with {code}" + (f": {message}" if message else f", {ended.get('reason') or 'no reason given'}")
        )
    return f"container {CONTAINER} {', '.join(parts)}" if parts else ""


# ------------------------------------------------------------------------------------------------------ decision
@dataclass(frozen=True, slots=True)
class ReservationChange:
    """Reservation pods to delete, pods that lost their device, and the pod for which to create a reservation."""

    release: tuple[Pod, ...] = ()
    evict: tuple[Pod, ...] = ()
    reserve_for: Pod | None = None

    @property
    def deletes(self) -> bool:
        """Whether it deletes a pod."""
        return bool(self.release or self.evict)


def desired(device: DeviceState) -> ReservationChange:
    """Return the change that brings a device to the state of the table above."""
    staying = tuple(pod for pod in device.reservations if not is_terminating(pod))
    if not (device.bound or device.pending):
        return ReservationChange(release=staying)
    ended = tuple(pod for pod in staying if is_finished(pod))
    if any(not is_finished(pod) for pod in device.reservations):
        return ReservationChange(release=ended)
    if device.bound:
        return ReservationChange(ended, tuple(pod for pod in device.bound if not is_terminating(pod)))
    blocked = device.reservations or device.assumed
    return ReservationChange(ended, reserve_for=None if blocked else device.next_pending)


def joinable(key: GroupKey, reservations: tuple[Pod, ...]) -> Pod | None:
    """Return the reservation pod whose device a new pod gets; None if none stays.

    There is one. Where an older version left several, all of them stay until the group has no users.
    """
    holding = [pod for pod in reservations if not is_finished(pod) and not is_terminating(pod)]
    own = reservation_name(key)
    return min(
        holding, key=lambda pod: (not reserved_device(pod), pod.metadata.name != own, pod.metadata.name), default=None
    )


# ---------------------------------------------------------------------------------------------------- controller
@dataclass(frozen=True, slots=True)
class ReservationFailure:
    """Why a device could not be reserved. Only a `final` one fails binds before their timeout."""

    text: str
    final: bool
    times: int = 1
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class ReservationClients:
    """What the controller reads and writes through."""

    api: Api
    recorder: EventRecorder
    nodes: SharedInformer[Node]


class Reservations:
    """Reconciles the reservation pods of all shared devices; `wake` gets pods whose device is not available."""

    def __init__(
        self,
        clients: ReservationClients,
        index: DeviceIndex,
        template: ReservationTemplate,
        wake: Callable[[Key], None],
    ) -> None:
        self._api = clients.api
        self._recorder = clients.recorder
        self._nodes = clients.nodes
        self._index = index
        self._template = template
        self._wake = wake
        self._failures: dict[GroupKey, ReservationFailure] = {}
        self._created: TTLCache[GroupKey, str] = TTLCache(CREATED_SECONDS)
        self._deleted: TTLCache[str, bool] = TTLCache(DELETED_SECONDS)

    def held(self, key: GroupKey) -> str:
        """Return the id of the group's device; empty while it is unknown."""
        holder = joinable(key, self._state(key).reservations)
        return reserved_device(holder) if holder else ""

    def device(self, key: GroupKey) -> str:
        """Return the device for a new pod: empty while it is unknown, BindError if it will not become known soon."""
        holder = joinable(key, self._state(key).reservations)
        if holder is not None:
            return reserved_device(holder)
        if self._index.scaling_up():
            raise BindError("cluster is scaling up, could not create reservation pod")
        failure = self._failures.get(key)
        if failure is not None and failure.final:
            raise BindError(failure.text)
        return ""

    def timeout_message(self, key: GroupKey) -> str:
        """Return the reason for a bind that timed out while it waited for the device."""
        failure = self._failures.get(key)
        text = f"failed waiting for GPU reservation pod to allocate: {self._title(key)}"
        return f"{text}: {failure.text}" if failure else text

    async def container_state(self, key: GroupKey) -> str:
        """Return the state of the reservation pod's container from the API server; "" if there is no problem."""
        holder = joinable(key, self._state(key).reservations)
        return described_container(await self._read(holder)) if holder else ""

    async def reconcile(self, key: GroupKey) -> float | None:
        """Bring one device to the desired state; returns seconds until the next resync, None if nothing is left."""
        device = self._state(key)
        change = desired(device)
        if device.reservations:
            self._created.drop(key)
        if change.deletes:
            page = await self._api.list(POD, Pod, Selection(fields=f"spec.nodeName={key.node}"))
            device = self._index.state_among(key, page.items)
            change = desired(device)
            await self._release(key, change, device)
            await self._evict(key, change)
        if change.reserve_for is not None:
            return await self._reserve(key, change.reserve_for, device.pending)
        if not device.pending or joinable(key, device.reservations):
            self._failures.pop(key, None)
        return None if self._index.state(key) == DeviceState() else RESYNC_SECONDS

    def _state(self, key: GroupKey) -> DeviceState:
        """Return the device according to the watches, without reservation pods that we deleted."""
        device = self._index.state(key)
        existing = tuple(pod for pod in device.reservations if not self._deleted.get(pod.metadata.uid))
        return replace(device, reservations=existing)

    # ------------------------------------------------------------------------------------------------ reserving
    async def _reserve(self, key: GroupKey, user: Pod, waiting: Iterable[Pod]) -> float | None:
        failure = self._failures.get(key)
        rest = failure.not_before - steady() if failure else 0.0
        if rest > 0:
            return rest
        if self._created.get(key):
            return CREATED_SECONDS
        if self._nodes.get(key.node) is None or self._index.scaling_up():
            self._wake_all(waiting)
            return RESYNC_SECONDS
        try:
            await self._api.create(POD, reservation_manifest(key, user, self._template, self._mode(user)))
        except AlreadyExists:
            log.debug("GPU reservation exists", reservation=self._title(key), node=key.node, gpu_group=key.group)
        except ApiError as error:
            if is_retryable(error):
                raise
            self._failed(key, f"could not create GPU reservation pod {self._title(key)}: {error.message}", final=True)
            self._wake_all(waiting)
        else:
            self._created.put(key, reservation_name(key))
            about = {"reservation": self._title(key), "node": key.node, "gpu_group": key.group}
            log.info("GPU reservation pod created", pod=user.metadata.title, **about)
        return RESYNC_SECONDS

    def _mode(self, user: Pod) -> str:
        """Return the compute mode of a pod that gets a share: that of its request, else its own."""
        for request in self._index.requests_for(user.metadata.key):
            if request.spec.selected_fractional_gpu_groups:
                return request.spec.compute_mode
        return nvfractions.compute_mode(user.metadata.annotations)

    def _wake_all(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self._wake(pod.metadata.key)

    def _failed(self, key: GroupKey, text: str, *, final: bool) -> None:
        before = self._failures.get(key)
        times = before.times + 1 if before else 1
        rest = BACKOFF.after(times)
        self._failures[key] = ReservationFailure(text, final, times, steady() + rest)
        log.warning("GPU reservation failed", node=key.node, gpu_group=key.group, reason=text, retry_seconds=rest)

    # ------------------------------------------------------------------------------------------------ releasing
    async def _release(self, key: GroupKey, change: ReservationChange, device: DeviceState) -> None:
        for pod in change.release:
            if is_finished(pod) and device.next_pending is not None:
                found = await self._read(pod)
                details = [(found.get("status") or {}).get(field) for field in ("reason", "message")]
                details.append(described_container(found))
                ended = f"the pod is {pod.status.phase}" + "".join(f", {detail}" for detail in details if detail)
                self._failed(key, ended, final=False)
            if await self._delete(pod, Deletion(grace_seconds=0, uid=pod.metadata.uid)):
                self._deleted.put(pod.metadata.uid, True)
            log.info(
                "GPU reservation pod deleted",
                reservation=pod.metadata.title,
                node=key.node,
                gpu_group=key.group,
                gpu=reserved_device(pod),
                reason="the reservation pod has ended" if is_finished(pod) else "no pod uses the GPU",
            )

    async def _read(self, pod: Pod) -> Object:
        with suppress(NotFound):
            return await self._api.get(POD.ref(pod.metadata.name, pod.metadata.namespace), Object)
        return {}

    async def _evict(self, key: GroupKey, change: ReservationChange) -> None:
        for pod in change.evict:
            meta = pod.metadata
            text = f"The reservation of GPU group {key.group} on node {key.node} is gone: the pod is deleted, its GPU "
            self._recorder.record(Regarding.of(POD, meta), LOST, text + "may be given to others", "Warning")
            log.warning(
                "pod without GPU reservation, deleting", pod=pod.metadata.title, node=key.node, gpu_group=key.group
            )
            await self._delete(pod, Deletion(uid=meta.uid))

    async def _delete(self, pod: Pod, how: Deletion) -> bool:
        """Delete the pod with this uid; return whether it is known to be gone or terminating."""
        try:
            await self._api.delete(POD.ref(pod.metadata.name, pod.metadata.namespace), how)
        except Conflict:
            return False
        except NotFound:
            return True
        return True

    def _title(self, key: GroupKey) -> str:
        return f"{self._template.namespace}/{reservation_name(key)}"
