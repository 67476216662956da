"""Why a workload is pending: its state, position in the order of service, verdict of each action, dominant reason.

Everything is read from a decided state (`source.Decided`). An `Explanation` is a value, which commands print and
`-o json` and the dashboard encode. Remedies are searched only on request (`explain.remedies`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct, field

from pykai.explain.source import Decided
from pykai.model.plan import ActionVerdict, Category, Dominant, Key, Verdict
from pykai.model.resources import GPU
from pykai.model.status import Status
from pykai.objects.units import rfc3339

RUNNING = "Running"
STARTS = "Starts"
"""The next cycle binds it."""
BINDING = "Binding"
VICTIMS = "WaitsForVictims"
"""It is nominated to nodes whose capacity terminating pods still hold."""
WAITS = "Waits"
NOT_READY = "NotReady"
"""Fewer pods exist than its minimum."""
EVICTED = "Evicted"
"""The next cycle evicts pods of it."""
ENDING = "Ending"
NO_PODS = "NoPods"
NOMINATED = Dominant("WaitingForVictims", Category.VICTIMS, "It is nominated and waits for pods to terminate")
BEING_BOUND = Dominant("Binding", Category.BINDING, "It is being bound by the binder")


class Amounts(Struct, frozen=True, rename="camel"):
    """CPU in millicores, memory in bytes, GPUs in devices; -1: unlimited."""

    cpu: float
    memory: float
    gpus: float


class QueueStanding(Struct, frozen=True, rename="camel"):
    """The queue of a workload after the cycle; `path` leads from the root of the tree to it."""

    name: str
    path: tuple[str, ...]
    quota: Amounts
    fair_share: Amounts
    limit: Amounts
    allocated: Amounts
    requested: Amounts


class Waiting(Struct, frozen=True, rename="camel"):
    """A pending workload: its namespace and name, and the total requests of its pending pods."""

    namespace: str
    name: str
    pods: int
    gpus: float


class Position(Struct, frozen=True, rename="camel"):
    """The position in the order of service, from 1, in its queue and among all pending workloads."""

    in_queue: int
    of_queue: int
    overall: int
    of_all: int
    ahead: tuple[Waiting, ...] = ()
    """The last workloads before it in its queue, at most AHEAD."""


class Remedy(Struct, frozen=True, rename="camel"):
    """A change that starts the workload in the next cycle: its kind, its size and a sentence."""

    kind: str
    text: str
    amount: float = 0.0
    evicts: int = 0
    """The number of pods that must terminate before the workload starts."""


class Start(Struct, frozen=True, rename="camel"):
    """The expected start of the workload. `at` empty: unknown; `why`: what it depends on."""

    at: str = ""
    why: str = ""


class Explanation(Struct, frozen=True, rename="camel"):
    """The explanation of one workload."""

    namespace: str
    name: str
    state: str
    since: str
    """When its PodGroup was created or, if it runs, when it last started; empty if unknown."""
    pods: Mapping[str, int]
    """Pods by state: running, binding, starting, waiting, gated, leaving."""
    queue: QueueStanding | None
    """None if the queue does not exist."""
    position: Position | None
    """None if it gets no turn."""
    reason: Dominant | None
    """None if it is not pending."""
    verdicts: tuple[ActionVerdict, ...] = ()
    evicted_for: tuple[str, ...] = ()
    """The workloads for which the next cycle evicts pods of it."""
    waits_for: tuple[str, ...] = ()
    """Pods that terminate, or that the next cycle evicts, so that it can start."""
    start: Start = Start()
    remedies: tuple[Remedy, ...] = ()
    notes: tuple[str, ...] = ()
    messages: Mapping[str, str] = field(default_factory=dict)
    """The reasons of pending pods that differ from the gang's."""


AHEAD = 10


def explain(decided: Decided, gang: Key, *, with_position: bool = True) -> Explanation:
    """Return the explanation of a gang, pending or not; KeyError if the snapshot has no such PodGroup."""
    row = decided.snapshot.gangs.rows_of([gang])[gang]
    verdict = decided.waiting.get(gang)
    counts = _pods(decided, row)
    state = _state(verdict, counts)
    reason = verdict.dominant if verdict is not None else None
    if reason is None:
        reason = {VICTIMS: NOMINATED, BINDING: BEING_BOUND}.get(state)
    gangs, queues = decided.snapshot.gangs, decided.snapshot.queues
    at = (gangs.last_start(row) if state == RUNNING else None) or gangs.created(row)
    evictors = {"/".join(each.evictor or ()): None for each in decided.plan.evictions if each.gang == gang}
    return Explanation(
        namespace=gang[0],
        name=gang[1],
        state=state,
        since=rfc3339(at) if at else "",
        pods={name: count for name, count in counts.items() if count},
        queue=None if gangs.queue[row] < 0 else standing(decided, queues.names[gangs.queue[row]]),
        position=position(decided, gang) if with_position and verdict is not None else None,
        reason=reason,
        verdicts=() if verdict is None else verdict.actions,
        evicted_for=tuple(filter(None, evictors)),
        waits_for=tuple(_awaited_terminations(decided, row)) if state == VICTIMS else (),
        notes=decided.notes,
        messages=_messages(verdict),
    )


# ---------------------------------------------------------------------------------------------------------------- state
def _pods(decided: Decided, row: int) -> dict[str, int]:
    """Return the number of a gang's pods by state after the cycle."""
    snapshot, plan = decided.snapshot, decided.plan
    after = {bind.pod: "starting" for bind in plan.binds}
    after |= {each.pod: "evicted" for each in plan.evictions}
    after |= {each.pod: "promised" for each in plan.nominations}
    counts = dict.fromkeys(("running", "binding", "starting", "promised", "waiting", "gated", "evicted", "leaving"), 0)
    for pod in snapshot.gangs.pods(row):
        meta = snapshot.pods.objects[pod].metadata
        now = _POD_STATES.get(Status(int(snapshot.pods.status[pod])))
        if now is not None:
            counts[after.get(meta.key, now)] += 1
    return counts


_POD_STATES = {
    Status.PENDING: "waiting",
    Status.GATED: "gated",
    Status.BINDING: "binding",
    Status.BOUND: "running",
    Status.RUNNING: "running",
    Status.RELEASING: "leaving",
    Status.STUCK_IN_RELEASING: "leaving",
}


def _state(verdict: Verdict | None, counts: Mapping[str, int]) -> str:
    """Return the state of a gang: the first condition that keeps it from running completely."""
    if counts["evicted"]:
        return EVICTED
    if verdict is not None and not verdict.has_place:
        return WAITS if verdict.ready else NOT_READY
    for name, state in (("promised", VICTIMS), ("starting", STARTS), ("binding", BINDING), ("running", RUNNING)):
        if counts[name]:
            return state
    return ENDING if counts["leaving"] else WAITS if verdict is not None else NO_PODS


def _awaited_terminations(decided: Decided, row: int) -> Iterator[str]:
    """Yield pods that terminate on the nodes to which the gang is nominated, or that the plan evicts for it."""
    snapshot, plan = decided.snapshot, decided.plan
    pods, gang = snapshot.pods, snapshot.gangs.objects[row].metadata.key
    yield from ("/".join(each.pod) for each in plan.evictions if gang in (each.evictor, each.heir))
    mine = {pods.objects[pod].metadata.key for pod in snapshot.gangs.pods(row)}
    nodes = {each.node for each in plan.nominations if each.pod in mine}
    rows = [at for node in nodes if (at := snapshot.nodes.rows.get(node)) is not None]
    for pod in np.flatnonzero(np.isin(pods.node, rows) & (pods.status == Status.RELEASING)).tolist():
        yield pods.title(pod)


def _messages(verdict: Verdict | None) -> dict[str, str]:
    """Return the reasons of pods that differ from the reason of the gang."""
    if verdict is None:
        return {}
    known = "\n".join([verdict.message, *(reason.message for reason in verdict.reasons)])
    return {"/".join(pod): text for pod, text in verdict.pods.items() if text not in known}


# --------------------------------------------------------------------------------------------------- queue and position
def standing(decided: Decided, name: str) -> QueueStanding:
    """Return the state of a queue after the cycle; KeyError if there is none of that name."""
    queues = decided.snapshot.queues
    row = queues.rows[name]
    figures = decided.plan.queues[row]
    return QueueStanding(
        name=name,
        path=tuple(queues.names[above] for above in reversed(queues.paths[row])),
        quota=Amounts(*queues.deserved[:, row].tolist()),
        fair_share=Amounts(*figures.fair_share),
        limit=Amounts(*queues.limit[:, row].tolist()),
        allocated=Amounts(*figures.allocated),
        requested=Amounts(*figures.requested),
    )


def position(decided: Decided, gang: Key) -> Position | None:
    """Return the position of a gang among those still pending after the cycle; None if it gets no turn."""
    waiting = [key for key in decided.order if key in decided.waiting]
    if gang not in waiting:
        return None
    rows = decided.snapshot.gangs.rows_of(waiting)
    queue_of = decided.snapshot.gangs.queue
    in_queue = [key for key in waiting if queue_of[rows[key]] == queue_of[rows[gang]]]
    at = in_queue.index(gang)
    return Position(
        in_queue=at + 1,
        of_queue=len(in_queue),
        overall=waiting.index(gang) + 1,
        of_all=len(waiting),
        ahead=tuple(waits(decided, key) for key in in_queue[max(at - AHEAD, 0) : at]),
    )


def waits(decided: Decided, gang: Key) -> Waiting:
    """Return the total requests of a gang's pending pods."""
    pods, verdict = decided.snapshot.pods, decided.waiting[gang]
    rows = pods.rows_of(verdict.pods).values()
    classes = [pods.of_class(row) for row in rows]
    gpus = sum(float(c.request[GPU]) + c.dra_gpus for c in classes)
    return Waiting(*gang, pods=len(verdict.pods), gpus=round(gpus, 4))
