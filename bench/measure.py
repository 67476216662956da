"""One measurement: make the file, run cycles on it in a process of its own, read off the figures.

Files are made by the generator beside the project, as a script, and kept under `build/bench` by the generator's own
checksum: a new generator makes new files.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
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
    """Snapshot files by case, made when they are first asked for."""

    def __init__(self, generator: Path, folder: Path) -> None:
        if not generator.is_file():
            raise BenchError(
                f"there is no generator at {generator}: the scenarios lie in a folder beside the project; "
                "name another one with --perf DIR"
            )
        self._generator = generator
        self._folder = folder / sha256(generator.read_bytes()).hexdigest()[:12]

    def of(self, case: Case) -> Path:
        """The file of a case, with its description beside it (`.meta.json`)."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{case.key}.zip"
        if not description(path).is_file():
            pending = [] if case.pending is None else ["--pending", str(case.pending)]
            arguments = [case.scenario.name, "--nodes", str(case.nodes), *pending, "--out", str(path)]
            _checked([sys.executable, str(self._generator), *arguments])
        return path


def description(path: Path) -> Path:
    """Where the generator describes a file it made; it is written last."""
    return path.with_suffix(".meta.json")


def measure(case: Case, path: Path) -> Run:
    """Run cycles on the file of a case, in a fresh process."""
    meta = msgspec.json.decode(description(path).read_bytes(), type=_Meta)
    command = [str(Path(sys.executable).with_name("kai")), "replay", str(path), "--json", "--warm"]
    command += ["--cycles", str(CYCLES)]
    try:
        replayed = msgspec.json.decode(_checked(command, SECONDS), type=_Replayed)
    except subprocess.TimeoutExpired:
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


def _checked(command: list[str], seconds: float | None = None) -> bytes:
    """Standard output of a command; BenchError shows what it said where it failed."""
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=seconds).stdout
    except FileNotFoundError as error:
        raise BenchError(f"there is no {command[0]}: `make env` makes it") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise BenchError(f"`{' '.join(command)}` failed:\n{said}") from error
