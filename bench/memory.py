"""`python -m bench.memory`: what a live `kai scheduler` costs in a large cluster in which nothing happens.

Nodes and running pods exist only in the API server: there are no kubelets, because the scheduler would not notice them.
The controller manager is stopped meanwhile: it would take the nodes for dead, and something would happen.
Memory is the process's, after the last cycle and at its peak; CPU is counted over a stretch in which nothing changes.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from bench import live_load, machine, page
from bench.live_cluster import SCHEDULER, LiveCluster, component, live_cluster
from bench.measure import BenchError
from bench.page import markdown
from pykai.cli.install import install
from pykai.hollow.hollow_node import GpuShape, NodeShape, node_object
from pykai.kube.api import Api, Object, Patch
from pykai.kube.api_resources import NODE, POD, POD_GROUP
from pykai.local.cluster_session import connect
from pykai.local.control_plane import CONTROLLER_MANAGER
from pykai.local.process import cpu_seconds
from pykai.objects import names
from pykai.observe import tables

NAME = "bench-memory"
FLAGS = ("--qps=0", "--plugin-server-port=0")
GANG = 8
READY_SECONDS, REST_SECONDS, IDLE_SECONDS = 600.0, 20.0, 60.0
_SINCE = "2026-01-01T00:00:00Z"
RUNNING: Object = {
    "phase": "Running",
    "startTime": _SINCE,
    "podIP": "10.0.0.1",
    "conditions": [
        {"type": kind, "status": "True", "lastTransitionTime": _SINCE}
        for kind in ("PodScheduled", "Initialized", "PodReadyToStartContainers", "ContainersReady", "Ready")
    ],
    "containerStatuses": [
        {
            "name": "main",
            "image": "none",
            "imageID": "none@sha256:0",
            "containerID": "containerd://0",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": _SINCE}},
        }
    ],
}
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
ASKED_MIB = 500
TITLES = ("nodes", "pods", "PodGroups", "ready after", "MiB", "peak MiB", "asked", "CPU, idle")
TEXT = """## A live scheduler at rest

`kai scheduler`, a process of its own, on a real API server with many nodes and running pods and nothing to do.
*Ready after* is the time from its start until everything was listed and the first cycle could run; *CPU, idle* is the
part of one core it used over {idle:.0f} s in which nothing changed.

{table}
Measured {when:%Y-%m-%d} on {machine}; load {before:.1f} before and {after:.1f} after.
"""


async def fill(api: Api, nodes: int, pods: int) -> None:
    """Nodes with eight GPUs, and pods of one GPU in groups of eight that run on them."""
    groups = range((pods + GANG - 1) // GANG)
    await _all(lambda number: api.create(NODE, _node(number)), range(nodes), "nodes")
    await _all(lambda number: api.create(POD_GROUP, _group(number), live_load.SPACE), groups, "PodGroups")
    await _all(lambda number: _running_pod(api, number, number % nodes), range(pods), "pods")


async def _all(make: Callable[[int], Coroutine[Any, Any, object]], numbers: Iterable[int], what: str) -> None:
    began, waiting = time.perf_counter(), iter(numbers)

    async def work() -> int:
        done = 0
        for number in waiting:
            await make(number)
            done += 1
        return done

    made = sum(await asyncio.gather(*(work() for _ in range(live_load.AT_ONCE))))
    click.echo(f"{made:,} {what} in {time.perf_counter() - began:.0f} s", err=True)


def _node(number: int) -> Object:
    return node_object(NodeShape(_node_name(number), GpuShape(8)), _SINCE)


def _node_name(number: int) -> str:
    return f"node-{number:05}"


def _group(number: int) -> Object:
    return {"metadata": {"name": f"group-{number:05}"}, "spec": {"minMember": GANG, "queue": live_load.QUEUE_NAME}}


async def _running_pod(api: Api, number: int, node: int) -> None:
    """A pod as it is once it runs: with a node, and with the conditions and statuses that a kubelet writes."""
    made, name = live_load.template(names.SCHEDULER_NAME), f"pod-{number:05}"
    notes = {**made["metadata"]["annotations"], names.POD_GROUP_ANNOTATION: f"group-{number // GANG:05}"}
    metadata = {**made["metadata"], "name": name, "annotations": notes}
    await api.create(
        POD, {"metadata": metadata, "spec": {**made["spec"], "nodeName": _node_name(node)}}, live_load.SPACE
    )
    await api.patch(POD.ref(name, live_load.SPACE).sub("status"), Patch.strategic({"status": RUNNING}))


def measure(cluster: LiveCluster, directory: Path) -> tuple[float, float, float, float]:
    """Seconds until a scheduler is ready, its memory and its peak in MiB, and the part of a core it uses at rest."""
    began = time.perf_counter()
    with component(cluster, directory, SCHEDULER, *FLAGS, seconds=READY_SECONDS):
        ready, pid = time.perf_counter() - began, cluster.pids[SCHEDULER]
        time.sleep(REST_SECONDS)
        before = cpu_seconds(pid)
        time.sleep(IDLE_SECONDS)
        return ready, *memory(pid), (cpu_seconds(pid) - before) / IDLE_SECONDS


def memory(pid: int | str = "self") -> tuple[float, float]:
    """What a process holds now and has held at most, in MiB."""
    told = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE))
    return int(told["VmRSS"]) / 1024, int(told["VmHWM"]) / 1024


async def _prepared(cluster: LiveCluster) -> None:
    async with connect(cluster.kubeconfig) as api:
        await install(api)
        await live_load.prepare(api)
        await live_load.prepare_queues(api)


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def _filled(cluster: LiveCluster, nodes: int, pods: int) -> None:
    async with connect(cluster.kubeconfig) as api:
        await fill(api, nodes, pods)


@click.command()
@click.option("--nodes", default=5_000, show_default=True, type=click.IntRange(1), help="Nodes in the API server.")
@click.option("--pods", default=20_000, show_default=True, type=click.IntRange(0), help="Pods that run on them.")
@click.option("--docs", is_flag=True, help="Write the section of docs/performance.md.")
def main(nodes: int, pods: int, docs: bool) -> None:
    """Measure memory and idle CPU of a live scheduler."""
    began = machine.now()
    try:
        with tempfile.TemporaryDirectory() as directory, live_cluster(0, 0, NAME) as cluster:
            asyncio.run(_prepared(cluster))
            with _stopped(cluster.pids[CONTROLLER_MANAGER]):
                asyncio.run(_filled(cluster, nodes, pods))
                ready, now, peak, idle = measure(cluster, Path(directory))
    except BenchError as error:
        raise click.ClickException(str(error)) from error
    sizes = [f"{count:,}" for count in (nodes, pods, (pods + GANG - 1) // GANG)]
    row = [*sizes, f"{ready:.1f} s", f"{now:.0f}", f"{peak:.0f}", f"< {ASKED_MIB}", f"{100 * idle:.1f} %"]
    tables.show([tables.table("A live scheduler at rest", [tables.Column(t, right=True) for t in TITLES], [row])])
    ended = machine.now()
    if docs:
        text = TEXT.format(
            idle=IDLE_SECONDS,
            table=markdown(TITLES, [row]),
            when=began.at,
            machine=machine.title(),
            before=began.load,
            after=ended.load,
        )
        PAGE.write_text(page.with_section(PAGE.read_text(), "bench-memory", text))


if __name__ == "__main__":
    main()
