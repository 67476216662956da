"""The process of a component: logging, API client, metrics and health endpoints, leader election, shutdown on a signal.

A component is a list of parts that share one API client and one informer factory. If any part ends, the process ends
with an error: a restart is better than a component that runs in part.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import click
import structlog

from pykai.kube.api import Api
from pykai.kube.api_resources import LEASE
from pykai.kube.auth import find_access
from pykai.kube.client import HttpApi
from pykai.kube.errors import ApiError, CredentialsError
from pykai.kube.informer import InformerFactory
from pykai.kube.lease import Election, LeadershipLost
from pykai.kube.transport import Settings as ClientSettings
from pykai.objects import names
from pykai.observe import logs
from pykai.observe.http import AddressError, PageHandler, health_pages, metrics_page, serving
from pykai.observe.metrics import WorkMetrics

log = structlog.get_logger("component")
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
GC_THRESHOLDS = (10_000, 20, 20)
"""Thresholds of the garbage collector: objects from watches live long and form no reference cycles."""
_LEVELS = {"debug": 5, "info": 3, "warn": 1, "error": 1, "panic": 1}


@dataclass(frozen=True)
class Part:
    """A part of a component: `run(ready)` runs until cancelled and sets `ready` once it works.

    `elected`: with leader election, only the leader runs it.
    """

    name: str
    run: Callable[[asyncio.Event], Coroutine[Any, Any, None]]
    elected: bool = True


@dataclass(frozen=True)
class Composition:
    """The parts of a component, and the metrics and pages it serves beside the common ones."""

    parts: Sequence[Part]
    metrics: Sequence[Callable[[], bytes]] = ()
    pages: Mapping[str, PageHandler] = field(default_factory=dict)


Compose = Callable[[Api, InformerFactory, WorkMetrics], Composition]


@dataclass(frozen=True)
class Process:
    """The settings common to all components. `lease`: no leader election if empty; `namespace`: that of the lease, by
    default the component's own."""

    name: str
    client: ClientSettings = ClientSettings()
    kubeconfig: str = ""
    metrics_address: str = ":8080"
    health_address: str = ":8081"
    lease: str = ""
    namespace: str = ""


def process_of(name: str, flags: Mapping[str, Any], lease: str = "") -> Process:
    """Return the common settings in a command's flags, after configuring logging."""
    set_up_logs(flags)
    defaults = Process(name)
    return Process(
        name,
        ClientSettings(qps=max(flags["qps"], 0.0), burst=flags["burst"]),
        flags["kubeconfig"],
        flags.get("metrics_bind_address", defaults.metrics_address),
        flags.get("health_probe_bind_address", defaults.health_address),
        lease if flags.get("leader_elect") else "",
    )


def set_up_logs(flags: Mapping[str, Any]) -> None:
    """Configure logging by the zap flags; an unknown value is a click.BadParameter."""
    encoder = flags.get("zap_encoder") or ("console" if flags.get("zap_devel", True) else "json")
    if encoder not in ("console", "json"):
        raise click.BadParameter(f"{encoder!r} is neither console nor json", param_hint="--zap-encoder")
    level = flags.get("zap_log_level") or "info"
    if level not in _LEVELS and not level.isdigit():
        known = ", ".join(_LEVELS)
        raise click.BadParameter(f"{level!r} is neither a number nor one of {known}", param_hint="--zap-log-level")
    logs.set_up(_LEVELS[level] if level in _LEVELS else 3 + int(level), as_json=encoder == "json")


def run_component(process: Process, compose: Compose) -> None:
    """Run a component until SIGINT or SIGTERM; any other end is an error of the command."""
    gc.set_threshold(*GC_THRESHOLDS)
    with reported_errors():
        asyncio.run(_run_until_signal(process, compose))


@contextmanager
def reported_errors() -> Iterator[None]:
    """Report errors that a user can fix (access, addresses, leadership, files) as one line without a traceback."""
    try:
        yield
    except (ApiError, CredentialsError, AddressError, LeadershipLost, OSError) as error:
        raise click.ClickException(str(error)) from error


async def _run_until_signal(process: Process, compose: Compose) -> None:
    stop = stop_event()

    async def stopped() -> None:
        await stop.wait()
        log.info("stopping", component=process.name)

    async with HttpApi(find_access(process.kubeconfig), process.client) as api:
        await run_until(stopped(), run_composition(api, process, compose, election_of(api, process)))


def election_of(api: Api, process: Process) -> Election | None:
    """Return the leader election of a process; None if it has no lease."""
    if not process.lease:
        return None
    lease = LEASE.ref(process.lease, process.namespace or own_namespace())
    return Election(api, lease, identity())


def stop_event() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set, instead of ending the process."""
    stop = asyncio.Event()
    for number in _STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def run_until(stopped: Coroutine[Any, Any, object], work: Coroutine[Any, Any, object]) -> None:
    """Run until the first of both ends, and cancel the other; an error of `work` is raised."""
    running, stopping = asyncio.create_task(work), asyncio.create_task(stopped)
    await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    for task in (stopping, running):
        task.cancel()
    await asyncio.gather(running, return_exceptions=True)
    if not running.cancelled():
        running.result()


async def run_composition(
    api: Api,
    process: Process,
    compose: Compose,
    election: Election | None = None,
    all_ready: asyncio.Event | None = None,
) -> None:
    """Run a component until cancelled; an error that ends it is raised. `all_ready` is set once every part is ready."""
    watches, work = InformerFactory(api), WorkMetrics()
    composition = compose(api, watches, work)
    ready = {part.name: asyncio.Event() for part in composition.parts}

    def problems() -> list[str]:
        waiting = [f"{name}: not started yet" for name, event in ready.items() if not event.is_set()]
        return watches.problems() + (waiting if election is None or election.leading else [])

    health = health_pages(problems)
    pages = {**health, "/metrics": metrics_page(work.text, *composition.metrics), **composition.pages}
    async with AsyncExitStack() as servers:
        for address, shown in {process.health_address: health, process.metrics_address: pages}.items():  # may be equal
            await servers.enter_async_context(serving(on_own_host(address), shown))
        unelected = [part for part in composition.parts if not part.elected or election is None]
        jobs = [watches.run(), *(part.run(ready[part.name]) for part in unelected)]
        elected = [part for part in composition.parts if part not in unelected]
        if election is not None:
            jobs.append(election.run(lambda: _run_until_first_ends([part.run(ready[part.name]) for part in elected])))
        if all_ready is not None:
            jobs.append(_set_when_ready(list(ready.values()), all_ready))
        log.info("started", component=process.name, parts=[part.name for part in composition.parts])
        await _run_until_first_ends(jobs)


async def _set_when_ready(events: Sequence[asyncio.Event], all_ready: asyncio.Event) -> None:
    for event in events:
        await event.wait()
    all_ready.set()
    await asyncio.Event().wait()


async def _run_until_first_ends(jobs: Sequence[Coroutine[Any, Any, Any]]) -> None:
    """Run jobs until the first ends, and cancel the others; its error is raised, and ending without one is an error."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
    raise RuntimeError("a part of the component ended unexpectedly")


def own_host() -> str:
    """Return the address to listen on, from KAI_LISTEN_HOST; empty: all interfaces.

    The pods of a local cluster set it: they share a machine, and each has an address of its own.
    """
    return os.environ.get("KAI_LISTEN_HOST", "")


def on_own_host(address: str) -> str:
    """Return the listen address, completed with `own_host` if it names no host."""
    return f"{own_host()}{address}" if address.startswith(":") else address


def identity() -> str:
    """Return the holder identity of this replica in leader election; it starts with the pod's name, which the operator
    reads."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}"


def own_namespace() -> str:
    """Return the namespace this process runs in: from the environment, by default the system namespace."""
    return os.environ.get("POD_NAMESPACE") or os.environ.get("NAMESPACE") or names.SYSTEM_NAMESPACE
