"""Plots of benchmarks: CPU of a cycle against the number of nodes, ours and KAI's, and a day under several policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from bench.figures import Comparison

if TYPE_CHECKING:
    from bench.day import Figures

OURS, THEIRS, INK, FAINT = "#0891b2", "#ea580c", "#1f2937", "#9ca3af"
COLUMNS = 4
POLICIES = ("#0891b2", "#ca8a04", "#dc2626")
LEAST_SECONDS = 1.0
"""Shorter waits are drawn there: their axis is logarithmic."""
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
Growth = Mapping[str, Sequence[Comparison]]
"""Scenario -> its comparisons by size."""


def write(growth: Growth, path: Path) -> None:
    """Draw the curves of all scenarios into one image."""
    rows = -(-len(growth) // COLUMNS)
    with matplotlib.rc_context(STYLE):
        figure, grid = pyplot.subplots(
            rows, COLUMNS, figsize=(11, 0.5 + 2.2 * rows), sharex=True, sharey=True, squeeze=False
        )
        for axes, (name, found) in zip(grid.flat, growth.items(), strict=False):
            _panel(axes, name, found)
        for axes in grid.flat[len(growth) :]:
            axes.set_axis_off()
        figure.supxlabel("nodes")
        figure.supylabel("CPU of one cycle, seconds")
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=2)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110, metadata={"Software": None})
        pyplot.close(figure)


def _panel(axes: Any, name: str, found: Sequence[Comparison]) -> None:
    ours = [(c.run.nodes, c.run.cpu_ms / 1000) for c in found if c.run.cpu_ms is not None]
    theirs = [(c.peer.nodes, c.peer.cycle_cpu_ms / 1000) for c in found if c.peer and c.peer.cycle_cpu_ms]
    axes.plot(*_columns(ours), color=OURS, marker="o", markersize=4, label="pykai")
    axes.plot(*_columns(theirs), color=THEIRS, marker="s", markersize=4, linestyle="--", label="KAI")
    axes.set_title(name)
    axes.set(xscale="log", yscale="log")
    axes.grid(visible=True, color=FAINT, alpha=0.25)
    sizes = sorted({c.run.case.size for c in found})
    axes.set_xticks(sizes)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}" if size < 1000 else f"{size / 1000:g}k"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def write_day(found: Sequence[Figures], path: Path) -> None:
    """Draw waiting times by size of job, and what queues lacked of their quota, policy beside policy."""
    with matplotlib.rc_context(STYLE):
        classes = [*found[0].waits]
        figure, grid = pyplot.subplots(1, len(classes) + 1, figsize=(12, 3), width_ratios=[*[1] * len(classes), 1.4])
        for axes, name in zip(grid, classes, strict=False):
            _waits(axes, name, found)
        _lacked(grid[-1], found)
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(found))
        figure.savefig(path, dpi=90, metadata={"Software": None})
        pyplot.close(figure)


def _waits(axes: Any, name: str, found: Sequence[Figures]) -> None:
    """The part of the jobs that waited for no longer than so long."""
    for each, colour in zip(found, POLICIES, strict=True):
        waits = sorted(max(wait, LEAST_SECONDS) for wait in each.waits[name])
        parts = [(number + 1) / len(waits) for number in range(len(waits))]
        axes.step(waits, parts, where="post", color=colour, label=each.played.policy)
    axes.set(xscale="log", ylim=(0, 1.02), xlabel="wait")
    axes.set_title(f"jobs of {name}")
    axes.set_xticks([1, 60, 3600, 43200], ["≤ 1 s", "1 min", "1 h", "12 h"])
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(visible=True, color=FAINT, alpha=0.25)


def _lacked(axes: Any, found: Sequence[Figures]) -> None:
    """What each queue lacked of what it asked for within its quota."""
    width = 0.8 / len(found)
    for number, (each, colour) in enumerate(zip(found, POLICIES, strict=True)):
        places = [index + number * width for index in range(len(each.lacked))]
        axes.bar(places, list(each.lacked.values()), width, color=colour)
    axes.set_xticks([index + width for index in range(len(found[0].lacked))], list(found[0].lacked), rotation=45)
    axes.set_title("lacked of the quota")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
