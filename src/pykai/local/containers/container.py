"""One container of a pod: prepared, started, probed, restarted, until its pod has had enough of it.

`state`, `last`, `restarts` and `ready` are what its status says; `Terms.changed` is called whenever they change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from pykai.hollow.pod_log import ContainerLog
from pykai.hollow.pod_status import container_status, exited
from pykai.kube.errors import ApiError
from pykai.local.containers import probes
from pykai.local.containers.execution import Command, executing
from pykai.local.containers.sources import NotYetError
from pykai.objects import units

Object = dict[str, Any]
Prepare = Callable[[Object], Awaitable[Command]]
_PROBES = _READY, _ALIVE = "readinessProbe", "livenessProbe"
_LONGEST_BACKOFF = 64
_CANNOT_START = 128
_LOOK_AGAIN_SECONDS = 0.5


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
            await asyncio.sleep(self._terms.restart_seconds * min(2 ** (self.restarts - 1), _LONGEST_BACKOFF))
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
        return {kind: probes.address_of(self._spec[kind], self._spec, self._terms.host) for kind in kinds}

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

    async def _probe(self, kind: str, tell: Callable[[bool], None]) -> None:
        url = self._asked.get(kind)
        if url is not None:
            rhythm = msgspec.convert(self._spec[kind], probes.Rhythm)
            await probes.follow(rhythm, partial(probes.answers, url, rhythm.timeout_seconds), tell)

    def _is_ready(self, good: bool) -> None:
        self._become(self.state, ready=good)


def _now() -> str:
    return units.rfc3339(time.time())
