"""A process in the place of a container: started, its output logged, ended within its grace.

Invariant: no process outlives this one. It is ended when its context is left, and on Linux by the kernel when this
process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
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
    process = await asyncio.create_subprocess_exec(
        *command.words,
        env=command.environment,
        cwd=command.directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=_LONGEST_LINE,
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )
    assert process.stdout is not None
    logging = asyncio.create_task(_log(process.stdout, say))
    try:
        yield process
    finally:
        await _end(process, grace())
        await logging


async def _log(output: asyncio.StreamReader, say: Callable[[str], None]) -> None:
    async for line in output:
        say(line.decode(errors="replace").rstrip("\n"))


async def _end(process: asyncio.subprocess.Process, grace: float) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), grace)
        except TimeoutError:
            process.kill()
            await process.wait()
