"""Pod objects -> PodTable (spec/scheduling.md §2.2, §2.4, §2.8).

Forty thousand running pods must cost a fraction of a second, so each is looked at once, and the few that need thought
(pending, shared, deleted, in a sub-group) are picked out.
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
_NO_ROWS: dict[str, int] = {}
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
    read = _read(pods, templates, context)
    klass, gang, node = (np.array(column, dtype=np.int64) for column in (read.klass, read.gang, read.node))
    status = np.full(len(pods), int(Status.RUNNING), dtype=np.int64)
    for row in read.not_running:
        status[row], node[row] = _place(pods[row], int(node[row]), templates[row], context)
    podset, stray = _podsets(gang, pods, read.labelled, context.gangs)
    classes = context.classes.finish()
    gpu_groups = _gpu_groups(pods, klass, [c.row for c in classes if c.shared], context)
    reservation, foreign = _not_ours(pods, np.flatnonzero(gang < 0).tolist(), status, context.params)
    reservation = _still_needed(pods, reservation, gpu_groups, status)
    table = PodTable(
        classes=classes,
        klass=klass,
        gang=gang,
        podset=podset,
        status=status,
        node=node,
        objects=list(pods),
        gpu_groups=gpu_groups,
        reservation=reservation,
        foreign=foreign,
    )
    return table, stray


@dataclass
class _Read:
    """What one look at each pod tells."""

    klass: list[int]
    gang: list[int]
    node: list[int]
    not_running: list[int]
    labelled: list[int]
    """Rows of pods that name a sub-group."""


def _read(pods: Sequence[Pod], templates: Sequence[Template], context: PodContext) -> _Read:
    """Look at every pod once: forty thousand of them do not fit into a processor's cache, so a second pass over the
    objects costs as much as the first, whatever it reads."""
    found = _Read([], [], [], [], [])
    add_class, add_gang, add_node = found.klass.append, found.gang.append, found.node.append
    node_rows, gang_rows, ours = context.node_rows, context.gangs.rows, context.params.scheduler_name
    group_key, label_key = names.POD_GROUP_ANNOTATION, names.SUBGROUP_LABEL
    class_of, nobody = context.classes.reader(context.class_context), _NO_ROWS
    for row, (pod, template) in enumerate(zip(pods, templates, strict=True)):
        meta, spec = pod.metadata, pod.spec
        annotations, labels = meta.annotations, meta.labels
        add_class(class_of(pod, template, annotations or _NOTHING))
        gang = -1
        if annotations and group_key in annotations and spec.scheduler_name == ours:
            gang = gang_rows.get(meta.namespace, nobody).get(annotations[group_key], -1)
        add_gang(gang)
        add_node(node_rows.get(spec.node_name, -1))
        if pod.status.phase != "Running" or meta.deletion_timestamp is not None:
            found.not_running.append(row)
        if labels and label_key in labels:
            found.labelled.append(row)
    return found


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


def _still_needed(
    pods: Sequence[Pod], reservation: frozenset[int], gpu_groups: Mapping[int, tuple[str, ...]], status: np.ndarray
) -> frozenset[int]:
    """Reservation pods whose device somebody shares. One that nobody needs any more still holds its device on the node
    until it is gone: it counts like any pod that is leaving."""
    shared = {group for row, groups in gpu_groups.items() if IS_ACTIVE_USED[status[row]] for group in groups}
    needed = frozenset(
        row for row in reservation if shared.intersection(_label_groups(pods[row].metadata.labels or {}))
    )
    for row in reservation - needed:
        if IS_ACTIVE_USED[status[row]]:
            status[row] = int(Status.RELEASING)
    return needed


def _place(pod: Pod, node: int, template: Template, context: PodContext) -> tuple[Status, int]:
    request = _request_of(pod, context.bind_requests)
    target = -1
    if request is not None and not request_failed(request):
        target = context.node_rows.get(request.spec.selected_node, -1)
    status = pod_status(pod, target >= 0, context.now, context.params.stuck_in_releasing)
    if status is Status.PENDING and template.decoded.gated:
        return Status.GATED, -1
    return status, target if status is Status.BINDING else node


def _podsets(
    gang: np.ndarray, pods: Sequence[Pod], labelled: Sequence[int], gangs: GangRows
) -> tuple[np.ndarray, dict[int, list[int]]]:
    """Podset row of every pod; pods whose sub-group does not exist are stray."""
    first = np.array([*gangs.first_podset, -1], dtype=np.int64)
    podset = first[gang]
    stray: dict[int, list[int]] = {}
    suspects = set(labelled)
    if gangs.podset_rows:
        suspects.update(np.flatnonzero(np.isin(gang, list(gangs.podset_rows))).tolist())
    for row in sorted(suspects):
        owner = int(gang[row])
        if owner < 0:
            continue
        known = gangs.podset_rows.get(owner) or {names.DEFAULT_PODSET: gangs.first_podset[owner]}
        named = (pods[row].metadata.labels or _NOTHING).get(names.SUBGROUP_LABEL)
        podset[row] = known.get(named or names.DEFAULT_PODSET, -1)
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
