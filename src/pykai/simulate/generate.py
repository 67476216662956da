"""Synthetic clusters and workloads from a few numbers and a seed, as ordinary manifests.

The mix is that of a shared GPU cluster: many small jobs, fractional GPUs, a few gangs; most have priority class train,
some build. Until the last job has arrived, the offered load is LOAD times the capacity, and most of the first jobs
belong to one team, so that the others reclaim their share when they arrive.

`with_defaults` adds what every installation has: priority classes, and queues if there are none.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pykai.kube.api import Object
from pykai.objects import names
from pykai.simulate.manifests import Manifest, Origin

GPU_MEMORY_MIB = 81920
LOAD = 1.6
FIRST_JOBS, FIRST_TEAM_SHARE = 0.4, 0.8
"""The fraction of the jobs that arrive first, and the first team's fraction of those."""
MEDIAN_SECONDS = 300.0
SPREAD = 0.8
"""Sigma of the lognormal run times."""
BUILD_SHARE = 0.15
TEAMS = ("team-a", "team-b", "team-c")


@dataclass(frozen=True)
class JobShape:
    """One kind of job: its weight, pods, GPUs per pod or the annotation of a fraction, and total GPUs."""

    weight: int
    pods: int
    gpus: int
    annotation: tuple[str, str] | None
    total: float


SHAPES = (
    JobShape(35, 1, 1, None, 1.0),
    JobShape(20, 1, 0, (names.GPU_FRACTION, "0.5"), 0.5),
    JobShape(10, 1, 0, (names.GPU_FRACTION, "0.25"), 0.25),
    JobShape(10, 1, 0, (names.GPU_MEMORY, "20000"), 0.25),
    JobShape(15, 1, 4, None, 4.0),
    JobShape(7, 4, 1, None, 4.0),
    JobShape(3, 4, 4, None, 16.0),
)


def nodes(count: int, gpus: int) -> list[Manifest]:
    """Return identical nodes, named in order."""
    digits = len(str(max(count - 1, 0)))
    return [manifest("--nodes", number, node(f"node-{number:0{digits}d}", gpus)) for number in range(count)]


def node(name: str, gpus: int) -> Object:
    """Return a node with capacity for a pod on each GPU."""
    labels = {names.HOSTNAME_LABEL: name}
    amounts = {"cpu": "64", "memory": "512Gi", "pods": str(max(110, gpus))}
    if gpus:
        labels |= {names.GPU_COUNT_LABEL: str(gpus), names.GPU_MEMORY_LABEL: str(GPU_MEMORY_MIB)}
        amounts[names.NVIDIA_GPU] = str(gpus)
    meta = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": amounts}}


def queues(gpus: float) -> list[Manifest]:
    """Return a department with a quota of all GPUs, and its teams with equal parts of it."""
    rows = [("department", "", gpus), *((team, "department", gpus // len(TEAMS)) for team in TEAMS)]
    return [manifest("--jobs", number, queue(*row)) for number, row in enumerate(rows)]


def queue(name: str, parent: str, quota: float) -> Object:
    """Return a queue with a GPU quota and no other bounds."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec: Object = {"resources": {"cpu": free, "memory": free, "gpu": {**free, "quota": quota}}}
    if parent:
        spec["parentQueue"] = parent
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def jobs(count: int, among: Sequence[str], gpus: float, seed: int) -> list[Manifest]:
    """Return `count` jobs for these queues on a cluster with this many GPUs."""
    draw = random.Random(f"{seed}/jobs")
    fitting = [shape for shape in SHAPES if shape.total <= max(gpus, 1)]
    weights = [shape.weight for shape in fitting]
    mean_gpus = sum(s.weight * s.total for s in fitting) / sum(weights)
    spacing = mean_gpus * MEDIAN_SECONDS * 1.38 / (max(gpus, 1.0) * LOAD)
    made, clock = [], 0.0
    for number in range(count):
        shape = draw.choices(fitting, weights)[0]
        times = (round(clock, 1), round(MEDIAN_SECONDS * draw.lognormvariate(0, SPREAD)))
        priority = "build" if draw.random() < BUILD_SHARE else "train"
        owner = among[0] if number < FIRST_JOBS * count and draw.random() < FIRST_TEAM_SHARE else draw.choice(among)
        made.append(manifest("--jobs", number, job(f"job-{number:05d}", shape, (owner, priority), times)))
        clock += draw.expovariate(1 / spacing)
    return made


def job(name: str, shape: JobShape, owner: tuple[str, str], times: tuple[float, float]) -> Object:
    """Return a Job. `owner`: queue and priority class; `times`: arrival and run time in seconds."""
    (team, priority), (arrives, runs) = owner, times
    notes = {names.ARRIVES: f"{arrives}s", names.RUN_SECONDS: str(runs)}
    if shape.pods > 1:
        notes[names.BATCH_MIN_MEMBER] = str(shape.pods)
    labels = {names.QUEUE_LABEL: team, names.PRIORITY_CLASS_LABEL: priority}
    requests = {"cpu": "2", "memory": "8Gi", **({names.NVIDIA_GPU: str(shape.gpus)} if shape.gpus else {})}
    template = {
        "metadata": {"labels": labels, "annotations": dict([shape.annotation] if shape.annotation else ())},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "train", "resources": {"requests": requests, "limits": requests}}],
        },
    }
    meta = {"name": name, "labels": labels, "annotations": notes}
    spec = {"parallelism": shape.pods, "completions": shape.pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def manifest(source: str, number: int, obj: Object) -> Manifest:
    """Return a generated object; `number` counts from 0."""
    return Manifest(Origin(source, number + 1), obj)


PRIORITIES = {
    **names.PRIORITY_CLASSES,
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""The priority classes of the chart and of Kubernetes."""
SOURCE = "installed"
"""The origin of these objects in messages."""


def with_defaults(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return the manifests after the objects of an installation that they do not define themselves."""
    known = {one.title for one in manifests}
    objects = [_priority_class(name, value) for name, value in PRIORITIES.items()]
    if not any(one.obj.get("kind") == "Queue" for one in manifests):
        objects += [queue(names.PARENT_QUEUE, "", 0), queue(names.DEFAULT_QUEUE, names.PARENT_QUEUE, 0)]
    found = [manifest(SOURCE, number, obj) for number, obj in enumerate(objects)]
    return [*(one for one in found if one.title not in known), *manifests]


def _priority_class(name: str, value: int) -> Object:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
