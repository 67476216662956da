"""The HTTPS server on a loopback port: answers, refuses nonsense, and changes certificates while it runs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog

from pykai.admission.certificates import CertificateError, ServingCredentials, issue, renew
from pykai.admission.pod_rules import PodSettings
from pykai.admission.review import MUTATE_POD, VALIDATE_POD, VALIDATE_QUEUE, AdmissionRules
from pykai.admission.webhook_server import Listen, WebhookServer
from tests.timeouts import TIMEOUT_SECONDS
from tests.unit.admission.bad_input_objects import queue
from tests.unit.admission.bad_input_pods import pod

ADMISSION = AdmissionRules(pods=PodSettings(gpu_sharing=True))


@cache
def credentials(number: int) -> ServingCredentials:
    return issue(["127.0.0.1", "localhost"], datetime.now(UTC))


def write(directory: Path, given: ServingCredentials) -> None:
    (directory / "tls.crt").write_bytes(given.certificate)
    (directory / "tls.key").write_bytes(given.key)


def client(given: ServingCredentials, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> aiohttp.ClientSession:
    context = ssl.create_default_context(cadata=given.authority.decode())
    context.maximum_version = newest
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context))


def review(item: dict[str, Any]) -> dict[str, Any]:
    return {"request": {"uid": "u", "operation": "CREATE", "object": item, "namespace": "team"}}


async def ask(session: aiohttp.ClientSession, server: WebhookServer, path: str, body: Any) -> dict[str, Any]:
    async with session.post(f"https://127.0.0.1:{server.port}{path}", json=body) as response:
        assert response.status == 200
        return dict((await response.json())["response"])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    write(tmp_path, credentials(1))
    async with WebhookServer(ADMISSION, Listen("127.0.0.1", 0, certificates=tmp_path, look_every=0.02)) as running:
        yield running


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_reviews_are_answered(server: WebhookServer, newest: ssl.TLSVersion) -> None:
    async with client(credentials(1), newest) as session:
        changed = await ask(session, server, MUTATE_POD, review(pod({"gpu-fraction": "0.5"})))
        assert changed["patchType"] == "JSONPatch"
        refused = await ask(session, server, VALIDATE_POD, review(pod({"gpu-fraction": "2"})))
        assert not refused["allowed"]
        assert (await ask(session, server, VALIDATE_QUEUE, review(queue({}))))["allowed"]


async def test_the_log_says_which_object_was_refused_and_why(server: WebhookServer) -> None:
    with structlog.testing.capture_logs() as lines:
        async with client(credentials(1)) as session:
            await ask(session, server, VALIDATE_POD, review(pod({"gpu-fraction": "2"})))
            await ask(session, server, VALIDATE_QUEUE, review({**queue({}), "metadata": ["no mapping"]}))
    refused, unnamed = (line for line in lines if line["event"] == "request denied")
    assert (refused["namespace"], refused["name"]) == ("team", "train")
    assert "gpu-fraction" in refused["reason"]
    assert unnamed["name"] is None


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", VALIDATE_POD, b"nonsense", 400),
        ("POST", VALIDATE_POD, b"", 400),
        ("POST", "/elsewhere", b"{}", 404),
        ("GET", VALIDATE_POD, b"", 405),
        ("GET", "/readyz", b"", 200),
        ("GET", "/healthz", b"", 200),
        ("POST", VALIDATE_POD, b"[" * (17 * 1024 * 1024), 413),
    ],
)
async def test_nonsense_is_answered_too(
    server: WebhookServer, method: str, path: str, body: bytes, status: int
) -> None:
    async with (
        client(credentials(1)) as session,
        session.request(method, f"https://127.0.0.1:{server.port}{path}", data=body) as response,
    ):
        assert response.status == status


async def presented(server: WebhookServer, number: int) -> bool:
    """Whether a new connection is shown certificate `number`."""
    async with client(credentials(number)) as session:
        try:
            return bool(await ask(session, server, VALIDATE_QUEUE, review(queue({}))))
        except aiohttp.ClientConnectorCertificateError:
            return False


async def until_presented(server: WebhookServer, number: int) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not await presented(server, number):
            await asyncio.sleep(0.02)


async def test_a_new_certificate_is_served_without_a_restart(server: WebhookServer, tmp_path: Path) -> None:
    async with client(credentials(1)) as early:
        await ask(early, server, VALIDATE_QUEUE, review(queue({})))
        write(tmp_path, credentials(2))
        await until_presented(server, 2)
        assert not await presented(server, 1)
        # The connection that was open before goes on.
        await ask(early, server, VALIDATE_QUEUE, review(queue({})))


async def test_a_pair_that_does_not_fit_is_not_served(server: WebhookServer, tmp_path: Path) -> None:
    (tmp_path / "tls.key").write_bytes(credentials(2).key)
    await asyncio.sleep(0.1)
    assert await presented(server, 1)
    (tmp_path / "tls.crt").unlink()
    await asyncio.sleep(0.1)
    assert await presented(server, 1)
    write(tmp_path, credentials(2))
    await until_presented(server, 2)


async def test_a_server_that_makes_its_own_certificates(tmp_path: Path) -> None:
    bundles: list[bytes] = []

    async def trust(bundle: bytes) -> None:
        bundles.append(bundle)

    async def renewed() -> None:
        await renew(tmp_path, ["127.0.0.1"], datetime.now(UTC), trust)

    listen = Listen("127.0.0.1", 0, certificates=tmp_path, look_every=0.02, renew=renewed)
    async with WebhookServer(ADMISSION, listen) as server:
        made = ServingCredentials(bundles[0], b"", b"")
        async with client(made) as session:
            await ask(session, server, VALIDATE_QUEUE, review(queue({})))
        (tmp_path / "tls.crt").unlink()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(bundles) < 2:
                await asyncio.sleep(0.02)
        async with client(ServingCredentials(bundles[1], b"", b"")) as session:
            await ask(session, server, VALIDATE_QUEUE, review(queue({})))


async def test_a_renewal_that_fails_does_not_end_the_service(tmp_path: Path) -> None:
    write(tmp_path, credentials(1))
    calls = 0

    async def failing() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise ConnectionError("the API server is away")

    listen = Listen("127.0.0.1", 0, certificates=tmp_path, look_every=0.01, renew=failing)
    async with WebhookServer(ADMISSION, listen) as server:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while calls <= 2:
                await asyncio.sleep(0.01)
        assert await presented(server, 1)


async def test_the_port_is_known_once_requests_are_served(tmp_path: Path) -> None:
    write(tmp_path, credentials(1))
    server = WebhookServer(ADMISSION, Listen("127.0.0.1", 0, certificates=tmp_path))
    assert not server.port
    async with server:
        assert server.port
    assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing goes on"


async def test_a_server_without_certificate_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="cannot read the serving certificate"):
        async with WebhookServer(ADMISSION, Listen("127.0.0.1", 0, certificates=tmp_path)):
            pass


def test_only_known_paths_are_served() -> None:
    with pytest.raises(ValueError, match="no webhook is served at /nowhere"):
        WebhookServer(ADMISSION, Listen(paths=["/nowhere", MUTATE_POD]))


async def test_a_server_may_serve_some_of_the_paths(tmp_path: Path) -> None:
    write(tmp_path, credentials(1))
    listen = Listen("127.0.0.1", 0, paths=[VALIDATE_QUEUE], certificates=tmp_path)
    async with (
        WebhookServer(ADMISSION, listen) as server,
        client(credentials(1)) as session,
        session.post(f"https://127.0.0.1:{server.port}{VALIDATE_POD}", data=b"{}") as response,
    ):
        assert response.status == 404
