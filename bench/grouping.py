"""`python -m bench.grouping`: pods of Jobs grouped on a real API server, by the pod grouper alone.

Two loads of the same size: Jobs whose pods come while the grouper runs, and Jobs whose pods all wait when it starts, as
after an upgrade. Kubernetes' Job controller makes the pods, and nothing schedules them. What counts is writes: the
least possible is one PodGroup for each Job and one patch for each pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import click
import msgspec

from bench import live_load, machine, page
from bench.live_cluster import LiveCluster, component, live_cluster
from bench.live_load import Meter
from bench.measure import BenchError
from bench.page import markdown
from pykai.cli.install import install
from pykai.kube.api import Api, Selection
from pykai.kube.api_resources import JOB, NAMESPACE, POD
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import WatchChange
from pykai.local.cluster_session import connect
from pykai.objects import names
from pykai.observe import tables

GROUPER = "kai podgrouper"
FLAGS = ("--qps=0", "--metrics-bind-address=0")
LONGEST_SECONDS = 900.0
AT_ONCE = 32
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
TITLES = (
    "load",
    "pods",
    "seconds",
    "pods/s",
    "median wait",
    "PodGroup writes a pod",
    "pod patches a pod",
    "CPU ms a pod",
)
TEXT = """## Grouping

{pods:,} pods of {jobs:,} Jobs, made by Kubernetes' Job controller on a real API server and put in PodGroups by the pod
grouper, a process of its own. *Seconds* are from the first pod (or from the start of the grouper, for pods that were
there before) to the last pod in its group; *median wait* is from a pod's birth (or that start) to its place in a group;
*CPU* is the grouper's. The least possible is {least:.2f} PodGroup writes and one patch for each pod.

{table}
KAI publishes no figure for its pod grouper alone. Counted over all of its components on such an API server, it writes
2.9 times to PodGroups and 2.4 times to pods for each pod it schedules (status apart); a gang of 256 pods waits 12 to
43 s for its first binding, because every pod updates the one PodGroup and conflicts back off from 1 s.

Measured {when:%Y-%m-%d} on {machine}; load {before:.1f} before and {after:.1f} after.
"""


class _Meta(msgspec.Struct):
    name: str
    annotations: dict[str, str] = {}


class _Pod(msgspec.Struct):
    metadata: _Meta


@dataclass
class Progress:
    """When each pod was first seen, and when it was first seen in a group; seconds of one steady clock."""

    born: dict[str, float] = field(default_factory=dict)
    grouped: dict[str, float] = field(default_factory=dict)

    def see(self, change: WatchChange[_Pod]) -> None:
        """A pod changed."""
        now, meta = time.perf_counter(), change.object.metadata
        self.born.setdefault(meta.name, now)
        if names.POD_GROUP_ANNOTATION in meta.annotations:
            self.grouped.setdefault(meta.name, now)

    async def reached(self, seen: dict[str, float], pods: int) -> None:
        """Return when so many pods are in `born` or `grouped`."""
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                while len(seen) < pods:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            counts = f"{len(self.born)} pods came, {len(self.grouped)} were grouped"
            raise BenchError(f"{counts} within {LONGEST_SECONDS:.0f} s, {pods} are expected") from None


@dataclass(frozen=True)
class Outcome:
    """One load; `wait` is the median over pods, `group_writes` and `patches` count, `cpu` are the grouper's seconds."""

    load: str
    pods: int
    seconds: float
    wait: float
    group_writes: int
    patches: int
    cpu: float

    def row(self) -> list[str]:
        """The figures, in the order of TITLES."""
        each = (self.group_writes / self.pods, self.patches / self.pods)
        rate, cpu = self.pods / self.seconds, 1000 * self.cpu / self.pods
        return [
            *(self.load, f"{self.pods:,}", f"{self.seconds:.1f}", f"{rate:.0f}", f"{self.wait:.2f} s"),
            *(f"{count:.3f}" for count in each),
            f"{cpu:.2f}",
        ]


def outcome(load: str, progress: Progress, before: Meter, after: Meter, since: float) -> Outcome:
    """The figures of a load whose pods could be grouped from `since` on."""
    writes = after.writes - before.writes
    waits = [at - max(since, progress.born[name]) for name, at in progress.grouped.items()]
    began = max(since, min(progress.born.values()))
    group_writes = sum(count for (_, place), count in writes.items() if place == "podgroups")
    seconds = max(progress.grouped.values()) - began
    patches = writes["PATCH", "pods"]
    return Outcome(load, len(waits), seconds, median(waits), group_writes, patches, after.cpu[GROUPER])


@contextlib.asynccontextmanager
async def followed(api: Api, space: str) -> AsyncIterator[Progress]:
    """The pods of a namespace, followed while the block runs."""
    progress, watches = Progress(), InformerFactory(api)
    watches.of(POD, _Pod, Selection(space)).subscribe(progress.see)
    following = asyncio.create_task(watches.run())
    try:
        await watches.synced()
        yield progress
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def create_jobs(api: Api, space: str, jobs: int, size: int) -> None:
    """A namespace full of Jobs, created as fast as the server takes them."""
    await api.create(NAMESPACE, {"metadata": {"name": space}})
    await asyncio.sleep(1.0)  # its service account is made meanwhile
    gate = asyncio.Semaphore(AT_ONCE)
    pod = {
        "metadata": {"labels": {names.QUEUE_LABEL: names.DEFAULT_QUEUE}},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none"}],
        },
    }

    async def create(number: int) -> None:
        async with gate:
            spec = {"parallelism": size, "completions": size, "template": pod}
            await api.create(JOB, {"metadata": {"name": f"job-{number:05}"}, "spec": spec}, space)

    await asyncio.gather(*(create(number) for number in range(jobs)))


async def measure(cluster: LiveCluster, directory: Path, jobs: int, size: int) -> list[Outcome]:
    """Both loads, one after the other."""
    async with connect(cluster.kubeconfig) as api:
        await install(api)
        return [
            await _as_they_come(cluster, api, directory, jobs, size),
            await _all_waiting(cluster, api, directory, jobs, size),
        ]


async def _as_they_come(cluster: LiveCluster, api: Api, directory: Path, jobs: int, size: int) -> Outcome:
    before = live_load.read(cluster)
    async with followed(api, "coming") as progress, grouper(cluster, directory):
        await create_jobs(api, "coming", jobs, size)
        await progress.reached(progress.grouped, jobs * size)
        after = live_load.read(cluster)
    return outcome("while pods come", progress, before, after, 0.0)


async def _all_waiting(cluster: LiveCluster, api: Api, directory: Path, jobs: int, size: int) -> Outcome:
    async with followed(api, "waiting") as progress:
        await create_jobs(api, "waiting", jobs, size)
        await progress.reached(progress.born, jobs * size)
        before, since = await live_load.read_when_quiet(cluster), time.perf_counter()
        async with grouper(cluster, directory):
            await progress.reached(progress.grouped, jobs * size)
            after = live_load.read(cluster)
    return outcome("all pods waiting", progress, before, after, since)


@contextlib.asynccontextmanager
async def grouper(cluster: LiveCluster, directory: Path) -> AsyncIterator[None]:
    """The pod grouper for the block; while it starts, a thread waits for it and pods are followed."""
    with contextlib.ExitStack() as stack:
        running = component(cluster, directory, GROUPER, *FLAGS, seconds=LONGEST_SECONDS)
        await asyncio.to_thread(stack.enter_context, running)
        yield


def section(found: Sequence[Outcome], jobs: int, began: machine.Moment) -> str:
    """The section of docs/performance.md."""
    pods = found[0].pods
    return TEXT.format(
        pods=pods,
        jobs=jobs,
        least=jobs / pods,
        table=markdown(TITLES, [each.row() for each in found]),
        when=began.at,
        machine=machine.title(),
        before=began.load,
        after=machine.now().load,
    )


@click.command()
@click.option("--jobs", default=1000, show_default=True, type=click.IntRange(1), help="Jobs of each load.")
@click.option("--size", default=10, show_default=True, type=click.IntRange(1), help="Pods of a Job.")
@click.option("--docs", is_flag=True, help="Write the section of docs/performance.md.")
def main(jobs: int, size: int, docs: bool) -> None:
    """Measure the pod grouper on a real control plane."""
    began = machine.now()
    try:
        with tempfile.TemporaryDirectory() as directory, live_cluster(1, 1, "bench-grouping") as cluster:
            found = asyncio.run(measure(cluster, Path(directory), jobs, size))
    except BenchError as error:
        raise click.ClickException(str(error)) from error
    columns: list[tables.Column | str] = [TITLES[0], *(tables.Column(title, right=True) for title in TITLES[1:])]
    tables.show([tables.table("Grouping", columns, [each.row() for each in found])])
    if docs:
        PAGE.write_text(page.with_section(PAGE.read_text(), "bench-grouping", section(found, jobs, began)))


if __name__ == "__main__":
    main()
