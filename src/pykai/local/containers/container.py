"""One container of a pod: prepared, started, probed, restarted, until its pod has had enough of it.

`state`, `last`, `restarts` and `ready` are what its status says; `Terms.changed` is called whenever they change.

A process stands in for the container: started, its output logged, ended within its grace. Invariant: no process
outlives this one. It is ended when its context is left, and on Linux by the kernel when this process is killed. Probes
ask at intervals, and what is answered often enough in a row counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from pykai.hollow.kubelet_settings import ContainerLog
from pykai.hollow.pod_status import container_status, exited
from pykai.kube.backoff import Backoff
from pykai.kube.errors import ApiError
from pykai.local.containers.environment import NotYetError
from pykai.objects import units

Object = dict[str, Any]
_PROBES = _READY, _ALIVE = "readinessProbe", "livenessProbe"
_LONGEST_BACKOFF = 64
"""Times the first one."""
_CANNOT_START = 128
_LOOK_AGAIN_SECONDS = 0.5
_LONGEST_LINE = 16 * 1024 * 1024
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, with exactly which variables, in which directory."""

    words: Sequence[str]
    environment: Mapping[str, str]
    directory: Path


def _die_with_parent() -> None:
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


@asynccontextmanager
async def executing(
    command: Command, say: Callable[[str], None], grace: Callable[[], float]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process while the block runs; then it is ended, by force after `grace()` seconds."""
    # A pipe of our own: with asyncio's, a process counts as running for as long as a child of it holds its output.
    ours, its = os.pipe()
    logging = asyncio.create_task(_log(ours, say))
    try:
        process = await _start(command, its)
        try:
            yield process
        finally:
            await _end(process, grace())
    finally:
        os.close(its)
        await logging


async def _start(command: Command, output: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command.words,
        env=command.environment,
        cwd=command.directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )


async def _log(output: int, say: Callable[[str], None]) -> None:
    """Log every line that comes out of a pipe, until its other end is closed."""
    lines = asyncio.StreamReader(_LONGEST_LINE)
    protocol = asyncio.StreamReaderProtocol(lines)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(output, "rb"))
    with contextlib.closing(transport):
        async for line in lines:
            say(line.decode(errors="replace").rstrip("\n"))


async def _end(process: asyncio.subprocess.Process, grace: float) -> None:
    """End the process within its grace, at once if cancelled, and with it, as in a container, all it started."""
    try:
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            process.terminate()
            await asyncio.wait_for(process.wait(), grace)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


Prepare = Callable[[Object], Awaitable[Command]]


class ProbeSettings(msgspec.Struct, frozen=True, rename="camel"):
    """When to ask, and how many equal answers count; Kubernetes' defaults."""

    initial_delay_seconds: float = 0
    period_seconds: float = 10
    timeout_seconds: float = 1
    success_threshold: int = 1
    failure_threshold: int = 3


def address_of(probe: Object, container: Object, host: str) -> str:
    """The URL a probe asks on `host`; ValueError for a probe that is none of HTTP."""
    asked = probe.get("httpGet")
    if asked is None:
        raise ValueError(f"container {container['name']}: only httpGet probes are supported here")
    ports = {port.get("name"): port["containerPort"] for port in container.get("ports") or ()}
    port = ports.get(asked["port"], asked["port"])
    return f"{asked.get('scheme', 'HTTP').lower()}://{host}:{port}{asked.get('path', '/')}"


async def probe_answers(url: str, seconds: float) -> bool:
    """Whether a GET is answered well and in time."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=False) as answer:
            return 200 <= answer.status < 400
    except (TimeoutError, aiohttp.ClientError):
        return False


async def probe(settings: ProbeSettings, ask: Callable[[], Awaitable[bool]], report: Callable[[bool], None]) -> None:
    """Ask until cancelled, and `report` each time enough equal answers came in a row."""
    await asyncio.sleep(settings.initial_delay_seconds)
    last, streak = False, 0
    while True:
        good = await ask()
        last, streak = good, streak + 1 if good == last else 1
        if streak == (settings.success_threshold if good else settings.failure_threshold):
            report(good)
        await asyncio.sleep(settings.period_seconds)


@dataclass(frozen=True, slots=True)
class Terms:
    """What the containers of a pod have in common; `host` is where they listen, `grace` the seconds they may take."""

    host: str
    policy: str
    restart_seconds: float
    grace: Callable[[], float]
    changed: Callable[[], None]
    prepare: Prepare


class Container:
    """A container as a process."""

    def __init__(self, spec: Object, terms: Terms, log: ContainerLog) -> None:
        self.state: Object = {"waiting": {"reason": "ContainerCreating"}}
        self.last: Object = {}
        self.restarts = 0
        self._backoff = Backoff(terms.restart_seconds, terms.restart_seconds * _LONGEST_BACKOFF)
        self.ready = False
        self._spec = spec
        self._terms = terms
        self._log = log
        self._asked: dict[str, str] = {}

    @property
    def exit_code(self) -> int | None:
        """What the container ended with; None while it has not."""
        code: int | None = (self.state.get("terminated") or {}).get("exitCode")
        return code

    def status(self, uid: str) -> Object:
        """Its status in that of the pod with this uid."""
        basis = container_status(uid, self._spec, self.state, self.restarts)
        return basis | {"ready": self.ready, "lastState": self.last}

    async def run(self) -> None:
        """Run until it has ended for good; a process that runs when this is cancelled is ended."""
        while True:
            await self._execute(await self._prepared())
            if self._terms.policy == "Never" or (self._terms.policy == "OnFailure" and self.exit_code == 0):
                return
            reason = "CrashLoopBackOff" if self.exit_code else "Completed"
            self.last, self.restarts = self.state, self.restarts + 1
            self._become({"waiting": {"reason": reason}})
            await asyncio.sleep(self._backoff.after(self.restarts))
            self._log.begin()

    def _become(self, state: Object, *, ready: bool = False) -> None:
        self.state, self.ready = state, ready
        self._terms.changed()

    async def _prepared(self) -> Command:
        """What to run, once all it needs is there."""
        while True:
            try:
                self._asked = self._probes()
                return await self._terms.prepare(self._spec)
            except (NotYetError, ValueError, ApiError) as error:
                self._become({"waiting": {"reason": "CreateContainerConfigError", "message": str(error)}})
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _probes(self) -> dict[str, str]:
        """The address that each probe asks."""
        kinds = [kind for kind in _PROBES if kind in self._spec]
        return {kind: address_of(self._spec[kind], self._spec, self._terms.host) for kind in kinds}

    async def _execute(self, command: Command) -> None:
        started, code = _now(), _CANNOT_START
        try:
            async with executing(command, self._log.current.write, self._terms.grace) as process:
                self._become({"running": {"startedAt": started}}, ready=_READY not in self._spec)
                await self._until_ended_or_unwell(process)
            code = process.returncode or 0
        except OSError as error:
            self._log.current.write(f"cannot be started: {error}")
        finally:
            self._log.current.close()
            self._become(exited(code if code >= 0 else 128 - code, started, _now()))

    async def _until_ended_or_unwell(self, process: asyncio.subprocess.Process) -> None:
        unwell = asyncio.Event()
        ends = [asyncio.create_task(process.wait()), asyncio.create_task(unwell.wait())]
        followed = [
            asyncio.create_task(self._probe(_READY, self._is_ready)),
            asyncio.create_task(self._probe(_ALIVE, lambda good: None if good else unwell.set())),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*ends, *followed):
                task.cancel()
            await asyncio.gather(*ends, *followed, return_exceptions=True)

    async def _probe(self, kind: str, report: Callable[[bool], None]) -> None:
        url = self._asked.get(kind)
        if url is not None:
            settings = msgspec.convert(self._spec[kind], ProbeSettings)
            await probe(settings, partial(probe_answers, url, settings.timeout_seconds), report)

    def _is_ready(self, good: bool) -> None:
        self._become(self.state, ready=good)


def _now() -> str:
    return units.rfc3339(time.time())
