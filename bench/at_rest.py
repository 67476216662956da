"""`python -m bench.at_rest`: every variant of the benchmark clusters, played by `kai simulate` until it is at rest.

A cycle shows what is decided once; played to rest, it shows whether decisions end: how many pods had to leave on the
way, which GPUs stay idle, and what queues lack to what they are due.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from bench import machine
from bench.measure import BenchError, OutOfTimeError, checked
from bench.page import with_section
from bench.run import PERF, ROOT
from bench.variant_runs import SEED, VariantCase, VariantFiles
from bench.variants import Sheet
from pykai.observe import tables

NODES, CPU_SECONDS = 96, 120
TEXT = """## Variants played to rest

Each variant below at {nodes} nodes, continued by `kai simulate` until nothing has happened for two minutes.

{table}
* **At rest after** is simulated time; *until*: a minimum run time or another span ends then, and decisions may change.
  *Not at rest*: the process was ended after {seconds} s of CPU.
* **Evictions** are of all pods on the way, those that move included.
* **Due** is what leaf queues lack, in GPUs and in all, to the smaller of their fair share and what they request;
  gangs that do not fit into what is left, and limits, leave some.

Played {when:%Y-%m-%d} on {machine}.
"""


class _Amount(msgspec.Struct, rename="camel"):
    gpu: float = 0.0


class _Queue(msgspec.Struct, rename="camel"):
    name: str
    parent: str
    fair_share: _Amount
    allocated: _Amount
    requested: _Amount


class _Event(msgspec.Struct):
    kind: str


class _Sample(msgspec.Struct, rename="camel"):
    waiting_pods: int
    gpus_used: float
    gpus: float


class Played(msgspec.Struct, rename="camel"):
    """What of the document of `kai simulate -o json` is read here."""

    simulated_seconds: float
    next_deadline: float | None
    cycles: int
    queues: list[_Queue]
    samples: list[_Sample]
    events: list[_Event]

    @property
    def evictions(self) -> int:
        return sum(event.kind == "Evicted" for event in self.events)

    @property
    def idle(self) -> float:
        return self.samples[-1].gpus - self.samples[-1].gpus_used

    @property
    def due(self) -> float:
        """GPUs that leaf queues lack to what they are due."""
        parents = {queue.parent for queue in self.queues}
        leaves = [queue for queue in self.queues if queue.name not in parents]
        return sum(max(min(each.fair_share.gpu, each.requested.gpu) - each.allocated.gpu, 0.0) for each in leaves)


@dataclass(frozen=True)
class Rest:
    """A variant and how it ended; None: it was not at rest when its CPU was used up."""

    name: str
    played: Played | None


def sheet(found: Sequence[Rest]) -> Sheet:
    """The table, for the terminal and for the page."""
    headings = ("variant", "at rest after", "cycles", "evictions", "pods waiting", "GPUs", "idle GPUs", "due")
    return Sheet("Variants played to rest", headings, [_row(each) for each in found])


def _row(each: Rest) -> list[str]:
    played = each.played
    if played is None:
        return [each.name, "not at rest", *["-"] * 6]
    last = played.samples[-1]
    counts = [f"{played.cycles:,}", f"{played.evictions:,}", f"{last.waiting_pods:,}", f"{last.gpus:g}"]
    rest = f"{played.simulated_seconds:.0f} s"
    if played.next_deadline is not None:
        rest += f", until {played.next_deadline:,.0f} s"
    return [each.name, rest, *counts, f"{played.idle:.4g}", f"{played.due:.4g}"]


def play(path: Path, cpu_seconds: int) -> Played | None:
    """Continue a snapshot file until it is at rest."""
    command = [str(Path(sys.executable).with_name("kai")), "simulate", str(path), "-o", "json"]
    try:
        return msgspec.json.decode(checked(command, cpu_seconds=cpu_seconds), type=Played)
    except OutOfTimeError:
        return None


@click.command()
@click.option("--nodes", default=NODES, show_default=True, type=click.IntRange(1))
@click.option("--only", default="", help="Variants, separated by commas.  [default: all]")
@click.option("--seconds", default=CPU_SECONDS, show_default=True, type=click.IntRange(1), help="CPU of each process.")
@click.option("--perf", default=PERF, type=click.Path(path_type=Path), help="Folder with variants.py.")
@click.option("--docs", is_flag=True, help="Write the section of docs/performance.md.")
def main(nodes: int, only: str, seconds: int, perf: Path, docs: bool) -> None:
    """Play clusters in which much happens at once until they are at rest."""
    try:
        files = VariantFiles(perf if perf.is_absolute() else ROOT / perf, ROOT / "build" / "bench")
        found = []
        for variant in files.chosen([name.strip() for name in only.split(",") if name.strip()]):
            began = time.monotonic()
            found.append(Rest(variant.name, play(files.of(VariantCase(variant, nodes, SEED)), seconds)))
            click.echo(f"{' | '.join(_row(found[-1]))} | {time.monotonic() - began:.0f} s", err=True)
    except BenchError as error:
        raise click.ClickException(str(error)) from error
    tables.show([sheet(found).shown()])
    if docs:
        page, about = ROOT / "docs" / "performance.md", machine.now()
        text = TEXT.format(
            nodes=nodes, table=sheet(found).written(), seconds=seconds, when=about.at, machine=machine.title()
        )
        page.write_text(with_section(page.read_text(), "bench-at-rest", text))


if __name__ == "__main__":
    main()
