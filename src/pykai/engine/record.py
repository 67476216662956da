"""The trial, read out as a Plan: what was decided, in the order in which it was decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec.structs import replace

from pykai.engine.cycle import Cycle
from pykai.engine.gang import has_allocated, ready
from pykai.engine.reasons import GROUP_BASE, POD_ERRORS, GangError, gang_text
from pykai.model.plan import Bind, Evict, GangMark, Pipeline, Plan, Verdict
from pykai.model.pods import PodClass
from pykai.model.status import Status

Key = tuple[str, str]


def plan_of(cycle: Cycle) -> Plan:
    """Everything the cycle decided."""
    trial = cycle.trial
    status, leaving = np.asarray(trial.status, dtype=np.int64), int(Status.RELEASING)
    placed = [(pod, wait) for pod, wait in trial.placed.items() if trial.status[pod] != leaving]
    waiting = (status == Status.PENDING) | (status == Status.GATED)
    ours = np.flatnonzero(waiting & (cycle.snapshot.pods.gang >= 0)).tolist()
    return Plan(
        binds=tuple(_binds(cycle, [pod for pod, wait in placed if not wait])),
        pipelines=tuple(_pipeline(cycle, pod) for pod, wait in placed if wait),
        evictions=tuple(_evictions(cycle)),
        verdicts=tuple(_verdicts(cycle, ours)),
        marks=tuple(_marks(cycle)),
        pending=len(ours),
    )


def _key(cycle: Cycle, pod: int) -> Key:
    meta = cycle.snapshot.pods.objects[pod].metadata
    return meta.namespace, meta.name


def _gang_key(cycle: Cycle, gang: int) -> Key:
    meta = cycle.snapshot.gangs.objects[gang].metadata
    return meta.namespace, meta.name


def _node(cycle: Cycle, pod: int) -> str:
    return cycle.snapshot.nodes.names[cycle.trial.node[pod]]


def _binds(cycle: Cycle, pods: list[int]) -> Iterator[Bind]:
    trial, objects, names = cycle.trial, cycle.snapshot.pods.objects, cycle.snapshot.nodes.names
    makers: dict[int, Callable[[int, Key, str], Bind]] = {}
    for pod in pods:
        make = makers.get(trial.klass[pod])
        if make is None:
            make = makers[trial.klass[pod]] = _maker(cycle, trial.of_class(pod))
        meta = objects[pod].metadata
        yield make(pod, (meta.namespace, meta.name), names[trial.node[pod]])


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


def _pipeline(cycle: Cycle, pod: int) -> Pipeline:
    groups = cycle.trial.gpu_groups.get(pod, ()) if cycle.trial.of_class(pod).shared else ()
    return Pipeline(_key(cycle, pod), _node(cycle, pod), groups)


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


def _verdicts(cycle: Cycle, waiting: list[int]) -> Iterator[Verdict]:
    """Every gang with waiting pods, and what to tell each of them."""
    by_gang: dict[int, list[int]] = {}
    for pod in waiting:
        by_gang.setdefault(cycle.trial.gang[pod], []).append(pod)
    for gang, pods in by_gang.items():
        errors = cycle.reasons.gangs.get(gang) or _wrong_queue(cycle, gang)
        text = gang_text(errors) if errors else ""
        told = cycle.reasons.pods
        yield Verdict(
            gang=_gang_key(cycle, gang),
            reasons=tuple([(error.reason, error.message) for error in errors]),
            message=text or GROUP_BASE,
            pods={_key(cycle, pod): told.get(pod, text or "Unable to schedule pod") for pod in pods},
            ready=ready(cycle.trial, gang),
        )


def _wrong_queue(cycle: Cycle, gang: int) -> list[GangError]:
    """What is wrong with the queue of a gang: nobody gets a turn in one that is not there, or has others below it."""
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


def _marks(cycle: Cycle) -> Iterator[GangMark]:
    for gang, at in cycle.started.items():
        if has_allocated(cycle.trial, gang):
            yield GangMark(_gang_key(cycle, gang), "last-start", at)
    evicted = {cycle.trial.gang[pod] for pod in cycle.trial.evicted}
    for gang in sorted(evicted):
        yield GangMark(_gang_key(cycle, gang), "last-eviction", cycle.now)
    for gang, since in cycle.stale_since.items():
        yield GangMark(_gang_key(cycle, gang), "stale", since)
