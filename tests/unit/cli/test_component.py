"""What surrounds a component: pages, election, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import click
import pytest
import structlog

from pykai.cli.component import (
    Composition,
    Part,
    Process,
    identity,
    on_own_host,
    run_component,
    run_composition,
    set_up_logs,
)
from pykai.kube.api import Api
from pykai.kube.api_resources import LEASE, POD
from pykai.kube.informer import InformerFactory
from pykai.kube.lease import Election
from pykai.kube.memory import MemoryApi
from pykai.objects.kinds import Pod
from pykai.observe.metrics import WorkMetrics
from tests.timeouts import TIMEOUT_SECONDS


class Work:
    """A part that becomes ready when told to and ends when told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.end = asyncio.Event()
        self.running = False

    async def run(self, ready: asyncio.Event) -> None:
        self.running = True
        await self.go.wait()
        ready.set()
        await self.end.wait()
        self.running = False

    def compose(self, api: Api, watches: InformerFactory, work: WorkMetrics) -> Composition:
        watches.of(POD, Pod)
        work.meter("w").finished(0.1, "success")
        return Composition([Part("work", self.run)], [lambda: b"own 1\n"])


def free_address() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


async def fetch(address: str, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as answer:
        return answer.status, await answer.text()


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not check():
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def living(process: Process, work: Work, election: Election | None = None) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(run_composition(MemoryApi(time.time), process, work.compose, election))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_ready_means_that_watches_are_alive_and_parts_have_started() -> None:
    process, work = Process("test", metrics_address=free_address(), health_address=free_address()), Work()
    async with living(process, work):
        await until(lambda: work.running)
        assert await fetch(process.health_address, "/readyz") == (503, "work: not started yet")
        work.go.set()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (answer := await fetch(process.health_address, "/readyz"))[0] != 200:
                await asyncio.sleep(0.01)
        assert answer == (200, "ok")
        assert (await fetch(process.health_address, "/metrics"))[0] == 404
        metrics = (await fetch(process.metrics_address, "/metrics"))[1]
        assert 'controller_runtime_reconcile_total{controller="w",result="success"} 1.0' in metrics
        assert "own 1" in metrics


async def test_one_address_may_serve_everything() -> None:
    address = free_address()
    work = Work()
    async with living(Process("test", metrics_address=address, health_address=address), work):
        await until(lambda: work.running)
        assert (await fetch(address, "/healthz"))[0] == 200
        assert (await fetch(address, "/metrics"))[0] == 200


@pytest.mark.parametrize(
    ("host", "address", "listened_on"),
    [
        ("", ":8080", ":8080"),
        ("127.9.8.7", ":8080", "127.9.8.7:8080"),
        ("127.9.8.7", "10.0.0.1:8080", "10.0.0.1:8080"),
        ("127.9.8.7", "0", "0"),
    ],
)
def test_a_host_of_our_own(monkeypatch: pytest.MonkeyPatch, host: str, address: str, listened_on: str) -> None:
    monkeypatch.setenv("KAI_LISTEN_HOST", host)
    assert on_own_host(address) == listened_on


def test_in_elections_we_go_by_the_name_of_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "binder-0")
    assert identity().startswith("binder-0_")
    monkeypatch.delenv("POD_NAME")
    assert identity().startswith(f"{socket.gethostname()}_")


async def test_a_part_that_ends_ends_the_component() -> None:
    work = Work()
    async with living(Process("test", metrics_address="0", health_address="0"), work) as task:
        work.go.set()
        work.end.set()
        with pytest.raises(RuntimeError, match="ended unexpectedly"):
            await asyncio.wait_for(task, TIMEOUT_SECONDS)


def test_a_process_without_a_lease_runs_its_parts(tmp_path: Path) -> None:
    """The whole way from the command: a client on an address that nobody answers, no election."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
        "current-context: x\n"
    )
    started: list[str] = []

    async def part(_ready: asyncio.Event) -> None:
        started.append("part")

    process = Process("test", kubeconfig=str(kubeconfig), metrics_address="0", health_address="0")
    with pytest.raises(RuntimeError, match="ended unexpectedly"):
        run_component(process, lambda *_: Composition([Part("part", part)]))
    assert started == ["part"]


async def test_only_the_leader_works() -> None:
    api = MemoryApi(time.time)
    process = Process("test", metrics_address="0", health_address="0")
    one, two = Work(), Work()
    elections = [Election(api, LEASE.ref("l", "default"), name) for name in ("one", "two")]
    async with living(process, one, elections[0]) as first:
        await until(lambda: one.running)
        async with living(process, two, elections[1]):
            await asyncio.sleep(0.1)
            assert not two.running
            first.cancel()
            await until(lambda: two.running)


@pytest.mark.parametrize(
    ("given", "flag"), [({"zap_encoder": "xml"}, "--zap-encoder"), ({"zap_log_level": "loud"}, "--zap-log-level")]
)
def test_unknown_ways_to_log_are_refused(given: dict[str, str], flag: str) -> None:
    with pytest.raises(click.BadParameter) as error:
        set_up_logs(given)
    assert error.value.param_hint == flag


def test_logs_may_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        set_up_logs({"zap_devel": False, "zap_log_level": "error"})
        structlog.get_logger().info("quiet")
        structlog.get_logger().warning("loud", pod="a/b")
    finally:
        structlog.reset_defaults()
    assert capsys.readouterr().err.startswith('{"pod": "a/b", "event": "loud"')
