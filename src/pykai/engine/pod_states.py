"""The state machine of a pod within a cycle, as two tables.

`EFFECTS`: what a pod of a status adds to the columns of its node and to the counts of its podset. `Transition`: the
allowed changes of status, and whether each charges or uncharges the queue. The trial applies these and no others.

```
              ALLOCATE                      EVICT                     MOVE, MOVE_LATER
   pending ───────────────► allocated ───────────────► releasing* ───────────────► allocated, pipelined (elsewhere)
      │                       ▲    │                     │    │                      its old place stays releasing
      │ PIPELINE        START │    │ HOLD_BACK     KEEP  │    │ WITHDRAW
      └───────────────► pipelined ◄┘                     ▼    ▼
                                        what it was before    pending, or releasing where it runs
```

`*` tentatively (`Trial.virtual`), while a scenario is simulated. The pod is evicted when the scenario is accepted;
otherwise the journal undoes the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from pykai.model.status import ACTIVE_ALLOCATED, ALLOCATED, Status


class Effect(NamedTuple):
    """What a pod adds: `idle` and `releasing` times its request to the columns of its node, the rest to the counts of
    its podset."""

    idle: int = 0
    releasing: int = 0
    active_used: int = 0
    active_allocated: int = 0
    pipelined: int = 0
    pending: int = 0


_PIPELINED = Effect(releasing=-1, active_used=1, active_allocated=1, pipelined=1)
EFFECTS: Mapping[Status, Effect] = {
    **dict.fromkeys(Status, Effect()),
    **dict.fromkeys(ALLOCATED, Effect(idle=-1, active_used=1, active_allocated=1)),
    Status.PENDING: Effect(pending=1),
    Status.PIPELINED: _PIPELINED,
    Status.RELEASING: Effect(idle=-1, releasing=1, active_used=1),
    Status.STUCK_IN_RELEASING: Effect(idle=-1, active_used=1),
}
"""A pipelined pod takes from releasing capacity; a releasing pod still holds what it releases."""


def counted(figure: str) -> tuple[bool, ...]:
    """By status number: whether pods of a status add to a figure of `Effect`."""
    return tuple(getattr(EFFECTS[status], figure) != 0 for status in Status)


class Change(NamedTuple):
    """Source and target statuses, and whether the queue is charged for the pod (1), uncharged (-1) or neither (0)."""

    sources: frozenset[Status]
    target: Status | None
    """None: the status before the tentative eviction."""
    queue: int


class Transition(Enum):
    """All changes of a pod's status in a cycle."""

    ALLOCATE = Change(frozenset({Status.PENDING}), Status.ALLOCATED, 1)
    PIPELINE = Change(frozenset({Status.PENDING}), Status.PIPELINED, 1)
    HOLD_BACK = Change(frozenset({Status.ALLOCATED}), Status.PIPELINED, 0)
    START = Change(frozenset({Status.PIPELINED}), Status.ALLOCATED, 0)
    EVICT = Change(ACTIVE_ALLOCATED, Status.RELEASING, -1)
    KEEP = Change(frozenset({Status.RELEASING}), None, 1)
    MOVE = Change(frozenset({Status.RELEASING}), Status.ALLOCATED, 1)
    MOVE_LATER = Change(frozenset({Status.RELEASING}), Status.PIPELINED, 1)
    WITHDRAW = Change(frozenset({Status.RELEASING}), Status.PENDING, 0)
    LEAVE_ORIGIN = Change(frozenset({Status.RELEASING}), Status.RELEASING, 0)


class TransitionError(RuntimeError):
    """A change that the table does not allow: a bug in the engine."""


def target_of(transition: Transition, status: int, before: int | None = None) -> int:
    """Return the status after a change; `before`: the status before a tentative eviction."""
    change = transition.value
    if status not in change.sources or (change.target is None and before is None):
        raise TransitionError(f"a pod that is {Status(status).title} cannot {transition.name}")
    return int(before if change.target is None and before is not None else change.target or 0)
