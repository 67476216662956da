"""Past usage for time-based fair share: the fraction of the cluster that each queue held in a window.

`source_of(config)` connects to the database that `usageDBConfig` names, and a `UsageLister` keeps its newest result:
the scheduler passes `lister.current` to `ClusterCache.snapshot`. Usage is normalised: 1.0 is the whole cluster during
the whole window.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import aiohttp
import structlog
from msgspec import MsgspecError, Raw, Struct, json

from pykai.config.usage_db import UsageConfig, window_seconds
from pykai.kube.clock import wall
from pykai.kube.workqueue import Pace, ReconcileLoop, RetryLater
from pykai.objects import units
from pykai.observe.metrics import Metric, MetricKind, doubling


def use_over_time(metric: str, config: UsageConfig, now: float) -> str | None:
    """Return the Prometheus query for the sum of a metric over the window; None for an empty window.

    With a half-life the metric decays: it counts half for every half-life of age.
    """
    seconds = math.floor(window_seconds(config.window, now))
    if seconds <= 0:
        return None
    resolution = units.render_duration(config.queries.resolution)
    if config.half_life is not None:
        metric = f"(({metric}) * (0.5^(({math.floor(now)} - time()) / {config.half_life:.6f})))"
    return f"sum_over_time(({metric})[{seconds}s:{resolution}])"


QueueUsage = Mapping[str, tuple[float, float, float]]
"""Usage of (cpu, memory, gpu) by queue, as fractions of the cluster over the window."""
RESOURCES = ("cpu", "memory", "gpu")
_QUEUE_LABEL = "queue_name"
T = TypeVar("T")


class UsageError(RuntimeError):
    """Past usage could not be read; the message has the response of the database."""


class UsageSource(Protocol):
    """A database of past usage."""

    async def usage(self, now: float) -> QueueUsage:
        """Return the usage of every queue in the window that ends at `now` (seconds since 1970); raises UsageError."""
        ...


class _Sample(Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(Struct, rename="camel"):
    result_type: str = ""
    result: Raw = Raw(b"[]")


class _PrometheusAnswer(Struct):
    status: str = ""
    error: str = ""
    data: _Data | None = None


class EmptySource:
    """No past usage: of the client types `fake` and `fake-with-history` only the simulation keeps records."""

    async def usage(self, now: float) -> QueueUsage:
        """See `UsageSource.usage`."""
        return {}


class PrometheusSource:
    """Past usage from the metrics of queues and nodes in the Prometheus at `url`."""

    def __init__(self, url: str, config: UsageConfig) -> None:
        self._url = url.rstrip("/")
        self._config = config

    async def usage(self, now: float) -> QueueUsage:
        """See `UsageSource.usage`."""
        timeout = aiohttp.ClientTimeout(total=self._config.queries.timeout)
        found: dict[str, dict[str, float]] = {}
        async with aiohttp.ClientSession(timeout=timeout) as session:
            capacities = {resource: await self._capacity(session, resource, now) for resource in RESOURCES}
            for resource, capacity in capacities.items():
                for sample in await self._ask(session, self._config.queries.allocation[resource], now):
                    queue, used = sample.metric.get(_QUEUE_LABEL, ""), float(sample.value[1])
                    if capacity > 0 and math.isfinite(used):
                        found.setdefault(queue, {})[resource] = used / capacity
        return {
            queue: (shares.get("cpu", 0.0), shares.get("memory", 0.0), shares.get("gpu", 0.0))
            for queue, shares in found.items()
            if queue
        }

    async def _capacity(self, session: aiohttp.ClientSession, resource: str, now: float) -> float:
        """Return the cluster's capacity over the window; 0 for an empty window."""
        metric = self._config.queries.capacity[resource]
        if use_over_time(metric, self._config, now) is None:
            return 0.0
        samples = await self._ask(session, metric, now)
        if not samples:
            raise UsageError(f"no data returned for cluster capacity metric {metric}")
        return float(samples[0].value[1])

    async def _ask(self, session: aiohttp.ClientSession, metric: str, now: float) -> list[_Sample]:
        query = use_over_time(metric, self._config, now)
        if query is None:
            return []
        form = {"query": query, "time": f"{now:.3f}"}
        try:
            async with session.post(f"{self._url}/api/v1/query", data=form) as answer:
                return _samples(await answer.read())
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise UsageError(f"{self._url} does not answer: {error or type(error).__name__}") from error


def _samples(body: bytes) -> list[_Sample]:
    """Return the samples of an answer, which must be a vector."""
    answer = _decoded(body, _PrometheusAnswer)
    if answer.status != "success" or answer.data is None:
        raise UsageError(f"the query was refused: {answer.error or answer.status or 'no status'}")
    if answer.data.result_type != "vector":
        raise UsageError(f"unexpected query result: got {answer.data.result_type}, expected vector")
    return _decoded(answer.data.result, list[_Sample])


def _decoded(body: bytes | Raw, kind: type[T]) -> T:
    try:
        return json.decode(body, type=kind)
    except MsgspecError as error:
        raise UsageError(f"unexpected query result: {error}") from error


def source_of(config: UsageConfig) -> UsageSource:
    """Return the source of a configuration; ValueError if its address is not in the environment."""
    if config.client_type != "prometheus":
        return EmptySource()
    url = config.connection or os.environ.get(config.connection_variable, "")
    if not url:
        raise ValueError(f"usageDBConfig.connectionStringEnvVar: {config.connection_variable} is not set")
    return PrometheusSource(url, config)


QUERY_LATENCY = Metric(
    "usage_query_latency_milliseconds",
    MetricKind.HISTOGRAM,
    "Usage database query latency histogram in milliseconds",
    buckets=doubling(5.0, 10),
)
_KEY = "usage"
log = structlog.get_logger("usage")


def _unobserved(milliseconds: float) -> None:
    """Discard the measurement."""


class UsageLister:
    """Polls a source and keeps its newest result; `latency` gets milliseconds.

    The scheduler never waits for the database. A stale result is still used, with a warning: old usage is closer to
    the truth than none.
    """

    def __init__(
        self,
        source: UsageSource,
        config: UsageConfig,
        latency: Callable[[float], None] = _unobserved,
    ) -> None:
        self._source = source
        self._config = config
        self._latency = latency
        self._usage: QueueUsage = {}
        self._fetched: float | None = None
        self._warned_stale = False
        self._first = asyncio.Event()
        soonest = min(5.0, config.fetch_interval)
        self._loop: ReconcileLoop[str] = ReconcileLoop("usage", Pace(1, soonest, config.fetch_interval))

    def current(self) -> QueueUsage:
        """Return the newest usage; empty before the first answer."""
        if self.stale and not self._warned_stale:
            log.warning("usage data is stale", age_seconds=round(wall() - (self._fetched or 0.0)))
        self._warned_stale = self.stale
        return self._usage

    @property
    def stale(self) -> bool:
        """Whether the newest answer is older than the staleness period."""
        return self._fetched is not None and wall() - self._fetched > self._config.staleness

    async def run(self, ready: asyncio.Event) -> None:
        """Fetch until cancelled; sets `ready` after the first answer or the timeout, whichever comes first."""
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
            log.warning("no usage data yet, continuing without", waited_seconds=self._config.wait_timeout)
        ready.set()

    async def _fetch(self, _: str) -> float:
        began = wall()
        try:
            usage = await self._source.usage(began)
        except UsageError as error:
            raise RetryLater(f"failed to fetch usage data: {error}") from error
        self._latency((wall() - began) * 1000)
        self._usage, self._fetched = usage, began
        self._first.set()
        return self._config.fetch_interval
