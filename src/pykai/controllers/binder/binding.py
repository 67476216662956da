"""The writes to a pod that is being bound: its group labels before, the bind itself, and the labels' removal.

What else the pod is told (its group, kind of share, NUMA zones) travels with the bind, which the API server carries out
as one change. Labels cannot: they come first, so that a pod on a node always says which device it shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from msgspec import json, to_builtins

from pykai.controllers.binder.attempt import Attempt, BindError, is_passing
from pykai.controllers.binder.groups import group_labels, label_changes, labelled_groups
from pykai.kube.api import Api, Patch
from pykai.kube.errors import ApiError, Conflict, NotFound
from pykai.kube.pods import bind
from pykai.kube.resources import POD
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Pod

log = structlog.get_logger("binder")


async def label_pod(api: Api, attempt: Attempt) -> None:
    """Let the pod carry the labels of its request's GPU groups, and no others of the kind."""
    groups = attempt.request.spec.selected_gpu_groups if attempt.devices else ()
    wanted = group_labels(attempt.pod.metadata.annotations, groups or ())
    changes = label_changes(attempt.pod.metadata.labels, wanted)
    if not changes:
        return
    try:
        await api.patch(*_labels(attempt.pod, changes))
    except ApiError as error:
        if is_passing(error):
            raise
        raise BindError(f"failed to patch pod {attempt.title} with GPU group label: {error.message}") from None


async def unlabel_pod(api: Api, pod: Pod) -> None:
    """Take the group labels off a pod that is on no node; one that was bound meanwhile keeps them."""
    try:
        now = await api.get(POD.ref(pod.metadata.name, pod.metadata.namespace), Pod)
        if now.metadata.uid != pod.metadata.uid or now.spec.node_name or not labelled_groups(now.metadata.labels):
            return
        await api.patch(*_labels(now, label_changes(now.metadata.labels, {}), now.metadata.resource_version))
    except NotFound:
        return
    log.info("GPU group labels removed", pod=f"{pod.metadata.namespace}/{pod.metadata.name}")


async def bind_pod(api: Api, attempt: Attempt) -> str:
    """Bind the pod and return its node, which may be another one if somebody else was faster."""
    (namespace, name), uid = attempt.key, attempt.pod.metadata.uid
    node = attempt.request.spec.selected_node
    try:
        await bind(api, POD.ref(name, namespace), node, uid, told_with_bind(attempt.request, attempt.pod))
    except Conflict as error:
        now = await api.get(POD.ref(name, namespace), Pod)
        if now.metadata.uid == uid and now.spec.node_name:
            return now.spec.node_name
        if now.metadata.uid == uid and now.metadata.deletion_timestamp is None:
            raise
        raise BindError(_failure(attempt, error)) from None
    except ApiError as error:
        if is_passing(error):
            raise
        raise BindError(_failure(attempt, error)) from None
    return node


def told_with_bind(request: BindRequest, pod: Pod) -> dict[str, str]:
    """The annotations a pod gets when it is bound; in which group it is only if it does not say so itself."""
    told = {names.RECEIVED_RESOURCE_TYPE: request.spec.received_resource_type}
    if names.POD_GROUP_ANNOTATION not in (pod.metadata.annotations or {}):
        told[names.POD_GROUP_ANNOTATION] = (request.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION, "")
    if request.spec.predicted_numa_zones:
        told[names.NUMA_PREDICTED] = json.encode(to_builtins(request.spec.predicted_numa_zones)).decode()
    return {name: text for name, text in told.items() if text}


def _failure(attempt: Attempt, error: ApiError) -> str:
    return f"failed to bind pod {attempt.title} to node {attempt.request.spec.selected_node}: {error.message}"


def _labels(pod: Pod, changes: Mapping[str, str | None], version: str = "") -> tuple[Any, Patch]:
    """The address and the patch that change labels; with `version` only in that state of the pod."""
    metadata: dict[str, Any] = {"uid": pod.metadata.uid, "labels": dict(changes)}
    if version:
        metadata["resourceVersion"] = version
    return POD.ref(pod.metadata.name, pod.metadata.namespace), Patch.merge({"metadata": metadata})
