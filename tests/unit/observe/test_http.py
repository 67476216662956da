"""The pages of a component, asked over HTTP."""

from __future__ import annotations

import aiohttp
import pytest

from pykai.observe.http import AddressError, HttpPage, Query, address_of, health_pages, metrics_page, serving
from pykai.observe.metrics import Metric, MetricKind, Metrics


async def fetch(port: int | None, path: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text(), answer.headers["Content-Type"]


async def test_metrics_of_all_sources_are_on_one_page() -> None:
    sources = [Metrics([Metric(name, MetricKind.GAUGE, "help")]) for name in ("one", "two")]
    sources[1].put("two", 2.5)
    async with serving("127.0.0.1:0", {"/metrics": metrics_page(*(source.text for source in sources))}) as port:
        status, text, kind = await fetch(port, "/metrics")
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert "kai_one 0.0" in text
    assert "kai_two 2.5" in text


async def test_readiness_tells_what_is_missing() -> None:
    problems = ["pods: not listed yet", "nodes: gone"]
    async with serving("127.0.0.1:0", health_pages(lambda: problems)) as port:
        assert (await fetch(port, "/healthz"))[:2] == (200, "ok")
        assert (await fetch(port, "/readyz"))[:2] == (503, "pods: not listed yet\nnodes: gone")
        problems.clear()
        assert (await fetch(port, "/readyz"))[:2] == (200, "ok")


async def test_a_page_may_take_time_and_read_the_query() -> None:
    async def slow(query: Query) -> HttpPage:
        return HttpPage(f"[{query.get('name')}]".encode(), "application/json")

    async with serving("127.0.0.1:0", {"/slow": slow}) as port:
        assert await fetch(port, "/slow?name=x") == (200, "[x]", "application/json")
        assert (await fetch(port, "/other"))[0] == 404


async def test_an_address_of_zero_serves_nothing() -> None:
    async with serving("0", {}) as port:
        assert port is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [(":8080", (None, 8080)), ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:9", ("::1", 9)), ("0", None), ("", None)],
)
def test_addresses(text: str, expected: object) -> None:
    assert address_of(text) == expected


@pytest.mark.parametrize("text", ["8080", "host", ":http", ":70000"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match="not an address"):
        address_of(text)
