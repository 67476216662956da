"""Pod statuses, and the sets of statuses that rules refer to."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    PENDING = 0
    GATED = 1
    ALLOCATED = 2
    PIPELINED = 3
    BINDING = 4
    BOUND = 5
    RUNNING = 6
    RELEASING = 7
    STUCK_IN_RELEASING = 8
    SUCCEEDED = 9
    FAILED = 10
    UNKNOWN = 11

    @property
    def title(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


ALLOCATED = frozenset({Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING})
ACTIVE_ALLOCATED = ALLOCATED | {Status.PIPELINED}
ACTIVE_USED = ACTIVE_ALLOCATED | {Status.RELEASING, Status.STUCK_IN_RELEASING}


def table(members: frozenset[Status]) -> tuple[bool, ...]:
    """Membership by status number, for code that asks often."""
    return tuple(status in members for status in Status)


IS_ALLOCATED = table(ALLOCATED)
IS_ACTIVE_ALLOCATED = table(ACTIVE_ALLOCATED)
IS_ACTIVE_USED = table(ACTIVE_USED)
