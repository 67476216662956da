"""A run in a few figures, for terminal and page alike."""

from __future__ import annotations

from pykai.sim.history import Outcome, PodLife
from pykai.sim.timeline import clock


def headline(outcome: Outcome) -> str:
    """The run in one sentence."""
    history = outcome.history
    return (
        f"{len(outcome.devices)} nodes with {history.samples[-1].gpus_total:g} GPUs, {len(outcome.queues)} queues, "
        f"{len(history.lives)} pods: {clock(history.ended_at)} simulated in {history.cycles} scheduling cycles"
    )


def waited(life: PodLife, end: float) -> float:
    """Seconds until a pod got its node, or until `end` where it has none."""
    return (end if life.scheduled_at is None else life.scheduled_at) - life.arrived_at
