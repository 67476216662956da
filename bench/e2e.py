"""`python -m bench.e2e`: pods per second on a real control plane, beside its kube-scheduler in the same run.

Three loads: single-GPU pods created as fast as possible, one Job whose pods must start together (kube-scheduler knows
no gangs and starts them one by one), and pods one after the other on an idle cluster. A figure is worth what it is
beside kube-scheduler's of the same run: both share the machine with etcd, the API server and the hollow nodes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench import live_load, machine, page
from bench.live_cluster import KAI, KUBELETS, LiveCluster, kai_all, kube_scheduler, live_cluster
from bench.live_load import Cost, Lives, Write
from bench.machine import Moment
from bench.measure import BenchError
from bench.page import markdown
from pykai.kube.api import Api
from pykai.local.cluster_session import connect
from pykai.local.control_plane import APISERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER
from pykai.objects import names
from pykai.observe import tables

OURS, YARDSTICK = "pykai", "kube-scheduler"
SINGLES, GANG, ALONE = "single pods", "gang", "one by one"
PEER_CPU_MS = 167.0
PARTS = {
    ETCD: "etcd",
    APISERVER: "API server",
    CONTROLLER_MANAGER: "controllers",
    SCHEDULER: "kube-scheduler",
    KUBELETS: "kubelets",
    KAI: "pykai",
}
"""Processes and what they are called in the table."""
TEXT = """## End to end

A real control plane (etcd, kube-apiserver, kube-controller-manager) with {nodes:,} hollow nodes; pykai is `kai all`,
admission webhook included. kube-scheduler runs the same loads in the same run, in turns with pykai, its client limits
lifted; it knows no gangs, and for it the gang is a Job whose pods start one by one. Neither runs while the other is
measured. Everything shares the cores below: compare the two of one run, not absolute figures. Each row is the round
with the median time of {rounds}.

{figures}
*One by one* are pods on an idle cluster, each created when the one before has its node. *Last bind* counts from the
first create, *latency* is a pod's time from its creation to its node, the median. *CPU* is that of all parts, until
nothing is written any more: status and events come seconds after the last bind.

{targets}
KAI needed {peer:.0f} ms of CPU a pod for 1,000 pods on 500 nodes, 84 of them in the API server, bound 12 pods a second
and a gang of 256 in 39 s (client limits lifted, webhook off; taken beforehand on 2 shared cores), with about 25 writes
a pod. One write of every pod is the kubelet's.

Writes a pod, leases not counted:

{writes}
CPU seconds:

{cpu}
Measured {when:%Y-%m-%d} on {machine}; load {before:.1f} before and {after:.1f} after.
"""


@dataclass(frozen=True)
class Outcome:
    """One load on one scheduler: `seconds` from the first pod to the last binding, `latency` the median of pods."""

    scheduler: str
    load: str
    pods: int
    seconds: float
    latency: float
    cost: Cost

    @property
    def rate(self) -> float:
        """Pods bound a second."""
        return self.pods / self.seconds

    @property
    def writes(self) -> float:
        """Writes a pod."""
        return self.cost.total_writes / self.pods

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of CPU a pod, of all parts."""
        return 1000 * self.cost.total_cpu / self.pods


Found = Mapping[tuple[str, str], Outcome]
"""By load and scheduler."""


def middle(found: Sequence[Outcome]) -> dict[tuple[str, str], Outcome]:
    """By load and scheduler, the round with the median time; load by load, in the order they came."""
    by: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in found:
        by.setdefault((outcome.load, outcome.scheduler), []).append(outcome)
    loads = list(dict.fromkeys(load for load, _ in by))
    ordered = sorted(by, key=lambda key: (loads.index(key[0]), key[1] != OURS))
    return {key: sorted(by[key], key=lambda each: each.seconds)[(len(by[key]) - 1) // 2] for key in ordered}


@dataclass(frozen=True)
class Target:
    """What this project set out to reach on a load, at most or at least; `reached` is told ours and the yardstick's."""

    what: str
    load: str
    asked: float
    reached: Callable[[Outcome, Outcome], float]
    least: bool = False

    def row(self, found: Found) -> list[str]:
        """What was asked and what was reached."""
        value = self.reached(found[self.load, OURS], found[self.load, YARDSTICK])
        met = value >= self.asked if self.least else value <= self.asked
        return [self.what, f"{'≥' if self.least else '≤'} {self.asked:g}", f"{value:.2f}", "yes" if met else "no"]


TARGETS = (
    Target("single pods a second, part of kube-scheduler's", SINGLES, 1, lambda we, it: we.rate / it.rate, least=True),
    Target("median latency of single pods, times kube-scheduler's", SINGLES, 2, lambda we, it: we.latency / it.latency),
    Target(
        *("time to the last bind of the gang, times kube-scheduler's Job", GANG, 1.5),
        lambda we, it: we.seconds / it.seconds,
    ),
    Target("CPU a single pod, part of KAI's", SINGLES, 0.33, lambda we, _: we.cpu_ms / PEER_CPU_MS),
    Target("writes a single pod without the kubelet's, to a tenth", SINGLES, 5, lambda we, _: round(we.writes - 1, 1)),
    Target("seconds to bind a pod on an idle cluster", ALONE, 0.3, lambda we, _: we.latency),
)
FIGURES = ("load", "scheduler", "pods", "pods/s", "last bind", "latency", "CPU ms a pod", "writes a pod")


@dataclass(frozen=True)
class Report:
    """The figures, and the moments between which they were taken."""

    found: Found
    began: Moment
    ended: Moment

    def show(self) -> None:
        """Print everything."""
        rows = {
            ("End to end", FIGURES): self._figures(),
            ("What was asked for", ("", "asked", "reached", "")): self._targets(),
            ("Writes a pod", ("", *self._columns())): self._writes(),
            ("CPU seconds", ("", *self._columns())): self._cpu(),
        }
        tables.show([tables.table(title, _right(head), cells) for (title, head), cells in rows.items()])
        click.echo(f"{machine.title()}; load before {self.began.load:.1f}, after {self.ended.load:.1f}")

    def page(self, nodes: int, rounds: int) -> str:
        """The section of the page."""
        return TEXT.format(
            nodes=nodes,
            rounds=rounds,
            peer=PEER_CPU_MS,
            figures=markdown(FIGURES, self._figures()),
            targets=markdown(("", "asked", "reached", "met"), self._targets()),
            writes=markdown(("", *self._columns()), self._writes()),
            cpu=markdown(("", *self._columns()), self._cpu()),
            when=self.began.at,
            machine=machine.title(),
            before=self.began.load,
            after=self.ended.load,
        )

    def _columns(self) -> list[str]:
        return [f"{load}, {scheduler.removesuffix('-scheduler')}" for load, scheduler in self.found]

    def _figures(self) -> list[list[str]]:
        return [
            [
                *(load, scheduler, f"{of.pods:,}", f"{of.rate:.0f}", f"{of.seconds:.2f} s"),
                *(f"{1000 * of.latency:.0f} ms", f"{of.cpu_ms:.1f}", f"{of.writes:.1f}"),
            ]
            for (load, scheduler), of in self.found.items()
        ]

    def _targets(self) -> list[list[str]]:
        loads = {load for load, _ in self.found}
        return [target.row(self.found) for target in TARGETS if target.load in loads]

    def _writes(self) -> list[list[str]]:
        counts = {
            write: sum(of.cost.writes[write] for of in self.found.values())
            for of in self.found.values()
            for write in of.cost.writes
        }
        ordered = sorted(counts, key=lambda write: -counts[write])
        rows = [
            [" ".join(write), *(_each(of.cost.writes[write] / of.pods) for of in self.found.values())]
            for write in ordered
        ]
        return [row for row in rows if any(row[1:])]

    def _cpu(self) -> list[list[str]]:
        shown = {part: name for part, name in PARTS.items() if any(part in of.cost.cpu for of in self.found.values())}
        return [
            [name, *(f"{of.cost.cpu[part]:.1f}" if part in of.cost.cpu else "" for of in self.found.values())]
            for part, name in shown.items()
        ]


def _each(count: float) -> str:
    return f"{count:.2f}" if count >= 0.005 else ""


def _right(head: Sequence[str]) -> list[tables.Column | str]:
    """Headings with figures on the right below all but the first."""
    return [head[0], *(tables.Column(title, right=True) for title in head[1:])]


SCHEDULERS = {YARDSTICK: "default-scheduler", OURS: names.SCHEDULER_NAME}
LONGEST_SECONDS = 300.0
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


@dataclass(frozen=True)
class Order:
    """How much to do."""

    nodes: int
    gpus: int
    pods: int
    gang: int
    alone: int
    rounds: int


@dataclass(frozen=True)
class Stage:
    """Where loads are put: a cluster, a client and the lives of its pods."""

    cluster: LiveCluster
    api: Api
    lives: Lives

    async def put(self, scheduler: str, load: Load, number: int) -> Outcome:
        """Put one load on a scheduler and clear it away."""
        before = await live_load.read_when_quiet(self.cluster)
        await load.run(self, SCHEDULERS[scheduler])
        if not await self.lives.all_bound(load.pods, LONGEST_SECONDS):
            raise BenchError(f"{scheduler}, {load.name}: {len(self.lives.bound)} of {load.pods} pods were bound")
        seconds, latency = self.lives.seconds(), self.lives.latency()
        cost = Cost.between(before, await live_load.read_when_quiet(self.cluster), Counter(load.own_writes))
        await live_load.clear(self.api, self.lives)
        click.echo(
            f"{scheduler}, {load.name}, round {number}: {seconds:.2f} s, {load.pods / seconds:.0f} pods/s", err=True
        )
        return Outcome(scheduler, load.name, load.pods, seconds, latency, cost)


@dataclass(frozen=True)
class Load:
    """Some pods; `own_writes` are those of the benchmark."""

    name: str
    pods: int
    run: Callable[[Stage, str], Coroutine[Any, Any, None]]
    own_writes: dict[Write, int]


def loads(order: Order) -> list[Load]:
    """What is measured."""
    singles = [f"pod-{number:05}" for number in range(order.pods)]
    alone = [f"alone-{number:03}" for number in range(order.alone)]

    async def all_at_once(stage: Stage, scheduler: str) -> None:
        await live_load.create_pods(stage.api, stage.lives, scheduler, singles)

    async def as_a_job(stage: Stage, scheduler: str) -> None:
        await live_load.create_job(stage.api, scheduler, order.gang)

    async def one_by_one(stage: Stage, scheduler: str) -> None:
        for number, name in enumerate(alone, 1):
            await live_load.create_pods(stage.api, stage.lives, scheduler, [name])
            await stage.lives.all_bound(number, LONGEST_SECONDS)
            await asyncio.sleep(0.2)

    all_loads = [
        Load(SINGLES, order.pods, all_at_once, {("POST", "pods"): order.pods}),
        Load(GANG, order.gang, as_a_job, {("POST", "jobs"): 1, ("POST", "pods"): order.gang}),
        Load(ALONE, order.alone, one_by_one, {("POST", "pods"): order.alone}),
    ]
    return [load for load in all_loads if load.pods]


async def measure(order: Order, cluster: LiveCluster, directory: Path) -> list[Outcome]:
    """Round by round, all loads on both schedulers; neither is there while the other is measured."""
    found = []
    async with connect(cluster.kubeconfig) as api, live_load.followed(api) as lives:
        stage = Stage(cluster, api, lives)
        await live_load.prepare(api)
        for number in range(1, order.rounds + 1):
            with kube_scheduler(cluster, directory):
                found += [await stage.put(YARDSTICK, load, number) for load in loads(order)]
            with kai_all(cluster, directory):
                await live_load.prepare_queues(api)
                found += [await stage.put(OURS, load, number) for load in loads(order)]
    return found


@click.command()
@click.option("--nodes", default=500, show_default=True, type=click.IntRange(1), help="Hollow nodes.")
@click.option("--gpus", default=8, show_default=True, type=click.IntRange(1), help="GPUs of each node.")
@click.option("--pods", default=1000, show_default=True, type=click.IntRange(0), help="Single-GPU pods; 0: without.")
@click.option("--gang", default=256, show_default=True, type=click.IntRange(0), help="Pods of the gang; 0: without.")
@click.option("--alone", default=20, show_default=True, type=click.IntRange(0), help="Pods one by one; 0: without.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="The median of so many is shown.")
@click.option("--docs", is_flag=True, help="Write the section of docs/performance.md.")
def main(docs: bool, **given: int) -> None:
    """Measure pods per second on a real control plane, beside kube-scheduler's."""
    order = Order(**given)
    if max(order.pods, order.gang, order.alone) > order.nodes * order.gpus:
        raise click.UsageError(f"{order.nodes} nodes with {order.gpus} GPUs do not have room for all pods of a load")
    began = machine.now()
    try:
        with tempfile.TemporaryDirectory() as directory, live_cluster(order.nodes, order.gpus) as cluster:
            found = asyncio.run(measure(order, cluster, Path(directory)))
    except BenchError as error:
        raise click.ClickException(str(error)) from error
    report = Report(middle(found), began, machine.now())
    report.show()
    if docs:
        PAGE.write_text(page.with_section(PAGE.read_text(), "bench-e2e", report.page(order.nodes, order.rounds)))


if __name__ == "__main__":
    main()
