"""`python -m bench.e2e`: pods per second on a real control plane, beside its kube-scheduler in the same run.

Three loads: single-GPU pods created as fast as possible, one Job whose pods must start together (kube-scheduler knows
no gangs and starts them one by one), and pods one after the other on an idle cluster. A figure is worth what it is
beside kube-scheduler's of the same run: both share the machine with etcd, the API server and the hollow nodes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench import live_cost, live_load, machine
from bench.live_cluster import KAI, KUBELETS, LiveCluster, kai_all, live_cluster
from bench.live_cost import Cost, Write
from bench.live_load import Lives
from bench.measure import BenchError
from pykai.kube.api import Api
from pykai.local import parts
from pykai.local.session import connect
from pykai.objects import names
from pykai.observe import tables

OURS, YARDSTICK = "pykai", "kube-scheduler"
SCHEDULERS = {YARDSTICK: "default-scheduler", OURS: names.SCHEDULER_NAME}
LONGEST_SECONDS = 300.0
PEER = "KAI, 500 nodes, limits lifted, no webhook: 12 pods/s, a gang of 256 in 39 s, 25 writes and 167 CPU ms a pod"


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
class Outcome:
    """One load on one scheduler: `seconds` from the first pod to the last binding, `latency` the median of pods.

    `busy` are CPU seconds of all parts until the last binding; `cost` has also what is written afterwards.
    """

    scheduler: str
    load: str
    pods: int
    seconds: float
    latency: float
    busy: float
    cost: Cost

    @property
    def rate(self) -> float:
        """Pods bound a second."""
        return self.pods / self.seconds


@dataclass(frozen=True)
class Stage:
    """Where loads are put: a cluster, a client and the lives of its pods."""

    cluster: LiveCluster
    api: Api
    lives: Lives

    async def put(self, scheduler: str, load: Load, number: int) -> Outcome:
        """Put one load on a scheduler and clear it away."""
        before = await live_cost.read_when_quiet(self.cluster)
        await load.run(self, SCHEDULERS[scheduler])
        if not await self.lives.all_bound(load.pods, LONGEST_SECONDS):
            raise BenchError(f"{scheduler}, {load.name}: {len(self.lives.bound)} of {load.pods} pods were bound")
        busy = sum(self.cluster.cpu().values()) - sum(before.cpu.values())
        seconds, latency = self.lives.seconds(), self.lives.latency()
        cost = Cost.between(before, await live_cost.read_when_quiet(self.cluster), Counter(load.own_writes))
        await live_load.clear(self.api, self.lives)
        click.echo(
            f"{scheduler}, {load.name}, round {number}: {seconds:.2f} s, {load.pods / seconds:.0f} pods/s", err=True
        )
        return Outcome(scheduler, load.name, load.pods, seconds, latency, busy, cost)


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
        Load(f"{order.pods:,} single pods", order.pods, all_at_once, {("POST", "pods"): order.pods}),
        Load(f"a gang of {order.gang}", order.gang, as_a_job, {("POST", "jobs"): 1, ("POST", "pods"): order.gang}),
        Load("one pod after the other", order.alone, one_by_one, {("POST", "pods"): order.alone}),
    ]
    return [load for load in all_loads if load.pods]


async def measure(order: Order, cluster: LiveCluster, directory: Path) -> list[Outcome]:
    """Round by round, all loads on both schedulers; ours is not there while kube-scheduler is measured."""
    found = []
    async with connect(cluster.kubeconfig) as api, live_load.followed(api) as lives:
        stage = Stage(cluster, api, lives)
        await live_load.prepare(api)
        for number in range(1, order.rounds + 1):
            found += [await stage.put(YARDSTICK, load, number) for load in loads(order)]
            with kai_all(cluster, directory):
                await live_load.prepare_queues(api)
                found += [await stage.put(OURS, load, number) for load in loads(order)]
    return found


def middle(found: Sequence[Outcome]) -> dict[tuple[str, str], Outcome]:
    """By load and scheduler, the round with the median time."""
    by: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in found:
        by.setdefault((outcome.load, outcome.scheduler), []).append(outcome)
    return {key: sorted(group, key=lambda each: each.seconds)[(len(group) - 1) // 2] for key, group in by.items()}


def report(found: Sequence[Outcome]) -> None:
    """Print figures, ratios and where the cost goes."""
    kept = middle(found)
    pairs = [(kept[load, OURS], kept[load, YARDSTICK]) for load in dict.fromkeys(load for load, _ in kept)]
    shown = [each for pair in pairs for each in pair]
    columns: list[tables.Column | str] = [*WHO, *(tables.Column(title, right=True) for title in TITLES)]
    rows = [[each.load, each.scheduler, *_figures(each)] for each in shown]
    ratios = [[ours.load, *_ratios(ours, other)] for ours, other in pairs]
    right = [tables.Column(title, right=True) for title in RATIOS]
    tables.show(
        [
            tables.table("End to end", columns, rows),
            tables.table("pykai divided by kube-scheduler", ["load", *right], ratios),
            tables.table("Writes a pod", [*WHO, tables.Column("writes", wide=True)], [_writes(each) for each in shown]),
            tables.table("CPU seconds", [*WHO, *PARTS.values()], [_cpu(each) for each in shown]),
        ]
    )


TITLES = ("pods", "seconds", "pods/s", "latency", "writes a pod", "CPU ms to bind", "CPU ms in all")
RATIOS = ("pods/s", "time to the last bind", "CPU to the last bind", "CPU in all")
WHO = ("load", "scheduler")
PARTS = {
    parts.ETCD: "etcd",
    parts.APISERVER: "API server",
    parts.CONTROLLER_MANAGER: "controllers",
    parts.SCHEDULER: "kube-sched.",
    KUBELETS: "kubelets",
    KAI: "kai",
}
"""Processes and what they are called in the table."""


def _figures(of: Outcome) -> list[str]:
    figures = (of.cost.total_writes, 1000 * of.busy, 1000 * of.cost.total_cpu)
    whole = [f"{of.pods:,}", f"{of.seconds:.2f}", f"{of.rate:.1f}", f"{1000 * of.latency:.0f} ms"]
    return [*whole, *(f"{figure / of.pods:.1f}" for figure in figures)]


def _ratios(ours: Outcome, other: Outcome) -> list[str]:
    pairs = (
        (ours.rate, other.rate),
        (ours.seconds, other.seconds),
        (ours.busy, other.busy),
        (ours.cost.total_cpu, other.cost.total_cpu),
    )
    return [f"{one / two:.2f}" if two else "" for one, two in pairs]


def _writes(of: Outcome) -> list[str]:
    found = [(count / of.pods, f"{verb} {place}") for (verb, place), count in of.cost.writes.items()]
    shown = [f"{what} {each:.2f}" for each, what in sorted(found, reverse=True) if each >= 0.005]
    return [of.load, of.scheduler, ", ".join(shown)]


def _cpu(of: Outcome) -> list[str]:
    return [of.load, of.scheduler, *(f"{of.cost.cpu[part]:.1f}" if part in of.cost.cpu else "" for part in PARTS)]


@click.command()
@click.option("--nodes", default=500, show_default=True, type=click.IntRange(1), help="Hollow nodes.")
@click.option("--gpus", default=8, show_default=True, type=click.IntRange(1), help="GPUs of each node.")
@click.option("--pods", default=1000, show_default=True, type=click.IntRange(0), help="Single-GPU pods; 0: without.")
@click.option("--gang", default=256, show_default=True, type=click.IntRange(0), help="Pods of the gang; 0: without.")
@click.option("--alone", default=20, show_default=True, type=click.IntRange(0), help="Pods one by one; 0: without.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="The median of so many is shown.")
def main(**given: int) -> None:
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
    report(found)
    click.echo(f"{machine.title()}; load before {began.load:.1f}, after {machine.now().load:.1f}; {PEER}")


if __name__ == "__main__":
    main()
