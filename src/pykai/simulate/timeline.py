"""The timeline of a run, one row per workload and one cell per interval, and the summary of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pykai.observe.wording import many
from pykai.simulate.history import History, PodLife, SimulationResult


@dataclass(frozen=True)
class Mark:
    """The mark of a state; in a cell with several states, the first in MARKS wins."""

    state: str
    character: str
    style: str


MARKS = (
    Mark("leaving", "▒", "red"),
    Mark("running", "█", ""),
    Mark("starting", "▓", ""),
    Mark("waiting", "░", "yellow"),
)
EMPTY = " "
AXIS_PARTS = 4


@dataclass
class WorkloadRow:
    """The pods of one Job in order of arrival, or a pod without owner."""

    namespace: str
    name: str
    queue: str
    pods: list[PodLife] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


def workload_title(life: PodLife) -> str:
    """Return namespace and name of a pod's workload."""
    return f"{life.namespace}/{life.job or life.name}"


def workloads(history: History) -> list[WorkloadRow]:
    """Return every workload, in order of arrival."""
    found: dict[tuple[str, str], WorkloadRow] = {}
    for life in history.lives:
        name = life.job or life.name
        workload = found.setdefault((life.namespace, name), WorkloadRow(life.namespace, name, life.queue))
        workload.pods.append(life)
    return list(found.values())


def phases(life: PodLife, end: float) -> Iterator[tuple[str, float, float]]:
    """Yield the states of a pod as (state, from, to) in order; `end` is the end of the run."""
    instants = [
        ("waiting", life.arrived_at),
        ("starting", life.scheduled_at),
        ("running", life.started_at),
        ("leaving", life.evicted_at),
        ("", life.ended_at),
    ]
    reached = [(state, at) for state, at in instants if at is not None]
    for (state, start), (_, stop) in zip(reached, [*reached[1:], ("", end)], strict=True):
        if state and stop > start:
            yield state, start, stop


def cells(pods: Sequence[PodLife], end: float, width: int) -> list[Mark | None]:
    """Return one mark per cell; None where no pod existed."""
    step = max(end, 1e-9) / width
    found: list[set[str]] = [set() for _ in range(width)]
    for life in pods:
        for state, start, stop in phases(life, end):
            first, last = int(start / step), int((stop - 1e-9) / step)
            for cell in range(first, min(last, width - 1) + 1):
                found[cell].add(state)
    return [next((mark for mark in MARKS if mark.state in states), None) for states in found]


def axis(end: float, width: int) -> str:
    """Return the time labels below the cells, each aligned with its cell."""
    line, shown = [" "] * (width + 8), ""
    for number in range(AXIS_PARTS + 1):
        at = round(number * (width - 1) / AXIS_PARTS)
        text = clock(end * number / AXIS_PARTS)
        if text != shown:
            line[at : at + len(text)] = text
            shown = text
    return "".join(line).rstrip()


def clock(seconds: float) -> str:
    """Format a time of the run: 0:00, 1:23, 2:05:00."""
    whole = int(seconds)
    minutes, left = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def headline(outcome: SimulationResult) -> str:
    """Return the summary of the run in one sentence."""
    history = outcome.history
    return (
        f"{many(len(outcome.devices), 'node')} with {many(history.samples[-1].gpus_total, 'GPU')}, "
        f"{many(len(outcome.queues), 'queue')}, {many(len(history.lives), 'pod')}: "
        f"{clock(history.ended_at)} simulated in {many(history.cycles, 'scheduling cycle')}"
    )


def waited(life: PodLife, end: float) -> float:
    """Return the seconds until a pod was scheduled, or until `end` if it was not."""
    return (end if life.scheduled_at is None else life.scheduled_at) - life.arrived_at
