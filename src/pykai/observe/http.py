"""The HTTP pages of a component: `/metrics`, `/healthz`, `/readyz` and its own ones.

    pages = {"/metrics": metrics_page(metrics.text), **health_pages(watches.problems)}
    async with serving(":8080", pages):
        ...

A page is made by a function from the query to a `HttpPage`; only GET is served. `/healthz` answers 200 while the
process runs; `/readyz` answers 503 with one line per problem until the component can work.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog
from aiohttp import web

from pykai.observe.metrics import CONTENT_TYPE as METRICS_TYPE

OFF = ("", "0")
PLAIN = "text/plain; charset=utf-8"

log = structlog.get_logger("http")


@dataclass(frozen=True)
class HttpPage:
    """An HTTP response."""

    body: bytes
    content_type: str = PLAIN
    status: int = 200


Query = Mapping[str, str]
PageHandler = Callable[[Query], HttpPage | Awaitable[HttpPage]]
Pages = Mapping[str, PageHandler]


class AddressError(ValueError):
    """The text is not a listen address."""


def address_of(text: str) -> tuple[str | None, int] | None:
    """Parse `:8080`, `127.0.0.1:8080` or `[::1]:8080`; host None: all interfaces; return None for "do not listen"."""
    if text in OFF:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise AddressError(f"{text!r} is not an address to listen on (expected host:port, or :port, or 0 for none)")
    return host.strip("[]") or None, int(port)


def metrics_page(*sources: Callable[[], bytes]) -> PageHandler:
    """Return the page of the concatenated metrics of these sources."""
    return lambda query: HttpPage(b"".join(source() for source in sources), METRICS_TYPE)


def health_pages(problems: Callable[[], Sequence[str]]) -> dict[str, PageHandler]:
    """Return the pages `/healthz` and `/readyz`; `problems` returns why the component is not ready."""

    def ready(query: Query) -> HttpPage:
        lines = list(problems())
        return HttpPage("\n".join(lines).encode(), status=503) if lines else HttpPage(b"ok")

    return {"/healthz": lambda query: HttpPage(b"ok"), "/readyz": ready}


@asynccontextmanager
async def serving(address: str, pages: Pages) -> AsyncIterator[int | None]:
    """Serve the pages while the block runs; yield the port, or None if the address disables listening.

    Raises AddressError for an invalid address and OSError if it is in use.
    """
    listen = address_of(address)
    if listen is None:
        yield None
        return
    app = web.Application()
    app.add_routes([web.get(path, _route_handler(handler)) for path, handler in pages.items()])
    host, port = listen
    async with listening(app, port, host) as bound:
        log.info("serving", address=address, port=bound, paths=sorted(pages))
        yield bound


@asynccontextmanager
async def listening(
    app: web.Application,
    port: int,
    host: str | None = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    shutdown_seconds: float = 60.0,
) -> AsyncIterator[int]:
    """Serve an application while the block runs; yield the port, a free one if `port` is 0. Host None: all interfaces.

    `shutdown_seconds`: the time for requests in progress when the block ends.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=shutdown_seconds)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _route_handler(handler: PageHandler) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        page = handler(request.query)
        if inspect.isawaitable(page):
            page = await page
        return web.Response(body=page.body, status=page.status, headers={"Content-Type": page.content_type})

    return answer
