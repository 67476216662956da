"""Settings of hollow kubelets: durations, container logs for `kubectl logs`, and interfaces for pods that run programs
or real containers.

Durations are fixed (`30s`), or ranges from which the seed draws one (`30s-5m`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from pykai.hollow.hollow_node import HollowDevice
from pykai.kube.api import Object
from pykai.objects import units


@dataclass(frozen=True)
class Span:
    """From `low` to `high` seconds, both included."""

    low: float
    high: float

    def draw(self, seed: str) -> float:
        """Return the fixed duration, or one in the range that depends only on the seed, in whole milliseconds."""
        if self.low == self.high:
            return self.low
        return round(random.Random(seed).uniform(self.low, self.high), 3)


FOREVER = "forever"
NEVER = float("inf")


def duration_span(text: str) -> Span:
    """Parse a duration such as 90s, or a range of them; ValueError names the problem."""
    return _span(text, units.parse_duration)


def seconds_span(text: str) -> Span:
    """Parse a number of seconds, or a range of them, or FOREVER; ValueError names the problem."""
    return Span(NEVER, NEVER) if text == FOREVER else _span(text, _span_number)


def span_number(number: float) -> str:
    """Format a number of seconds for annotations."""
    return FOREVER if number == NEVER else str(number)


def _span_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        expected = f"expected 60, a range such as 60-300, or {FOREVER}"
        raise ValueError(f"{text!r} is not a number of seconds ({expected})") from None


def _span(text: str, one: Callable[[str], float]) -> Span:
    low_text, dash, high_text = text.strip().partition("-") if not text.startswith("-") else (text, "", "")
    low = one(low_text.strip())
    high = one(high_text.strip()) if dash else low
    if not 0 <= low <= high < NEVER:
        raise ValueError(f"{text!r} must not be negative, and a range must not end before it begins")
    return Span(low, high)


_KEPT_LINES = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """One log line with its time (seconds since the epoch) and number."""

    at: float
    text: str
    number: int

    def render(self, *, timestamps: bool) -> str:
        """Return the line as `kubectl logs` prints it."""
        stamp = datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ") if timestamps else ""
        return f"{stamp}{self.text}\n"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of `kubectl logs`: the last `tail` lines (None: all), since `since` (seconds since the epoch),
    `follow`."""

    tail: int | None = None
    since: float = 0.0
    follow: bool = False
    timestamps: bool = False


@dataclass(slots=True)
class PodLog:
    """The newest lines of one run of a container."""

    _lines: deque[Line] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    _count: int = 0
    _closed: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, text: str) -> None:
        """Add a line (or several, if the text has line breaks)."""
        for part in text.splitlines() or [""]:
            self._lines.append(Line(time.time(), part, self._count))
            self._count += 1
        self._wake()

    def close(self) -> None:
        """Mark the log complete: followers end."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def chosen(self, options: LogOptions) -> list[Line]:
        """Return the present lines that match the options."""
        lines = [line for line in self._lines if line.at >= options.since]
        return lines if options.tail is None else lines[max(0, len(lines) - options.tail) :]

    async def read(self, options: LogOptions) -> AsyncIterator[str]:
        """Yield the matching lines as text; with `follow` it ends when the log is closed."""
        lines = self.chosen(options)
        seen = self._count
        while True:
            for line in lines:
                yield line.render(timestamps=options.timestamps)
            if not options.follow or (self._closed and seen == self._count):
                return
            if seen == self._count:
                await self._changed.wait()
            lines = [line for line in self._lines if line.number >= seen]
            seen = self._count


@dataclass(slots=True)
class ContainerLog:
    """The log of the current run of a container and, after a restart, of the previous run.

    All containers of a simulated pod share one.
    """

    current: PodLog = field(default_factory=PodLog)
    previous: PodLog | None = None

    def begin(self) -> None:
        """Start the log of another run."""
        self.current, self.previous = PodLog(), self.current


Log = Callable[[str], None]
Program = Coroutine[Any, Any, None]
OnStart = Callable[[Object, str, tuple[HollowDevice, ...], Log], Program | None]


def nothing_runs(pod: Object, node: str, devices: tuple[HollowDevice, ...], log: Log) -> Program | None:
    """Return None: no pod runs a program."""
    return None


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """Times in seconds, and `on_start`; `stop_seconds` is for pods that run no program: a program ends when it ends.

    `on_start(pod, node, devices, log)` is called when a pod starts and at each restart. It returns the program that the
    pod's containers run, or None for a simulated pod. The program is a coroutine that sees the devices its kubelet
    assigned (see `FakeNvml`) and whose `log` lines `kubectl logs` shows. Its return is exit code 0, an exception is
    exit code 1, and it is cancelled when the pod is deleted.
    """

    start_seconds: float = 0.0
    stop_seconds: float = 1.0
    job_seconds: float = 10.0
    restart_seconds: float = 1.0
    on_start: OnStart = nothing_runs


@dataclass(frozen=True, slots=True)
class RuntimePod:
    """A pod as a runtime gets it: its current object, its container logs by name, and a function that patches its
    status."""

    latest: Callable[[], Object]
    logs: Mapping[str, ContainerLog]
    report: Callable[[Object], Awaitable[None]]


class Runtime(Protocol):
    """Runs the containers of some pods in real containers."""

    def takes(self, pod: Object) -> bool:
        """Whether the runtime runs this pod; other pods are simulated."""
        ...

    async def run(self, handle: RuntimePod) -> None:
        """Run the pod until it ends; when cancelled, stop its containers within the grace period of its deletion."""
        ...
