"""`python -m bench.run`: measure the scenarios, print them beside KAI's figures, and write docs/performance.md.

The page, its plot and the figures in README.md are written by a full run, so that all of them come from one run; a run
of some scenarios or sizes prints only, unless it is asked to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import RenderableType

from bench import figures, machine, page
from bench.figures import Comparison, Peer
from bench.measure import CYCLES, BenchError, Files, measure
from bench.scenarios import QUICK, SCENARIOS, SIZES, Case, Scenario
from pykai.observe import tables

ROOT = Path(__file__).resolve().parents[1]
PERF = Path("..") / "shared" / "perf"
TIME_COLUMNS = ("nodes", "pods", "waiting", "CPU", "least", "warm", "KAI's CPU", "ratio", "warm", "asked", "reached")
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@dataclass(frozen=True)
class Order:
    """What to measure, where the generator and KAI's figures are, and whether the page is written below `root`."""

    scenarios: Sequence[Scenario]
    sizes: Sequence[int]
    perf: Path
    docs: bool
    root: Path = ROOT

    def cases(self) -> Iterator[Case]:
        """Scenario by scenario, each by size."""
        for scenario in self.scenarios:
            for size in self.sizes:
                yield scenario.case(size)


def _names(_: click.Context, __: click.Parameter, text: str) -> list[Scenario]:
    names = [name.strip() for name in text.split(",") if name.strip()] or list(BY_NAME)
    for name in names:
        if name not in BY_NAME:
            raise click.BadParameter(f"there is no scenario {name!r} (there are: {', '.join(BY_NAME)})")
    return [BY_NAME[name] for name in names]


def numbers(_: click.Context, __: click.Parameter, text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a list of numbers such as 100,1000") from error
    if any(size < 1 for size in sizes):
        raise click.BadParameter("a cluster has at least one node")
    return sorted(set(sizes))


@click.command()
@click.option("--quick", is_flag=True, help=f"Only {QUICK[0]:,} nodes.")
@click.option("--scenarios", callback=_names, default="", help="Names, separated by commas.  [default: all]")
@click.option("--nodes", callback=numbers, default="", help="Sizes, separated by commas.  [default: 100 to 10,000]")
@click.option("--perf", default=PERF, type=click.Path(path_type=Path), help="Folder with gen.py and kai.json.")
@click.option("--docs", is_flag=True, help="Write the documentation also after a run of some scenarios or sizes.")
def main(quick: bool, scenarios: Sequence[Scenario], nodes: Sequence[int], perf: Path, docs: bool) -> None:
    """Measure scheduling cycles and compare them with KAI's. A quick run takes a minute, a full one many."""
    if quick and nodes:
        raise click.UsageError("--quick and --nodes exclude one another")
    sizes = QUICK if quick else nodes or SIZES
    full = tuple(sizes) == SIZES and len(scenarios) == len(SCENARIOS)
    folder = perf if perf.is_absolute() else ROOT / perf
    try:
        run(Order(scenarios, sizes, folder, docs or full))
    except BenchError as error:
        raise click.ClickException(str(error)) from error


def run(order: Order) -> None:
    """Measure, print and write."""
    files = Files(order.perf / "gen.py", order.root / "build" / "bench")
    peers = figures.read(order.perf / "kai.json")
    if not peers:
        click.echo(f"there is no {order.perf / 'kai.json'}: nothing to compare with", err=True)
    began = machine.now()
    found = [_measured(case, files, peers) for case in order.cases()]
    ended = machine.now()
    tables.show([*_tables(found), _words(began, ended)])
    if order.docs:
        _write(order.root, found, page.page(found, began, ended, machine.title()))


def _measured(case: Case, files: Files, peers: dict[str, Peer]) -> Comparison:
    click.echo(f"{case.scenario.name}, {case.nodes:,} nodes: making the file ... ", nl=False, err=True)
    path = files.of(case)
    click.echo("running ... ", nl=False, err=True)
    found = figures.compare(measure(case, path), peers)
    click.echo(f"{figures.cpu(found.run.cpu_ms)}, {figures.times(found.ratio)}", err=True)
    return found


def _tables(found: Sequence[Comparison]) -> list[RenderableType]:
    """Time beside KAI's, then memory and what was decided."""
    time = [tables.Column(title, right=True) for title in TIME_COLUMNS]
    memory = [tables.Column(title, right=True) for title in ("nodes", "MiB", "KAI's MiB")]
    rest = [tables.Column("bound / evicted / pipelined / left"), tables.Column("as KAI")]
    name = tables.Column("scenario")
    return [
        tables.table("CPU of one cycle, beside KAI's on the same file", [name, *time], [_time(c) for c in found]),
        tables.table("Peak memory and decisions", [name, *memory, *rest], [_decisions(c) for c in found]),
    ]


def _time(c: Comparison) -> list[str]:
    run = c.run
    own = "not finished" if run.cpu_ms is None else figures.cpu(run.cpu_ms)
    time = [own, figures.cpu(run.least_ms), figures.cpu(run.warm_ms), figures.peer_cpu(c.peer)]
    time += [figures.times(c.ratio), figures.times(c.warm_ratio)]
    judged = [figures.target(c), figures.met(c)]
    return [run.case.scenario.name, f"{run.nodes:,}", f"{run.pods:,}", f"{run.waiting:,}", *time, *judged]


def _decisions(c: Comparison) -> list[str]:
    run, decided = c.run, figures.counts(c.run.counts)
    if c.verdict not in ("", "same"):
        decided = f"{decided} (KAI: {figures.counts(c.peer)})"
    memory = [figures.mib(run.peak_mib), figures.mib(c.peer.peak_rss_mb if c.peer else None)]
    return [run.case.scenario.name, f"{run.nodes:,}", *memory, decided, c.verdict or figures.NONE]


def _words(began: machine.Moment, ended: machine.Moment) -> str:
    return (
        f"{machine.title()}; load {began.load:.1f} at the start, {ended.load:.1f} at the end.\n"
        f"CPU is user and system time, median of {CYCLES} cycles, and the least. KAI's figures were taken beforehand.\n"
        "warm: with a filled cache, as a live scheduler has it; what is asked is held against that."
    )


def _write(root: Path, found: Sequence[Comparison], text: str) -> None:
    try:
        from bench import plot
    except ModuleNotFoundError as error:
        raise BenchError(f"the plot needs {error.name}: install pykai[report]") from error
    growth: dict[str, list[Comparison]] = {}
    for comparison in found:
        growth.setdefault(comparison.run.case.scenario.name, []).append(comparison)
    plot.write(growth, root / "docs" / "img" / "growth.png")
    written = root / "docs" / "performance.md"
    written.write_text(page.kept_in(text, written.read_text()) if written.exists() else text)
    front = root / "README.md"
    front.write_text(page.with_figures(front.read_text(), found))
    click.echo("wrote docs/performance.md, docs/img/growth.png and the figures in README.md", err=True)


if __name__ == "__main__":
    main()
