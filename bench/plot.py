"""Growth curves: CPU of a cycle against the number of nodes, one panel per scenario, ours and KAI's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, NullLocator

from bench.figures import Comparison

OURS, THEIRS, INK, FAINT = "#0891b2", "#ea580c", "#1f2937", "#9ca3af"
COLUMNS = 4
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
