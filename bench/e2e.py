"""`python -m bench.e2e`: pods per second on a real control plane, beside its kube-scheduler in the same run.

Three loads: single-GPU pods created as fast as possible, one Job whose pods must start together (kube-scheduler knows
no gangs and starts them one by one), and pods one after the other on an idle cluster. A figure is worth what it is
beside kube-scheduler's of the same run: both share the machine with etcd, the API server and the hollow nodes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench import live_cost, live_load, machine, sections
from bench.e2e_report import ALONE, GANG, OURS, SINGLES, YARDSTICK, Outcome, Report, middle
from bench.live_cluster import LiveCluster, kai_all, kube_scheduler, live_cluster
from bench.live_cost import Cost, Write
from bench.live_load import Lives
from bench.measure import BenchError
from pykai.kube.api import Api
from pykai.local.session import connect
from pykai.objects import names

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
        before = await live_cost.read_when_quiet(self.cluster)
        await load.run(self, SCHEDULERS[scheduler])
        if not await self.lives.all_bound(load.pods, LONGEST_SECONDS):
            raise BenchError(f"{scheduler}, {load.name}: {len(self.lives.bound)} of {load.pods} pods were bound")
        seconds, latency = self.lives.seconds(), self.lives.latency()
        cost = Cost.between(before, await live_cost.read_when_quiet(self.cluster), Counter(load.own_writes))
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
        PAGE.write_text(sections.with_section(PAGE.read_text(), "bench-e2e", report.page(order.nodes, order.rounds)))


if __name__ == "__main__":
    main()
