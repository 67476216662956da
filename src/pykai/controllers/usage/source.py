"""Where past use comes from: one small interface, and the database that implements it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Protocol, TypeVar

import aiohttp
from msgspec import MsgspecError, Raw, Struct, json

from pykai.config.usage import UsageConfig
from pykai.controllers.usage.fakes import FakeSource, HistorySource
from pykai.controllers.usage.queries import use_over_time

QueueUsage = Mapping[str, tuple[float, float, float]]
"""Use of (cpu, memory, gpu) by queue: parts of the cluster over the window."""
RESOURCES = ("cpu", "memory", "gpu")
_QUEUE_LABEL = "queue_name"
T = TypeVar("T")


class UsageError(RuntimeError):
    """Past use could not be read; the text says what the database answered."""


class UsageSource(Protocol):
    """A database of past use."""

    async def usage(self, now: float) -> QueueUsage:
        """The use of every queue in the window that ends at `now` (seconds since 1970); raises UsageError."""
        ...


class _Sample(Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(Struct, rename="camel"):
    result_type: str = ""
    result: Raw = Raw(b"[]")


class _Answer(Struct):
    status: str = ""
    error: str = ""
    data: _Data | None = None


class PrometheusSource:
    """Past use from the metrics of queues and of nodes that a Prometheus at `url` has collected."""

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
        return {queue: _triple(shares) for queue, shares in found.items() if queue}

    async def _capacity(self, session: aiohttp.ClientSession, resource: str, now: float) -> float:
        """The cluster's capacity over the window; 0 for an empty window."""
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
    """The samples of an answer, which must be a vector."""
    answer = _decoded(body, _Answer)
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


def _triple(shares: Mapping[str, float]) -> tuple[float, float, float]:
    return shares.get("cpu", 0.0), shares.get("memory", 0.0), shares.get("gpu", 0.0)


def source_of(config: UsageConfig, environ: Mapping[str, str] = os.environ) -> UsageSource:
    """The source a configuration names; ValueError where its address is not in the environment."""
    if config.client_type == "fake":
        return FakeSource()
    if config.client_type == "fake-with-history":
        return HistorySource(config)
    url = config.connection or environ.get(config.connection_variable, "")
    if not url:
        raise ValueError(f"usageDBConfig.connectionStringEnvVar: {config.connection_variable} is not set")
    return PrometheusSource(url, config)
