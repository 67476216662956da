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
from pykai.objects.kinds import BindRequest, ObjectMeta, Pod

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


def request_is_for(request: BindRequest, pod: Pod) -> bool:
    """Whether a request is about this very pod, not about an earlier one of the same name."""
    owners = [owner.uid for owner in request.metadata.owner_references or () if owner.kind == "Pod" and owner.uid]
    return not owners or not pod.metadata.uid or pod.metadata.uid in owners


def _request_of(pod: Pod, requests: Mapping[tuple[str, str], BindRequest]) -> BindRequest | None:
    request = requests.get((pod.metadata.namespace, pod.metadata.name))
    return request if request is not None and request_is_for(request, pod) else None


def pod_table(
    pods: Sequence[Pod], templates: Sequence[Template], context: PodContext
) -> tuple[PodTable, dict[int, list[int]]]:
    """The table, and per gang the pods that name a sub-group it does not have."""
    metas = [pod.metadata for pod in pods]
    klass = np.array(context.classes.row_of_each(pods, templates, context.class_context), dtype=np.int64)
    gang = _gangs(pods, metas, context)
    status, node = _places(pods, templates, context)
    podset, stray = _podsets(gang, metas, context.gangs)
    classes = context.classes.finish()
    reservation, foreign = _not_ours(pods, np.flatnonzero(gang < 0).tolist(), status, context.params)
    table = PodTable(
        classes=classes,
        klass=klass,
        gang=gang,
        podset=podset,
        status=status,
        node=node,
        objects=list(pods),
        gpu_groups=_gpu_groups(pods, klass, [c.row for c in classes if c.shared], context),
        reservation=reservation,
        foreign=foreign,
    )
    return table, stray


def _not_ours(
    pods: Sequence[Pod], rows: Sequence[int], status: np.ndarray, params: SchedulerParams
) -> tuple[frozenset[int], frozenset[int]]:
    """Of pods without a gang: our reservation pods, and active pods of other schedulers."""
    reservation, foreign = set(), set()
    for row in rows:
        app = (pods[row].metadata.labels or _NOTHING).get(names.APP_LABEL)
        if app == params.reservation_app:
            reservation.add(row)
        elif (
            app != params.scaling_app
            and pods[row].spec.scheduler_name != params.scheduler_name
            and IS_ACTIVE_USED[status[row]]
        ):
            foreign.add(row)
    return frozenset(reservation), frozenset(foreign)


def _gangs(pods: Sequence[Pod], metas: Sequence[ObjectMeta], context: PodContext) -> np.ndarray:
    """Gang row of each of our pods, -1 for the others."""
    rows, ours, key = context.gangs.rows, context.params.scheduler_name, names.POD_GROUP_ANNOTATION
    nobody: dict[str, int] = {}
    return np.array(
        [
            rows.get(meta.namespace, nobody).get(a[key], -1)
            if (a := meta.annotations) and key in a and pod.spec.scheduler_name == ours
            else -1
            for pod, meta in zip(pods, metas, strict=True)
        ],
        dtype=np.int64,
    )


def _places(pods: Sequence[Pod], templates: Sequence[Template], context: PodContext) -> tuple[np.ndarray, np.ndarray]:
    """Status and node row of every pod."""
    node_rows = context.node_rows
    node = [node_rows.get(pod.spec.node_name, -1) for pod in pods]
    plain = [pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None for pod in pods]
    status = np.full(len(pods), int(Status.RUNNING), dtype=np.int64)
    for row in np.flatnonzero(~np.array(plain, dtype=bool)).tolist():
        status[row], node[row] = _place(pods[row], node[row], templates[row], context)
    return status, np.array(node, dtype=np.int64)


def _place(pod: Pod, node: int, template: Template, context: PodContext) -> tuple[Status, int]:
    request = _request_of(pod, context.bind_requests)
    target = -1
    if request is not None and not request_failed(request):
        target = context.node_rows.get(request.spec.selected_node, -1)
    status = pod_status(pod, target >= 0, context.now, context.params.stuck_in_releasing)
    if status is Status.PENDING and template.decoded.gated:
        return Status.GATED, -1
    return status, target if status is Status.BINDING else node


def _podsets(gang: np.ndarray, metas: Sequence[ObjectMeta], gangs: GangRows) -> tuple[np.ndarray, dict[int, list[int]]]:
    """Podset row of every pod; pods whose sub-group does not exist are stray."""
    first = np.array([*gangs.first_podset, -1], dtype=np.int64)
    podset = first[gang]
    stray: dict[int, list[int]] = {}
    key = names.SUBGROUP_LABEL
    suspects = {row for row, meta in enumerate(metas) if meta.labels and key in meta.labels}
    if gangs.podset_rows:
        suspects.update(np.flatnonzero(np.isin(gang, list(gangs.podset_rows))).tolist())
    for row in sorted(suspects):
        owner = int(gang[row])
        if owner < 0:
            continue
        known = gangs.podset_rows.get(owner) or {names.DEFAULT_PODSET: gangs.first_podset[owner]}
        podset[row] = known.get((metas[row].labels or _NOTHING).get(key) or names.DEFAULT_PODSET, -1)
        if podset[row] < 0:
            stray.setdefault(owner, []).append(row)
    return podset, stray


def _gpu_groups(
    pods: Sequence[Pod], klass: np.ndarray, shared: Sequence[int], context: PodContext
) -> dict[int, tuple[str, ...]]:
    """Device group ids of pods that share GPUs: from the bind request where it has them, else from labels."""
    found = {}
    for row in np.flatnonzero(np.isin(klass, shared)).tolist() if shared else ():
        request = _request_of(pods[row], context.bind_requests)
        labels = pods[row].metadata.labels or _NOTHING
        groups = (request.spec.selected_gpu_groups if request else None) or _label_groups(labels)
        if groups:
            found[row] = tuple(groups)
    return found


def _label_groups(labels: Mapping[str, str]) -> list[str]:
    many = sorted(value for key, value in labels.items() if key.startswith(names.GPU_GROUP_LABEL_PREFIX))
    single = labels.get(names.GPU_GROUP_LABEL)
    return many or ([single] if single else [])
