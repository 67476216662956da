"""How long questions take in a large cluster: `kai explain` with remedies, and the first views of the dashboard.

The cluster is full: 5,000 nodes of 8 GPUs and 40,000 pods in 40 queues, a tenth of the pods pending. Times are CPU
seconds of a process that has the cluster in memory, as the dashboard has, beside those of reading a snapshot file.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Any

import click
from aiohttp import ClientSession, CookieJar

from pykai.dashboard.access import LoopbackGate
from pykai.dashboard.board import Board, DecidedMoment, Title
from pykai.dashboard.web_server import Dashboard, serving
from pykai.explain.remedies import remedies
from pykai.explain.running_workloads import expected_start
from pykai.explain.source import Decided, from_file
from pykai.explain.why import explain

NODES, GPUS, DEPARTMENTS, TEAMS = 5_000, 8, 8, 5
PENDING = 4_000
SAMPLE = 20
"""So many pending workloads are explained, from the first to the last in the order of service."""
PAGES = ("/queues", "/devices", "/devices.json", "/waiting", "/evictions")
PLUGINS = ("predicates", "proportion", "priority", "nodeavailability", "elastic", "minruntime", "gpupack")
ACTIONS = "allocate, consolidation, reclaim, preempt, stalegangeviction"
PARAMS = {
    "maxNumberConsolidationPreemptees": 16,
    "useSchedulingSignatures": True,
    "fullHierarchyFairness": True,
    "allowConsolidatingReclaim": True,
}
Manifest = dict[str, Any]
Sections = dict[str, list[Manifest]]


# ---------------------------------------------------------------------------------------------------------- the cluster
def cluster() -> Sections:
    """The objects, by their section of a snapshot file."""
    random, teams = Random(1), [f"team-{number}" for number in range(DEPARTMENTS * TEAMS)]
    total, nodes = NODES * GPUS, [f"node-{number:04d}" for number in range(NODES)]
    departments = [_queue(f"department-{number}", "", total // DEPARTMENTS) for number in range(DEPARTMENTS)]
    leaves = [_queue(name, f"department-{at // TEAMS}", total // len(teams)) for at, name in enumerate(teams)]
    found: Sections = {"nodes": [_node(name) for name in nodes], "queues": departments + leaves}
    found |= {"podGroups": [], "pods": [], "priorityClasses": [{"metadata": {"name": "train"}, "value": 50}]}
    places = [name for name in nodes for _ in range(GPUS)]
    while places:
        pods = list(_placed(places, random.choice([1, 1, 1, 2, 4, 8, 16]), random))
        _add(found, random.choice(teams), pods)
    pending = PENDING
    while pending > 0:
        size = min(random.choice([1, 1, 2, 4, 8, 16]), pending)
        _add(found, random.choice(teams), [("", random.choice([1, 2, 8]))] * size)
        pending -= size
    return found


def _placed(places: list[str], pods: int, random: Random) -> Iterator[tuple[str, int]]:
    """Take the last places: the node and the GPUs of each pod, now and then two."""
    for _ in range(min(pods, len(places))):
        if not places:
            return
        node = places[-1]
        gpus = 2 if random.random() < 0.1 and places[-2:] == [node, node] else 1
        del places[-gpus:]
        yield node, gpus


def _node(name: str) -> Manifest:
    amounts = {"cpu": "96", "memory": "1024Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {}, "status": status}


def _queue(name: str, parent: str, gpus: int) -> Manifest:
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    shares = {"cpu": unlimited, "memory": unlimited, "gpu": {**unlimited, "quota": gpus}}
    return {"metadata": {"name": name}, "spec": {**({"parentQueue": parent} if parent else {}), "resources": shares}}


def _add(found: Sections, queue: str, pods: list[tuple[str, int]]) -> None:
    """A gang of pods, each with its node, or none, and its GPUs."""
    number = len(found["podGroups"])
    name, at = f"work-{number}", f"2026-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"
    meta = {"namespace": queue, "creationTimestamp": at}
    spec = {"queue": queue, "minMember": len(pods), "priorityClassName": "train"}
    found["podGroups"].append({"metadata": {"name": name, "uid": name, **meta}, "spec": spec})
    for index, (node, gpus) in enumerate(pods):
        amounts = {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": str(gpus)}
        container = {"name": "main", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
        pod = f"{name}-{index}"
        found["pods"].append(
            {
                "metadata": {"name": pod, "uid": pod, **meta, "annotations": {"pod-group-name": name}},
                "spec": {"schedulerName": "kai-scheduler", "nodeName": node, "containers": [container]},
                "status": {"phase": "Running", "startTime": at} if node else {"phase": "Pending"},
            }
        )


def write(path: Path) -> None:
    """A snapshot file of the cluster."""
    config = {"actions": ACTIONS, "tiers": [{"plugins": [{"name": name} for name in PLUGINS]}]}
    document = {"config": config, "schedulerParams": PARAMS, "rawObjects": cluster()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("snapshot.json", json.dumps(document))


# ----------------------------------------------------------------------------------------------------------- measuring
def explaining(state: Decided) -> Iterator[tuple[float, bool]]:
    """CPU seconds of all that `kai explain` says about a workload, and whether there was a remedy."""
    waiting = [key for key in state.order if key in state.waiting]
    for gang in waiting[:: max(len(waiting) // SAMPLE, 1)]:
        began = process_time()
        explain(state, gang)
        found = remedies(state, gang)
        expected_start(state, gang)
        yield process_time() - began, bool(found)


async def pages(state: Decided) -> list[tuple[str, float, int, int]]:
    """Path, CPU seconds of its first view, bytes on the wire, bytes unpacked; what pages share is made by the first."""
    found = []
    async with (
        serving(
            Dashboard(Board(Title("snapshot", "bench"), DecidedMoment(state, 1)), LoopbackGate("s")), "127.0.0.1", 0
        ) as port,
        ClientSession(auto_decompress=False, cookie_jar=CookieJar(unsafe=True)) as browser,
    ):
        async with browser.get(f"http://127.0.0.1:{port}/?token=s", allow_redirects=False):
            pass
        for path in PAGES:
            sizes = []
            began = process_time()
            for encoding in ("gzip", "identity"):
                async with browser.get(f"http://127.0.0.1:{port}{path}", headers={"Accept-Encoding": encoding}) as page:
                    assert page.status == 200, path
                    sizes.append(len(await page.read()))
                if encoding == "gzip":
                    took = process_time() - began
            found.append((path, took, sizes[0], sizes[1]))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.zip"
        write(path)
        gc.collect()
        began = process_time()
        state = from_file(path)
        click.echo(f"read and decide a snapshot file: {process_time() - began:.2f} s")
    click.echo(
        f"{len(state.snapshot.nodes)} nodes, {len(state.snapshot.pods)} pods, {len(state.waiting)} workloads wait"
    )
    runs = list(explaining(state))
    times, with_remedies = sorted(took for took, _ in runs), sum(found for _, found in runs)
    click.echo(
        f"explain {len(runs)} workloads, {with_remedies} with remedies: median {median(times):.2f} s" + ", ", nl=False
    )
    click.echo(f"  nine of ten within {times[len(times) * 9 // 10]:.2f} s, the longest {times[-1]:.2f} s")
    for name, took, wire, plain in asyncio.run(pages(state)):
        click.echo(f"{name}: {took:.2f} s, {wire / 1e3:.0f} kB compressed, {plain / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
