"""A run in a few figures, for terminal and page alike."""

from __future__ import annotations

from pykai.simulate.history import Outcome, PodLife
from pykai.simulate.timeline import clock


def headline(outcome: Outcome) -> str:
    """The run in one sentence."""
    history = outcome.history
    return (
        f"{many(len(outcome.devices), 'node')} with {many(history.samples[-1].gpus_total, 'GPU')}, "
        f"{many(len(outcome.queues), 'queue')}, {many(len(history.lives), 'pod')}: "
        f"{clock(history.ended_at)} simulated in {many(history.cycles, 'scheduling cycle')}"
    )


def many(count: float, thing: str) -> str:
    """How many there are of a thing, for people."""
    return f"{count:g} {thing}{'' if count == 1 else 's'}"


def waited(life: PodLife, end: float) -> float:
    """Seconds until a pod got its node, or until `end` where it has none."""
    return (end if life.scheduled_at is None else life.scheduled_at) - life.arrived_at
