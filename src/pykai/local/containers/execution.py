"""A process in the place of a container: started, its output logged, ended within its grace.

Invariant: no process outlives this one. It is ended when its context is left, and on Linux by the kernel when this
process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

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
    """Say every line that comes out of a pipe, until nobody holds its other end."""
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
