"""The figures in README.md: the part between two marks is written by `make bench`, never by hand."""

from __future__ import annotations

from collections.abc import Sequence

from bench import figures
from bench.page import markdown
from bench.peer import Comparison

BEGIN = "<!-- figures written by `make bench` -->\n"
END = "<!-- end of the figures -->\n"


def with_figures(readme: str, found: Sequence[Comparison]) -> str:
    """The page with the figures of this run; a page without the marks stays as it is."""
    if BEGIN not in readme or END not in readme:
        return readme
    head, rest = readme.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{table(found)}\n{END}{tail}"


def table(found: Sequence[Comparison]) -> str:
    """A row per scenario; ours (cold, and warm), KAI's and the ratios at every size KAI has figures for."""
    sizes = sorted({c.run.case.size for c in found if c.peer is not None})
    names = dict.fromkeys(c.run.case.scenario for c in found)
    by_key = {c.run.case.key: c for c in found}
    rows = [
        (f"{scenario.name}: {scenario.what}", *(_cell(by_key.get(scenario.case(size).key)) for size in sizes))
        for scenario in names
    ]
    return markdown(("one cycle, CPU: pykai (warm) / KAI", *(f"{size:,} nodes" for size in sizes)), rows)


def _cell(c: Comparison | None) -> str:
    if c is None or c.peer is None or c.run.cpu_ms is None:
        return figures.NONE
    warm = "" if c.run.warm_ms is None else f" ({figures.cpu(c.run.warm_ms)})"
    ratio = "" if c.ratio is None else f" = **{figures.times(c.ratio)}**"
    ratio += "" if c.warm_ratio is None else f" ({figures.times(c.warm_ratio)})"
    return f"{figures.cpu(c.run.cpu_ms)}{warm} / {figures.peer_cpu(c.peer)}{ratio}"
