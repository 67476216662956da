"""The board of a simulation: its decisions as selectable moments, its history as charts, evictions and log lines.

Decisions are recorded during the simulation; at the limit, every second one is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykai.dashboard.board import BoardSample, DecidedMoment, HistoryLine, QueueUse, RecordedBoard, Title
from pykai.explain.source import Decided
from pykai.explain.views import EvictionView
from pykai.model.plan import Key
from pykai.model.resources import GPU
from pykai.objects import names
from pykai.scheduler.decision import Decision
from pykai.simulate.history import PodLife, SimulationResult

MOST_MOMENTS = 240
NOT_SHOWN = ("Arrived", "Changed", "Event", "Requested")
"""Kinds of log lines that the other lines of a workload imply."""


class DecisionLog:
    """The decisions of a run, always including the latest."""

    def __init__(self) -> None:
        self._kept: list[DecidedMoment] = []
        self._last: DecidedMoment | None = None
        self._stride, self._count = 1, 0

    def observe(self, decision: Decision) -> None:
        """Record a decision; what pages need of it is computed when it is shown."""
        taken = decision.snapshot
        found = Decided(
            taken,
            decision.plan,
            decision.policy,
            taken.observed_at,
            decision.cache,
            gpu_sharing_mode=names.NON_MEMORY_ENFORCED,
        )
        self._last = DecidedMoment(found, self._count + 1)
        if self._count % self._stride == 0:
            self._kept.append(self._last)
            if len(self._kept) > MOST_MOMENTS:
                self._kept = self._kept[::2]
                self._stride *= 2
        self._count += 1

    def moments(self) -> list[DecidedMoment]:
        """Return the moments, oldest first."""
        newest = [self._last] if self._last is not None and self._last not in self._kept[-1:] else []
        return [*self._kept, *newest]


def simulated_board(name: str, decisions: DecisionLog, outcome: SimulationResult, start: float) -> RecordedBoard:
    """Return the board of a finished run; `start`: its start in seconds since the epoch."""
    histories = _histories(outcome, start)
    return RecordedBoard(
        Title("simulation", name),
        decisions.moments(),
        _samples(outcome, start),
        _evictions(outcome, start),
        lambda gang: histories.get(gang, ()),
    )


def _samples(outcome: SimulationResult, start: float) -> Iterator[BoardSample]:
    queues = outcome.queues
    quotas = dict(zip(queues.names, queues.deserved[GPU].tolist(), strict=True))
    for sample in outcome.history.samples:
        uses = {
            name: QueueUse(each.allocated[GPU], each.fair_share[GPU], quotas.get(name, 0.0), each.requested[GPU])
            for name, each in sample.queues.items()
        }
        yield BoardSample(start + sample.at, sample.gpus_total, uses)


def _evictions(outcome: SimulationResult, start: float) -> Iterator[EvictionView]:
    queue_of = {(life.namespace, life.group): life.queue for life in outcome.history.lives}
    for life in outcome.history.lives:
        if life.evicted_at is None or not life.evicted_by:
            continue
        namespace, _, evictor = life.evicted_for.partition("/")
        ran = None if life.started_at is None else max(life.evicted_at - life.started_at, 0.0)
        yield EvictionView(
            at=start + life.evicted_at,
            namespace=life.namespace,
            pod=life.name,
            workload=life.group,
            queue=life.queue,
            action=life.evicted_by,
            message=life.reason,
            evictor_namespace=namespace if evictor else "",
            evictor=evictor,
            evictor_queue=queue_of.get((namespace, evictor), ""),
            node=life.node,
            moves_to=life.moves_to,
            gpus=life.gpus,
            ran=ran,
        )


def _histories(outcome: SimulationResult, start: float) -> dict[Key, list[HistoryLine]]:
    """Return the history of each workload and its pods, by namespace and name of the PodGroup."""
    lives: dict[str, PodLife] = {life.title: life for life in outcome.history.lives}
    found: dict[Key, list[HistoryLine]] = {}
    for event in outcome.history.events:
        kind, _, title = event.about.partition(" ")
        namespace, _, name = title.partition("/")
        if event.kind in NOT_SHOWN or not name:
            continue
        life = lives.get(title) if kind == "Pod" else None
        if kind == "PodGroup":
            gang, pod = (namespace, name), ""
        elif life is not None:
            gang, pod = (life.namespace, life.group), life.name
        else:
            continue
        found.setdefault(gang, []).append(HistoryLine(start + event.at, event.kind, event.message, pod))
    return found
