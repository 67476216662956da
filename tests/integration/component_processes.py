"""Components as processes of their own, as they run in a cluster, that a test may kill at any moment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from pathlib import Path

ROUNDS = int(os.environ.get("KAI_TEST_ROUNDS", "3"))
"""How often to repeat what kills components; `make test-long` asks for more."""
_NO_PAGES = ("--metrics-bind-address=0", "--health-probe-bind-address=0")
_ADMISSION = ("--gpu-sharing-enabled", "--gpu-fraction-runtime-class-name=", "--webhook-own-host=127.0.0.1")
FLAGS: Mapping[str, tuple[str, ...]] = {
    "scheduler": ("--listen-address=0", "--plugin-server-port=0"),
    "binder": (*_NO_PAGES, "--runtime-class-name="),
    "podgrouper": _NO_PAGES,
    "admission": (*_NO_PAGES, *_ADMISSION, "--webhook-addr=0"),
}


class ComponentProcesses:
    """The components of FLAGS on the cluster of a kubeconfig; their logs go to `directory`.

    A process has the name of its component, or `component/replica` where there are several.
    """

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        self._kubeconfig = kubeconfig
        self._directory = directory
        self._running: dict[str, Process] = {}

    async def start(self, name: str, *more_flags: str) -> None:
        """Start a process."""
        component = name.split("/")[0]
        certificates = [f"--webhook-cert-dir={self._directory}"] if component == "admission" else []
        flags = [*FLAGS[component], *certificates, *more_flags]
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig)}
        with self._log(name).open("ab") as log:
            self._running[name] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pykai", component, *flags),
                env=environment,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def kill(self, name: str) -> None:
        """SIGKILL: no chance to tidy up. A process that has ended by itself is an error."""
        assert await self._end(name), f"{name} ended by itself:\n{self.log(name)[-2000:]}"

    async def close(self) -> None:
        """End all that run, and only then complain of those that have ended by themselves."""
        ended = [name for name in list(self._running) if not await self._end(name)]
        assert not ended, f"{ended[0]} ended by itself:\n{self.log(ended[0])[-2000:]}"

    async def _end(self, name: str) -> bool:
        """Whether the process was still running."""
        process = self._running.pop(name)
        if process.returncode is not None:
            return False
        process.send_signal(signal.SIGKILL)
        await process.wait()
        return True

    def log(self, name: str) -> str:
        """What a process has said in all its lives."""
        return self._log(name).read_text()

    def _log(self, name: str) -> Path:
        return self._directory / f"{name.replace('/', '-')}.log"
