"""The page docs/performance.md and the figures in README.md: written whole by `make bench`, never by hand.

Sections of the page with a command of their own lie between marks, and stay when the page is written anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from bench import figures
from bench.figures import Comparison
from bench.machine import Moment
from bench.measure import CYCLES
from bench.scenarios import FULL_UP_TO, SIZES

HEAD = """# Performance

This page is written by `make bench`; do not edit it. It compares one scheduling cycle of pykai with one of KAI
(v0.17 line, Go, release build, logging off, no API writes) on the same snapshot file. The cycle excludes reading and
parsing the file and includes everything from parsed objects to the finished plan with its reasons.

In each of these files one thing happens, in a regular cluster. Clusters in which much happens at once, full and unequal
as real ones are, cost more: the section [Variants](#variants) has them, the worst first.
"""

NOTES = """* **CPU** is user and system time of the process, the median of {cycles} cycles; *least* is the smallest.
  Every cycle starts from the file's state with an empty cache, every scenario in a new process.
* **Warm** is the same cycle as a live scheduler has it: the objects are in the cache and were read in an earlier cycle;
  the figure has the snapshot, the decisions and the plan. KAI builds its session from objects in every cycle.
* **KAI's figures** are medians of 1 to 4 cycles on 2 shared cores of an AMD EPYC VM, taken beforehand: compare orders
  of magnitude. *Ratio* is KAI's CPU divided by ours, cold and warm; *asked* is the ratio this project set out to
  reach: at least 40x at 1,000 nodes and 100x at 5,000 on every file, more on some. *Reached* judges the warm one.
* **Noise**: other work on the machine is not counted, but it disturbs caches and clock speed. In this run the slowest
  cycle of a file took up to {spread:.1f} times as long as its fastest (the first one warms up the process). Nothing
  here is a test that can fail. Where the load above is far beyond the number of cores, the same cycle takes 1.3 to 2
  times the CPU that it takes on a quiet machine.
* **Decided** is pods bound / evicted / promised a place others still hold / left without one. *same*: KAI decided the
  same numbers; *fewer evictions*: the same placements for fewer victims.
* **Interpreter**: `make bench PYTHON_BENCH=image` measures on CPython 3.12 built with profile-guided and link-time
  optimisation, as that of the image is; one without is some 15 % slower.
* **Peak memory** (MiB) is the whole process, the parsed file included.
"""
HEADINGS = (
    *("scenario", "nodes", "pods", "our CPU (least)", "warm", "KAI's CPU", "ratio", "ratio, warm", "asked", "reached"),
    *("our MiB", "KAI's MiB", "decided", "as KAI"),
)


def page(found: Sequence[Comparison], began: Moment, ended: Moment, machine: str) -> str:
    """The whole page."""
    parts = [HEAD, _when(found, began, ended, machine), worst(found)]
    parts += ["## Beside KAI\n", beside_kai(found), _notes(found)]
    parts += ["## Growth\n", _growth_text(), growth_table(found), "## The scenarios\n", _scenarios(found)]
    return "\n".join(parts)


def _when(found: Sequence[Comparison], began: Moment, ended: Moment, machine: str) -> str:
    sizes = sorted({c.run.case.size for c in found})
    missing = [size for size in SIZES if size not in sizes]
    load = f"load {began.load:.1f} at the start and {ended.load:.1f} at the end"
    text = f"Measured {began.at:%Y-%m-%d} on {machine}; {load}.\nSizes: {_list(sizes)} nodes."
    return text + (f" Not in this run: {_list(missing)} nodes.\n" if missing else "\n")


def worst(found: Sequence[Comparison]) -> str:
    """What misses its target from parsed objects, the worst first, and how many files miss it warm, too."""
    judged = [(c.ratio / target, c) for c in found if c.ratio and c.peer and (target := c.run.case.target)]
    missed = [c for part, c in sorted(judged, key=itemgetter(0)) if part < 1]
    if not missed:
        return "Every file reaches what is asked of it, from parsed objects and warm.\n"
    cold = "\n".join(
        f"* {c.run.case.scenario.name} at {c.run.nodes:,} nodes {figures.times(c.ratio)}"
        f" ({figures.times(c.warm_ratio)} warm) of {figures.times(c.run.case.target)}"
        for c in missed
    )
    warm = sum(1 for _, c in judged if not c.met)
    return f"Of {len(judged)} files {len(missed)} miss what is asked from parsed objects, {warm} also warm:\n\n{cold}\n"


def _list(sizes: Iterable[int]) -> str:
    return ", ".join(f"{size:,}" for size in sizes)


def _notes(found: Sequence[Comparison]) -> str:
    spread = max((max(c.run.cycles_ms) / min(c.run.cycles_ms) for c in found if c.run.cycles_ms), default=1.0)
    return NOTES.format(cycles=CYCLES, spread=spread)


def beside_kai(found: Sequence[Comparison]) -> str:
    """A row for every file KAI has figures for."""
    return markdown(HEADINGS, [_row(c) for c in found if c.peer is not None])


def _row(c: Comparison) -> tuple[str, ...]:
    run = c.run
    own = "not finished" if run.cpu_ms is None else f"{figures.cpu(run.cpu_ms)} ({figures.cpu(run.least_ms)})"
    cpu = (own, figures.cpu(run.warm_ms), figures.peer_cpu(c.peer))
    ratio = (f"**{figures.times(c.ratio)}**", figures.times(c.warm_ratio), figures.target(c), figures.met(c))
    memory = (figures.mib(run.peak_mib), figures.mib(c.peer.peak_rss_mb if c.peer else None))
    sizes = (run.case.scenario.name, f"{run.nodes:,}", f"{run.pods:,}")
    return (*sizes, *cpu, *ratio, *memory, figures.counts(run.counts), c.verdict or figures.NONE)


def _growth_text() -> str:
    return (
        "![CPU of one cycle against the number of nodes](img/growth.png)\n\n"
        "*Waiting* pods are those the cycle has to decide about; above 1,000 nodes there are fewer of them in most\n"
        "scenarios, because KAI could not be given more. The rest of the cost is reading in nodes and running pods:\n"
        "where few wait in a full cluster, that is most of it. *To 1,000 nodes* compares the CPU per waiting pod.\n"
    )


def growth_table(found: Sequence[Comparison]) -> str:
    """A row for every file, whether KAI has figures for it or not."""
    head = ("scenario", "nodes", "pods", "waiting", "CPU", "per waiting pod", "to 1,000 nodes", "peak MiB", "KAI's CPU")
    middle = {c.run.case.scenario.name: c.run.per_pod_ms for c in found if c.run.case.size == FULL_UP_TO}
    return markdown(head, [_growth_row(c, middle.get(c.run.case.scenario.name)) for c in found])


def _growth_row(c: Comparison, middle: float | None) -> tuple[str, ...]:
    run = c.run
    growth = figures.NONE if middle is None or run.per_pod_ms is None else f"{run.per_pod_ms / middle:.2f}x"
    sizes = (run.case.scenario.name, f"{run.nodes:,}", f"{run.pods:,}", f"{run.waiting:,}")
    cpu = ("not finished" if run.cpu_ms is None else figures.cpu(run.cpu_ms), figures.per_pod(run.per_pod_ms), growth)
    return (*sizes, *cpu, figures.mib(run.peak_mib), figures.peer_cpu(c.peer))


def _scenarios(found: Sequence[Comparison]) -> str:
    distinct = dict.fromkeys(c.run.case.scenario.name for c in found)
    what = {c.run.case.scenario.name: c.run.case.scenario.what for c in found}
    return markdown(("scenario", "what happens"), [(name, what[name]) for name in distinct])


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(_lines(head, rows)) + "\n"


def _lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


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


_SECTION = re.compile(r"<!-- written by `make (?P<name>[\w-]+)` -->\n.*?<!-- end of `make (?P=name)` -->\n", re.DOTALL)


def with_section(page: str, command: str, text: str) -> str:
    """The page with the section of `make command` replaced, or added at its end."""
    section = f"<!-- written by `make {command}` -->\n{text}<!-- end of `make {command}` -->\n"
    old = next((found[0] for found in _SECTION.finditer(page) if found["name"] == command), None)
    return page.replace(old, section) if old else f"{page.rstrip()}\n\n{section}"


def kept_in(new: str, old: str) -> str:
    """A new page with the sections of the old one at its end."""
    return "\n".join([new, *(found[0] for found in _SECTION.finditer(old))])
