"""`python -m bench.overload`: many pods at once, and an API server that is away for a minute; then all is deleted.

The product, all components in one process, runs in virtual time on the in-memory API server with hollow kubelets. In
each round the pods are created at once; then the server answers no component for a while, and has forgotten its past
when it is back. When every pod runs, all are deleted. What is left after a round must not grow with the rounds: the
objects of the interpreter, and the memory of the process, server included.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from bench import machine, page
from bench.memory import memory
from bench.page import markdown
from pykai.cli.simulated_product import SimulatedProduct
from pykai.config.scheduler_config import SchedulerConfig
from pykai.hollow.hollow_node import GpuShape, NodeShape, node_object
from pykai.hollow.kubelet_settings import KubeletSettings
from pykai.kube.api import Deletion, Object, Selection
from pykai.kube.api_resources import EVENT, NAMESPACE, NODE, POD, POD_GROUP, QUEUE
from pykai.kube.clock import wall
from pykai.kube.events import REMEMBERED_SECONDS
from pykai.kube.informer import InformerFactory
from pykai.kube.memory import MemoryApi
from pykai.objects import names
from pykai.observe import tables
from pykai.scheduler.process_memory import RELEASE_SECONDS
from pykai.simulate import loop
from pykai.simulate.faults.api import FaultPlan, FaultyApi
from pykai.simulate.generate import queue
from pykai.simulate.simulation import Hooks, Kubelets

SPACE, TEAM, GPUS = "default", "team", 8
START, SINCE = 1_767_225_600.0, "2026-01-01T00:00:00Z"
STEP_SECONDS, LONGEST_SECONDS = 5.0, 3600.0
FORGOTTEN_SECONDS = REMEMBERED_SECONDS + 300.0
"""After so long nothing need be remembered of pods that are gone, events about them included."""
RELEASED_SECONDS = 2 * RELEASE_SECONDS + 1.0
"""Until the scheduler has returned freed memory to the system."""
PAGE = Path(__file__).parents[1] / "docs" / "testing.md"
TITLES = ("round", "all pods run after", "all gone after", "CPU", "objects after", "MiB after")
TEXT = """## Overload

`make bench-overload`: {pods:,} pods at once on {nodes:,} nodes, and right then an API server that answers no component
for {away:g} s and has forgotten its past when it is back; when all pods run, all are deleted. All components run in one
process on the in-memory API server in virtual time; *objects* are those that Python's collector counts, *MiB* the
memory of the whole process, server included. Row 0 is before the first round.

{table}
Measured {when:%Y-%m-%d} on {machine}.
"""


@dataclass(frozen=True)
class Round:
    """What a round took, in simulated seconds and in seconds of CPU, and what was left after it."""

    ran_after: float = 0.0
    gone_after: float = 0.0
    cpu: float = 0.0
    objects: int = 0
    mebibytes: float = 0.0

    def row(self, number: int) -> list[str]:
        took = [f"{self.ran_after:.0f} s", f"{self.gone_after:.0f} s", f"{self.cpu:.0f} s"] if number else ["-"] * 3
        return [str(number), *took, f"{self.objects:,}", f"{self.mebibytes:.0f}"]


def pod(number: int) -> Object:
    """A pod of one GPU, on its own."""
    amounts = {"cpu": "1", "memory": "1Gi", names.NVIDIA_GPU: "1"}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [container]}
    return {"metadata": {"name": f"pod-{number:05}", "labels": {names.QUEUE_LABEL: TEAM}}, "spec": spec}


async def _when(api: MemoryApi, phase: str | None, count: int) -> float:
    """Simulated seconds until so many pods are in a phase (None: in any), and none of their PodGroups is left over."""
    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - began < LONGEST_SECONDS:
        await asyncio.sleep(STEP_SECONDS)
        pods = (await api.list(POD, Object, Selection(namespace=SPACE))).items
        groups = len((await api.list(POD_GROUP, Object)).items)
        found = sum(phase is None or each["status"].get("phase") == phase for each in pods)
        if found == count and (phase or not groups):
            return asyncio.get_running_loop().time() - began
    raise click.ClickException(f"not {count:,} pods {phase or 'left'} after {LONGEST_SECONDS:g} s")


async def _left(api: MemoryApi, done: Round) -> Round:
    """The same round with what is in memory once everything has come to rest, and events and the log have expired."""
    await asyncio.sleep(FORGOTTEN_SECONDS)
    for event in (await api.list(EVENT, Object)).items:
        await api.delete(EVENT.ref(event["metadata"]["name"], event["metadata"]["namespace"]))
    api.compact()
    gc.collect()
    await asyncio.sleep(RELEASED_SECONDS)
    return Round(done.ran_after, done.gone_after, done.cpu, len(gc.get_objects()), memory()[0])


async def _played(api: MemoryApi, plan: FaultPlan, pods: int, away: float) -> Round:
    cpu = _cpu()
    await asyncio.gather(*(api.create(POD, pod(number), SPACE) for number in range(pods)))
    plan.outage_until = asyncio.get_running_loop().time() + away
    api.compact()
    api.disconnect()
    ran = await _when(api, "Running", pods)
    for number in range(pods):
        await api.delete(POD.ref(f"pod-{number:05}", SPACE), Deletion())
    gone = await _when(api, None, 0)
    return await _left(api, Round(ran, gone, _cpu() - cpu))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(nodes: int, pods: int, away: float, rounds: int) -> list[Round]:
    """The state before, and every round."""
    product, time_of = SimulatedProduct(SchedulerConfig()), asyncio.get_running_loop().time
    api = MemoryApi(wall, product.definitions())
    for name in (names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE, names.SCALING_NAMESPACE):
        await api.create(NAMESPACE, {"metadata": {"name": name}})
    for one in (queue("department", "", 0), queue(TEAM, "department", 0)):
        await api.create(QUEUE, one)
    for number in range(nodes):
        await api.create(NODE, node_object(NodeShape(f"node-{number:05}", GpuShape(GPUS)), SINCE))
    plan = FaultPlan(0, time_of)
    plan.active = False
    watches = InformerFactory(api)
    kubelets = Kubelets(api, watches, KubeletSettings(2.0, 5.0, 60.0, on_start=product.programs(api)))
    faulty, hooks = FaultyApi(api, plan, "all", lambda: None), Hooks(lambda _snapshot, _plan: None, None)
    parts = (watches.run(), kubelets.run(), product.run_process("all", faulty, hooks))
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        found = [await _left(api, Round())]
        for _ in range(rounds):
            found.append(await _played(api, plan, pods, away))
            click.echo(" | ".join(found[-1].row(len(found) - 1)), err=True)
        return found
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@click.command()
@click.option("--nodes", default=2_500, show_default=True, type=click.IntRange(1))
@click.option("--pods", default=20_000, show_default=True, type=click.IntRange(1))
@click.option("--away", default=60.0, show_default=True, help="Seconds without an answer of the API server.")
@click.option("--rounds", default=2, show_default=True, type=click.IntRange(1))
@click.option("--docs", is_flag=True, help="Write the section of docs/testing.md.")
def main(nodes: int, pods: int, away: float, rounds: int, docs: bool) -> None:
    """Overload the product, take the API server away for a while, and look whether memory comes back."""
    began = time.monotonic()
    found = loop.run(measure(nodes, pods, away, rounds), START)
    rows = [each.row(number) for number, each in enumerate(found)]
    tables.show([tables.table("Overload", [tables.Column(title, right=True) for title in TITLES], rows)])
    click.echo(f"{time.monotonic() - began:.0f} s")
    if docs:
        about = machine.now()
        text = TEXT.format(
            pods=pods,
            nodes=nodes,
            away=away,
            table=markdown(TITLES, rows),
            when=about.at,
            machine=machine.title(),
        )
        PAGE.write_text(page.with_section(PAGE.read_text(), "bench-overload", text))


if __name__ == "__main__":
    main()
