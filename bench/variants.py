"""`python -m bench.variants`: one cycle on every variant of the benchmark clusters, beside KAI's figures.

A target that is missed is said in its row, and is no failure of the command: figures of a shared machine are no test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import RenderableType

from bench import figures, machine, variant_runs
from bench.machine import Moment
from bench.measure import BenchError
from bench.page import markdown, with_section
from bench.run import PERF, ROOT, numbers
from bench.variant_runs import (
    CPU_SECONDS,
    FAILED_PER_SEARCH,
    FLAT,
    LONG_SECONDS,
    MOST_SECONDS,
    SEED,
    SIZES,
    TIMES_LONG,
    TIMES_SHORT,
    Growth,
    Judged,
    Peers,
    VariantCase,
    VariantFiles,
    VariantRun,
    growths,
    judge,
    measure,
)
from pykai.observe import tables

TEXT = """## Variants

Clusters as they really are: full, with unequal queues, mixed sizes and a backlog. In each of the files above one thing
happens; in these much happens at once. Figures are of one cycle from parsed objects, the first of a process of its own,
with no limit on the time of searches. The worst comes first: what is farthest from what is asked of it.
Of {cycles} cycles {missed} miss something that is asked, and {unfinished} did not finish.

### CPU

{cpu}
* **Asked**: where KAI has a figure, {long:g} times less CPU than KAI if it needs more than {seconds_long:g} s,
  {short:g} times if not; {most}. Also asked are at most {failed:g} failed simulations for each search, and that no
  search ends because it reached its number of simulations. *Missed* says which of them.
* **KAI's figures** are of one cycle on the same file, on 2 shared cores of an AMD EPYC VM, taken beforehand. *Cut*: it
  was ended there without having decided everything; the ratio is at least the one shown.
* **Not finished**: a process was ended after {seconds} s of CPU, reading the file included.

### Searches and decisions

{searches}
* **Searches** are those for victims that asked a generator, a gang once for each action; arithmetic answers the others.
  *Failed* are all simulations but the one that solves its search, also those that succeed for a part of a gang on the
  way to all of it; *most* are the simulations of one search.
* **Decided** is pods bound / evicted / moved / pipelined. Moved pods are among the evicted ones, and get another place.
  KAI's are bound / evicted / pipelined: calls, in which a pod may count twice and moved pods are pipelined.

### Growth of the variants

CPU of deciding (the actions) per waiting gang. It is asked to be flat: to grow {flat:g} times at most from the smallest
size to the largest. *Whole cycle* is the same growth with reading in nodes and running pods, of which a larger cluster
has more.

{growth}
### What the variants are

{what}
Measured {when:%Y-%m-%d} on {machine}; load {before:.1f} before and {after:.1f} after.
"""

MORE_TEXT = """## More kinds of clusters

{count} kinds for which there are no figures of KAI (bench/kinds.py). Most are full, and in each another rule counts:
pools of nodes, deep trees of queues, sub-groups, shares, pods without GPUs, affinities, ports, taints, limits.
Measured as the variants above, the worst first. Of {cycles} cycles {missed} miss something that is asked ({most}; at
most {failed:g} failed simulations for each search), and {unfinished} did not finish in {seconds} s of CPU.

{cpu}

{searches}

{what}
Measured {when:%Y-%m-%d} on {machine}; load {before:.1f} before and {after:.1f} after.
"""


@dataclass(frozen=True)
class Sheet:
    """A table, for the terminal and for the page; its first column is a name, the others are figures."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def shown(self) -> RenderableType:
        columns = [tables.Column(title, right=number > 0) for number, title in enumerate(self.headings)]
        return tables.table(self.title, columns, self.rows)

    def written(self) -> str:
        return markdown(self.headings, self.rows)


def section(  # noqa: PLR0913 - what the page says of the run
    found: Sequence[Judged], began: Moment, ended: Moment, machine: str, seconds: int, text: str = TEXT
) -> str:
    """The section of docs/performance.md."""
    variants = dict.fromkeys(each.run.case.variant for each in found)
    return text.format(
        count=len(variants),
        cycles=len(found),
        missed=sum(1 for each in found if each.missed),
        unfinished=sum(1 for each in found if each.run.cycle is None),
        cpu=cpu(found).written(),
        long=TIMES_LONG,
        short=TIMES_SHORT,
        seconds_long=LONG_SECONDS,
        most=", ".join(f"at {size:,} nodes less than {most:g} s" for size, most in MOST_SECONDS.items()),
        failed=FAILED_PER_SEARCH,
        seconds=seconds,
        searches=searches(found).written(),
        flat=FLAT,
        growth=growth(found).written(),
        what=markdown(("variant", "what is in it"), [(variant.name, variant.what) for variant in variants]),
        when=began.at,
        machine=machine,
        before=began.load,
        after=ended.load,
    )


def cpu(found: Sequence[Judged]) -> Sheet:
    headings = ("variant", "nodes", "gangs waiting", "our CPU", "KAI's CPU", "ratio", "asked", "reached")
    return Sheet("CPU of one cold cycle, the worst first", headings, [_cpu(each) for each in worst_first(found)])


def searches(found: Sequence[Judged]) -> Sheet:
    counts = ("searches", "solved", "simulated", "failed", "failed a search", "most")
    headings = ("variant", "nodes", *counts, "decided", "KAI decided")
    return Sheet("Searches and decisions", headings, [_searches(each) for each in worst_first(found)])


def growth(found: Sequence[Judged]) -> Sheet:
    sizes = sorted({each.run.case.size for each in found})
    headings = ("variant", *(f"{size:,} nodes" for size in sizes), "growth", "whole cycle", "flat")
    rows = [_growth(each, sizes) for each in growths(found)]
    return Sheet("CPU of deciding per waiting gang, the fastest growth first", headings, rows)


def worst_first(found: Sequence[Judged]) -> list[Judged]:
    return sorted(found, key=lambda each: each.badness)


def _cpu(each: Judged) -> list[str]:
    run, kai = each.run, each.kai
    theirs = figures.NONE if kai is None else f"cut at {kai.cpu_s:.0f} s" if kai.cut else figures.cpu(1000 * kai.cpu_s)
    ratio = f"> {figures.times(each.ratio)}" if kai and kai.cut and each.ratio else figures.times(each.ratio)
    return [*_case(run), f"{run.gangs:,}", own_cpu(run), theirs, ratio, _asked(each), reached(each)]


def _case(run: VariantRun) -> tuple[str, str]:
    return run.case.variant.name, f"{run.nodes:,}"


def own_cpu(run: VariantRun) -> str:
    return "not finished" if run.cpu_ms is None else figures.cpu(run.cpu_ms)


def _asked(each: Judged) -> str:
    seconds = each.most_seconds
    goals = [*([figures.times(each.times)] if each.times else []), *([f"< {seconds:g} s"] if seconds else [])]
    return ", ".join(goals) or figures.NONE


def reached(each: Judged) -> str:
    """Whether all was reached that is asked, or what was missed."""
    if each.missed:
        return f"missed: {', '.join(each.missed)}"
    return "yes" if each.reached else figures.NONE


def _searches(each: Judged) -> list[str]:
    cycle, kai = each.run.cycle, each.kai
    theirs = figures.NONE if kai is None else _counts(kai.bound, kai.evicted, kai.pipelined)
    if cycle is None:
        return [*_case(each.run), *[figures.NONE] * 7, theirs]
    found = cycle.all_searches
    share = f"{found.failed / found.searched:.1f}" if found.searched else figures.NONE
    counts = [f"{count:,}" for count in (found.searched, found.solved, found.simulated, found.failed)]
    ours = _counts(cycle.bound, cycle.evicted, cycle.moved, cycle.pipelined)
    return [*_case(each.run), *counts, share, f"{found.most:,}", ours, theirs]


def _counts(*counts: int) -> str:
    return " / ".join(f"{count:,}" for count in counts)


def _growth(each: Growth, sizes: Sequence[int]) -> list[str]:
    by_size = {run.case.size: run for run in each.runs}
    costs = [figures.per_pod(by_size[size].deciding_per_gang_ms if size in by_size else None) for size in sizes]
    grows = [_rounded(each.deciding), _rounded(each.cycle)]
    return [
        each.runs[0].case.variant.name,
        *costs,
        *grows,
        {None: figures.NONE, True: "yes", False: "missed"}[each.flat],
    ]


def _rounded(times: float | None) -> str:
    return figures.NONE if times is None else f"{times:.1f}x"


FIGURES = "variants.json"


@dataclass(frozen=True)
class Order:
    """What to measure, where the generator and KAI's figures are, and whether the page is written below `root`."""

    names: Sequence[str]
    """Of variants; none: all there are."""
    sizes: Sequence[int]
    perf: Path
    docs: bool
    seed: int = SEED
    cpu_seconds: int = CPU_SECONDS
    root: Path = ROOT
    more: bool = False
    """Whether the kinds of `kinds.py` are measured instead of the generator's."""


def _names(_: click.Context, __: click.Parameter, text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@click.command()
@click.option("--nodes", callback=numbers, default="", help="Sizes, separated by commas.  [default: 96,320,1000]")
@click.option("--only", callback=_names, default="", help="Variants, separated by commas.  [default: all]")
@click.option("--seed", default=SEED, show_default=True, help="Of the generator; KAI has figures for the default.")
@click.option("--seconds", default=CPU_SECONDS, show_default=True, type=click.IntRange(1), help="CPU of each process.")
@click.option("--perf", default=PERF, type=click.Path(path_type=Path), help="Folder with variants.py and its figures.")
@click.option("--docs", is_flag=True, help="Write the section of docs/performance.md.")
@click.option(
    "--more", is_flag=True, help="Measure the kinds of bench/kinds.py, for which KAI has no figures, instead."
)
def main(  # noqa: PLR0913 - one parameter for each option
    nodes: Sequence[int], only: Sequence[str], seed: int, seconds: int, perf: Path, docs: bool, more: bool
) -> None:
    """Measure a scheduling cycle on clusters in which much happens at once, and compare it with KAI's."""
    folder = perf if perf.is_absolute() else ROOT / perf
    try:
        run(Order(only, nodes or SIZES, folder, docs, seed, seconds, more=more))
    except BenchError as error:
        raise click.ClickException(str(error)) from error


def run(order: Order) -> None:
    """Measure, print and write."""
    files = VariantFiles(order.perf, order.root / "build" / "bench", order.more)
    peers = variant_runs.read(order.perf / FIGURES)
    if not peers:
        click.echo(f"there is no {order.perf / FIGURES}: nothing to compare with", err=True)
    cases = [VariantCase(variant, size, order.seed) for variant in files.chosen(order.names) for size in order.sizes]
    began = machine.now()
    found = [_measured(case, files, peers, order.cpu_seconds) for case in cases]
    ended = machine.now()
    sheets = (cpu(found), searches(found), growth(found))
    tables.show([*(sheet.shown() for sheet in sheets), _words(began, ended)])
    if order.docs:
        about = began, ended, machine.title(), order.cpu_seconds
        page = order.root / "docs" / "performance.md"
        command, text = ("bench-kinds", MORE_TEXT) if order.more else ("bench-variants", TEXT)
        page.write_text(with_section(page.read_text(), command, section(found, *about, text)))


def _measured(case: VariantCase, files: VariantFiles, peers: Peers, cpu_seconds: int) -> Judged:
    click.echo(f"{case.variant.name}, {case.size:,} nodes: ", nl=False, err=True)
    found = judge(measure(case, files.of(case), cpu_seconds), peers)
    click.echo(f"{own_cpu(found.run)}, {figures.times(found.ratio)}", err=True)
    return found


def _words(began: machine.Moment, ended: machine.Moment) -> str:
    return (
        f"{machine.title()}; load {began.load:.1f} at the start, {ended.load:.1f} at the end.\n"
        "CPU is user and system time of one cycle, the first of its process. KAI's figures were taken beforehand.\n"
        "decided: bound / evicted / moved / pipelined; KAI: bound / evicted / pipelined, moved pods among these."
    )


if __name__ == "__main__":
    main()
