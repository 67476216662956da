"""The scheduler's doors for people, on loopback: the snapshot file and the order of jobs (spec/scheduling.md §19)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import IO, Any

import msgspec
from aiohttp import web

from pykai.engine.decide import service_order
from pykai.engine.policy import Policy
from pykai.model.snapshot import Snapshot

SnapshotFile = Callable[[], Awaitable[IO[bytes]]]
JobOrder = Callable[[], dict[str, object] | None]
"""None before the first cycle; runs in a thread."""
CHUNK = 256 * 1024


def plugin_doors(snapshot: SnapshotFile | None, order: JobOrder | None) -> web.Application:
    """/get-snapshot and /get-job-order; a door whose plugin is not configured (None) is not there."""

    async def get_snapshot(request: web.Request) -> web.StreamResponse:
        assert snapshot is not None
        with await snapshot() as file:
            return await _send(request, file)

    async def get_order(_: web.Request) -> web.Response:
        assert order is not None
        found = await asyncio.to_thread(order)
        if found is None:
            return web.Response(status=503, text="Job order data not ready")
        text = msgspec.json.format(msgspec.json.encode(found), indent=2)
        return web.Response(body=text, content_type="application/json")

    async def unknown(_: web.Request) -> web.Response:
        return web.Response(status=404, text="plugin not found")

    app = web.Application()
    if snapshot is not None:
        app.router.add_route("*", "/get-snapshot", get_snapshot)
    if order is not None:
        app.router.add_route("*", "/get-job-order", get_order)
    app.router.add_route("*", "/{other:.*}", unknown)
    return app


def job_order(snapshot: Snapshot, policy: Policy, now: float) -> dict[str, Any]:
    """The order of the allocate action over all gangs that wait, in all and by queue."""
    gangs, order = snapshot.gangs, service_order(snapshot, policy, now)
    rows = gangs.rows_of(order)
    entries = [(rows[key], {"id": "/".join(key), "priority": gangs.priority[rows[key]]}) for key in order]
    by_queue: dict[str, list[dict[str, object]]] = {}
    for row, entry in entries:
        by_queue.setdefault(gangs.queue_name(row), []).append(entry)
    return {"global_order": [entry for _, entry in entries], "queue_order": by_queue}


async def _send(request: web.Request, file: IO[bytes]) -> web.StreamResponse:
    disposition = "attachment; filename=snapshot.zip"
    response = web.StreamResponse(headers={"Content-Type": "application/zip", "Content-Disposition": disposition})
    await response.prepare(request)
    while chunk := file.read(CHUNK):
        await response.write(chunk)
    await response.write_eof()
    return response


@asynccontextmanager
async def serving(app: web.Application, port: int, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """Answer while the block runs; gives the port, which is a free one where 0 was asked for."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
