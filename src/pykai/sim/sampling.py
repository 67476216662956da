"""The queues at one instant, read from the books of the engine itself: fair share, what is held, what is wanted."""

from __future__ import annotations

from pykai.engine.cycle import Cycle
from pykai.engine.policy import Policy
from pykai.model.resources import GPU
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.sim.history import QueueSample, Sample


def sample(snapshot: Snapshot, policy: Policy, now: float, start: float) -> Sample:
    """The figures of a snapshot; `start`: when the run began, seconds since the epoch like `now`."""
    cycle = Cycle(snapshot, policy, now)
    book, trial, queues = cycle.book, cycle.trial, snapshot.queues
    roots = [row for row, parent in enumerate(queues.parent) if parent < 0]
    return Sample(
        at=round(now - start, 3),
        queues={
            name: QueueSample(book.fair[row], book.allocated[row], trial.queue_requested[row])
            for row, name in enumerate(queues.names)
        },
        gpus_used=round(sum(book.allocated[row][GPU] for row in roots), 4),
        gpus_total=float(snapshot.nodes.allocatable[GPU].sum()),
        waiting=int((snapshot.pods.status == Status.PENDING).sum()),
    )
