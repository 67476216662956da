"""Identity, liveness and termination of processes that a local cluster owns.

The system reuses process ids, so a process is identified by its id and start time, and a signal is sent only if both
match.
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
    """The unique identity of a process: its pid and a token of its start time."""

    pid: int
    started: str

    def alive(self) -> bool:
        """Whether this process still runs; a zombie does not."""
        return identify(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process unless it has ended."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


@lru_cache(maxsize=1)
def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; the command before it may contain spaces and brackets."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _start_time_from_proc(pid: int) -> str | None:
    try:
        fields = _stat_fields(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    threads = int(fields[17])
    # The main thread of a killed process is a zombie while other threads still exit.
    return None if fields[0] in "ZX" and threads <= 1 else f"{_boot_id()}/{fields[19]}"


def _start_time_from_ps(pid: int) -> str | None:
    output = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.strip()
    state, _, started = output.partition(" ")
    return None if not output or state.startswith("Z") else started.strip()


def identify(pid: int) -> ProcessId | None:
    """Return the identity of the process that has this pid now; None if there is none."""
    started = _start_time_from_proc(pid) if (_PROC / "self" / "stat").exists() else _start_time_from_ps(pid)
    return None if started is None else ProcessId(pid, started)


def resident_bytes(pid: int) -> int:
    """Return the resident set size of a process; 0 if it has ended, or without /proc."""
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process; 0 if it has ended, or without /proc."""
    try:
        user, system = _stat_fields(pid)[11:13]
    except (OSError, ValueError):
        return 0.0
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def wait_for_end(processes: Iterable[ProcessId], seconds: float) -> list[ProcessId]:
    """Wait until all processes have ended; return those still alive after `seconds`."""
    deadline = time.monotonic() + seconds
    remaining = [process for process in processes if process.alive()]
    while remaining and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        remaining = [process for process in remaining if process.alive()]
    return remaining


def end_all(processes: Iterable[ProcessId], grace_seconds: float) -> None:
    """Terminate processes, and kill those still alive after `grace_seconds`."""
    targets = list(processes)
    for process in targets:
        process.send(signal.SIGTERM)
    remaining = wait_for_end(targets, grace_seconds)
    for process in remaining:
        process.send(signal.SIGKILL)
    wait_for_end(remaining, grace_seconds)
