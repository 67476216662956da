"""One attempt to bind a pod: its value, the protocol of the steps that prepare it, and the writes to the pod itself.

Everything that a bind adds to the pod (its group, the kind of share, NUMA zones) travels with the bind, which the API
server carries out as one change. Labels cannot, so they are written first: a bound pod always names its device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from msgspec import json, to_builtins

from pykai.controllers.binder.device_index import Key, group_labels, key_of, label_changes, labelled_groups
from pykai.kube.api import Api, Patch
from pykai.kube.errors import ApiError, Conflict, Gone, NotFound, Timeout, TooManyRequests, Unauthorized, Unavailable
from pykai.kube.pods import bind
from pykai.kube.resources import POD
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Node, Pod

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
class Waiting:
    """A step waits for an event of the cluster, which wakes the pod up; after `limit_seconds` it is the `failure`."""

    step: str
    limit_seconds: float
    failure: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """A bind in progress. `devices` are the ids of the pod's shared GPUs, in the order of its groups."""

    request: BindRequest
    pod: Pod
    node: Node
    devices: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """(namespace, name) of the pod."""
        return key_of(self.pod)

    @property
    def title(self) -> str:
        """The pod in messages."""
        return "/".join(self.key)


class Step(Protocol):
    """A PreBind plugin. Steps run in order of priority, and a pod is bound after all of them have succeeded.

    Every step is idempotent: it may run again after it succeeded, or after another process got half-way.
    """

    @property
    def name(self) -> str:
        """The name in configuration and messages."""
        ...

    async def prepare(self, attempt: Attempt) -> Waiting | None:
        """Prepare the bind; Waiting if an event must come first. Raises BindError, or ApiError to retry."""
        ...

    async def undo(self, pod: Pod, request: BindRequest | None) -> None:
        """Remove what `prepare` may have left for an unbound pod; None: its request is unknown."""
        ...

    async def orphans(self) -> Iterable[Key]:
        """Pods that hold what an earlier process prepared and that their own fields do not show; called at start."""
        ...

    def forget(self, pod: Key) -> None:
        """Drop the state of a pod whose binding has ended, one way or the other."""
        ...


async def label_pod(api: Api, attempt: Attempt) -> None:
    """Set the labels of the request's GPU groups on the pod, and remove all others of the kind."""
    groups = attempt.request.spec.selected_gpu_groups if attempt.devices else ()
    wanted = group_labels(attempt.pod.metadata.annotations, groups or ())
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
    log.info("GPU group labels removed", pod=f"{pod.metadata.namespace}/{pod.metadata.name}")


async def bind_pod(api: Api, attempt: Attempt) -> str:
    """Bind the pod and return its node, which may be another one if another client was faster."""
    (namespace, name), uid = attempt.key, attempt.pod.metadata.uid
    node = attempt.request.spec.selected_node
    try:
        await bind(api, POD.ref(name, namespace), node, uid, bind_annotations(attempt.request, attempt.pod))
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
    """The annotations that the bind adds; the group's name only if the pod does not carry one."""
    added = {names.RECEIVED_RESOURCE_TYPE: request.spec.received_resource_type}
    if names.POD_GROUP_ANNOTATION not in (pod.metadata.annotations or {}):
        added[names.POD_GROUP_ANNOTATION] = (request.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION, "")
    if request.spec.predicted_numa_zones:
        added[names.NUMA_PREDICTED] = json.encode(to_builtins(request.spec.predicted_numa_zones)).decode()
    return {name: text for name, text in added.items() if text}


def _failure(attempt: Attempt, error: ApiError) -> str:
    return f"failed to bind pod {attempt.title} to node {attempt.request.spec.selected_node}: {error.message}"


def _label_patch(pod: Pod, changes: Mapping[str, str | None], version: str = "") -> tuple[Any, Patch]:
    """The address and the patch that change labels; with `version` only of that version of the pod."""
    metadata: dict[str, Any] = {"uid": pod.metadata.uid, "labels": dict(changes)}
    if version:
        metadata["resourceVersion"] = version
    return POD.ref(pod.metadata.name, pod.metadata.namespace), Patch.merge({"metadata": metadata})
