"""The writer context: what binds, evictions and status updates share; and the writes in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from pykai.cache.assumed import Assumptions
from pykai.kube.backoff import ItemBackoff
from pykai.model.plan import Key
from pykai.objects.kinds import BindRequest
from pykai.observe.metrics import Metrics
from pykai.scheduler.group_membership import ExpectedGroups
from pykai.scheduler.status import StatusUpdater, WriteAccess

log = structlog.get_logger(component="scheduler")


class DirectBind(Protocol):
    """A binder in the same process (`controllers.binder.direct`)."""

    async def bind(self, order: BindRequest) -> str:
        """Bind the order's pod and return its node, which may be another one; empty: not bound, it takes a request.

        Raises the error of a server that did not say whether the pod is bound.
        """
        ...


@dataclass(frozen=True)
class Colocated:
    """Other components in the same process, None where they are elsewhere: a binder, what a pod grouper expects."""

    direct: DirectBind | None = None
    expected: ExpectedGroups | None = None


@dataclass(frozen=True)
class WriterContext:
    """What every writer needs. `request_cycle(instant)`: a cycle is due by then (seconds since the epoch).

    `direct` None: all binds take a request.
    """

    access: WriteAccess
    status: StatusUpdater
    assumptions: Assumptions
    metrics: Metrics
    request_cycle: Callable[[float], None]
    backoff: ItemBackoff
    direct: DirectBind | None = None
    trust_seconds: float = 30.0
    """For how long what was written counts without being seen in a watch."""

    def until(self) -> float:
        """The instant until which something written now counts by itself."""
        return self.access.clock() + self.trust_seconds

    def hold(self, gang: Key, item: object) -> None:
        """Leave a gang alone for a while, for longer the more often the same one failed in a row."""
        until = self.backoff.failed(item, self.access.clock())
        self.assumptions.hold(gang, until)
        self.request_cycle(until)

    def soon(self) -> None:
        """Ask for a cycle in a moment: something has to be decided anew."""
        self.request_cycle(self.access.clock() + 1.0)


class InFlightWrites:
    """Writes under way, as tasks; one that crashes is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a write."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("write crashed", exc_info=error)

    async def settled(self) -> None:
        """Return when everything begun so far has ended."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Stop what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
