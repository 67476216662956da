"""One measurement: make the file, run cycles on it in a process of its own, read off the figures.

Files are made by the generator beside the project, as a script, and kept under `build/bench` by the checksum of the
generator and what it is made of: a new generator makes new files.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import median

import msgspec

from bench.scenarios import Case

CYCLES = 3
SECONDS = 600
"""After which a run counts as not finished: KAI was given the same."""


class BenchError(Exception):
    """Something that is needed is not there, or failed; the message is for people."""


class OutOfTimeError(Exception):
    """A command reached its limit of time."""


class _Cycle(msgspec.Struct):
    cycle_cpu_ms: float
    bound: int
    evicted: int
    pipelined: int
    left_pending: int


class _Replayed(msgspec.Struct):
    nodes: int
    pods: int
    groups: int
    peak_rss_mb: float
    cycles: list[_Cycle]
    warm: list[_Cycle]


class _Meta(msgspec.Struct):
    running_pods: int
    pending_pods: int


@dataclass(frozen=True)
class Run:
    """What `kai replay` measured on one file. The figures are None or empty where it did not end in time."""

    case: Case
    nodes: int
    pods: int
    groups: int | None
    """None where the run did not end, and nobody counted them."""
    waiting: int
    """Pods that waited for a place in the file."""
    peak_mib: float | None
    cycles_ms: tuple[float, ...]
    """CPU of every cycle."""
    counts: dict[str, int] | None
    warm_cycles_ms: tuple[float, ...] = ()
    """CPU of every cycle with a filled cache."""

    @property
    def cpu_ms(self) -> float | None:
        """The median over the cycles."""
        return median(self.cycles_ms) if self.cycles_ms else None

    @property
    def warm_ms(self) -> float | None:
        """The median over the cycles with a filled cache."""
        return median(self.warm_cycles_ms) if self.warm_cycles_ms else None

    @property
    def least_ms(self) -> float | None:
        return min(self.cycles_ms, default=None)

    @property
    def per_pod_ms(self) -> float | None:
        """CPU per pod that waited."""
        return self.cpu_ms / self.waiting if self.cpu_ms is not None and self.waiting else None


class Files:
    """Snapshot files, made when they are first asked for. `parts`: what the generator reads beside itself."""

    def __init__(self, generator: Path, folder: Path, *parts: Path) -> None:
        for script in (generator, *parts):
            if not script.is_file():
                raise BenchError(
                    f"there is no generator at {script}: the scenarios lie in a folder beside the project; "
                    "name another one with --perf DIR"
                )
        self._generator = generator
        self._folder = folder / _checksum(generator, *parts)

    def of(self, case: Case) -> Path:
        """The file of a case, with its description beside it (`.meta.json`)."""
        pending = [] if case.pending is None else ["--pending", str(case.pending)]
        return self.made(case.key, case.scenario.name, "--nodes", str(case.nodes), *pending)

    def made(self, key: str, *arguments: str) -> Path:
        """The file that is kept under a key, made with these arguments."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{key}.zip"
        if not description(path).is_file():
            self.ask(*arguments, "--out", str(path))
        return path

    def ask(self, *arguments: str) -> str:
        """What the generator prints."""
        return checked([sys.executable, str(self._generator), *arguments]).decode()


def _checksum(*scripts: Path) -> str:
    return sha256(b"".join(script.read_bytes() for script in scripts)).hexdigest()[:12]


def description(path: Path) -> Path:
    """Where the generator describes a file it made; it is written last."""
    return path.with_suffix(".meta.json")


def measure(case: Case, path: Path) -> Run:
    """Run cycles on the file of a case, in a fresh process."""
    meta = msgspec.json.decode(description(path).read_bytes(), type=_Meta)
    command = replay(path, "--warm", "--cycles", str(CYCLES))
    try:
        replayed = msgspec.json.decode(checked(command, SECONDS), type=_Replayed)
    except OutOfTimeError:
        pods = meta.running_pods + meta.pending_pods
        return Run(case, case.nodes, pods, None, meta.pending_pods, None, (), None)
    last = replayed.cycles[-1]
    return Run(
        case=case,
        nodes=replayed.nodes,
        pods=replayed.pods,
        groups=replayed.groups,
        waiting=meta.pending_pods,
        peak_mib=replayed.peak_rss_mb,
        cycles_ms=tuple(cycle.cycle_cpu_ms for cycle in replayed.cycles),
        counts={name: getattr(last, name) for name in ("bound", "evicted", "pipelined", "left_pending")},
        warm_cycles_ms=tuple(cycle.cycle_cpu_ms for cycle in replayed.warm),
    )


def replay(path: Path, *options: str) -> list[str]:
    """The command that runs cycles on a file and prints their figures."""
    return [str(Path(sys.executable).with_name("kai")), "replay", str(path), "--json", *options]


def checked(command: list[str], seconds: float | None = None, cpu_seconds: int | None = None) -> bytes:
    """Standard output of a command; BenchError shows what it said where it failed.

    `seconds` on the wall and `cpu_seconds` of user and system time are limits; OutOfTimeError where one ended it.
    """
    limit = None if cpu_seconds is None else partial(_limit_cpu, cpu_seconds)
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=seconds, preexec_fn=limit).stdout
    except FileNotFoundError as error:
        raise BenchError(f"there is no {command[0]}: `make env` makes it") from error
    except subprocess.TimeoutExpired as error:
        raise OutOfTimeError from error
    except subprocess.CalledProcessError as error:
        if error.returncode == -signal.SIGXCPU:
            raise OutOfTimeError from error
        said = error.stderr.decode(errors="replace").strip()
        raise BenchError(f"`{' '.join(command)}` failed:\n{said}") from error


def _limit_cpu(seconds: int) -> None:
    """In the new process: end it after so many seconds of CPU, without a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
