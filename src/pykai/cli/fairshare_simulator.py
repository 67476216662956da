"""`kai fairshare-simulator`: an HTTP server that computes the fair shares of the queues in a request."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click
import msgspec
import structlog
from aiohttp import web

from pykai.cli.component import reported_errors, stop_event
from pykai.cli.flags import Flag, port, takes
from pykai.config.fields import FieldError
from pykai.observe import logs
from pykai.observe.http import listening
from pykai.simulate.fair_shares import simulated

FLAGS = (
    Flag("host", "127.0.0.1", "Address to listen on; 0.0.0.0: all interfaces.", one_dash=True),
    Flag("port", 8080, "Port to listen on; 0: a free one.", one_dash=True, check=port),
    Flag("enable-cors", False, "Allow requests from pages of any origin.", one_dash=True),
)
CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, OPTIONS",
    "Access-Control-Allow-Headers": "Content-Type",
}
LARGEST_REQUEST = 16 * 1024 * 1024

log = structlog.get_logger("fairshare-simulator")


def simulator(cors: bool) -> web.Application:
    """Return the application that answers POST /simulate; `cors`: with CORS headers for any origin."""
    headers = CORS if cors else {}

    async def simulate(request: web.Request) -> web.Response:
        if cors and request.method == "OPTIONS":
            return web.Response(headers=headers)
        if request.method != "POST":
            return web.Response(status=405, text="Only POST allowed", headers={**headers, "Allow": "POST"})
        try:
            shares = simulated(await request.read(), time.time())
        except FieldError as error:
            return web.Response(status=400, text=f"Invalid request: {error}", headers=headers)
        return web.Response(body=msgspec.json.encode(shares), content_type="application/json", headers=headers)

    app = web.Application(client_max_size=LARGEST_REQUEST)
    app.router.add_route("*", "/simulate", simulate)
    return app


async def _serve(flags: dict[str, Any]) -> None:
    stop = stop_event()
    async with listening(simulator(flags["enable_cors"]), flags["port"], flags["host"]) as port:
        log.info("serving", address=f"http://{flags['host']}:{port}/simulate")
        await stop.wait()


@click.command("fairshare-simulator")
@takes(FLAGS)
def fairshare_simulator(**flags: Any) -> None:
    """Serve POST /simulate: the fair shares of the queues in a request, computed as in the scheduler.

    Flags may be written with one dash, as KAI's.
    """
    logs.set_up()
    with reported_errors():
        asyncio.run(_serve(flags))
