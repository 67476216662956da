"""Pod objects -> PodTable.

Each pod is read once, into numbers that are valid until the pod object is replaced. Forty thousand pods do not fit into
a processor's cache, so that each pass over them is expensive: there is one pass, and the few pods that need more work
are collected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pykai.cache.classes import ClassContext, KindMemo, class_table
from pykai.cache.podgroups import GangRows
from pykai.cache.readings import NamedRows, NumberedNames, Numbers, column
from pykai.model.params import SchedulerParams
from pykai.model.pods import Lookup, PodTable
from pykai.model.resources import ResourceSpace, Rows
from pykai.model.status import IS_ACTIVE_USED, Status
from pykai.objects import names, nvfractions
from pykai.objects.kinds import ABSENT, BindRequest, Pod
from pykai.objects.pod_template import template_parts

KIND, GANG, NODE, STATUS, MARKS = range(5)
"""Fields: numbers of the kind, of the PodGroup (-1: none, or scheduled by another scheduler) and of the node; the
status by the pod object alone; marks."""
IN_SUBGROUP, RESERVATION, FOREIGN, NOMINATED, BACKGROUND = 1, 2, 4, 8, 16
"""Bits of the marks: the pod names a sub-group; is a reservation pod; belongs to another scheduler and is no utility
pod of KAI; has a nominated node; is a background pod. The second and third are set only without a PodGroup."""

_NOTHING: dict[str, str] = {}
_PHASES = {
    "Running": Status.RUNNING,
    "Pending": Status.PENDING,
    "": Status.PENDING,
    "Succeeded": Status.SUCCEEDED,
    "Failed": Status.FAILED,
}


@dataclass
class _Found:
    """The result of one pass over the pods: columns, and rows of pods that need more work."""

    kind: list[int] = field(default_factory=list)
    node: list[str] = field(default_factory=list)
    gang: NamedRows = field(default_factory=NamedRows)
    """Names of PodGroups of ours."""
    unsteady: list[int] = field(default_factory=list)
    """Pods that are not running, or are being deleted."""
    labelled: list[int] = field(default_factory=list)
    """Pods that name a sub-group, or say whether they are background pods."""
    nominated: list[int] = field(default_factory=list)
    """Pods whose status names a node."""


@dataclass(frozen=True)
class PodReader:
    """Reads pods, and numbers kinds, PodGroups and nodes on first use."""

    kinds: KindMemo
    gangs: NumberedNames
    nodes: Numbers[str]
    params: SchedulerParams

    def read(self, pods: Sequence[Pod]) -> Rows:
        """The block [field, pod]."""
        kinds, key_sets, ours = self.kinds, self.kinds.key_sets, self.params.scheduler_name
        group_key, label_key, background_key = names.POD_GROUP_ANNOTATION, names.SUBGROUP_LABEL, names.BACKGROUND_LABEL
        found, last, namespace = _Found(), None, None
        add_kind, add_node = found.kind.append, found.node.append
        for row, pod in enumerate(pods):
            meta, spec, status = pod.metadata, pod.spec, pod.status
            annotations, labels, parts = meta.annotations, meta.labels, template_parts(spec)
            steady = status.container_statuses is ABSENT
            if not steady or parts != last:
                template = kinds.template(parts, pod) if steady else kinds.resized(pod)
                last, kind = parts if steady else None, template.kind
            add_node(spec.node_name)
            relevant: Sequence[str] = ()
            if annotations:
                group = annotations.get(group_key)
                if group is None or len(annotations) > 1:
                    relevant = key_sets[tuple(annotations)]
                if group is not None and spec.scheduler_name == ours:
                    if meta.namespace != namespace:
                        namespace = meta.namespace
                        members, groups = found.gang.of(namespace)
                    members.append(row)
                    groups.append(group)
            add_kind(kinds.number(pod, template, relevant) if relevant or kind < 0 else kind)
            if status.phase != "Running" or meta.deletion_timestamp is not None:
                found.unsteady.append(row)
            if status.nominated_node_name:
                found.nominated.append(row)
            if labels and (label_key in labels or background_key in labels):
                found.labelled.append(row)
        return self._block(pods, found)

    def _block(self, pods: Sequence[Pod], found: _Found) -> Rows:
        block = np.zeros((5, len(pods)), dtype=np.int64)
        nodes = map(self.nodes.__getitem__, found.node)
        block[KIND], block[NODE] = column(found.kind), np.fromiter(nodes, dtype=np.int64, count=len(pods))
        block[GANG], block[STATUS] = self.gangs.column(len(pods), found.gang), Status.RUNNING
        block[STATUS, found.unsteady] = [self._status(pods[row], found.kind[row]) for row in found.unsteady]
        alone = np.flatnonzero(block[GANG] < 0).tolist()
        block[MARKS, alone] = [self.marks(pods[row]) for row in alone]
        marks = (_label_marks(pods[row].metadata.labels or _NOTHING) for row in found.labelled)
        block[MARKS, found.labelled] += np.fromiter(marks, dtype=np.int64, count=len(found.labelled))
        block[MARKS, found.nominated] += NOMINATED
        return block

    def _status(self, pod: Pod, kind: int) -> Status:
        status = own_status(pod)
        gated = status is Status.PENDING and self.kinds.kinds[kind].template.decoded.gated
        return Status.GATED if gated else status

    def marks(self, pod: Pod) -> int:
        """What a pod without a gang is."""
        app, params = (pod.metadata.labels or _NOTHING).get(names.APP_LABEL), self.params
        if app == params.reservation_app:
            return RESERVATION
        foreign = app != params.scaling_app and pod.spec.scheduler_name != params.scheduler_name
        return FOREIGN if foreign else 0


def _label_marks(labels: Mapping[str, str]) -> int:
    background = BACKGROUND if labels.get(names.BACKGROUND_LABEL) == "true" else 0
    return background + (IN_SUBGROUP if names.SUBGROUP_LABEL in labels else 0)


def own_status(pod: Pod) -> Status:
    """Return the status by the pod object alone; whether it is binding or stuck in releasing needs bind requests and
    the clock."""
    status = _PHASES.get(pod.status.phase, Status.UNKNOWN)
    if pod.metadata.deletion_timestamp is not None and status in (Status.RUNNING, Status.PENDING):
        return Status.RELEASING
    return Status.BOUND if status is Status.PENDING and pod.spec.node_name else status


@dataclass(frozen=True)
class PodContext:
    """What the pod table is built against."""

    node_rows: Mapping[str, int]
    rows_by_number: Rows
    """The same by the number of the node's name."""
    gangs: GangRows
    bind_requests: Mapping[tuple[str, str], BindRequest]
    classes: ClassContext
    now: float


def pod_status(pod: Pod, bound: bool, now: float, stuck_after: float) -> Status:
    """Return the status of a pod; `bound`: a bind request that has not failed names an existing node for it."""
    status, deleted = own_status(pod), pod.metadata.deletion_timestamp
    if status is Status.PENDING and bound:
        return Status.BINDING
    if status is Status.RELEASING and deleted is not None and pod.status.phase == "Running":
        return Status.STUCK_IN_RELEASING if now - deleted.timestamp() > stuck_after else status
    return status


def request_failed(request: BindRequest) -> bool:
    """Whether the binder has given up on it."""
    limit = request.spec.backoff_limit
    return request.status.phase == "Failed" and (limit is None or request.status.failed_attempts >= limit)


def request_is_for(request: BindRequest, pod: Pod) -> bool:
    """Whether a bind request is for this pod, not for an earlier one of the same name."""
    owners = [owner.uid for owner in request.metadata.owner_references or () if owner.kind == "Pod" and owner.uid]
    return not owners or not pod.metadata.uid or pod.metadata.uid in owners


def _request_of(pod: Pod, requests: Mapping[tuple[str, str], BindRequest]) -> BindRequest | None:
    request = requests.get((pod.metadata.namespace, pod.metadata.name)) if requests else None
    return request if request is not None and request_is_for(request, pod) else None


def pod_table(
    found: tuple[Sequence[Pod], Rows], lookup: Lookup | None, reader: PodReader, context: PodContext
) -> tuple[PodTable, dict[int, list[int]], ResourceSpace]:
    """The table, per gang the pods that name a sub-group it does not have, and the space of all that pods request.

    `found`: the pods, and what was read of each. `lookup`: where they are by name, if that is kept.
    """
    pods, block = _not_failed(*found)
    lookup = lookup if len(pods) == len(found[0]) else None
    gang = context.gangs.groups.rows_of(block[GANG])
    node = context.rows_by_number[block[NODE]]
    status = block[STATUS].copy()
    for row in _unsettled(status, lookup, context):
        status[row], node[row] = _place(pods[row], Status(status[row]), int(node[row]), reader, context)
    podset, stray = _podsets(gang, pods, np.flatnonzero(block[MARKS] & IN_SUBGROUP), context.gangs)
    known, klass = class_table(pods, block[KIND], reader.kinds, context.classes)
    classes = known.classes
    gpu_groups = _gpu_groups(pods, klass, [c.row for c in classes if c.shared], context)
    marks = _marks(pods, block, gang, reader)
    reservation = frozenset(np.flatnonzero(marks & RESERVATION).tolist())
    foreign = np.flatnonzero((marks & FOREIGN > 0) & np.array(IS_ACTIVE_USED)[status])
    needed = _still_needed(pods, reservation, gpu_groups, status)
    modes = np.array([c.compute_mode for c in classes], dtype=np.int64)
    group_modes = _group_modes(pods, (node, gpu_groups), needed, modes[klass]) if modes.any() else {}
    table = PodTable(
        classes=classes,
        klass=klass,
        gang=gang,
        podset=podset,
        status=status,
        node=node,
        objects=pods,
        gpu_groups=gpu_groups,
        reservation=needed,
        group_modes=group_modes,
        foreign=frozenset(foreign.tolist()),
        nominated=frozenset(np.flatnonzero(block[MARKS] & NOMINATED).tolist()),
        background=frozenset(np.flatnonzero((block[MARKS] & BACKGROUND > 0) & (gang >= 0)).tolist()),
        lookup=lookup,
        _class_facts=known.facts,
    )
    return table, stray, known.space


def _not_failed(pods: Sequence[Pod], block: Rows) -> tuple[Sequence[Pod], Rows]:
    """Return the pods without failed ones, which hold no resources."""
    failed = block[STATUS] == Status.FAILED
    if not failed.any():
        return pods, block
    kept = np.flatnonzero(~failed)
    return [pods[row] for row in kept.tolist()], block[:, kept]


def _unsettled(status: Rows, lookup: Lookup | None, context: PodContext) -> list[int]:
    """Return the pods whose status or node depends on more than the pod: on the clock if they leave, on bind requests
    if they have no node."""
    leaving: list[int] = np.flatnonzero(status == Status.RELEASING).tolist()
    if not context.bind_requests:
        return leaving
    waiting = (status == Status.PENDING) | (status == Status.GATED)
    if lookup is None:
        return [*leaving, *np.flatnonzero(waiting).tolist()]
    return [*leaving, *(row for row in lookup.rows_of(context.bind_requests).values() if waiting[row])]


def _marks(pods: Sequence[Pod], block: Rows, gang: Rows, reader: PodReader) -> Rows:
    """Marks of pods without a gang, those included whose PodGroup does not exist."""
    marks = np.where(gang < 0, block[MARKS], 0)
    for row in np.flatnonzero((gang < 0) & (block[GANG] >= 0)).tolist():
        marks[row] = reader.marks(pods[row])
    return marks


def _still_needed(
    pods: Sequence[Pod], reservation: frozenset[int], gpu_groups: Mapping[int, tuple[str, ...]], status: Rows
) -> dict[int, str]:
    """Reservation pods whose device is shared, and the device. One that is not needed any more still holds its
    device on the node until it is gone: it counts like any pod that is leaving."""
    shared = {group for row, groups in gpu_groups.items() if IS_ACTIVE_USED[status[row]] for group in groups}
    held = {row: _label_groups(pods[row].metadata.labels or {}) for row in sorted(reservation)}
    needed = {row: group for row, groups in held.items() for group in groups if group in shared}
    for row in reservation - needed.keys():
        if IS_ACTIVE_USED[status[row]]:
            status[row] = int(Status.RELEASING)
    return needed


def _place(pod: Pod, own: Status, node: int, reader: PodReader, context: PodContext) -> tuple[Status, int]:
    request = _request_of(pod, context.bind_requests)
    target = -1
    if request is not None and not request_failed(request):
        target = context.node_rows.get(request.spec.selected_node, -1)
    status = pod_status(pod, target >= 0, context.now, reader.params.stuck_in_releasing)
    if status is Status.BINDING:
        return status, target
    return own if own is Status.GATED else status, node


def _podsets(gang: Rows, pods: Sequence[Pod], labelled: Rows, gangs: GangRows) -> tuple[Rows, dict[int, list[int]]]:
    """Podset row of every pod; pods whose sub-group does not exist are stray."""
    unnamed = np.append(gangs.first_podset[:-1], -1)
    for owner, known in gangs.podset_rows.items():
        unnamed[owner] = known.get(names.DEFAULT_PODSET, -1)
    podset = unnamed[gang]
    for row in labelled[gang[labelled] >= 0].tolist():
        owner = int(gang[row])
        known = gangs.podset_rows.get(owner) or {names.DEFAULT_PODSET: int(gangs.first_podset[owner])}
        named = (pods[row].metadata.labels or _NOTHING).get(names.SUBGROUP_LABEL)
        podset[row] = known.get(named or names.DEFAULT_PODSET, -1)
    stray: dict[int, list[int]] = {}
    for row in np.flatnonzero((podset < 0) & (gang >= 0)).tolist():
        stray.setdefault(int(gang[row]), []).append(row)
    return podset, stray


def _gpu_groups(
    pods: Sequence[Pod], klass: Rows, shared: Sequence[int], context: PodContext
) -> dict[int, tuple[str, ...]]:
    """Device group ids of pods that share GPUs: from the bind request where it has them, else from labels."""
    found = {}
    for row in np.flatnonzero(np.isin(klass, shared)).tolist() if shared else ():
        request = _request_of(pods[row], context.bind_requests)
        labels = pods[row].metadata.labels or _NOTHING
        groups = (request.spec.gpu_groups if request else None) or _label_groups(labels)
        if groups:
            found[row] = tuple(groups)
    return found


def _group_modes(
    pods: Sequence[Pod], places: tuple[Rows, Mapping[int, tuple[str, ...]]], needed: Mapping[int, str], mode: Rows
) -> dict[tuple[int, str], int]:
    """The compute mode of each shared device: that of its reservation pod, else of the first pod that shares it."""
    node, gpu_groups = places
    found: dict[tuple[int, str], int] = {}
    for row, groups in gpu_groups.items():
        for group in groups:
            found.setdefault((int(node[row]), group), int(mode[row]))
    for row, group in needed.items():
        said = nvfractions.compute_mode(pods[row].metadata.annotations)
        found[int(node[row]), group] = names.COMPUTE_MODES.index(said)
    return found


def _label_groups(labels: Mapping[str, str]) -> list[str]:
    many = [value for key, value in labels.items() if key.startswith(names.GPU_GROUP_LABEL_PREFIX)]
    single = labels.get(names.GPU_GROUP_LABEL)
    return sorted(many) or ([single] if single else [])
