"""What is to be said about those who wait: texts for pods and PodGroups, as data (spec/scheduling.md §17).

This is worked out in full in every cycle and says nothing about what was said before: who writes it compares.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from msgspec import Struct

from pykai.engine.capacity import OverCapacity
from pykai.engine.cycle import Cycle
from pykai.engine.gang import alive
from pykai.engine.quota import Triple
from pykai.kube.api import Object
from pykai.model.gangs import PodSet
from pykai.model.plan import Plan, Verdict
from pykai.model.resources import UNLIMITED
from pykai.model.status import IS_ACTIVE_ALLOCATED, Status
from pykai.objects import names
from pykai.objects.kinds import PodGroup
from pykai.objects.units import render_quantity

Key = tuple[str, str]
_BEING_PLACED = (Status.ALLOCATED, Status.PIPELINED, Status.BINDING)
_PENDING = int(Status.PENDING)
"""Looked up once: asking an enum for a member takes long in a loop."""


class PodNotice(Struct, frozen=True):
    """Why a pod waits; `marked`: it is also to be written into the pod's conditions, with reason `condition`."""

    uid: str
    message: str
    marked: bool = True
    condition: str = names.UNSCHEDULABLE


class GangNotice(Struct, frozen=True):
    """What to tell about the PodGroup of this uid: events as (reason, message), and its scheduling condition.

    `condition` None leaves the conditions as they are.
    """

    uid: str
    events: tuple[tuple[str, str], ...] = ()
    condition: Object | None = None


@dataclass(frozen=True)
class Notices:
    """By (namespace, name). `content`: PodGroups that wait no more but still show why they did."""

    pods: Mapping[Key, PodNotice]
    gangs: Mapping[Key, GangNotice]
    content: tuple[Key, ...] = ()


def notices(cycle: Cycle, plan: Plan) -> Notices:
    """Everything to be said after a cycle."""
    gangs = cycle.snapshot.gangs
    rows = gangs.rows_of(verdict.gang for verdict in plan.verdicts)
    verdicts = {rows[verdict.gang]: verdict for verdict in plan.verdicts}
    pods: dict[Key, PodNotice] = {}
    told: dict[Key, GangNotice] = {}
    stale = set(_stale(cycle))
    for row in sorted(verdicts.keys() | stale):
        verdict, meta = verdicts.get(row), gangs.objects[row].metadata
        events = [("StaleJob", _stale_text(cycle, row))] if row in stale else []
        if verdict is not None:
            events.append(_why(cycle, row, verdict))
            pods.update(_pods(cycle, row, verdict))
        told[meta.namespace, meta.name] = GangNotice(meta.uid, tuple(events), _condition(cycle, row, verdict))
    content = tuple(_content(cycle, verdicts))
    return Notices(pods, told, content)


def _prefix(cycle: Cycle, group: PodGroup) -> str:
    """Groups that move on to another node pool after one attempt are told which pool it was."""
    return f"Node-Pool '{cycle.snapshot.params.pool_title}': " if group.spec.scheduling_backoff == 1 else ""


# ----------------------------------------------------------------------------------------------------------------- pods
def _pods(cycle: Cycle, row: int, verdict: Verdict) -> Iterator[tuple[Key, PodNotice]]:
    group: PodGroup = cycle.snapshot.gangs.objects[row]
    prefix, marked = _prefix(cycle, group), group.spec.mark_unschedulable is not False
    stray, objects, status = (
        cycle.snapshot.gangs.stray_pods.get(row, ()),
        cycle.snapshot.pods.objects,
        cycle.trial.status,
    )
    for pod in cycle.snapshot.gangs.pods(row):
        if status[pod] != _PENDING:
            continue
        meta = objects[pod].metadata
        message = verdict.pods.get((meta.namespace, meta.name))
        if message is None:
            continue
        if pod in stray:
            wanted = (meta.labels or {}).get(names.SUBGROUP_LABEL) or names.DEFAULT_PODSET
            message = f'Pod references subgroup "{wanted}", which does not exist in PodGroup {"/".join(verdict.gang)}'
        elif not verdict.ready:
            continue
        yield (meta.namespace, meta.name), PodNotice(meta.uid, prefix + message, marked)


# ---------------------------------------------------------------------------------------------------------------- gangs
def _why(cycle: Cycle, row: int, verdict: Verdict) -> tuple[str, str]:
    if not verdict.ready:
        return "NotReady", _not_ready_text(cycle, row)
    return names.UNSCHEDULABLE, _prefix(cycle, cycle.snapshot.gangs.objects[row]) + verdict.message


def _not_ready_text(cycle: Cycle, row: int) -> str:
    trial, gangs = cycle.trial, cycle.snapshot.gangs
    start = "Job is not ready for scheduling."

    def figures(podset: PodSet, of: str) -> str:
        gated = trial.gated[podset.row]
        exist = alive(trial, podset.row) + gated
        return f" Waiting for {podset.min_available} pods{of}, currently {exist} exist, {gated} are gated"

    podsets = list(gangs.tree(row).podsets())
    if [podset.name for podset in podsets] == [names.DEFAULT_PODSET]:
        return start + figures(podsets[0], "")
    short = [podset for podset in podsets if alive(trial, podset.row) < podset.min_available]
    return start + "".join(figures(podset, f" for SubGroup {podset.name}") + "." for podset in short)


def _stale(cycle: Cycle) -> Iterator[int]:
    """Gangs that run with less than their minimum, known before or found now."""
    noted = cycle.snapshot.gangs.stale_since
    yield from (row for row in noted if cycle.stale_since.get(row, 0.0) is not None)
    yield from (row for row, since in cycle.stale_since.items() if since is not None and row not in noted)


def _stale_text(cycle: Cycle, row: int) -> str:
    active, podsets = cycle.trial.active_used, list(cycle.snapshot.gangs.tree(row).podsets())
    least = sum(podset.min_available for podset in podsets)
    text = f"Job is stale. {sum(active[podset.row] for podset in podsets)} pods are active, minMember is {least}"
    for podset in podsets:
        if podset.name != names.DEFAULT_PODSET and active[podset.row] < podset.min_available:
            text += f", subGroup {podset.name} minMember is {podset.min_available}"
            text += f" and {active[podset.row]} pods are active"
    return text


def _content(cycle: Cycle, waiting: Container[int]) -> Iterator[Key]:
    gangs, status = cycle.snapshot.gangs, cycle.trial.status
    for row in gangs.blamed:
        if row not in waiting and not any(status[pod] in _BEING_PLACED for pod in gangs.pods(row)):
            meta = gangs.objects[row].metadata
            yield meta.namespace, meta.name


# ----------------------------------------------------------------------------------------------- scheduling condition
def _condition(cycle: Cycle, row: int, verdict: Verdict | None) -> Object | None:
    """Why the gang waits, for its status; nothing while some of it has a place."""
    if verdict is None or not verdict.ready:
        return None
    gangs, status = cycle.snapshot.gangs, cycle.trial.status
    if any(IS_ACTIVE_ALLOCATED[status[pod]] for pod in gangs.pods(row)):
        return None
    return {
        "type": names.UNSCHEDULABLE_ON_POOL,
        "nodePool": cycle.snapshot.params.pool_title,
        "reason": names.UNSCHEDULABLE,
        "message": _prefix(cycle, gangs.objects[row]) + verdict.message,
        "status": "True",
        "reasons": [_reason(cycle, row, code, message) for code, message in verdict.reasons],
    }


def _reason(cycle: Cycle, row: int, code: str, message: str) -> Object:
    errors = cycle.reasons.gangs.get(row, ())
    over = next((e.capacity for e in errors if e.capacity and (e.reason, e.message) == (code, message)), None)
    details = {} if over is None else {"details": {"queueDetails": _queue_details(cycle, row, over)}}
    return {"reason": code, "message": message, **details}


def _queue_details(cycle: Cycle, row: int, over: OverCapacity) -> Object:
    """The figures of the queue that is full, by which the gang was judged."""
    book, queue = cycle.book, over.queue
    fixed = not cycle.snapshot.gangs.preemptible[row]
    limited = over.reason == "OverLimit"
    figures: dict[str, Triple] = {
        "queueRequestedResources": cycle.trial.queue_requested[queue],
        "queueDeservedResources": book.deserved[queue],
        "queueAllocatedNonPreemptibleResources": book.held[queue] if limited else over.used,
        "podGroupRequestedResources": over.request,
        "podGroupRequestedNonPreemptibleResources": over.request if fixed else (0.0, 0.0, 0.0),
        "queueAllocatedResources": over.used if limited else book.allocated[queue],
        "queueResourceLimits": book.limit[queue],
    }
    return {"name": book.names[queue], **{field: resource_list(amounts) for field, amounts in figures.items()}}


def resource_list(amounts: Triple) -> dict[str, str]:
    """cpu (milli), memory (bytes) and GPUs (devices) as quantities; -1 stays what it is: unlimited."""
    cpu, memory, gpus = amounts
    cores = cpu if cpu == UNLIMITED else cpu / 1000
    return {"cpu": render_quantity(cores), "memory": render_quantity(memory), names.NVIDIA_GPU: render_quantity(gpus)}
