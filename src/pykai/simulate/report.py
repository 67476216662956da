"""HTML report of a run: plots as images, and a page with the plots and their figures.

Images are deterministic: the same outcome gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib
from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter

from pykai.kernels.fairshare import NOTHING
from pykai.model.resources import CPU, GPU
from pykai.simulate.history import PodLife, SimulationResult
from pykai.simulate.timeline import clock, headline, waited, workload_title

matplotlib.use("Agg")

PALETTE = ("#0891b2", "#c026d3", "#16a34a", "#2563eb", "#ea580c", "#ca8a04", "#dc2626", "#7c3aed")
INK, FAINT, WAITING = "#1f2937", "#9ca3af", "#d97706"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
Axes = Any


def draw(outcome: SimulationResult, folder: Path) -> list[tuple[str, str]]:
    """Draw all plots into a folder; returns (file name, title) of each."""
    plots = (
        ("queues.png", "Use of every queue against its fair share", _queue_plot),
        ("gpus.png", "GPUs in use, and pods that wait", _occupancy_plot),
        ("waits.png", "How long pods waited", _waits_plot),
    )
    with matplotlib.rc_context(STYLE):
        for name, _, plot in plots:
            figure = plot(outcome)
            figure.savefig(folder / name, dpi=120, metadata={"Software": None})
            pyplot.close(figure)
    return [(name, title) for name, title, _ in plots]


def _resource(outcome: SimulationResult) -> tuple[int, float, str]:
    has_gpus = outcome.history.samples[-1].gpus_total > 0
    return (GPU, 1.0, "GPUs") if has_gpus else (CPU, 1000.0, "CPU cores")


def _times(outcome: SimulationResult) -> list[float]:
    return [sample.at for sample in outcome.history.samples]


def _series(outcome: SimulationResult, queue: str, row: int, scale: float) -> tuple[list[float], list[float]]:
    """Return (allocation, fair share) at every sample; 0 before the queue existed."""
    found = [sample.queues.get(queue) for sample in outcome.history.samples]
    use = [q.allocated[row] / scale if q else 0.0 for q in found]
    fair = [q.fair_share[row] / scale if q else 0.0 for q in found]
    return use, fair


def _past_usage(outcome: SimulationResult, queue: str, row: int, scale: float) -> list[float]:
    """Return the average allocation in the usage window at every sample; empty if past usage does not count."""
    samples = outcome.history.samples
    if not samples[-1].past_counts:
        return []
    found = [(sample.queues.get(queue), sample.capacity[row] / scale) for sample in samples]
    return [(q.usage or NOTHING)[row] * whole if q else 0.0 for q, whole in found]


def _queue_plot(outcome: SimulationResult) -> Any:
    names = outcome.leaves
    row, scale, unit = _resource(outcome)
    count = max(len(names), 1)
    figure, grid = pyplot.subplots(count, 1, figsize=(9, 0.6 + 1.7 * count), sharex=True, squeeze=False)
    times = _times(outcome)
    for number, (axes, name) in enumerate(zip(grid[:, 0], names, strict=False)):
        use, fair = _series(outcome, name, row, scale)
        colour = PALETTE[number % len(PALETTE)]
        axes.fill_between(times, use, step="post", color=colour, alpha=0.35, linewidth=0, label="in use")
        axes.step(times, fair, where="post", color=INK, linewidth=1.2, label="fair share")
        past = _past_usage(outcome, name, row, scale)
        if past:
            axes.step(times, past, where="post", color=colour, linewidth=1.2, label="past use")
        quota = float(outcome.queues.deserved[row, outcome.queues.rows[name]])
        if quota >= 0:
            axes.axhline(quota / scale, color=FAINT, linewidth=0.9, linestyle="--", label="quota")
        axes.set_title(name)
        axes.set_ylabel(unit)
        axes.set_ylim(bottom=0)
    grid[0, 0].legend(loc="upper right", ncols=4, bbox_to_anchor=(1, 1.3))
    _time_axis(grid[-1, 0], outcome)
    return figure


def _occupancy_plot(outcome: SimulationResult) -> Any:
    row, scale, unit = _resource(outcome)
    times, names = _times(outcome), outcome.leaves
    figure, (top, bottom) = pyplot.subplots(2, 1, figsize=(9, 4.6), sharex=True, height_ratios=(3, 1))
    stacked = [_series(outcome, name, row, scale)[0] for name in names]
    floor = [0.0] * len(times)
    for number, (name, use) in enumerate(zip(names, stacked, strict=True)):
        ceiling = [a + b for a, b in zip(floor, use, strict=True)]
        top.fill_between(
            times, floor, ceiling, step="post", color=PALETTE[number % len(PALETTE)], alpha=0.6, linewidth=0, label=name
        )
        floor = ceiling
    if row == GPU:
        totals = [sample.gpus_total for sample in outcome.history.samples]
        top.step(times, totals, where="post", color=INK, linewidth=1.2, label="all GPUs")
    top.set_ylabel(unit)
    top.set_ylim(bottom=0)
    top.legend(loc="upper left", bbox_to_anchor=(1, 1))
    waiting = [sample.waiting for sample in outcome.history.samples]
    bottom.fill_between(times, waiting, step="post", color=WAITING, alpha=0.6, linewidth=0)
    bottom.set_ylabel("waiting pods")
    bottom.set_ylim(bottom=0)
    _time_axis(bottom, outcome)
    return figure


def _waits_plot(outcome: SimulationResult) -> Any:
    figure, axes = pyplot.subplots(figsize=(9, 3.2))
    for number, name in enumerate(outcome.leaves):
        times = sorted(
            life.scheduled_at - life.arrived_at
            for life in outcome.history.lives
            if life.queue == name and life.scheduled_at is not None
        )
        if times:
            shares = [100 * (rank + 1) / len(times) for rank in range(len(times))]
            axes.step([0.0, *times], [0.0, *shares], where="post", color=PALETTE[number % len(PALETTE)], label=name)
    axes.set_xlabel("waited at most")
    axes.set_ylabel("% of the pods that started")
    axes.set_ylim(0, 103)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: clock(seconds)))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right")
    return figure


def _time_axis(axes: Axes, outcome: SimulationResult) -> None:
    axes.set_xlim(0, max(outcome.history.ended_at, 1.0))
    axes.set_xlabel("time since the start")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: clock(seconds)))


PAGE = "index.html"
MOST_ROWS = 200
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2937; max-width: 68rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
img { max-width: 100%; height: auto }
table { border-collapse: collapse; width: 100%; font-size: 14px }
th { text-align: left; border-bottom: 2px solid #d1d5db } td { border-bottom: 1px solid #e5e7eb; vertical-align: top }
th, td { padding: .3rem .8rem .3rem 0 } .figure { text-align: right; white-space: nowrap }
"""
_QUEUE_COLUMNS = ("queue", "GPU quota", "pods", "started", "evicted", "median wait", "longest wait")
Cell = str | float | int


def write(outcome: SimulationResult, folder: Path) -> Path:
    """Write images and page into a folder, created if necessary; return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    images = draw(outcome, folder)
    page = folder / PAGE
    page.write_text("\n".join(_page(outcome, images)) + "\n", encoding="utf-8")
    return page


def _page(outcome: SimulationResult, images: Sequence[tuple[str, str]]) -> Iterator[str]:
    title = "Simulation report"
    yield f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style>\n<h1>{title}</h1>\n<p>{escape(headline(outcome))}.</p>"
    for name, heading in images:
        yield f'<h2>{escape(heading)}</h2>\n<img src="{escape(name)}" alt="{escape(heading)}">'
    yield from _table("Queues", _QUEUE_COLUMNS, _queues(outcome))
    yield from _table("Evicted pods", ("at", "action", "pod", "why"), _evicted(outcome))
    yield from _table("Pods that still wait", ("since", "workload", "pod", "why"), _waiting(outcome))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    if not rows:
        return
    yield f"<h2>{escape(title)}</h2>\n<table>\n<tr>{''.join(f'<th>{escape(c)}</th>' for c in columns)}</tr>"
    for row in rows[:MOST_ROWS]:
        yield f"<tr>{''.join(map(_cell, row))}</tr>"
    yield "</table>"
    if len(rows) > MOST_ROWS:
        yield f"<p>and {len(rows) - MOST_ROWS} more</p>"


def _cell(value: Cell) -> str:
    return f"<td>{escape(value)}</td>" if isinstance(value, str) else f'<td class="figure">{value:g}</td>'


def _queues(outcome: SimulationResult) -> list[tuple[Cell, ...]]:
    by_queue: dict[str, list[PodLife]] = {}
    for life in outcome.history.lives:
        by_queue.setdefault(life.queue, []).append(life)
    return [_queue(outcome, name, by_queue.get(name, [])) for name in outcome.leaves]


def _queue(outcome: SimulationResult, name: str, lives: Sequence[PodLife]) -> tuple[Cell, ...]:
    quota = float(outcome.queues.deserved[GPU, outcome.queues.rows[name]])
    times = [waited(life, outcome.history.ended_at) for life in lives]
    return (
        name,
        "∞" if quota < 0 else quota,
        len(lives),
        sum(life.scheduled_at is not None for life in lives),
        sum(life.evicted_at is not None for life in lives),
        clock(median(times)) if times else "-",
        clock(max(times)) if times else "-",
    )


def _evicted(outcome: SimulationResult) -> list[tuple[Cell, ...]]:
    found = [life for life in outcome.history.lives if life.evicted_at is not None]
    found.sort(key=lambda life: life.evicted_at or 0.0)
    return [(clock(life.evicted_at or 0.0), life.evicted_by, life.title, life.reason) for life in found]


def _waiting(outcome: SimulationResult) -> list[tuple[Cell, ...]]:
    found = [life for life in outcome.history.lives if life.state == "Waiting"]
    return [(clock(life.arrived_at), workload_title(life), life.title, life.reason) for life in found]
