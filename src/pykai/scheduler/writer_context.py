"""The context that bind and eviction writers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pykai.cache.assumed import Assumptions
from pykai.kube.backoff import ItemBackoff
from pykai.model.plan import Key
from pykai.objects.kinds import BindRequest
from pykai.observe.metrics import Metrics
from pykai.scheduler.group_membership import ExpectedGroups
from pykai.scheduler.status import StatusUpdater, WriteAccess


class DirectBind(Protocol):
    """A binder in the same process (`controllers.binder.direct`)."""

    async def bind(self, order: BindRequest) -> str:
        """Bind the pod of `order` and return its node, which may differ; "" if the bind needs a BindRequest.

        Raise the server's error if it is unknown whether the pod is bound.
        """
        ...


@dataclass(frozen=True)
class Colocated:
    """Other components in the same process: the binder and the groups its pod grouper expects; None if not there."""

    direct: DirectBind | None = None
    expected: ExpectedGroups | None = None


@dataclass(frozen=True)
class WriterContext:
    """What every writer needs. `request_cycle(instant)` requests a cycle by that time (seconds since the epoch).

    `direct` None: every bind is a BindRequest.
    """

    access: WriteAccess
    status: StatusUpdater
    assumptions: Assumptions
    metrics: Metrics
    request_cycle: Callable[[float], None]
    backoff: ItemBackoff
    direct: DirectBind | None = None
    trust_seconds: float = 30.0
    """Seconds for which a write is assumed without confirmation by a watch."""

    def until(self) -> float:
        """Return the instant until which a write made now is assumed without confirmation."""
        return self.access.clock() + self.trust_seconds

    def hold(self, gang: Key, item: object) -> None:
        """Hold back a gang with exponential backoff, counted by consecutive failures of `item`."""
        until = self.backoff.failed(item, self.access.clock())
        self.assumptions.hold(gang, until)
        self.request_cycle(until)

    def soon(self) -> None:
        """Request a cycle within a second, to decide again."""
        self.request_cycle(self.access.clock() + 1.0)
