"""The plan of a cycle: what was decided, in the order in which it was decided, and why the rest waits."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

import numpy as np
from msgspec.structs import replace

from pykai.engine.cycle import Cycle
from pykai.engine.deadlines import next_deadline, start_times_to_write
from pykai.engine.gang import alive, ready
from pykai.engine.queues import OVER_LIMIT, ZERO, OverCapacity
from pykai.engine.reasons import GROUP_BASE, POD_ERRORS, GangError, gang_text
from pykai.model.gangs import PodSet
from pykai.model.plan import Bind, Evict, Key, Nomination, Plan, QueueDetails, Reason, Timestamp, Verdict
from pykai.model.pods import PodClass
from pykai.model.statistics import QueueFigures
from pykai.model.status import IS_ACTIVE_ALLOCATED, Status
from pykai.objects import names

_BEING_PLACED = (Status.ALLOCATED, Status.PIPELINED, Status.BINDING)


def plan_of(cycle: Cycle) -> Plan:
    """Everything the cycle decided."""
    trial = cycle.trial
    status, leaving = np.asarray(trial.status, dtype=np.int64), int(Status.RELEASING)
    placed = [(pod, wait) for pod, wait in trial.placed.items() if trial.status[pod] != leaving]
    waiting = (status == Status.PENDING) | (status == Status.GATED)
    by_gang = _by_gang(cycle, np.flatnonzero(waiting & (cycle.snapshot.pods.gang >= 0)).tolist())
    nominated = [pod for pod, wait in placed if wait]
    return Plan(
        binds=tuple(_binds(cycle, [pod for pod, wait in placed if not wait])),
        nominations=tuple([_nomination(cycle, pod) for pod in nominated]),
        evictions=tuple(_evictions(cycle)),
        verdicts=tuple([_verdict(cycle, gang, pods) for gang, pods in by_gang.items()]),
        timestamps=tuple(_timestamps(cycle)),
        pending=sum(map(len, by_gang.values())),
        stale={_gang_key(cycle, gang): _stale_text(cycle, gang) for gang in sorted(_stale(cycle))},
        cleared=tuple(_cleared(cycle, by_gang)),
        deadline=next_deadline(cycle, bool(by_gang or nominated)),
        queues=tuple(_queues(cycle)),
        searches=tuple(cycle.searches),
    )


def _by_gang(cycle: Cycle, waiting: list[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pod in waiting:
        found.setdefault(cycle.trial.gang[pod], []).append(pod)
    return found


def _key(cycle: Cycle, pod: int) -> Key:
    meta = cycle.snapshot.pods.objects[pod].metadata
    return meta.namespace, meta.name


def _gang_key(cycle: Cycle, gang: int) -> Key:
    meta = cycle.snapshot.gangs.objects[gang].metadata
    return meta.namespace, meta.name


def _node(cycle: Cycle, pod: int) -> str:
    return cycle.snapshot.nodes.names[cycle.trial.node[pod]]


# ----------------------------------------------------------------------------------------------------------- placements
def _binds(cycle: Cycle, pods: list[int]) -> Iterator[Bind]:
    trial, objects, nodes = cycle.trial, cycle.snapshot.pods.objects, cycle.snapshot.nodes.names
    makers: dict[int, Callable[[int, Key, str], Bind]] = {}
    for pod in pods:
        make = makers.get(trial.klass[pod])
        if make is None:
            make = makers[trial.klass[pod]] = _maker(cycle, trial.of_class(pod))
        meta = objects[pod].metadata
        yield make(pod, (meta.namespace, meta.name), nodes[trial.node[pod]])


def _maker(cycle: Cycle, c: PodClass) -> Callable[[int, Key, str], Bind]:
    """How pods of a class are bound: most need nothing but their node."""
    trial, kind = cycle.trial, cycle.trial.amounts.resource_types[c.row]

    def whole(_: int, key: Key, node: str) -> Bind:
        return Bind(key, node, kind, c.devices, c.portion)

    def shared(pod: int, key: Key, node: str) -> Bind:
        portion = trial.share_portion(c, trial.node[pod])
        return Bind(key, node, kind, c.devices, portion, trial.gpu_groups.get(pod, ()))

    plain = shared if trial.amounts.shared[c.row] else whole
    if not cycle.resources.of_class(c).detailing:
        return plain

    def detailed(pod: int, key: Key, node: str) -> Bind:
        bind, found = plain(pod, key, node), cycle.resources.details(pod)
        if found is None:
            return bind
        return replace(bind, claims=found.claims, extended_claim=found.extended_claim, numa_zones=found.zones)

    return detailed


def _nomination(cycle: Cycle, pod: int) -> Nomination:
    groups = cycle.trial.gpu_groups.get(pod, ()) if cycle.trial.of_class(pod).shared else ()
    return Nomination(_key(cycle, pod), _node(cycle, pod), groups)


def _evictions(cycle: Cycle) -> Iterator[Evict]:
    trial = cycle.trial
    for pod, why in trial.evicted.items():
        moved = trial.status[pod] == Status.PIPELINED
        yield Evict(
            pod=_key(cycle, pod),
            gang=_gang_key(cycle, trial.gang[pod]),
            action=why.action,
            message=why.message,
            evictor=None if why.evictor is None else _gang_key(cycle, why.evictor),
            victims=why.victims,
            moves_to=_node(cycle, pod) if moved else "",
            heir=None if why.heir is None else _gang_key(cycle, why.heir),
        )


# ------------------------------------------------------------------------------------------------------------- verdicts
def _verdict(cycle: Cycle, gang: int, waiting: list[int]) -> Verdict:
    """Why a gang with waiting pods waits."""
    errors = cycle.reasons.gangs.get(gang) or _wrong_queue(cycle, gang)
    text = gang_text(errors) if errors else ""
    texts, usual, objects = cycle.reasons.pods, text or "Unable to schedule pod", cycle.snapshot.pods.objects
    messages = {}
    for pod in waiting:
        meta = objects[pod].metadata
        messages[meta.namespace, meta.name] = texts.get(pod, usual)
    for pod in cycle.snapshot.gangs.stray_pods.get(gang, ()):
        if (key := _key(cycle, pod)) in messages:
            messages[key] = _stray_text(cycle, gang, pod)
    status = cycle.trial.status
    return Verdict(
        gang=_gang_key(cycle, gang),
        reasons=tuple([_reason(cycle, gang, error) for error in errors]),
        message=text or GROUP_BASE,
        pods=messages,
        not_ready="" if ready(cycle.trial, gang) else _not_ready_text(cycle, gang),
        has_place=any(IS_ACTIVE_ALLOCATED[status[pod]] for pod in cycle.snapshot.gangs.pods(gang)),
    )


def _reason(cycle: Cycle, gang: int, error: GangError) -> Reason:
    details = None if error.capacity is None else _queue_details(cycle, gang, error.capacity)
    return Reason(error.reason, error.message, details, error.node_group)


def _queue_details(cycle: Cycle, gang: int, over: OverCapacity) -> QueueDetails:
    book, queue, limited = cycle.book, over.queue, over.reason == OVER_LIMIT
    return QueueDetails(
        name=book.names[queue],
        requested=cycle.trial.queue_requested[queue],
        deserved=book.deserved[queue],
        allocated_non_preemptible=book.allocated_non_preemptible[queue] if limited else over.used,
        gang_requested=over.request,
        gang_requested_non_preemptible=ZERO if cycle.snapshot.gangs.preemptible[gang] else over.request,
        allocated=over.used if limited else book.allocated[queue],
        limit=book.limit[queue],
    )


def _wrong_queue(cycle: Cycle, gang: int) -> list[GangError]:
    """What is wrong with the queue of a gang: none gets a turn in one that does not exist, or has others below it."""
    queues, gangs = cycle.snapshot.queues, cycle.snapshot.gangs
    row, name = gangs.queue[gang], gangs.queue_name(gang)
    if row >= 0:
        text = f"Queue '{name}' has child queues: workloads belong to a queue without children"
        return [GangError(POD_ERRORS, text)] if queues.children[row] else []
    if name not in queues.left_out:
        return [GangError("QueueDoesNotExist", f"Queue '{name}' does not exist")]
    missing = queues.left_out[name]
    why = f"parent queue '{missing}' does not exist" if missing else "its parent queues form a circle"
    return [GangError("QueueDoesNotExist", f"Queue '{name}' cannot be used: {why}")]


def _stray_text(cycle: Cycle, gang: int, pod: int) -> str:
    labels = cycle.snapshot.pods.objects[pod].metadata.labels or {}
    named, title = labels.get(names.SUBGROUP_LABEL) or names.DEFAULT_PODSET, cycle.snapshot.gangs.title(gang)
    return f'Pod references subgroup "{named}", which does not exist in PodGroup {title}'


def _not_ready_text(cycle: Cycle, gang: int) -> str:
    trial, podsets = cycle.trial, list(cycle.snapshot.gangs.tree(gang).podsets())
    start = "Job is not ready for scheduling."

    def counts(podset: PodSet, of: str) -> str:
        gated = trial.gated[podset.row]
        exist = alive(trial, podset.row) + gated
        return f" Waiting for {podset.min_available} pods{of}, currently {exist} exist, {gated} are gated"

    if [podset.name for podset in podsets] == [names.DEFAULT_PODSET]:
        return start + counts(podsets[0], "")
    short = [podset for podset in podsets if alive(trial, podset.row) < podset.min_available]
    return start + "".join(counts(podset, f" for SubGroup {podset.name}") + "." for podset in short)


# ---------------------------------------------------------------------------------------------- stale and cleared gangs
def _stale(cycle: Cycle) -> set[int]:
    """Gangs that run with less than their minimum, known before or found now."""
    known = {gang for gang in cycle.snapshot.gangs.stale_since if cycle.stale_since.get(gang, 0.0) is not None}
    return known | {gang for gang, since in cycle.stale_since.items() if since is not None}


def _stale_text(cycle: Cycle, gang: int) -> str:
    active, podsets = cycle.trial.active_used, list(cycle.snapshot.gangs.tree(gang).podsets())
    least = sum(podset.min_available for podset in podsets)
    text = f"Job is stale. {sum(active[podset.row] for podset in podsets)} pods are active, minMember is {least}"
    for podset in podsets:
        if podset.name != names.DEFAULT_PODSET and active[podset.row] < podset.min_available:
            text += f", subGroup {podset.name} minMember is {podset.min_available}"
            text += f" and {active[podset.row]} pods are active"
    return text


def _cleared(cycle: Cycle, waiting: Container[int]) -> Iterator[Key]:
    gangs, status = cycle.snapshot.gangs, cycle.trial.status
    for gang in gangs.with_conditions:
        if gang not in waiting and not any(status[pod] in _BEING_PLACED for pod in gangs.pods(gang)):
            yield _gang_key(cycle, gang)


# ----------------------------------------------------------------------------------------------- timestamps and figures
def _timestamps(cycle: Cycle) -> Iterator[Timestamp]:
    for gang, at in start_times_to_write(cycle).items():
        yield Timestamp(_gang_key(cycle, gang), "last-start", at)
    for gang in sorted({cycle.trial.gang[pod] for pod in cycle.trial.evicted}):
        yield Timestamp(_gang_key(cycle, gang), "last-eviction", cycle.now)
    for gang, since in cycle.stale_since.items():
        yield Timestamp(_gang_key(cycle, gang), "stale", since)


def _queues(cycle: Cycle) -> Iterator[QueueFigures]:
    queues, book, requested = cycle.snapshot.queues, cycle.book, cycle.trial.queue_requested
    for row, (name, usage) in enumerate(zip(queues.names, queues.usage.T.tolist(), strict=True)):
        title = queues.titles[row]
        yield QueueFigures(name, title, book.fair[row], book.allocated[row], requested[row], tuple(usage))
