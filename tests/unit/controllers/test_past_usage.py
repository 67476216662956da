"""Past use: windows, queries, a database that answers over HTTP, and the newest answer beside the scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from pykai.config.usage_db import UsageConfig, Window, WindowType, read_usage_config
from pykai.controllers.past_usage import (
    EmptySource,
    PrometheusSource,
    QueueUsage,
    UsageError,
    UsageLister,
    source_of,
    use_over_time,
)
from tests.timeouts import TIMEOUT_SECONDS
from tests.virtual_time import advance, set_jitter

CONFIG = UsageConfig("prometheus")
TUMBLING = Window(WindowType.TUMBLING, 100.0, start=1000.0)
Answer = Callable[[str], Any]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (replace(CONFIG, window=Window(size=604800.0)), "sum_over_time((m)[604800s:1m0s])"),
        (
            replace(CONFIG, window=Window(size=60.0), half_life=1.5),
            "sum_over_time((((m) * (0.5^((1050 - time()) / 1.500000))))[60s:1m0s])",
        ),
        (replace(CONFIG, window=TUMBLING), "sum_over_time((m)[50s:1m0s])"),
        (replace(CONFIG, window=replace(TUMBLING, start=2000.0)), None),
    ],
)
def test_queries(config: UsageConfig, expected: str | None) -> None:
    assert use_over_time("m", config, 1050.4) == expected


def vector(*samples: tuple[str, float]) -> Any:
    result = [{"metric": {"queue_name": queue}, "value": [1050.0, str(value)]} for queue, value in samples]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


@contextlib.asynccontextmanager
async def database(answer: Answer) -> AsyncIterator[PrometheusSource]:
    """A Prometheus that answers queries by `answer`."""

    async def query(request: web.Request) -> web.Response:
        form = await request.post()
        assert form["time"] == "1050.000"
        return web.Response(text=json.dumps(answer(str(form["query"]))))

    app = web.Application()
    app.add_routes([web.post("/api/v1/query", query)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield PrometheusSource(f"http://127.0.0.1:{runner.addresses[0][1]}/", CONFIG)
    finally:
        await runner.cleanup()


async def test_use_is_the_part_of_capacity_over_the_window() -> None:
    def answer(query: str) -> Any:
        if "nvidia_com_gpu" in query:
            return vector(("", 100.0))
        if "kube_node_status_capacity" in query:
            return vector(("", 1000.0))
        if "allocated_gpus" in query:
            return vector(("a", 25.0), ("b", 50.0), ("", 1.0))
        return vector(("a", 100.0))

    async with database(answer) as source:
        assert await source.usage(1050.0) == {"a": (0.1, 0.1, 0.25), "b": (0.0, 0.0, 0.5)}


async def test_samples_that_are_no_numbers_do_not_count() -> None:
    def answer(query: str) -> Any:
        if "kube_node_status_capacity" in query:
            return vector(("", 10.0))
        if "allocated_gpus" in query:
            return vector(("a", float("nan")), ("b", float("inf")))
        return vector(("a", 5.0))

    async with database(answer) as source:
        assert await source.usage(1050.0) == {"a": (0.5, 0.5, 0.0)}


async def test_a_cluster_without_gpus_has_no_use_of_them() -> None:
    def answer(query: str) -> Any:
        return vector(("a", 0.0 if "nvidia_com_gpu" in query else 10.0))

    async with database(answer) as source:
        assert await source.usage(1050.0) == {"a": (1.0, 1.0, 0.0)}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (vector(), "no data returned for cluster capacity metric sum"),
        ({"status": "error", "error": "parse error"}, "the query was refused: parse error"),
        (
            {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": []}]}},
            "unexpected query result: got matrix, expected vector",
        ),
        ("nonsense", "unexpected query result"),
    ],
)
async def test_answers_that_cannot_be_used(answer: Any, message: str) -> None:
    async with database(lambda query: answer) as source:
        with pytest.raises(UsageError, match=message):
            await source.usage(1050.0)


async def test_a_database_that_is_away_is_an_error() -> None:
    with pytest.raises(UsageError, match="does not answer"):
        await PrometheusSource("http://127.0.0.1:9", CONFIG).usage(1050.0)


def test_an_address_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    config = read_usage_config({"clientType": "prometheus", "connectionStringEnvVar": "DB"}, 0.0)
    with pytest.raises(ValueError, match="DB is not set"):
        source_of(config)
    monkeypatch.setenv("DB", "http://db")
    assert isinstance(source_of(config), PrometheusSource)
    assert isinstance(source_of(replace(config, client_type="fake")), EmptySource)


class StubSource:
    """Returns `answer`, or raises it."""

    def __init__(self, answer: QueueUsage | Exception) -> None:
        self.answer = answer

    async def usage(self, now: float) -> QueueUsage:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@contextlib.asynccontextmanager
async def listing(source: StubSource, **config: Any) -> AsyncIterator[tuple[UsageLister, asyncio.Event]]:
    set_jitter(1.0)
    lister, ready = UsageLister(source, replace(CONFIG, **config)), asyncio.Event()
    task = asyncio.create_task(lister.run(ready))
    await advance(0)
    yield lister, ready
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.virtual_time
async def test_the_newest_answer_is_kept_and_fetched_again() -> None:
    source = StubSource({"a": (0.1, 0.2, 0.3)})
    async with listing(source) as (lister, ready):
        assert ready.is_set()
        assert lister.current() == {"a": (0.1, 0.2, 0.3)}
        source.answer = {"a": (0.5, 0.5, 0.5)}
        await advance(59)
        assert lister.current()["a"][0] == 0.1
        await advance(1)
        assert lister.current()["a"][0] == 0.5


@pytest.mark.virtual_time
async def test_errors_keep_the_old_answer_until_it_is_stale_and_beyond() -> None:
    source = StubSource({"a": (0.1, 0.2, 0.3)})
    async with listing(source) as (lister, _):
        source.answer = UsageError("away")
        await advance(250)
        assert (lister.stale, lister.current()["a"][0]) == (False, 0.1)
        await advance(100)
        assert (lister.stale, lister.current()["a"][0]) == (True, 0.1)
        source.answer = {"a": (0.9, 0.9, 0.9)}
        await advance(61)
        assert (lister.stale, lister.current()["a"][0]) == (False, 0.9)


@pytest.mark.virtual_time
async def test_the_start_does_not_wait_for_ever() -> None:
    source = StubSource(UsageError("away"))
    async with listing(source, wait_timeout=0.02) as (lister, ready):
        assert not ready.is_set()
        assert lister.current() == {}
        await asyncio.wait_for(ready.wait(), TIMEOUT_SECONDS)
        source.answer = {"a": (0.1, 0.1, 0.1)}
        await advance(60)
        assert lister.current() == {"a": (0.1, 0.1, 0.1)}
