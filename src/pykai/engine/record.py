"""The trial, read out as a Plan: what was decided, in the order in which it was decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pykai.engine.allocate import has_allocated
from pykai.engine.cycle import Cycle
from pykai.engine.gang import ready
from pykai.engine.reasons import GROUP_BASE, GangError, gang_text
from pykai.model.plan import Bind, Evict, GangMark, Pipeline, Plan, Verdict
from pykai.model.status import Status

Key = tuple[str, str]


def plan_of(cycle: Cycle) -> Plan:
    """Everything the cycle decided."""
    trial = cycle.trial
    status, leaving = np.array(trial.status, dtype=np.int64), int(Status.RELEASING)
    placed = [(pod, wait) for pod, wait in trial.placed.items() if trial.status[pod] != leaving]
    waiting = (status == Status.PENDING) | (status == Status.GATED)
    ours = np.flatnonzero(waiting & (cycle.snapshot.pods.gang >= 0)).tolist()
    return Plan(
        binds=tuple(_bind(cycle, pod) for pod, wait in placed if not wait),
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


def _bind(cycle: Cycle, pod: int) -> Bind:
    trial = cycle.trial
    c = trial.of_class(pod)
    portion, groups = c.portion, tuple[str, ...]()
    if trial.amounts.shared[c.row]:
        portion, groups = trial.share_portion(c, trial.node[pod]), trial.gpu_groups.get(pod, ())
    bind = Bind(_key(cycle, pod), _node(cycle, pod), trial.amounts.resource_types[c.row], c.devices, portion, groups)
    if not cycle.rules(c).observers:
        return bind
    extended = (plugin.extended_claim(cycle, pod) for plugin in cycle.bind_details)
    return replace(
        bind,
        claims=tuple(claim for plugin in cycle.bind_details for claim in plugin.claims(cycle, pod)),
        extended_claim=next((e for e in extended if e is not None), None),
        numa_zones=tuple(zone for plugin in cycle.bind_details for zone in plugin.zones(cycle, pod)),
    )


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
        errors = cycle.reasons.gangs.get(gang) or _without_queue(cycle, gang)
        text = gang_text(errors) if errors else ""
        told = cycle.reasons.pods
        yield Verdict(
            gang=_gang_key(cycle, gang),
            reasons=tuple([(error.reason, error.message) for error in errors]),
            message=text or GROUP_BASE,
            pods={_key(cycle, pod): told.get(pod, text or "Unable to schedule pod") for pod in pods},
            ready=ready(cycle.trial, gang),
        )


def _without_queue(cycle: Cycle, gang: int) -> list[GangError]:
    gangs = cycle.snapshot.gangs
    if gangs.queue[gang] >= 0:
        return []
    return [GangError("QueueDoesNotExist", f"Queue '{gangs.queue_names[gang]}' does not exist")]


def _marks(cycle: Cycle) -> Iterator[GangMark]:
    for gang, at in cycle.started.items():
        if has_allocated(cycle, gang):
            yield GangMark(_gang_key(cycle, gang), "last-start", at)
    evicted = {cycle.trial.gang[pod] for pod in cycle.trial.evicted}
    for gang in sorted(evicted):
        yield GangMark(_gang_key(cycle, gang), "last-eviction", cycle.now)
    for gang, since in cycle.stale_since.items():
        yield GangMark(_gang_key(cycle, gang), "stale", since)
