"""An outcome for people: queues, devices, the timeline, who had to leave and why, who waited and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pykai.model.resources import CPU, GPU
from pykai.observe.tables import FAINT, Column, amount, first, table
from pykai.simulate.history import Outcome, PodLife
from pykai.simulate.summary import headline, many, waited
from pykai.simulate.timeline import EMPTY, MARKS, Workload, axis, cells, clock, workload_title, workloads

COLOURS = ("cyan", "magenta", "green", "blue", "bright_red", "bright_green", "bright_blue", "bright_magenta")
BARS = "▁▂▃▄▅▆▇█"
PAST_USE = "past use"
SPARK_CELLS, BESIDE_SPARK = (8, 32), 70
TIMELINE_CELLS, BESIDE_TIMELINE = (24, 72), 38
"""The fewest and the most cells of a curve, and the columns that stand beside it."""
Row = Sequence[RenderableType]
Columns = list[Column | str]


def tables(outcome: Outcome, rows: int, width: int) -> Iterator[RenderableType]:
    """Everything worth a look for a terminal of so many columns, each table with at most so many rows."""
    yield Text(headline(outcome), style="bold")
    beside = BESIDE_SPARK + (len(PAST_USE) + 3 if outcome.history.samples[-1].past_counts else 0)
    yield queues(outcome, _fitting(width - beside, SPARK_CELLS))
    yield from devices(outcome, rows)
    yield timeline(outcome, rows, _fitting(width - BESIDE_TIMELINE, TIMELINE_CELLS))
    yield from evictions(outcome, rows)
    yield from waits(outcome, rows)


def _fitting(room: int, cells: tuple[int, int]) -> int:
    fewest, most = cells
    return max(fewest, min(most, room))


# ------------------------------------------------------------------------------------------------------------- queues
def queues(outcome: Outcome, width: int) -> Table:
    """Quota, fair share and use of every queue, as a tree; in GPUs, or in CPU cores where there are none."""
    last = outcome.history.samples[-1]
    row = GPU if last.gpus_total else CPU
    unit, scale = ("GPUs", 1.0) if row == GPU else ("CPU cores", 1000.0)
    past = [PAST_USE] if last.past_counts else []
    titles = ("quota", "limit", "weight", *past, "fair share", "in use", "most")
    columns: Columns = ["queue", *(Column(title, right=True) for title in titles), "use over time"]
    ordered = _tree_order(outcome)
    return table(f"Queues ({unit})", columns, [_queue(outcome, queue, (row, scale), width) for queue in ordered])


def _tree_order(outcome: Outcome) -> list[int]:
    children = outcome.queues.children

    def below(queue: int) -> Iterator[int]:
        yield queue
        for child in children[queue]:
            yield from below(child)

    roots = [row for row, parent in enumerate(outcome.queues.parent) if parent < 0]
    return [queue for root in roots for queue in below(root)]


def _queue(outcome: Outcome, queue: int, unit: tuple[int, float], width: int) -> Row:
    """`unit`: the row of the resource, and how many of its units are one of the table's."""
    row, scale = unit
    table_, samples = outcome.queues, outcome.history.samples
    name = table_.names[queue]
    last = samples[-1].queues[name]
    use = [(s.at, s.queues[name].allocated[row] / scale) for s in samples if name in s.queues]
    most = max(value for _, value in use)
    figures = (table_.deserved[row, queue], table_.limit[row, queue])
    indent = "  " * (len(table_.paths[queue]) - 1)
    return [
        Text(indent + table_.titles[queue], style=colour(outcome, name) if not table_.children[queue] else "bold"),
        *(amount(value if value < 0 else value / scale) for value in figures),
        amount(float(table_.weight[row, queue])),
        *([] if last.usage is None else [f"{last.usage[row]:.1%}"]),
        amount(last.fair_share[row] / scale),
        amount(last.allocated[row] / scale),
        amount(most),
        spark(use, (outcome.history.ended_at, max(most, float(figures[0]) / scale)), width),
    ]


def colour(outcome: Outcome, queue: str) -> str:
    """The colour of a queue in every table; parents have none."""
    leaves = [name for row, name in enumerate(outcome.queues.names) if not outcome.queues.children[row]]
    return COLOURS[leaves.index(queue) % len(COLOURS)] if queue in leaves else ""


def spark(points: Sequence[tuple[float, float]], extent: tuple[float, float], width: int) -> str:
    """A step curve in one line: its largest value in every stretch of time; `extent`: where time and value end."""
    end, highest = extent
    found = [0.0] * width
    step = max(end, 1e-9) / width
    for (start, value), (stop, _) in zip(points, [*points[1:], (end, 0.0)], strict=True):
        for cell in range(min(int(start / step), width - 1), min(int(stop / step), width - 1) + 1):
            found[cell] = max(found[cell], value)
    top = len(BARS) - 1
    return "".join(BARS[min(round(value / highest * top), top)] if value and highest else " " for value in found)


# ------------------------------------------------------------------------------------------------------------ devices
def devices(outcome: Outcome, rows: int) -> Iterator[Table]:
    """Who has which GPU at the end."""
    every = [(name, number, d) for name, listed in outcome.devices.items() for number, d in enumerate(listed)]
    used: list[Row] = [
        [name, str(number), Text(", ").join(_holder(outcome, life, part) for life, part in d)]
        for name, number, d in every
        if d
    ]
    if used:
        columns: Columns = ["node", Column("GPU", right=True), Column("pods", wide=True)]
        yield table(f"GPUs at the end: {len(used)} of {len(every)} in use", columns, first(used, rows))


def _holder(outcome: Outcome, life: PodLife, portion: float) -> Text:
    part = "" if portion == 1 else f" {portion:.0%}"
    return Text().append(life.title, style=colour(outcome, life.queue)).append(part)


# ----------------------------------------------------------------------------------------------------------- timeline
def timeline(outcome: Outcome, rows: int, width: int) -> Group:
    """One bar per workload."""
    end = outcome.history.ended_at
    every = workloads(outcome.history)
    body: list[Row] = [
        [Text(w.title, style=colour(outcome, w.queue)), _size(w), _bar(outcome, w, width)] for w in every
    ]
    shown = first(body, rows)
    shown.append(["", "", Text(axis(end, width), style=FAINT)])
    legend = Text("  ").join(
        Text(f"{mark.character} ", style=mark.style).append(mark.state, style="default") for mark in reversed(MARKS)
    )
    return Group(table("Timeline", ["workload", "asks for", "time since the start"], shown), legend)


def _size(workload: Workload) -> str:
    """Pods at a time, and what each wants of GPUs."""
    pods = workload.pods
    together = max(sum(p.arrived_at <= q.arrived_at < (p.evicted_at or p.ended_at or 1e18) for p in pods) for q in pods)
    each = pods[0].asks_for
    return f"{together} x {each or 'pod'}" if together > 1 else each


def _bar(outcome: Outcome, workload: Workload, width: int) -> Text:
    text = Text()
    own = colour(outcome, workload.queue)
    for mark in cells(workload.pods, outcome.history.ended_at, width):
        text.append(mark.character if mark else EMPTY, style=(mark.style or own) if mark else "")
    return text


# ------------------------------------------------------------------------------------------------- evictions and waits
def evictions(outcome: Outcome, rows: int) -> Iterator[Table]:
    """Who had to leave, for whom, and why; pods that left for the same reason together."""
    together: dict[tuple[float, str, str, str], list[PodLife]] = {}
    for life in outcome.history.lives:
        if life.evicted_at is not None:
            why = life.reason.replace(f"Pod {life.title} ", "")
            together.setdefault((life.evicted_at, life.evicted_by, life.evicted_for, why), []).append(life)
    titles = {f"{life.namespace}/{life.group}": life for life in outcome.history.lives}
    body: list[Row] = []
    for (at, action, group, why), lives in sorted(together.items(), key=lambda item: item[0]):
        who = Text(", ").join(_left(outcome, life) for life in lives)
        if group in titles:
            who.append(" for ").append(_workload(outcome, titles[group]))
        body.append([clock(at), action, who.append(f"\n{why}")])
    columns: Columns = [Column("at", right=True), "action", Column("who left for whom, and why", wide=True)]
    if body:
        yield table(f"Evicted: {many(sum(map(len, together.values())), 'pod')}", columns, first(body, rows))


def _left(outcome: Outcome, life: PodLife) -> Text:
    moved = f" (moves to {life.moves_to})" if life.moves_to else ""
    return Text().append(life.title, style=colour(outcome, life.queue)).append(moved)


def _workload(outcome: Outcome, life: PodLife) -> Text:
    return Text(workload_title(life), style=colour(outcome, life.queue))


def waits(outcome: Outcome, rows: int) -> Iterator[Table]:
    """Who waits or has waited, and why; those who still do first, then the longest."""
    end = outcome.history.ended_at
    found = [(workload, pods) for workload in workloads(outcome.history) for pods in _waiting(workload)]
    found.sort(key=lambda pair: (pair[1][0].scheduled_at is not None, -waited(pair[1][0], end), pair[0].title))
    if not found:
        return
    times = sorted(waited(life, end) for life in outcome.history.lives)
    who = many(len(found), "workload")
    title = f"Waited: {who}; half of all pods waited at most {clock(median(times))}, none more than "
    columns: Columns = [
        "workload",
        Column("pods", right=True),
        Column("from", right=True),
        "to",
        Column("why", wide=True),
    ]
    body = [_wait(outcome, workload, pods) for workload, pods in found]
    yield table(title + clock(times[-1]), columns, first(body, rows))


def _waiting(workload: Workload) -> Iterator[list[PodLife]]:
    """The workload's pods that had to wait, by when and why."""
    by_story: dict[tuple[float, float | None, str], list[PodLife]] = {}
    for life in workload.pods:
        why = life.reason if life.state == "Waiting" else life.waited_for
        if why:
            by_story.setdefault((life.arrived_at, life.scheduled_at, why), []).append(life)
    yield from by_story.values()


def _wait(outcome: Outcome, workload: Workload, pods: list[PodLife]) -> Row:
    life = pods[0]
    until = Text("waits", style="yellow") if life.scheduled_at is None else Text(clock(life.scheduled_at))
    title = Text(workload.title, style=colour(outcome, workload.queue))
    return [
        title,
        str(len(pods)),
        clock(life.arrived_at),
        until,
        life.reason if life.state == "Waiting" else life.waited_for,
    ]
