"""`python -m bench.day`: a day of a published cluster under three policies, for docs/scale.md.

The same jobs (`pykai.simulate.traces`) are played by

* **pykai**, as installed: queues with quotas, reclaim and consolidation;
* **plain gang**: pykai with one queue and the action allocate only. Gangs start whole, in order of arrival, and what
  does not fit lets others pass; nobody owns anything and nobody is evicted;
* **FIFO**: a model in this file. The oldest job starts as soon as so many GPUs are free, wherever they are, and nobody
  passes it.
"""

from __future__ import annotations

import gc
import heapq
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from resource import RUSAGE_SELF, getrusage
from statistics import fmean, quantiles

import click

from bench import machine, plot
from bench.page import with_section
from bench.run import ROOT
from bench.variants import Sheet
from pykai.cli.component import GC_THRESHOLDS
from pykai.cli.simulated_product import SimulatedProduct
from pykai.config.scheduler_config import SchedulerConfig
from pykai.model.params import SchedulerParams
from pykai.observe import tables
from pykai.simulate import generate, manifest_validation, traces
from pykai.simulate.history import SimulationResult
from pykai.simulate.simulation import Setting, Simulation
from pykai.simulate.traces import DAY, GPUS_PER_NODE, TraceJob

NODES, SEED = 48, 1
HOUR = 3600.0
PYKAI, GANG, FIFO = POLICIES = "pykai", "plain gang", "FIFO"
ONE_QUEUE = "all"
CLASSES = (("1 GPU", 1, 1), ("2-8 GPUs", 2, 8), ("16-64 GPUs", 16, 64))
TEXT = """## A day of Helios

{jobs:,} jobs on {nodes:,} nodes with {gpus:,} GPUs; {running:,} of the jobs run when the day begins. They ask for
{load:.0%} of the GPU time, and eight queues ask for other parts than they own.
`kai simulate --nodes {nodes} --trace helios --seed {seed}` plays the same day; `pykai/simulate/traces.py` says what of
it is published and what is assumed.

{table}
![Waiting times by size, and what queues lacked of their quota](img/day.png)

* **Waits** are those of jobs that arrive during the day, until they start for the first time: the mean, and in brackets
  what 99 % do not exceed. A job that did not start counts with its wait until midnight.
* **Busy** is the part of all GPUs that pods hold, over the day.
* **Lacked**: the part of GPU time that queues asked for, within their quota, and did not get.
* **Lost** are GPU hours that evicted pods had run for: in the simulator they begin anew.
* **Plain gang** and **FIFO** are what they are in `bench/day.py`. FIFO is a model without nodes, which flatters it.

Played {when:%Y-%m-%d} on {machine}; load {before:.1f} before and {after:.1f} after.
"""


@dataclass(frozen=True)
class Case:
    """The jobs that arrive until `end`, and the GPUs that they find; a shorter case than a day has the figures of its
    hours."""

    jobs: Sequence[TraceJob]
    gpus: int
    seed: int = SEED
    end: float = DAY

    @property
    def nodes(self) -> int:
        return self.gpus // GPUS_PER_NODE

    def until(self, end: float) -> Case:
        """Return the case until an earlier end."""
        return replace(self, jobs=[job for job in self.jobs if job.arrives < end], end=end)


@dataclass(frozen=True)
class Stretch:
    """GPUs that a job held from one instant to another; `lost`: it was evicted and began anew."""

    job: str
    gpus: float
    begin: float
    end: float
    lost: bool = False


@dataclass(frozen=True)
class Played:
    """What happened under one policy until `end`; `done`: when jobs ended, as far as they did."""

    policy: str
    stretches: Sequence[Stretch]
    done: Mapping[str, float]
    end: float = DAY
    cpu_seconds: float = 0.0
    cycles: int = 0


# ------------------------------------------------------------------------------------------------------- policies
def fifo(case: Case) -> Played:
    """Strict order of arrival, without nodes."""
    free, clock = case.gpus, 0.0
    ends: list[tuple[float, int]] = []
    stretches: list[Stretch] = []
    done: dict[str, float] = {}
    for job in case.jobs:
        clock = max(clock, job.arrives)
        while ends and (ends[0][0] <= clock or free < job.gpus):
            end, freed = heapq.heappop(ends)
            clock, free = max(clock, end), free + freed
        if clock >= case.end:
            break
        free -= job.gpus
        heapq.heappush(ends, (clock + job.runs, job.gpus))
        stretches.append(Stretch(job.name, job.gpus, clock, min(clock + job.runs, case.end)))
        done |= {job.name: clock + job.runs} if clock + job.runs <= case.end else {}
    return Played(FIFO, stretches, done, case.end)


def product(policy: str, case: Case) -> Played:
    """The product's own decisions; under `GANG` in one queue and without evictions. Reports each hour of the day.

    Ctrl-C ends the day there.
    """
    config, owned, jobs = SchedulerConfig(), traces.quotas(case.gpus), case.jobs
    if policy == GANG:
        config, owned = SchedulerConfig(actions=("allocate",)), {ONE_QUEUE: case.gpus}
        jobs = [replace(job, queue=ONE_QUEUE) for job in jobs]
    found = [*generate.nodes(case.nodes, GPUS_PER_NODE), *traces.manifests(jobs, owned)]
    arrivals = [one.arrival(case.seed) for one in manifest_validation.admit(generate.with_defaults(found))]
    began, hours = time.process_time(), count(0)
    due, stopped = next(hours), False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    def progress(at: float, ended: int, pods: int) -> bool:
        nonlocal due
        if at >= due * HOUR:
            cpu = time.process_time() - began
            click.echo(f"{policy}: {due}:00, {ended:,} of {pods:,} pods have ended, {cpu:.0f} s of CPU", err=True)
            due = next(hours)
        return stopped

    signal.signal(signal.SIGINT, stop)
    simulation = Simulation(SimulatedProduct(config, SchedulerParams()), arrivals, Setting(seed=case.seed))
    outcome = simulation.play(case.end, progress)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cpu, end = time.process_time() - began, outcome.history.ended_at
    return Played(policy, [*_stretches(outcome, end)], _done(outcome, end), end, cpu, outcome.history.cycles)


def _stretches(outcome: SimulationResult, end: float) -> Iterable[Stretch]:
    for life in outcome.history.lives:
        if life.scheduled_at is not None:
            ends = [each for each in (life.evicted_at, life.ended_at) if each is not None]
            yield Stretch(life.job, life.gpus, life.scheduled_at, min([*ends, end]), life.evicted_at is not None)


def _done(outcome: SimulationResult, end: float) -> dict[str, float]:
    """Jobs all of whose pods that were not evicted have ended, and when."""
    ends: dict[str, float] = defaultdict(float)
    for life in outcome.history.lives:
        if life.evicted_at is None:
            ends[life.job] = max(ends[life.job], end + 1 if life.ended_at is None else life.ended_at)
    return {job: at for job, at in ends.items() if at <= end}


# -------------------------------------------------------------------------------------------------------- figures
@dataclass(frozen=True)
class Figures:
    """What is compared; waits in seconds by name of a class of sizes."""

    played: Played
    waits: Mapping[str, Sequence[float]]
    busy: float
    lacked: Mapping[str, float]
    lacked_in_all: float
    lost_hours: float
    evictions: int


def figures(played: Played, case: Case) -> Figures:
    """The figures of one policy."""
    starts: dict[str, float] = {}
    for each in played.stretches:
        starts[each.job] = min(starts.get(each.job, case.end), each.begin)
    new = [job for job in case.jobs if job.arrives > 0]
    waits = {
        name: [starts.get(job.name, case.end) - job.arrives for job in new if least <= job.gpus <= most]
        for name, least, most in CLASSES
    }
    lost = [each for each in played.stretches if each.lost]
    lacked, due = _lacked(played, case, traces.quotas(case.gpus))
    return Figures(
        played,
        waits,
        sum(each.gpus * (each.end - each.begin) for each in played.stretches) / (case.gpus * case.end),
        {queue: lacked[queue] / due[queue] if due[queue] else 0.0 for queue in due},
        sum(lacked.values()) / max(sum(due.values()), 1.0),
        sum(each.gpus * (each.end - each.begin) for each in lost) / 3600,
        len(lost),
    )


def _lacked(played: Played, case: Case, owned: Mapping[str, int]) -> tuple[dict[str, float], dict[str, float]]:
    """GPU seconds within its quota that each queue asked for and did not have, and that it asked for."""
    queue_of = {job.name: job.queue for job in case.jobs}
    changes: dict[str, list[tuple[float, float, float]]] = {queue: [] for queue in owned}
    for job in case.jobs:
        changes[job.queue] += [(job.arrives, job.gpus, 0.0), (played.done.get(job.name, case.end), -job.gpus, 0.0)]
    for each in played.stretches:
        changes[queue_of[each.job]] += [(each.begin, 0.0, each.gpus), (each.end, 0.0, -each.gpus)]
    lacked, due = dict.fromkeys(owned, 0.0), dict.fromkeys(owned, 0.0)
    for queue, rows in changes.items():
        asked = held = clock = 0.0
        for at, more_asked, more_held in sorted(rows):
            within = min(asked, owned[queue])
            due[queue] += within * (at - clock)
            lacked[queue] += max(within - held, 0.0) * (at - clock)
            asked, held, clock = asked + more_asked, held + more_held, at
    return lacked, due


def sheet(found: Sequence[Figures]) -> Sheet:
    """The table, for the terminal and for the page."""
    headings = ("policy", *(f"wait, {name}" for name, *_ in CLASSES), "busy", "lacked", "evictions", "lost")
    hours = min(each.played.end for each in found) / HOUR
    title = "A day of Helios" if hours == 24 else f"The first {hours:.1f} hours of a day of Helios"
    return Sheet(title, headings, [_row(each) for each in found])


def _row(each: Figures) -> list[str]:
    waits = [f"{_time(fmean(values))} ({_time(_last(values))})" if values else "-" for values in each.waits.values()]
    rest = [f"{each.busy:.1%}", f"{each.lacked_in_all:.1%}", f"{each.evictions:,}", f"{each.lost_hours:,.0f} h"]
    return [each.played.policy, *waits, *rest]


def _last(values: Sequence[float]) -> float:
    return quantiles(values, n=100)[98] if len(values) > 1 else values[0]


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


@click.command()
@click.option("--nodes", default=NODES, show_default=True, type=click.IntRange(8))
@click.option("--seed", default=SEED, show_default=True)
@click.option(
    "--policy", "policies", multiple=True, type=click.Choice(POLICIES), default=POLICIES, help="By default all."
)
@click.option("--hours", default=24, show_default=True, type=click.IntRange(1, 24), help="Play the first hours only.")
@click.option("--docs", is_flag=True, help="Write the section and the plot of docs/scale.md.")
def main(nodes: int, seed: int, policies: Sequence[str], hours: int, docs: bool) -> None:
    """Play a day of jobs under three policies."""
    gc.set_threshold(*GC_THRESHOLDS)
    before, gpus, end = machine.now(), nodes * GPUS_PER_NODE, hours * HOUR
    case, found = Case(traces.day(gpus, seed), gpus, seed).until(end), []
    for policy in policies:
        played = fifo(case) if policy == FIFO else product(policy, case)
        case = case.until(played.end)
        found.append(figures(played, case))
        used = f"{played.cpu_seconds:.0f} s of CPU, {played.cycles:,} cycles"
        click.echo(f"{policy}: {used}, {getrusage(RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB", err=True)
    tables.show([sheet(found).shown()])
    if docs:
        _write(found, case, before)


def _write(found: Sequence[Figures], case: Case, before: machine.Moment) -> None:
    page = ROOT / "docs" / "scale.md"
    text = TEXT.format(
        jobs=len(case.jobs),
        nodes=case.nodes,
        gpus=case.gpus,
        running=sum(job.arrives == 0 for job in case.jobs),
        seed=case.seed,
        load=sum(job.gpus * min(job.runs, case.end - job.arrives) for job in case.jobs) / (case.gpus * case.end),
        table=sheet(found).written(),
        when=before.at,
        machine=machine.title(),
        before=before.load,
        after=machine.now().load,
    )
    page.write_text(with_section(page.read_text(), "bench-day", text))
    plot.write_day(found, ROOT / "docs" / "img" / "day.png")


if __name__ == "__main__":
    main()
