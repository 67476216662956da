"""Runs one local cluster in the process that owns it: control plane, hollow nodes and the caller's components.

If any of them ends unexpectedly, the cluster stops, and the reason is in its record and on the terminal. A requested
stop removes all files; after a failure the logs remain.
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
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import structlog

from pykai.hollow.hollow_node import NodeShape
from pykai.hollow.kubelet_settings import KubeletSettings
from pykai.kube.auth import from_kubeconfig
from pykai.kube.client import HttpApi
from pykai.kube.transport import Settings
from pykai.local.build import control_plane
from pykai.local.clusters import ClusterError, ClusterRecord, owned, remove, write_record
from pykai.local.control_plane import ControlPlane, start_cluster
from pykai.local.kubelet import HollowKubelets
from pykai.local.pod_runtime import Containers, Host, Images
from pykai.local.process import identify

_CHECK_SECONDS = 0.5
_LATE_SECONDS = 10.0
_STOP = "stop"
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Run = Callable[[Path, asyncio.Event], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class LocalComponent:
    """A component on the cluster: `run(kubeconfig, ready)` runs until cancelled and sets `ready` once it works."""

    name: str
    run: Run


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The specification of a local cluster. `extra_parts`: additional parts of the control plane (kube-scheduler).

    `images`: the images whose containers run as processes; pods of other images are hollow.
    """

    name: str
    nodes: Sequence[NodeShape]
    extra_parts: Sequence[str] = ()
    settings: KubeletSettings = field(default_factory=KubeletSettings)
    components: Sequence[LocalComponent] = ()
    images: Images = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, given in (("node", self.nodes), ("component", self.components)):
            names = [each.name for each in given]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{kind} name {twice[0]!r} is used twice")


def run_cluster(plan: ClusterPlan, binary: Path, on_ready: Callable[[ClusterRecord], None]) -> None:
    """Run a cluster until SIGINT or SIGTERM; ClusterError names a part that failed, and the reason."""
    with owned(plan.name) as directory, _signals_recorded() as go_on:
        record = _initial_record(plan)
        write_record(record)
        try:
            plane = start_cluster(directory, binary, plan.extra_parts, go_on)
            _run_and_stop(plan, record, plane, on_ready, go_on)
        except _StopRequestedError:
            pass
        except Exception as error:
            failure = str(error) if isinstance(error, ClusterError) else traceback.format_exc()
            write_record(msgspec.structs.replace(record, phase="failed", failure=failure))
            raise
        remove(plan.name)


def _initial_record(plan: ClusterPlan) -> ClusterRecord:
    owner = identify(os.getpid())
    if owner is None:
        raise ClusterError("this system does not say when a process started")
    return ClusterRecord(
        name=plan.name,
        phase="starting",
        owner=owner,
        created=time.time(),
        version=control_plane().release(),
        nodes=len(plan.nodes),
        components=[component.name for component in plan.components],
    )


class _StopRequestedError(Exception):
    """SIGINT or SIGTERM arrived while the control plane was starting."""


@contextmanager
def _signals_recorded() -> Iterator[Callable[[], None]]:
    """Record signals during the start; the yielded function raises _StopRequestedError if one arrived.

    A signal handler that raises could do so between the start of a process and its registration.
    """
    received: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        received.append(number)

    def go_on() -> None:
        if received:
            raise _StopRequestedError

    before = {number: signal.signal(number, record) for number in _STOP_SIGNALS}
    try:
        yield go_on
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_and_stop(
    plan: ClusterPlan,
    record: ClusterRecord,
    plane: ControlPlane,
    on_ready: Callable[[ClusterRecord], None],
    go_on: Callable[[], None],
) -> None:
    files = plane.files
    started = msgspec.structs.replace(record, url=files.url, kubeconfig=str(files.kubeconfig), parts=plane.processes())

    def announce() -> None:
        ready = msgspec.structs.replace(started, phase="ready")
        write_record(ready)
        on_ready(ready)

    async def until_signal() -> None:
        stop = asyncio.Event()
        for number in _STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        go_on()
        await live(plan, plane, announce, stop)

    try:
        write_record(started)
        asyncio.run(until_signal())
    finally:
        plane.stop()


async def live(plan: ClusterPlan, plane: ControlPlane, announce: Callable[[], None], stop: asyncio.Event) -> None:
    """Run hollow nodes and components on a control plane until `stop` is set; ClusterError if one ends before."""
    async with connect(plane.files.kubeconfig) as api:
        host = Host(plane.files.directory / "pods", plane.files.url, plan.images)
        kubelets = HollowKubelets(api, plan.nodes, plan.settings, Containers(api, host, plan.settings.restart_seconds))
        ready = {component.name: asyncio.Event() for component in plan.components}
        jobs: dict[str, Coroutine[Any, Any, object]] = {
            "the control plane": _check_periodically(plane),
            "the hollow kubelets": kubelets.run(),
            "the announcement": _announce({"the hollow kubelets": kubelets.ready, **ready}, announce),
            _STOP: stop.wait(),
            **{
                f"component {each.name}": each.run(plane.files.kubeconfig, ready[each.name]) for each in plan.components
            },
        }
        await _wait_for_first_end([asyncio.create_task(job, name=name) for name, job in jobs.items()])


def connect(kubeconfig: Path) -> HttpApi:
    """An API client without rate limits, for parts of the cluster and tests."""
    return HttpApi(from_kubeconfig(kubeconfig), Settings(qps=0, bind_qps=0))


async def _check_periodically(plane: ControlPlane) -> None:
    while True:
        plane.check()
        await asyncio.sleep(_CHECK_SECONDS)


async def _announce(awaited: Mapping[str, asyncio.Event], announce: Callable[[], None]) -> None:
    """Announce once all are ready; log a warning for components that take long."""
    for name, event in awaited.items():
        warn = partial(structlog.get_logger().warning, "not ready yet", component=name, after_seconds=_LATE_SECONDS)
        waiting = asyncio.get_running_loop().call_later(_LATE_SECONDS, warn)
        await event.wait()
        waiting.cancel()
    announce()
    await asyncio.Event().wait()


async def _wait_for_first_end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait for the first task to end and cancel the others; ClusterError unless it is the requested stop."""
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        if task.get_name() != _STOP:
            raise ClusterError(_end_reason(task))


def _end_reason(task: asyncio.Task[Any]) -> str:
    error = task.exception()
    if error is None:
        return f"{task.get_name()} ended unexpectedly"
    if isinstance(error, ClusterError):
        return f"{task.get_name()}: {error}"
    return f"{task.get_name()} crashed:\n{''.join(traceback.format_exception(error))}"
