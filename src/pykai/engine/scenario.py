"""Scenarios: suppose that these pods are evicted; does the gang then get its place, and is that fair?

Every committed eviction has been simulated in full: victims are rescheduled in the same order of service as all gangs,
and only those that lose their place, or have to move, are evicted in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pykai.engine.allocate import hold_back
from pykai.engine.cycle import Cycle
from pykai.engine.gang import active_pods, has_allocated, intact, must_wait, satisfied
from pykai.engine.pending import PendingOrder
from pykai.engine.plugin_api import ScenarioValidator
from pykai.engine.queues import QueueBook, Triple
from pykai.engine.reschedule import reschedule
from pykai.engine.trial import Trial
from pykai.engine.victims import Batch
from pykai.model.plan import ScenarioState
from pykai.model.resources import GPU, PODS
from pykai.model.status import IS_ACTIVE_USED, Status


@dataclass(frozen=True)
class Why:
    """The reason of an eviction."""

    action: str
    evictor: int | None
    message: str
    victims: int
    heir: int | None = None
    """Who took the place from the evictor in the same cycle."""


@dataclass(frozen=True)
class Cause:
    """Who evicts, by which action; `book` holds the queues as they were before anything was supposed."""

    action: str
    gang: int
    pods: Sequence[int]
    """What the gang is to get."""
    request: Triple
    book: QueueBook
    waiting: PendingOrder
    """Who else waits: they get no turn, but count in the order of queues."""
    keep_all: bool = False
    """Whether every victim must get another place."""
    relaxed: bool = False
    """Whether plugins that only prefer some victims to others have no say."""

    def heeds(self, plugin: object) -> bool:
        """Whether a victim filter or validator has a say."""
        return not (self.relaxed and getattr(plugin, "preference", False))


@dataclass(frozen=True)
class Scenario:
    """A simulated set of evictions: the cause, the pods the gang got, and what became of the victims."""

    cause: Cause
    placed: tuple[int, ...]
    released: tuple[int, ...]
    """Victims that lose their place."""
    moved: tuple[int, ...]
    """Victims that get another place."""
    served: frozenset[int] = frozenset()
    """Gangs that were to lose pods, whatever became of them: they may have got more than they had."""

    @property
    def victims(self) -> tuple[int, ...]:
        return self.released + self.moved


def simulate(
    cycle: Cycle, cause: Cause, pods: Sequence[int], batches: Sequence[Batch], states: Counter[ScenarioState]
) -> Scenario | None:
    """Evict the batches, place the pods, and place victims again where possible. On success the trial keeps all of it.

    What became of the scenario is counted in `states`.
    """
    states[ScenarioState.SIMULATED] += 1
    mark = cycle.trial.mark()
    scenario = _suppose(cycle, cause, pods, batches)
    if scenario is not None and not _justified(cycle, scenario):
        states[ScenarioState.VALIDATOR_REJECTED] += 1
        scenario = None
    if scenario is None:
        cycle.trial.undo_to(mark)
    return scenario


def _suppose(cycle: Cycle, cause: Cause, pods: Sequence[int], batches: Sequence[Batch]) -> Scenario | None:
    """The scenario, whether it is justified or not; None where the gang does not get its place by evictions."""
    trial = cycle.trial
    victims = [pod for batch in batches for pod in batch.pods]
    before = [_place(trial, pod) for pod in victims]
    queue_of = cycle.snapshot.gangs.queue
    leaves = {queue_of[gang] for gang in (cause.gang, *(batch.gang for batch in batches))}
    if len(leaves) > 1:
        cause.waiting.prepare(leaves)
    for pod in victims:
        trial.suppose_evicted(pod)
        cycle.resources.release(pod)
    if not reschedule(cycle, cause, pods, {batch.gang for batch in batches}):
        return None
    scenario = Scenario(
        cause=cause,
        placed=tuple(pods),
        released=tuple(pod for pod in victims if trial.status[pod] == Status.RELEASING),
        moved=tuple(
            pod
            for pod, place in zip(victims, before, strict=True)
            if trial.status[pod] == Status.PIPELINED and _place(trial, pod) != place
        ),
        served=frozenset(batch.gang for batch in batches),
    )
    return None if not scenario.victims and whole(cycle, cause.gang) else scenario


def _place(trial: Trial, pod: int) -> tuple[int, tuple[str, ...], bool]:
    """Where a pod is, and whether it waits for its place there: one that keeps a promise is and does as before, one
    that gets other devices of its node has to wait for them."""
    return trial.node[pod], trial.gpu_groups.get(pod, ()), trial.status[pod] == Status.PIPELINED


def _justified(cycle: Cycle, scenario: Scenario) -> bool:
    """Whether no gang is torn apart, all stay where they must, and every policy agrees."""
    if scenario.cause.keep_all and (scenario.released or _moves_a_part(cycle, scenario.moved)):
        return False
    if _tears_a_gang(cycle, scenario.released):
        return False
    validators = [each for each in cycle.policy.of(ScenarioValidator) if scenario.cause.heeds(each)]
    return all(validator.justified(cycle, scenario) for validator in validators)


def _tears_a_gang(cycle: Cycle, released: Sequence[int]) -> bool:
    """Whether a gang that had its minimum would be left with less."""
    trial, orders = cycle.trial, cycle.orders
    lost: dict[int, list[int]] = {}
    for pod in released:
        lost.setdefault(trial.gang[pod], []).append(pod)
    for gang, pods in lost.items():
        left = active_pods(trial, gang)
        if left and not intact(trial, orders, gang, left) and intact(trial, orders, gang, [*left, *pods]):
            return True
    return False


def _moves_a_part(cycle: Cycle, moved: Sequence[int]) -> bool:
    """Whether a gang that misses pods would have to move: as new ones, its pods could not start without the others."""
    trial, orders = cycle.trial, cycle.orders
    gangs = dict.fromkeys(trial.gang[pod] for pod in moved)
    return not all(intact(trial, orders, gang, active_pods(trial, gang)) for gang in gangs)


def commit(cycle: Cycle, scenario: Scenario, messages: Mapping[int, str]) -> None:
    """What was supposed is decided; every victim gets its message."""
    cause = scenario.cause
    cycle.trial.decide({pod: Why(cause.action, cause.gang, text, len(messages)) for pod, text in messages.items()})
    for pod in scenario.released:
        cycle.resources.release(pod)
    losers = list(dict.fromkeys(cycle.trial.gang[pod] for pod in scenario.victims))
    for gang in losers:
        hold_back(cycle, gang, cycle.snapshot.gangs.pods(gang))
    if not any(pod in cycle.trial.evicted for pod in scenario.victims):
        unpipeline(cycle, [cause.gang, *losers])
    _inherit(cycle, scenario)
    cause.waiting.served(cause.gang)
    cycle.reasons.forget(cause.gang)


def _inherit(cycle: Cycle, scenario: Scenario) -> None:
    """Who was evicted for a gang that loses its place again has made room for the one that has it now."""
    trial, before = cycle.trial, cycle.snapshot.pods.status
    promised = {trial.gang[pod] for pod in scenario.released if not IS_ACTIVE_USED[before[pod]]}
    gone = {gang for gang in promised if not any(pod in trial.placed for pod in active_pods(trial, gang))}
    for pod, why in trial.evicted.items() if gone else ():
        if (why.evictor if why.heir is None else why.heir) in gone:
            trial.evicted[pod] = replace(why, heir=scenario.cause.gang)


def whole(cycle: Cycle, gang: int) -> bool:
    """Whether the gang has its minimum."""
    return satisfied(cycle.trial, cycle.snapshot.gangs.tree(gang))


_SLACK = 1e-9


def unpipeline(cycle: Cycle, gangs: Iterable[int]) -> None:
    """Let the promised pods of each gang start, all of a gang or none."""
    trial = cycle.trial
    for gang in gangs:
        pods = [pod for pod in cycle.snapshot.gangs.pods(gang) if trial.status[pod] == Status.PIPELINED]
        mine = [pod for pod in pods if pod not in trial.evicted]
        had = has_allocated(cycle.trial, gang)
        mark = trial.mark()
        trial.start_instead(mine)
        if must_wait(trial, gang) or not _have_all(cycle, mine):
            trial.undo_to(mark)
            continue
        for pod in mine:
            cycle.resources.reserve(pod)
        if mine and not had:
            cycle.started[gang] = cycle.now


def _have_all(cycle: Cycle, pods: Sequence[int]) -> bool:
    """Whether what the pods take is idle: nothing they ask for is below zero now, and no rule bids them wait."""
    trial = cycle.trial
    for pod in pods:
        c, node = trial.of_class(pod), trial.node[pod]
        if (trial.idle[c.dims, node] < -_SLACK).any() or (c.shared and not _have_devices(cycle, pod)):
            return False
        if cycle.resources.must_wait(pod, node):
            return False
    return True


def _have_devices(cycle: Cycle, pod: int) -> bool:
    trial, node = cycle.trial, cycle.trial.node[pod]
    capacity = float(cycle.snapshot.nodes.gpu_memory[node])
    shares = [trial.shares[node][group] for group in trial.gpu_groups[pod]]
    return all(share.allocated <= capacity for share in shares) and bool(trial.idle[[GPU, PODS], node].min() >= -_SLACK)
