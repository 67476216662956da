"""Why a workload waits: its state, its place in the order of service, what each action found, the dominant reason.

All of it is read from a decided state (`source.Decided`). An `Explanation` is a value: commands print it, `-o json` and
the dashboard encode it. Remedies are looked for only where they are asked for (`explain.remedies`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from msgspec import Struct, field

from pykai.explain.source import Decided
from pykai.model.plan import ActionVerdict, Category, Dominant, Evict, Key, Verdict
from pykai.model.resources import GPU
from pykai.model.status import Status
from pykai.objects.units import rfc3339

RUNNING = "Running"
STARTS = "Starts"
"""It gets a place in the next cycle."""
BINDING = "Binding"
VICTIMS = "WaitsForVictims"
"""It was promised a place that others still hold."""
WAITS = "Waits"
NOT_READY = "NotReady"
"""Too few of its pods exist for it to be tried."""
EVICTED = "Evicted"
"""It loses pods in the next cycle."""
ENDING = "Ending"
NO_PODS = "NoPods"
WAITING_FOR_VICTIMS, BEING_BOUND = "WaitingForVictims", "Binding"


class Amounts(Struct, frozen=True, rename="camel"):
    """CPU in millicores, memory in bytes, GPUs in devices; -1: unlimited."""

    cpu: float
    memory: float
    gpus: float


class QueueStanding(Struct, frozen=True, rename="camel"):
    """How the queue of a workload stands after the cycle; `path` from the top of the tree down to it."""

    name: str
    path: tuple[str, ...]
    quota: Amounts
    fair_share: Amounts
    limit: Amounts
    allocated: Amounts
    requested: Amounts


class Waiting(Struct, frozen=True, rename="camel"):
    """A workload that waits: its namespace and name, and what the pods that it misses request together."""

    namespace: str
    name: str
    pods: int
    gpus: float


class Position(Struct, frozen=True, rename="camel"):
    """The place in the order of service, counted from 1, in its queue and among all that wait."""

    in_queue: int
    of_queue: int
    overall: int
    of_all: int
    ahead: tuple[Waiting, ...] = ()
    """Those before it in its queue, the nearest last; at most AHEAD of them."""


class Remedy(Struct, frozen=True, rename="camel"):
    """A change that starts the workload in the next cycle: what kind of change, by how much, and as a sentence."""

    kind: str
    text: str
    amount: float = 0.0
    evicts: int = 0
    """Pods that would have to leave for it first."""


class Start(Struct, frozen=True, rename="camel"):
    """When the workload is expected to start; `at` empty: unknown, and `why` says what it depends on."""

    at: str = ""
    why: str = ""


class Explanation(Struct, frozen=True, rename="camel"):
    """All there is to say about one workload."""

    namespace: str
    name: str
    state: str
    since: str
    """When its PodGroup was made, or when it last started where it runs; empty where neither is known."""
    pods: Mapping[str, int]
    """Pods by state: running, binding, starting, waiting, gated, leaving."""
    queue: QueueStanding | None
    """None where the queue does not exist."""
    position: Position | None
    """None where it does not wait for a turn."""
    reason: Dominant | None
    """None where it waits for nothing."""
    verdicts: tuple[ActionVerdict, ...] = ()
    evicted_for: tuple[str, ...] = ()
    """The workloads that take its place in the next cycle, where it loses pods."""
    waits_for: tuple[str, ...] = ()
    """Pods that leave, or will be evicted in the next cycle, so that it can start."""
    start: Start = Start()
    remedies: tuple[Remedy, ...] = ()
    notes: tuple[str, ...] = ()
    messages: Mapping[str, str] = field(default_factory=dict)
    """The reason of each pending pod, where it differs from the gang's."""


AHEAD = 10


def explain(decided: Decided, gang: Key, *, with_position: bool = True) -> Explanation:
    """Why a gang waits, or that it does not; KeyError where there is no such PodGroup in the snapshot."""
    row = decided.snapshot.gangs.rows_of([gang])[gang]
    verdict = decided.waiting.get(gang)
    counts = _pods(decided, row)
    state = _state(verdict, counts)
    return Explanation(
        namespace=gang[0],
        name=gang[1],
        state=state,
        since=_since(decided, row, state),
        pods={name: count for name, count in counts.items() if count},
        queue=_queue(decided, row),
        position=position(decided, gang) if with_position and verdict is not None else None,
        reason=_reason(state, verdict),
        verdicts=() if verdict is None else verdict.actions,
        evicted_for=_evictors(each for each in decided.plan.evictions if each.gang == gang),
        waits_for=tuple(_leaving(decided, row)) if state == VICTIMS else (),
        notes=decided.notes,
        messages=_messages(verdict),
    )


def find(decided: Decided, pod: Key) -> Key | None:
    """The gang of a pod; None where the pod is in none, or not there."""
    pods = decided.snapshot.pods
    row = pods.rows_of([pod]).get(pod)
    if row is None or pods.gang[row] < 0:
        return None
    key: Key = decided.snapshot.gangs.objects[int(pods.gang[row])].metadata.key
    return key


# ---------------------------------------------------------------------------------------------------------------- state
def _pods(decided: Decided, row: int) -> dict[str, int]:
    """How many pods of a gang are in which state after the cycle."""
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
    """The state of a gang: of what keeps it from having all it needs the first."""
    if counts["evicted"]:
        return EVICTED
    if verdict is not None and not verdict.has_place:
        return WAITS if verdict.ready else NOT_READY
    for name, state in (("promised", VICTIMS), ("starting", STARTS), ("binding", BINDING), ("running", RUNNING)):
        if counts[name]:
            return state
    return ENDING if counts["leaving"] else WAITS if verdict is not None else NO_PODS


def _reason(state: str, verdict: Verdict | None) -> Dominant | None:
    if verdict is not None and verdict.dominant is not None:
        return verdict.dominant
    if state == VICTIMS:
        return Dominant(WAITING_FOR_VICTIMS, Category.VICTIMS, "It has a place and waits until the pods there are gone")
    if state == BINDING:
        return Dominant(BEING_BOUND, Category.BINDING, "It has a place; the binder binds its pods")
    return None


def _since(decided: Decided, row: int, state: str) -> str:
    gangs = decided.snapshot.gangs
    started = gangs.last_start(row) if state == RUNNING else None
    at = started or gangs.created(row)
    return rfc3339(at) if at else ""


def _evictors(evictions: Iterable[Evict]) -> tuple[str, ...]:
    found = {"/".join(each.evictor): None for each in evictions if each.evictor is not None}
    return tuple(found)


def _leaving(decided: Decided, row: int) -> Iterator[str]:
    """Pods that are on their way out of the nodes that the gang was promised, or are evicted for it now."""
    snapshot, plan = decided.snapshot, decided.plan
    pods, gang = snapshot.pods, snapshot.gangs.objects[row].metadata.key
    yield from ("/".join(each.pod) for each in plan.evictions if gang in (each.evictor, each.heir))
    mine = {pods.objects[pod].metadata.key for pod in snapshot.gangs.pods(row)}
    nodes = {each.node for each in plan.nominations if each.pod in mine}
    rows = [at for node in nodes if (at := snapshot.nodes.rows.get(node)) is not None]
    for pod in np.flatnonzero(np.isin(pods.node, rows) & (pods.status == Status.RELEASING)).tolist():
        yield pods.title(pod)


def _messages(verdict: Verdict | None) -> dict[str, str]:
    """The reasons of pods that differ from their gang's."""
    if verdict is None:
        return {}
    known = "\n".join([verdict.message, *(reason.message for reason in verdict.reasons)])
    return {"/".join(pod): text for pod, text in verdict.pods.items() if text not in known}


# --------------------------------------------------------------------------------------------------- queue and position
def _queue(decided: Decided, row: int) -> QueueStanding | None:
    queues, queue = decided.snapshot.queues, decided.snapshot.gangs.queue[row]
    return None if queue < 0 else standing(decided, queues.names[queue])


def standing(decided: Decided, name: str) -> QueueStanding:
    """How a queue stands after the cycle; KeyError where there is none of that name."""
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
    """The place of a gang among those that still wait after the cycle; None where it gets no turn."""
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
    """What a gang that waits misses."""
    pods, verdict = decided.snapshot.pods, decided.waiting[gang]
    rows = pods.rows_of(verdict.pods).values()
    classes = [pods.of_class(row) for row in rows]
    gpus = sum(float(c.request[GPU]) + c.dra_gpus for c in classes)
    return Waiting(*gang, pods=len(verdict.pods), gpus=round(gpus, 4))
