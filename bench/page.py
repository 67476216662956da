"""The page docs/performance.md: what was measured, beside KAI's figures and by size. Written whole, never by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bench import figures
from bench.machine import Moment
from bench.measure import CYCLES
from bench.peer import Comparison
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
  here is a test that can fail.
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
    parts = [HEAD, _when(found, began, ended, machine), "## Beside KAI\n", beside_kai(found), _notes(found)]
    parts += ["## Growth\n", _growth_text(), growth_table(found), "## The scenarios\n", _scenarios(found)]
    return "\n".join(parts)


def _when(found: Sequence[Comparison], began: Moment, ended: Moment, machine: str) -> str:
    sizes = sorted({c.run.case.size for c in found})
    missing = [size for size in SIZES if size not in sizes]
    load = f"load {began.load:.1f} at the start and {ended.load:.1f} at the end"
    text = f"Measured {began.at:%Y-%m-%d} on {machine}; {load}.\nSizes: {_list(sizes)} nodes."
    return text + (f" Not in this run: {_list(missing)} nodes.\n" if missing else "\n")


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
