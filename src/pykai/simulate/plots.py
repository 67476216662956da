"""The plots of a report. The same outcome gives the same image, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter

from pykai.kernels.fairshare import NOTHING
from pykai.model.resources import CPU, GPU
from pykai.simulate.history import Outcome
from pykai.simulate.timeline import clock

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


def write(outcome: Outcome, folder: Path) -> list[tuple[str, str]]:
    """Draw all plots into a folder; returns (file name, title) of each."""
    plots = (
        ("queues.png", "Use of every queue against its fair share", _queues),
        ("gpus.png", "GPUs in use, and pods that wait", _occupancy),
        ("waits.png", "How long pods waited", _waits),
    )
    with matplotlib.rc_context(STYLE):
        for name, _, draw in plots:
            figure = draw(outcome)
            figure.savefig(folder / name, dpi=120, metadata={"Software": None})
            pyplot.close(figure)
    return [(name, title) for name, title, _ in plots]


def leaves(outcome: Outcome) -> list[str]:
    """Queues that hold pods, by name."""
    return [name for row, name in enumerate(outcome.queues.names) if not outcome.queues.children[row]]


def _resource(outcome: Outcome) -> tuple[int, float, str]:
    has_gpus = outcome.history.samples[-1].gpus_total > 0
    return (GPU, 1.0, "GPUs") if has_gpus else (CPU, 1000.0, "CPU cores")


def _times(outcome: Outcome) -> list[float]:
    return [sample.at for sample in outcome.history.samples]


def _series(outcome: Outcome, queue: str, row: int, scale: float) -> tuple[list[float], list[float]]:
    """(use, fair share) at every sample; nothing before the queue existed."""
    found = [sample.queues.get(queue) for sample in outcome.history.samples]
    use = [q.allocated[row] / scale if q else 0.0 for q in found]
    fair = [q.fair_share[row] / scale if q else 0.0 for q in found]
    return use, fair


def _past(outcome: Outcome, queue: str, row: int, scale: float) -> list[float]:
    """The average that the queue held in the window, at every sample; empty where the past does not count."""
    samples = outcome.history.samples
    if not samples[-1].past_counts:
        return []
    found = [(sample.queues.get(queue), sample.capacity[row] / scale) for sample in samples]
    return [(q.usage or NOTHING)[row] * whole if q else 0.0 for q, whole in found]


def _queues(outcome: Outcome) -> Any:
    names = leaves(outcome)
    row, scale, unit = _resource(outcome)
    count = max(len(names), 1)
    figure, grid = pyplot.subplots(count, 1, figsize=(9, 0.6 + 1.7 * count), sharex=True, squeeze=False)
    times = _times(outcome)
    for number, (axes, name) in enumerate(zip(grid[:, 0], names, strict=False)):
        use, fair = _series(outcome, name, row, scale)
        colour = PALETTE[number % len(PALETTE)]
        axes.fill_between(times, use, step="post", color=colour, alpha=0.35, linewidth=0, label="in use")
        axes.step(times, fair, where="post", color=INK, linewidth=1.2, label="fair share")
        past = _past(outcome, name, row, scale)
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


def _occupancy(outcome: Outcome) -> Any:
    row, scale, unit = _resource(outcome)
    times, names = _times(outcome), leaves(outcome)
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


def _waits(outcome: Outcome) -> Any:
    figure, axes = pyplot.subplots(figsize=(9, 3.2))
    for number, name in enumerate(leaves(outcome)):
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


def _time_axis(axes: Axes, outcome: Outcome) -> None:
    axes.set_xlim(0, max(outcome.history.ended_at, 1.0))
    axes.set_xlabel("time since the start")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: clock(seconds)))
