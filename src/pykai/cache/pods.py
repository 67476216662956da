"""Pod objects -> PodTable (spec/scheduling.md §2.2, §2.4, §2.8).

Written column by column: forty thousand running pods must cost a fraction of a second, so the few pods that need
thought (pending, shared, deleted) are picked out and the rest is list comprehensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pykai.cache.classes import ClassContext, ClassTable, Template
from pykai.cache.gangs import GangRows
from pykai.model.params import SchedulerParams
from pykai.model.pods import PodTable
from pykai.model.status import IS_ACTIVE_USED, Status
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Pod

_NOTHING: dict[str, str] = {}
_PHASES = {
    "Running": Status.RUNNING,
    "Pending": Status.PENDING,
    "": Status.PENDING,
    "Succeeded": Status.SUCCEEDED,
    "Failed": Status.FAILED,
}


@dataclass(frozen=True)
class PodContext:
    """What the pod table is built against."""

    node_rows: Mapping[str, int]
    gangs: GangRows
    bind_requests: Mapping[tuple[str, str], BindRequest]
    classes: ClassTable
    class_context: ClassContext
    params: SchedulerParams
    now: float


def pod_status(pod: Pod, bound: bool, now: float, stuck_after: float) -> Status:
    """What a pod is doing; `bound`: a bind request that has not failed names an existing node for it."""
    status = _PHASES.get(pod.status.phase, Status.UNKNOWN)
    deleted = pod.metadata.deletion_timestamp
    if status is Status.RUNNING and deleted is not None:
        return Status.STUCK_IN_RELEASING if now - deleted.timestamp() > stuck_after else Status.RELEASING
    if status is Status.PENDING:
        if deleted is not None:
            return Status.RELEASING
        if pod.spec.node_name:
            return Status.BOUND
        if bound:
            return Status.BINDING
    return status


def request_failed(request: BindRequest) -> bool:
    """Whether the binder has given up on it."""
    limit = request.spec.backoff_limit
    return request.status.phase == "Failed" and (limit is None or request.status.failed_attempts >= limit)


def pod_table(
    pods: Sequence[Pod], templates: Sequence[Template], context: PodContext
) -> tuple[PodTable, dict[int, list[int]]]:
    """The table, and per gang the pods that name a sub-group it does not have."""
    metas = [pod.metadata for pod in pods]
    specs = [pod.spec for pod in pods]
    annotations = [meta.annotations or _NOTHING for meta in metas]
    labels = [meta.labels or _NOTHING for meta in metas]
    rows = context.classes.row
    class_context = context.class_context
    klass = np.array([rows(p, t, class_context) for p, t in zip(pods, templates, strict=True)], dtype=np.int64)
    gang = _gangs(pods, annotations, context)
    status, node = _places(pods, templates, context)
    podset, stray = _podsets(gang, labels, context.gangs)
    apps = [label.get(names.APP_LABEL) for label in labels]
    utility = (context.params.reservation_app, context.params.scaling_app)
    ours = context.params.scheduler_name
    active = np.array(IS_ACTIVE_USED)[status]
    foreign = [
        row
        for row, spec in enumerate(specs)
        if spec.scheduler_name != ours and active[row] and apps[row] not in utility
    ]
    classes = context.classes.finish()
    table = PodTable(
        names=[meta.name for meta in metas],
        namespaces=[meta.namespace for meta in metas],
        uids=[meta.uid for meta in metas],
        classes=classes,
        klass=klass,
        gang=gang,
        podset=podset,
        status=status,
        node=node,
        objects=list(pods),
        gpu_groups=_gpu_groups(pods, klass, [c.row for c in classes if c.shared], context),
        reservation=frozenset(row for row, app in enumerate(apps) if app == context.params.reservation_app),
        foreign=frozenset(foreign),
    )
    return table, stray


def _gangs(pods: Sequence[Pod], annotations: Sequence[Mapping[str, str]], context: PodContext) -> np.ndarray:
    """Gang row of each of our pods, -1 for the others."""
    rows, ours, key = context.gangs.rows, context.params.scheduler_name, names.POD_GROUP_ANNOTATION
    return np.array(
        [
            rows.get(f"{pod.metadata.namespace}/{a[key]}", -1) if key in a and pod.spec.scheduler_name == ours else -1
            for pod, a in zip(pods, annotations, strict=True)
        ],
        dtype=np.int64,
    )


def _places(pods: Sequence[Pod], templates: Sequence[Template], context: PodContext) -> tuple[np.ndarray, np.ndarray]:
    """Status and node row of every pod."""
    node_rows = context.node_rows
    node = [node_rows.get(pod.spec.node_name, -1) for pod in pods]
    simple = _PHASES["Running"]
    status = [
        simple if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None else None for pod in pods
    ]
    for row, known in enumerate(status):
        if known is None:
            status[row], node[row] = _place(pods[row], node[row], templates[row], context)
    return np.array(status, dtype=np.int64), np.array(node, dtype=np.int64)


def _place(pod: Pod, node: int, template: Template, context: PodContext) -> tuple[Status, int]:
    request = context.bind_requests.get((pod.metadata.namespace, pod.metadata.name))
    target = -1
    if request is not None and not request_failed(request):
        target = context.node_rows.get(request.spec.selected_node, -1)
    status = pod_status(pod, target >= 0, context.now, context.params.stuck_in_releasing)
    if status is Status.PENDING and template.decoded.gated:
        return Status.GATED, -1
    return status, target if status is Status.BINDING else node


def _podsets(
    gang: np.ndarray, labels: Sequence[Mapping[str, str]], gangs: GangRows
) -> tuple[np.ndarray, dict[int, list[int]]]:
    """Podset row of every pod; pods whose sub-group does not exist are stray."""
    first = np.array([*gangs.first_podset, -1], dtype=np.int64)
    podset = first[gang]
    stray: dict[int, list[int]] = {}
    key = names.SUBGROUP_LABEL
    suspects = {row for row, label in enumerate(labels) if key in label}
    if gangs.podset_rows:
        suspects.update(np.flatnonzero(np.isin(gang, list(gangs.podset_rows))).tolist())
    for row in sorted(suspects):
        owner = int(gang[row])
        if owner < 0:
            continue
        known = gangs.podset_rows.get(owner) or {names.DEFAULT_PODSET: gangs.first_podset[owner]}
        podset[row] = known.get(labels[row].get(key) or names.DEFAULT_PODSET, -1)
        if podset[row] < 0:
            stray.setdefault(owner, []).append(row)
    return podset, stray


def _gpu_groups(
    pods: Sequence[Pod], klass: np.ndarray, shared: Sequence[int], context: PodContext
) -> dict[int, tuple[str, ...]]:
    """Device group ids of pods that share GPUs: from the bind request where it has them, else from labels."""
    found = {}
    for row in np.flatnonzero(np.isin(klass, shared)).tolist() if shared else ():
        meta = pods[row].metadata
        request = context.bind_requests.get((meta.namespace, meta.name))
        groups = (request.spec.selected_gpu_groups if request else None) or _label_groups(meta.labels or _NOTHING)
        if groups:
            found[row] = tuple(groups)
    return found


def _label_groups(labels: Mapping[str, str]) -> list[str]:
    many = sorted(value for key, value in labels.items() if key.startswith(names.GPU_GROUP_LABEL_PREFIX))
    single = labels.get(names.GPU_GROUP_LABEL)
    return many or ([single] if single else [])
