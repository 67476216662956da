"""Processes we own: identity, whether they run, how they end.

A process id alone identifies no process: the system reuses it later. So a process is remembered together
with the moment it started, and a signal is sent only to a process for which both still agree.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_POLL_SECONDS = 0.02
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for all time: its number and a token of the moment it started."""

    pid: int
    started: str

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return identify(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Signal this very process; nothing happens if it has ended."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


@lru_cache(maxsize=1)
def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; the name before it may hold blanks and brackets."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _started_by_proc(pid: int) -> str | None:
    try:
        fields = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    threads = int(fields[17])
    # While the other threads of a killed process wind up, its first one is already a zombie.
    return None if fields[0] in "ZX" and threads <= 1 else f"{_boot()}/{fields[19]}"


def _started_by_ps(pid: int) -> str | None:
    said = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    state, _, started = said.partition(" ")
    return None if not said or state.startswith("Z") else started.strip()


def identify(pid: int) -> ProcessId | None:
    """The process that has this number now; None if there is none."""
    started = _started_by_proc(pid) if (_PROC / "self" / "stat").exists() else _started_by_ps(pid)
    return None if started is None else ProcessId(pid, started)


def resident_bytes(pid: int) -> int:
    """Memory the process holds; 0 if it has ended or where the system has no such figure."""
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def cpu_seconds(pid: int) -> float:
    """Processor time used so far; 0 if it has ended or where the system has no such figure."""
    try:
        user, system = _stat(pid)[11:13]
    except (OSError, ValueError):
        return 0.0
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def wait_for_end(processes: Iterable[ProcessId], seconds: float) -> list[ProcessId]:
    """Wait until all have ended; those still alive after `seconds`."""
    deadline = time.monotonic() + seconds
    left = [process for process in processes if process.alive()]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        left = [process for process in left if process.alive()]
    return left


def end_all(processes: Iterable[ProcessId], grace_seconds: float) -> None:
    """Ask them to end, and after `grace_seconds` kill them."""
    asked = list(processes)
    for process in asked:
        process.send(signal.SIGTERM)
    stubborn = wait_for_end(asked, grace_seconds)
    for process in stubborn:
        process.send(signal.SIGKILL)
    wait_for_end(stubborn, grace_seconds)
