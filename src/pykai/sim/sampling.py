"""The queues at one instant, read from the books of the engine itself: fair share, what is held, what is wanted."""

from __future__ import annotations

from dataclasses import replace

from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.model.resources import GPU, QUEUE_RESOURCES
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.sim.history import QueueSample, Sample
from pykai.sim.setting import Setting


def sample(snapshot: Snapshot, policy: Policy, now: float, setting: Setting) -> Sample:
    """The figures of a snapshot; `now`: seconds since the epoch."""
    queues, figures = snapshot.queues, decide(snapshot, replace(policy, actions=()), now).queues
    roots = [row for row, parent in enumerate(queues.parent) if parent < 0]
    cpu, memory, gpus = snapshot.nodes.allocatable[:QUEUE_RESOURCES].sum(axis=1).tolist()
    return Sample(
        at=round(now - setting.start, 3),
        queues={
            queue.name: QueueSample(
                queue.fair_share,
                queue.allocated,
                queue.requested,
                None if setting.usage is None else queue.usage,
            )
            for queue in figures
        },
        gpus_used=round(sum(figures[row].allocated[GPU] for row in roots), 4),
        capacity=(cpu, memory, gpus),
        waiting=int((snapshot.pods.status == Status.PENDING).sum()),
    )
