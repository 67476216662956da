"""`kai fairshare-simulator`: what it answers over HTTP, and its flags."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
import structlog
from click.testing import CliRunner

from pykai.cli.fairshare_simulator import CORS, fairshare_simulator, simulator
from pykai.observe.http import listening
from tests.timeouts import TIMEOUT_SECONDS

REQUEST = {
    "totalResource": {"GPU": 100, "CPU": 16000, "Memory": 32_000_000},
    "queues": [
        {"uid": uid, "resourceShare": {"gpu": {"deserved": 10, "request": 100, "overQuotaWeight": weight}}}
        for uid, weight in (("queue1", 3), ("queue2", 1))
    ],
}
ANSWER = {
    "queue1": {"gpu": 70.0, "cpu": 16000.0, "memory": 100000.0},
    "queue2": {"gpu": 30.0, "cpu": 16000.0, "memory": 100000.0},
}


@pytest.fixture(autouse=True)
def usual_logs() -> Iterator[None]:
    """Commands set up logging for their process, which here is that of all tests."""
    yield
    structlog.reset_defaults()


@contextlib.asynccontextmanager
async def asking(cors: bool = False) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        listening(simulator(cors), 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        yield session


async def test_a_division_is_answered() -> None:
    async with asking() as session, session.post("/simulate", json=REQUEST) as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert await answer.json() == ANSWER
        assert not CORS.keys() & answer.headers.keys()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
async def test_only_post_is_answered(method: str) -> None:
    async with asking() as session, session.request(method, "/simulate") as answer:
        assert (answer.status, await answer.text()) == (405, "Only POST allowed")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "Invalid request: not JSON"),
        ('{"totalResource": {"GPU": -4}, "queues": []}', "Invalid request: totalResource.GPU: -4 is negative"),
    ],
)
async def test_a_wrong_request_is_told_what_is_wrong(body: str, message: str) -> None:
    async with asking() as session, session.post("/simulate", data=body) as answer:
        assert answer.status == 400
        assert message in await answer.text()


async def test_pages_of_other_origins_may_ask_where_that_is_wished() -> None:
    async with asking(cors=True) as session:
        for method, status in (("OPTIONS", 200), ("GET", 405), ("POST", 400)):
            async with session.request(method, "/simulate") as answer:
                assert answer.status == status
                assert CORS.items() <= dict(answer.headers).items()


@pytest.mark.parametrize("dash", ["-", "--"])
async def test_it_serves_on_loopback_until_it_is_told_to_stop(dash: str) -> None:
    command = [sys.executable, "-m", "pykai", "fairshare-simulator", f"{dash}port", "0", f"{dash}enable-cors"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        line = (await process.stderr.readline()).decode()
        address = line.split("address=")[1].strip()
        assert address.startswith("http://127.0.0.1:")
        async with aiohttp.ClientSession() as session, session.post(address, json=REQUEST) as answer:
            assert json.loads(await answer.text()) == ANSWER
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(fairshare_simulator, ["-port", str(taken.getsockname()[1])])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert "address already in use" in result.output
