"""The queues at one instant, read from the books of the engine itself: fair share, what is held, what is wanted."""

from __future__ import annotations

from pykai.engine.cycle import Cycle
from pykai.engine.policy import Policy
from pykai.model.queues import QueueTable
from pykai.model.resources import GPU, QUEUE_RESOURCES
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.sim.history import QueueSample, Sample, Triple
from pykai.sim.setting import Setting


def sample(snapshot: Snapshot, policy: Policy, now: float, setting: Setting) -> Sample:
    """The figures of a snapshot; `now`: seconds since the epoch."""
    cycle = Cycle(snapshot, policy, now)
    book, trial, queues = cycle.book, cycle.trial, snapshot.queues
    roots = [row for row, parent in enumerate(queues.parent) if parent < 0]
    cpu, memory, gpus = snapshot.nodes.allocatable[:QUEUE_RESOURCES].sum(axis=1).tolist()
    return Sample(
        at=round(now - setting.start, 3),
        queues={
            name: QueueSample(
                book.fair[row],
                book.allocated[row],
                trial.queue_requested[row],
                None if setting.usage is None else _usage(queues, row),
            )
            for row, name in enumerate(queues.names)
        },
        gpus_used=round(sum(book.allocated[row][GPU] for row in roots), 4),
        capacity=(cpu, memory, gpus),
        waiting=int((snapshot.pods.status == Status.PENDING).sum()),
    )


def _usage(queues: QueueTable, row: int) -> Triple:
    cpu, memory, gpu = queues.usage[:, row].tolist()
    return cpu, memory, gpu
