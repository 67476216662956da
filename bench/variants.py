"""`python -m bench.variants`: one cycle on every variant of the benchmark clusters, beside KAI's figures.

A target that is missed is said in its row, and is no failure of the command: figures of a shared machine are no test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from bench import figures, machine, sections, variant_goals, variant_page
from bench.measure import BenchError
from bench.run import PERF, ROOT, numbers
from bench.variant_goals import Judged, Peers, judge
from bench.variant_runs import CPU_SECONDS, SEED, SIZES, VariantCase, VariantFiles, measure
from pykai.observe import tables

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


def _names(_: click.Context, __: click.Parameter, text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@click.command()
@click.option("--nodes", callback=numbers, default="", help="Sizes, separated by commas.  [default: 96,320,1000]")
@click.option("--only", callback=_names, default="", help="Variants, separated by commas.  [default: all]")
@click.option("--seed", default=SEED, show_default=True, help="Of the generator; KAI has figures for the default.")
@click.option("--seconds", default=CPU_SECONDS, show_default=True, type=click.IntRange(1), help="CPU of each process.")
@click.option("--perf", default=PERF, type=click.Path(path_type=Path), help="Folder with variants.py and its figures.")
@click.option("--docs", is_flag=True, help="Write the section of docs/performance.md.")
def main(  # noqa: PLR0913 - one parameter for each option
    nodes: Sequence[int], only: Sequence[str], seed: int, seconds: int, perf: Path, docs: bool
) -> None:
    """Measure a scheduling cycle on clusters in which much happens at once, and compare it with KAI's."""
    folder = perf if perf.is_absolute() else ROOT / perf
    try:
        run(Order(only, nodes or SIZES, folder, docs, seed, seconds))
    except BenchError as error:
        raise click.ClickException(str(error)) from error


def run(order: Order) -> None:
    """Measure, print and write."""
    files = VariantFiles(order.perf, order.root / "build" / "bench")
    peers = variant_goals.read(order.perf / FIGURES)
    if not peers:
        click.echo(f"there is no {order.perf / FIGURES}: nothing to compare with", err=True)
    cases = [VariantCase(variant, size, order.seed) for variant in files.chosen(order.names) for size in order.sizes]
    began = machine.now()
    found = [_measured(case, files, peers, order.cpu_seconds) for case in cases]
    ended = machine.now()
    sheets = (variant_page.cpu(found), variant_page.searches(found), variant_page.growth(found))
    tables.show([*(sheet.shown() for sheet in sheets), _words(began, ended)])
    if order.docs:
        text = variant_page.section(found, began, ended, machine.title(), order.cpu_seconds)
        page = order.root / "docs" / "performance.md"
        page.write_text(sections.with_section(page.read_text(), "bench-variants", text))


def _measured(case: VariantCase, files: VariantFiles, peers: Peers, cpu_seconds: int) -> Judged:
    click.echo(f"{case.variant.name}, {case.size:,} nodes: ", nl=False, err=True)
    found = judge(measure(case, files.of(case), cpu_seconds), peers)
    click.echo(f"{variant_page.own_cpu(found.run)}, {figures.times(found.ratio)}", err=True)
    return found


def _words(began: machine.Moment, ended: machine.Moment) -> str:
    return (
        f"{machine.title()}; load {began.load:.1f} at the start, {ended.load:.1f} at the end.\n"
        "CPU is user and system time of one cycle, the first of its process. KAI's figures were taken beforehand.\n"
        "decided: bound / evicted / moved / pipelined; KAI: bound / evicted / pipelined, moved pods among these."
    )


if __name__ == "__main__":
    main()
