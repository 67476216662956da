"""The conditions that follow from a plan: why each pending pod and gang waits, as the API server stores it.

The scheduling condition of a PodGroup has one reason per cause and per action that evicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace as replace_fields

from pykai.engine.reasons import described
from pykai.kube.api import Object
from pykai.model.plan import Key, Plan, Reason, Triple, Verdict
from pykai.model.resources import UNLIMITED
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.objects import names
from pykai.objects.kinds import PodGroup
from pykai.objects.units import render_quantity
from pykai.observe.wording import fairness

NOT_READY = "NotReady"
_GATED = int(Status.GATED)
"""Looked up once, because enum member access is slow in a loop."""


class PodCondition(Struct, frozen=True):
    """Why a pod is pending; `written`: also set as the pod's condition with this reason, not only as an event."""

    uid: str
    message: str
    written: bool = True
    reason: str = names.UNSCHEDULABLE


class GangCondition(Struct, frozen=True):
    """Why a gang is pending: events as (reason, message) on the PodGroup of this uid, and its scheduling condition.

    `scheduling` None leaves the conditions as they are.
    """

    uid: str
    events: tuple[tuple[str, str], ...] = ()
    scheduling: Object | None = None


@dataclass(frozen=True)
class Conditions:
    """All conditions after a cycle, by (namespace, name). `cleared`: PodGroups whose condition is to be removed."""

    pods: Mapping[Key, PodCondition]
    gangs: Mapping[Key, GangCondition]
    cleared: tuple[Key, ...] = ()
    core_pods: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)
    """The core pods of semi-preemptible PodGroups whose status names others."""
    fair_shares: Mapping[str, Triple] = field(default_factory=dict)
    """The fair share of each queue of the partition, by name."""


def conditions(snapshot: Snapshot, plan: Plan) -> Conditions:
    """Return all conditions that follow from a plan; `StatusUpdater` compares them with the last ones sent."""
    gangs = snapshot.gangs
    verdicts = {verdict.gang: verdict for verdict in plan.verdicts}
    rows = gangs.rows_of(verdicts.keys() | plan.stale.keys())
    of_pods: dict[Key, PodCondition] = {}
    of_gangs: dict[Key, GangCondition] = {}
    for gang, row in sorted(rows.items(), key=itemgetter(1)):
        verdict, group = verdicts.get(gang), gangs.objects[row]
        events = [("StaleJob", plan.stale[gang])] if gang in plan.stale else []
        scheduling = None
        if verdict is not None:
            # a group that moves to another node pool after one attempt names the pool
            prefix = f"Node-Pool '{snapshot.params.pool_title}': " if group.spec.scheduling_backoff == 1 else ""
            verdict = _with_fairness(snapshot, row, verdict)
            unschedulable = (names.UNSCHEDULABLE, prefix + verdict.message)
            events.append(unschedulable if verdict.ready else (NOT_READY, verdict.not_ready))
            of_pods.update(_pod_conditions(snapshot, row, verdict, prefix))
            scheduling = _scheduling_condition(snapshot, verdict, prefix)
        of_gangs[gang] = GangCondition(group.metadata.uid, tuple(events), scheduling)
    cores = gangs.rows_of(plan.core_pods) if plan.core_pods else {}
    changed = {
        gang: plan.core_pods[gang]
        for gang, row in cores.items()
        if core_pods(gangs.objects[row]) != plan.core_pods[gang]
    }
    fair_shares = {queue.name: queue.fair_share for queue in plan.queues}
    return Conditions(of_pods, of_gangs, plan.cleared, changed, fair_shares)


def core_pods(group: PodGroup) -> tuple[str, ...]:
    """Return the core pods that the status of a PodGroup names."""
    state = group.status.scheduling_state
    return tuple(state.core_pods or ()) if state else ()


def _with_fairness(snapshot: Snapshot, row: int, verdict: Verdict) -> Verdict:
    """Append a sentence about the queue's fair share to all texts of the verdict, if it adds to the reason."""
    text = fairness(snapshot, row, verdict)
    pods = {pod: message + text for pod, message in verdict.pods.items()}
    return replace_fields(verdict, message=verdict.message + text, pods=pods) if text else verdict


def _pod_conditions(snapshot: Snapshot, row: int, verdict: Verdict, prefix: str) -> Iterator[tuple[Key, PodCondition]]:
    """Yield the conditions of pending pods, except gated ones.

    Pods of a gang that is not ready get an event with the number of missing pods, but no condition, because a condition
    would make an autoscaler add nodes.
    """
    gangs, pods = snapshot.gangs, snapshot.pods
    written, stray = gangs.objects[row].spec.mark_unschedulable is not False, gangs.stray_pods.get(row, ())
    for pod in gangs.pods(row):
        meta = pods.objects[pod].metadata
        message = verdict.pods.get(meta.key)
        if message is None or pods.status[pod] == _GATED:
            continue
        if verdict.ready or pod in stray:
            yield meta.key, PodCondition(meta.uid, prefix + message, written)
        else:
            yield meta.key, PodCondition(meta.uid, message, False, NOT_READY)


def _scheduling_condition(snapshot: Snapshot, verdict: Verdict, prefix: str) -> Object | None:
    """Return the scheduling condition of a pending gang; None while it is not ready or some of its pods are placed."""
    if not verdict.ready or verdict.has_place:
        return None
    evictions = [each.code for each in verdict.actions if each.action != "allocate"]
    searches: list[Object] = [{"reason": code, "message": described(code)} for code in evictions]
    return {
        "type": names.UNSCHEDULABLE_ON_POOL,
        "nodePool": snapshot.params.pool_title,
        "reason": names.UNSCHEDULABLE,
        "message": prefix + verdict.message,
        "status": "True",
        "reasons": [*map(_reason, verdict.reasons), *searches],
    }


def _reason(reason: Reason) -> Object:
    """Return a reason, with the amounts of the queue whose limit or quota would be exceeded, as they were checked."""
    body, queue = {"reason": reason.code, "message": reason.message}, reason.queue
    if queue is None:
        return body
    figures: dict[str, Triple] = {
        "queueRequestedResources": queue.requested,
        "queueDeservedResources": queue.deserved,
        "queueAllocatedNonPreemptibleResources": queue.allocated_non_preemptible,
        "podGroupRequestedResources": queue.gang_requested,
        "podGroupRequestedNonPreemptibleResources": queue.gang_requested_non_preemptible,
        "queueAllocatedResources": queue.allocated,
        "queueResourceLimits": queue.limit,
    }
    details = {"name": queue.name, **{field: resource_list(amounts) for field, amounts in figures.items()}}
    return {**body, "details": {"queueDetails": details}}


def resource_list(amounts: Triple) -> dict[str, str]:
    """Return cpu (milli), memory (bytes) and GPUs (devices) as quantities; -1 (unlimited) is kept."""
    cpu, memory, gpus = amounts
    cores = cpu if cpu == UNLIMITED else cpu / 1000
    memory = round(memory)  # a share of bytes is not worth thousandths
    return {"cpu": render_quantity(cores), "memory": render_quantity(memory), names.NVIDIA_GPU: render_quantity(gpus)}
