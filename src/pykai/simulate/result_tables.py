"""Tables of an outcome for terminals: queues, devices, timeline, evictions and pending workloads with their reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pykai.model.resources import CPU, GPU
from pykai.observe.tables import FAINT, Column, amount, first, table
from pykai.observe.wording import eviction_reason, many, without_figures
from pykai.simulate.history import PodLife, SimulationResult
from pykai.simulate.timeline import (
    EMPTY,
    MARKS,
    WorkloadRow,
    axis,
    cells,
    clock,
    headline,
    waited,
    workload_title,
    workloads,
)

COLOURS = ("cyan", "magenta", "green", "blue", "bright_red", "bright_green", "bright_blue", "bright_magenta")
BARS = "▁▂▃▄▅▆▇█"
PAST_USE = "past use"
SPARK_CELLS = (8, 32)
TIMELINE_CELLS = (16, 72)
"""The minimum and the maximum width of a curve, in cells."""
GAP, AXIS_END = 3, 4
"""Width of the gap between table columns, and the overhang of the last label of the time axis."""
Row = Sequence[RenderableType]
Columns = list[Column | str]


def tables(outcome: SimulationResult, rows: int, width: int) -> Iterator[RenderableType]:
    """Yield all tables for a terminal of `width` columns, each with at most `rows` rows."""
    yield Text(headline(outcome), style="bold")
    yield queues(outcome, width)
    yield from devices(outcome, rows)
    yield timeline(outcome, rows, width)
    yield from evictions(outcome, rows)
    yield from waits(outcome, rows)


def _fitting(room: int, cells: tuple[int, int]) -> int:
    fewest, most = cells
    return max(fewest, min(most, room))


# ------------------------------------------------------------------------------------------------------------- queues
def queues(outcome: SimulationResult, width: int) -> Table:
    """Return quota, fair share and allocation of every queue as a tree; in GPUs, or in cores without GPUs.

    The curve is omitted if the terminal is too narrow.
    """
    last = outcome.history.samples[-1]
    row = GPU if last.gpus_total else CPU
    unit, scale = ("GPUs", 1.0) if row == GPU else ("CPU cores", 1000.0)
    past = [PAST_USE] if last.past_counts else []
    titles = ("quota", "limit", "weight", *past, "fair share", "in use", "most")
    columns: Columns = ["queue", *(Column(title, right=True) for title in titles)]
    ordered = _tree_order(outcome)
    room = width - _width_of_names(outcome) - sum(max(len(title), 6) + GAP for title in titles) - GAP
    cells = min(room, SPARK_CELLS[1])
    if cells < SPARK_CELLS[0]:
        body = [_queue(outcome, queue, (row, scale), 1)[:-1] for queue in ordered]
        return table(f"Queues ({unit})", columns, body)
    body = [_queue(outcome, queue, (row, scale), cells) for queue in ordered]
    return table(f"Queues ({unit})", [*columns, Column("use over time", drawn=True)], body)


def _width_of_names(outcome: SimulationResult) -> int:
    """Return the width of the longest queue name, including its indentation."""
    found = outcome.queues
    return max(
        (2 * len(path) - 2 + len(title) for path, title in zip(found.paths, found.titles, strict=True)), default=5
    )


def _tree_order(outcome: SimulationResult) -> list[int]:
    children = outcome.queues.children

    def below(queue: int) -> Iterator[int]:
        yield queue
        for child in children[queue]:
            yield from below(child)

    roots = [row for row, parent in enumerate(outcome.queues.parent) if parent < 0]
    return [queue for root in roots for queue in below(root)]


def _queue(outcome: SimulationResult, queue: int, unit: tuple[int, float], width: int) -> Row:
    """Return one row. `unit`: the row of the resource, and its amount that the table shows as one."""
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


def colour(outcome: SimulationResult, queue: str) -> str:
    """Return the colour of a queue in every table; parents have none."""
    return COLOURS[outcome.leaves.index(queue) % len(COLOURS)] if queue in outcome.leaves else ""


def spark(points: Sequence[tuple[float, float]], extent: tuple[float, float], width: int) -> str:
    """Return a step curve in one line: the maximum per interval; `extent`: the largest time and value."""
    end, highest = extent
    found = [0.0] * width
    step = max(end, 1e-9) / width
    for (start, value), (stop, _) in zip(points, [*points[1:], (end, 0.0)], strict=True):
        for cell in range(min(int(start / step), width - 1), min(int(stop / step), width - 1) + 1):
            found[cell] = max(found[cell], value)
    top = len(BARS) - 1
    return "".join(BARS[min(round(value / highest * top), top)] if value and highest else " " for value in found)


# ------------------------------------------------------------------------------------------------------------ devices
def devices(outcome: SimulationResult, rows: int) -> Iterator[Table]:
    """Yield the allocation of GPUs to pods at the end."""
    every = [(name, number, d) for name, listed in outcome.devices.items() for number, d in enumerate(listed)]
    used: list[Row] = [
        [name, str(number), Text(", ").join(_holder(outcome, life, part) for life, part in d)]
        for name, number, d in every
        if d
    ]
    if used:
        columns: Columns = ["node", Column("GPU", right=True), "pods"]
        yield table(f"GPUs at the end: {len(used)} of {len(every)} in use", columns, first(used, rows))


def _holder(outcome: SimulationResult, life: PodLife, portion: float) -> Text:
    part = "" if portion == 1 else f" {portion:.0%}"
    return Text().append(life.title, style=colour(outcome, life.queue)).append(part)


# ----------------------------------------------------------------------------------------------------------- timeline
def timeline(outcome: SimulationResult, rows: int, width: int) -> Group:
    """Return one bar per workload, in a table of `width` columns."""
    end = outcome.history.ended_at
    every = workloads(outcome.history)
    sizes = [_size(workload) for workload in every[:rows]]
    names = max((len(workload.title) for workload in every[:rows]), default=0)
    beside = max(names, len("workload")) + max((len(size) for size in sizes), default=0) + 2 * GAP
    cells_ = _fitting(width - max(beside, len("requests")) - AXIS_END, TIMELINE_CELLS)
    body: list[Row] = [
        [Text(w.title, style=colour(outcome, w.queue)), size, _bar(outcome, w, cells_)]
        for w, size in zip(every[:rows], sizes, strict=True)
    ]
    if len(every) > rows:
        body.append([Text(f"... {len(every) - rows} more", style=FAINT), "", ""])
    shown: list[Row] = [*body, ["", "", Text(axis(end, cells_), style=FAINT)]]
    legend = Text("  ").join(
        Text(f"{mark.character} ", style=mark.style).append(mark.state, style="default") for mark in reversed(MARKS)
    )
    columns: Columns = ["workload", "requests", Column("time since the start", drawn=True)]
    return Group(table("Timeline", columns, shown), legend)


def _size(workload: WorkloadRow) -> str:
    """Return the pods of a workload at one time, and the GPU request of each."""
    pods = workload.pods
    together = max(sum(p.arrived_at <= q.arrived_at < (p.evicted_at or p.ended_at or 1e18) for p in pods) for q in pods)
    each = pods[0].requests
    return f"{together} x {each or 'pod'}" if together > 1 else each


def _bar(outcome: SimulationResult, workload: WorkloadRow, width: int) -> Text:
    text = Text()
    own = colour(outcome, workload.queue)
    for mark in cells(workload.pods, outcome.history.ended_at, width):
        text.append(mark.character if mark else EMPTY, style=(mark.style or own) if mark else "")
    return text


# ------------------------------------------------------------------------------------------------- evictions and waits
def evictions(outcome: SimulationResult, rows: int) -> Iterator[Table]:
    """Return evicted pods, the workloads that they were evicted for, and the reasons; equal reasons are grouped."""
    together: dict[tuple[float, str, str, str], list[PodLife]] = {}
    for life in outcome.history.lives:
        if life.evicted_at is not None:
            why = eviction_reason(life.reason, life.title)
            together.setdefault((life.evicted_at, life.evicted_by, life.evicted_for, why), []).append(life)
    titles = {f"{life.namespace}/{life.group}": life for life in outcome.history.lives}
    body: list[Row] = []
    for (at, action, group, why), lives in sorted(together.items(), key=lambda item: item[0]):
        who = Text(", ").join(_left(outcome, life) for life in lives)
        if group in titles:
            who.append(" for ").append(_workload(outcome, titles[group]))
        body.append([clock(at), action, who.append(f"\n{why}")])
    columns: Columns = [Column("at", right=True), "action", "evicted for, and why"]
    if body:
        yield table(f"Evicted: {many(sum(map(len, together.values())), 'pod')}", columns, first(body, rows))


def _left(outcome: SimulationResult, life: PodLife) -> Text:
    moved = f" (moves to {life.moves_to})" if life.moves_to else ""
    return Text().append(life.title, style=colour(outcome, life.queue)).append(moved)


def _workload(outcome: SimulationResult, life: PodLife) -> Text:
    return Text(workload_title(life), style=colour(outcome, life.queue))


def waits(outcome: SimulationResult, rows: int) -> Iterator[Table]:
    """Return pending workloads and the reason that lasted longest; equal reasons are grouped.

    Workloads that are still pending come first, then those that waited longest.
    """
    end = outcome.history.ended_at
    found = [(workload, pods) for workload in workloads(outcome.history) for pods in _waiting(workload)]
    found.sort(key=lambda pair: (pair[1][0].scheduled_at is not None, -waited(pair[1][0], end), pair[0].title))
    if not found:
        return
    times = sorted(waited(life, end) for life in outcome.history.lives)
    title = (
        f"Waited: {many(len({workload.title for workload, _ in found}), 'workload')}; half of all pods waited at most "
    )
    title += f"{clock(median(times))}, none more than {clock(times[-1])}"
    columns: Columns = [
        "workload",
        Column("pods", right=True),
        Column("from", right=True),
        "to",
        "why",
    ]
    alike: dict[tuple[bool, str], list[tuple[WorkloadRow, list[PodLife]]]] = {}
    for workload, pods in found:
        alike.setdefault((pods[0].scheduled_at is None, without_figures(pods[0].waited_for)), []).append(
            (workload, pods)
        )
    yield table(title, columns, first([_wait(outcome, group) for group in alike.values()], rows))


def _waiting(workload: WorkloadRow) -> Iterator[list[PodLife]]:
    """Yield the workload's pods that had to wait, with time and reason."""
    by_story: dict[tuple[float, float | None, str], list[PodLife]] = {}
    for life in workload.pods:
        if life.waited_for and (life.scheduled_at is None or life.scheduled_at > life.arrived_at):
            by_story.setdefault((life.arrived_at, life.scheduled_at, life.waited_for), []).append(life)
    yield from by_story.values()


def _wait(outcome: SimulationResult, group: list[tuple[WorkloadRow, list[PodLife]]]) -> Row:
    """Return the row of one reason: the workload that waited longest, and the number of others."""
    workload, pods = group[0]
    lives = [life for _, found in group for life in found]
    still = pods[0].scheduled_at is None
    until = Text("waits", style="yellow") if still else Text(clock(max(life.scheduled_at or 0.0 for life in lives)))
    title = Text(workload.title, style=colour(outcome, workload.queue))
    others = len({other.title for other, _ in group}) - 1
    if others:
        title.append(f"\nand {many(others, 'other')}", style=FAINT)
    return [title, str(len(lives)), clock(min(life.arrived_at for life in lives)), until, pods[0].waited_for]
