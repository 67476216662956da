"""The newest past use, fetched again and again beside the scheduler, which never waits for a database.

An answer counts until a newer one comes. One older than the staleness period still counts, and is complained about:
old shares are nearer to the truth than none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from pykai.config.usage import UsageConfig
from pykai.controllers.loop import Pace, ReconcileLoop, RetryLater
from pykai.controllers.usage.source import QueueUsage, UsageError, UsageSource
from pykai.kube.clock import wall
from pykai.observe.metrics import Metric, MetricKind, doubling

QUERY_LATENCY = Metric(
    "usage_query_latency_milliseconds",
    MetricKind.HISTOGRAM,
    "Usage database query latency histogram in milliseconds",
    buckets=doubling(5.0, 10),
)
_KEY = "usage"
log = structlog.get_logger("usage")


def _unobserved(milliseconds: float) -> None:
    """Nobody measures."""


class UsageLister:
    """Keeps the newest answer of a source. `clock` gives seconds since 1970; `latency` is told milliseconds."""

    def __init__(
        self,
        source: UsageSource,
        config: UsageConfig,
        clock: Callable[[], float] = wall,
        latency: Callable[[float], None] = _unobserved,
        pace: Pace | None = None,
    ) -> None:
        self._source = source
        self._config = config
        self._clock = clock
        self._latency = latency
        self._usage: QueueUsage = {}
        self._fetched: float | None = None
        self._told_stale = False
        self._first = asyncio.Event()
        soonest = min(5.0, config.fetch_interval)
        pace = pace or Pace(1, soonest, config.fetch_interval)
        self._loop: ReconcileLoop[str] = ReconcileLoop("usage", pace)

    def current(self) -> QueueUsage:
        """The newest use that is known: empty before the first answer."""
        if self.stale and not self._told_stale:
            log.warning("usage data is stale", age_seconds=round(self._clock() - (self._fetched or 0.0)))
        self._told_stale = self.stale
        return self._usage

    @property
    def stale(self) -> bool:
        """Whether the newest answer is older than it should be."""
        return self._fetched is not None and self._clock() - self._fetched > self._config.staleness

    async def run(self, ready: asyncio.Event) -> None:
        """Fetch until cancelled; `ready` is set after the first answer or the wait for it, whichever is earlier."""
        self._loop.add(_KEY)
        waiting = asyncio.create_task(self._wait(ready))
        try:
            await self._loop.run(self._fetch)
        finally:
            waiting.cancel()

    async def _wait(self, ready: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._config.wait_timeout):
                await self._first.wait()
        except TimeoutError:
            log.warning("no usage data yet, going on without", waited_seconds=self._config.wait_timeout)
        ready.set()

    async def _fetch(self, _: str) -> float:
        began = self._clock()
        try:
            usage = await self._source.usage(began)
        except UsageError as error:
            raise RetryLater(f"failed to fetch usage data: {error}") from error
        self._latency((self._clock() - began) * 1000)
        self._usage, self._fetched = usage, began
        self._first.set()
        return self._config.fetch_interval
