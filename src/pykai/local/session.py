"""One local cluster from start to end, in the process that owns it: control plane, hollow nodes, components.

The components are the caller's: coroutines (or processes, by `process_component`) that get the kubeconfig and say when
they are ready. Whatever ends by itself ends the cluster: half a cluster is worse than none, and its name and the reason
are in the record and on the terminal. A stop that was asked for leaves nothing behind; a failure leaves the logs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from pykai.kube.credentials import from_kubeconfig
from pykai.kube.http import HttpApi
from pykai.kube.transport import Settings
from pykai.local.build import Module
from pykai.local.cluster import ClusterError, ControlPlane, start_cluster
from pykai.local.clusters import Record, owned, remove, write_record
from pykai.local.habits import Habits
from pykai.local.kubelet import HollowKubelets
from pykai.local.process import identify
from pykai.local.shapes import NodeShape

_CHECK_SECONDS = 0.5
_COMPONENT_STOP_SECONDS = 5.0
_STOP = "stop"
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Run = Callable[[Path, asyncio.Event], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the product: `run(kubeconfig, ready)` works until cancelled and sets `ready` once it does its job."""

    name: str
    run: Run


def process_component(name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Component:
    """A component that is a process of its own; KUBECONFIG tells it the cluster. It is ready once it is started."""

    async def run(kubeconfig: Path, ready: asyncio.Event) -> None:
        variables = {**os.environ, **(environment or {}), "KUBECONFIG": str(kubeconfig)}
        process = await asyncio.create_subprocess_exec(*command, env=variables, stdin=asyncio.subprocess.DEVNULL)
        ready.set()
        try:
            code = await process.wait()
        finally:
            await _end(process)
        raise ClusterError(f"ended with code {code}")

    return Component(name, run)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _COMPONENT_STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What a local cluster is made of; `extra_parts` are further parts of the control plane (kube-scheduler)."""

    name: str
    nodes: Sequence[NodeShape]
    extra_parts: Sequence[str] = ()
    habits: Habits = field(default_factory=Habits)
    components: Sequence[Component] = ()


def run_cluster(plan: ClusterPlan, binary: Path, on_ready: Callable[[Record], None]) -> None:
    """Own a cluster until SIGINT or SIGTERM; ClusterError tells which part failed and why."""
    with owned(plan.name) as directory, _signals_as_exit():
        record = _first_record(plan)
        write_record(record)
        try:
            _start_and_live(plan, record, start_cluster(directory, binary, plan.extra_parts), on_ready)
        except (KeyboardInterrupt, SystemExit):
            pass  # asked for while starting
        except Exception as error:
            failure = str(error) if isinstance(error, ClusterError) else traceback.format_exc()
            write_record(msgspec.structs.replace(record, phase="failed", failure=failure))
            raise
        remove(plan.name)


def _first_record(plan: ClusterPlan) -> Record:
    owner = identify(os.getpid())
    if owner is None:
        raise ClusterError("this system does not tell when a process started")
    return Record(
        name=plan.name,
        phase="starting",
        owner=owner,
        created=time.time(),
        version=Module().kubernetes(),
        nodes=len(plan.nodes),
        components=[component.name for component in plan.components],
    )


@contextmanager
def _signals_as_exit() -> Iterator[None]:
    """SIGTERM ends the process the way Ctrl-C does: by an exception that lets everybody tidy up."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start_and_live(plan: ClusterPlan, record: Record, plane: ControlPlane, on_ready: Callable[[Record], None]) -> None:
    site = plane.site
    started = msgspec.structs.replace(record, url=site.url, kubeconfig=str(site.kubeconfig), parts=plane.processes())

    def announce() -> None:
        ready = msgspec.structs.replace(started, phase="ready")
        write_record(ready)
        on_ready(ready)

    try:
        write_record(started)
        asyncio.run(_until_signal(plan, plane, announce))
    finally:
        plane.stop()


async def _until_signal(plan: ClusterPlan, plane: ControlPlane, announce: Callable[[], None]) -> None:
    stop = asyncio.Event()
    for number in _STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await live(plan, plane, announce, stop)


async def live(plan: ClusterPlan, plane: ControlPlane, announce: Callable[[], None], stop: asyncio.Event) -> None:
    """Run hollow nodes and components on a started control plane until `stop`; ClusterError if one ends before."""
    async with connect(plane.site.kubeconfig) as api:
        kubelets = HollowKubelets(api, plan.nodes, plan.habits)
        ready = {component.name: asyncio.Event() for component in plan.components}
        jobs: dict[str, Coroutine[Any, Any, None]] = {
            "the control plane": _watch_over(plane),
            "the hollow kubelets": kubelets.run(),
            "the announcement": _announce([kubelets.ready, *ready.values()], announce),
            _STOP: _wait(stop),
            **{f"component {each.name}": each.run(plane.site.kubeconfig, ready[each.name]) for each in plan.components},
        }
        await _first_end([asyncio.create_task(job, name=name) for name, job in jobs.items()])


def connect(kubeconfig: Path) -> HttpApi:
    """A client without limits of its own, for what is itself part of the cluster and for tests."""
    return HttpApi(from_kubeconfig(kubeconfig), Settings(qps=0, bind_qps=0))


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


async def _watch_over(plane: ControlPlane) -> None:
    while True:
        plane.check()
        await asyncio.sleep(_CHECK_SECONDS)


async def _announce(events: Sequence[asyncio.Event], announce: Callable[[], None]) -> None:
    for event in events:
        await event.wait()
    announce()
    await asyncio.Event().wait()


async def _first_end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for the first task to end and cancel the others; ClusterError unless it was the stop."""
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        if task.get_name() != _STOP:
            raise ClusterError(_obituary(task))


def _obituary(task: asyncio.Task[None]) -> str:
    error = task.exception()
    if error is None:
        return f"{task.get_name()} ended without being asked to"
    if isinstance(error, ClusterError):
        return f"{task.get_name()}: {error}"
    return f"{task.get_name()} crashed:\n{''.join(traceback.format_exception(error))}"
