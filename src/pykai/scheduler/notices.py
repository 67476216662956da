"""What is to be said about those who wait: texts for pods and PodGroups, as data (spec/scheduling.md §17).

This is worked out in full in every cycle and says nothing about what was said before: who writes it compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

from msgspec import Struct

from pykai.kube.api import Object
from pykai.model.plan import Plan, QueueDetails, Reason, Verdict
from pykai.model.resources import UNLIMITED
from pykai.model.snapshot import Snapshot
from pykai.model.statistics import Triple
from pykai.model.status import Status
from pykai.objects import names
from pykai.objects.kinds import PodGroup
from pykai.objects.units import render_quantity

Key = tuple[str, str]
_GATED = int(Status.GATED)
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


def notices(snapshot: Snapshot, plan: Plan) -> Notices:
    """Everything to be said after a cycle."""
    gangs = snapshot.gangs
    verdicts = {verdict.gang: verdict for verdict in plan.verdicts}
    rows = gangs.rows_of(verdicts.keys() | plan.stale.keys())
    pods: dict[Key, PodNotice] = {}
    told: dict[Key, GangNotice] = {}
    for gang, row in sorted(rows.items(), key=itemgetter(1)):
        verdict, group = verdicts.get(gang), gangs.objects[row]
        events = [("StaleJob", plan.stale[gang])] if gang in plan.stale else []
        condition = None
        if verdict is not None:
            prefix = _prefix(snapshot, group)
            events.append(_why(verdict, prefix))
            pods.update(_pods(snapshot, row, verdict, prefix))
            condition = _condition(snapshot, verdict, prefix)
        told[gang] = GangNotice(group.metadata.uid, tuple(events), condition)
    return Notices(pods, told, plan.cleared)


def _prefix(snapshot: Snapshot, group: PodGroup) -> str:
    """Groups that move on to another node pool after one attempt are told which pool it was."""
    return f"Node-Pool '{snapshot.params.pool_title}': " if group.spec.scheduling_backoff == 1 else ""


def _pods(snapshot: Snapshot, row: int, verdict: Verdict, prefix: str) -> Iterator[tuple[Key, PodNotice]]:
    """The waiting pods but for gated ones; of a gang that is not ready only those that can never be in it."""
    gangs, pods = snapshot.gangs, snapshot.pods
    marked = gangs.objects[row].spec.mark_unschedulable is not False
    for pod in gangs.pods(row) if verdict.ready else gangs.stray_pods.get(row, ()):
        meta = pods.objects[pod].metadata
        message = verdict.pods.get((meta.namespace, meta.name))
        if message is not None and pods.status[pod] != _GATED:
            yield (meta.namespace, meta.name), PodNotice(meta.uid, prefix + message, marked)


def _why(verdict: Verdict, prefix: str) -> tuple[str, str]:
    return (names.UNSCHEDULABLE, prefix + verdict.message) if verdict.ready else ("NotReady", verdict.not_ready)


def _condition(snapshot: Snapshot, verdict: Verdict, prefix: str) -> Object | None:
    """Why the gang waits, for its status; nothing while some of it has a place."""
    if not verdict.ready or verdict.has_place:
        return None
    return {
        "type": names.UNSCHEDULABLE_ON_POOL,
        "nodePool": snapshot.params.pool_title,
        "reason": names.UNSCHEDULABLE,
        "message": prefix + verdict.message,
        "status": "True",
        "reasons": [_reason(reason) for reason in verdict.reasons],
    }


def _reason(reason: Reason) -> Object:
    details = {} if reason.queue is None else {"details": {"queueDetails": _queue_details(reason.queue)}}
    return {"reason": reason.code, "message": reason.message, **details}


def _queue_details(queue: QueueDetails) -> Object:
    """The figures of the queue that is full, by which the gang was judged."""
    figures: dict[str, Triple] = {
        "queueRequestedResources": queue.requested,
        "queueDeservedResources": queue.deserved,
        "queueAllocatedNonPreemptibleResources": queue.allocated_non_preemptible,
        "podGroupRequestedResources": queue.gang_requested,
        "podGroupRequestedNonPreemptibleResources": queue.gang_requested_non_preemptible,
        "queueAllocatedResources": queue.allocated,
        "queueResourceLimits": queue.limit,
    }
    return {"name": queue.name, **{field: resource_list(amounts) for field, amounts in figures.items()}}


def resource_list(amounts: Triple) -> dict[str, str]:
    """cpu (milli), memory (bytes) and GPUs (devices) as quantities; -1 stays what it is: unlimited."""
    cpu, memory, gpus = amounts
    cores = cpu if cpu == UNLIMITED else cpu / 1000
    return {"cpu": render_quantity(cores), "memory": render_quantity(memory), names.NVIDIA_GPU: render_quantity(gpus)}
