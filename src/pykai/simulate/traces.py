"""A day of jobs with the published statistics of a real cluster, drawn from a seed.

The cluster is Helios, four GPU clusters of SenseTime (Hu et al., "Characterization and Prediction of Deep Learning
Workloads in Large-Scale GPU Datacenters", SC '21). Its authors publish the figures that this module reproduces, in the
description of the trace (github.com/S-Lab-System-Group/HeliosData) and in a table of their analysis
(HeliosArtifact, `helios_cluster_summary.csv`); both were checked against the originals:

* 1,580,464 GPU jobs from April to September 2020;
* 3.716 GPUs (median 1) and 6,651.7 s (median 206 s) each;
* 78.0e9 GPU seconds in all: 79 % of the table's 6,220 GPUs, 77 % of the paper's 6,416.

Sizes and a lognormal run time that grows with the size are fitted to these: 3.70 GPUs, a median of 203 s, a mean of
6,720 s (6,190 s with the limit of 50 days), 71 to 82 % of the GPUs busy.

From the paper, not checked: 6,416 GPUs on 802 nodes; one-GPU jobs use 3 to 12 % of the GPU time (here 5 %).

Assumed: the arrival rate over the day, and queues whose part of the demand differs from their part of the GPUs. Jobs
that run for longer than a day use most of the GPU time, so a day starts with running jobs: as many, and with as much
time left, as in a steady state.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pykai.kube.api import Object
from pykai.simulate import generate
from pykai.simulate.manifests import Manifest

NAME = "helios"
DAY = 86_400.0
JOBS_PER_GPU = 1_580_464 / 183 / 6_416
"""Arriving jobs per GPU and day; April to September has 183 days."""
SIZES = ((1, 0.5775), (2, 0.11), (4, 0.12), (8, 0.145), (16, 0.03), (32, 0.01), (64, 0.0075))
"""GPUs of a job -> fraction of the jobs."""
MEDIAN_SECONDS, SPREAD, GROWTH = 145.0, 2.59, 0.5
"""Lognormal run time: the median of one-GPU jobs, sigma, and the power of the size with which it grows."""
LONGEST_SECONDS = 50 * DAY
SWING, BUSIEST_HOUR = 0.4, 15
GPUS_PER_NODE = 8
TRAIN = "train"


@dataclass(frozen=True)
class TraceQueue:
    """A queue, with its fractions of the GPUs and of the jobs."""

    name: str
    quota: float
    demand: float


TENANTS = (
    TraceQueue("vc-1", 0.24, 0.16),
    TraceQueue("vc-2", 0.20, 0.30),
    TraceQueue("vc-3", 0.16, 0.10),
    TraceQueue("vc-4", 0.12, 0.18),
    TraceQueue("vc-5", 0.10, 0.06),
    TraceQueue("vc-6", 0.08, 0.12),
    TraceQueue("vc-7", 0.06, 0.03),
    TraceQueue("vc-8", 0.04, 0.05),
)


@dataclass(frozen=True)
class TraceJob:
    """One job, with arrival and run time in seconds."""

    name: str
    queue: str
    gpus: int
    arrives: float
    runs: float


def quotas(gpus: int) -> dict[str, int]:
    """Return the GPU quota of each queue."""
    return {tenant.name: round(tenant.quota * gpus) for tenant in TENANTS}


def day(gpus: int, seed: int) -> list[TraceJob]:
    """Return the jobs of a day on a cluster of `gpus` GPUs by arrival; jobs already running arrive at 0."""
    draw = random.Random(f"{seed}/{NAME}")
    drawn = [*_running(gpus, draw), *_arriving(gpus, draw)]
    names, parts = [tenant.name for tenant in TENANTS], [tenant.demand for tenant in TENANTS]
    queues = draw.choices(names, parts, k=len(drawn))
    return [
        TraceJob(f"job-{number:06d}", queue, size, round(arrives, 1), max(round(runs), 1))
        for number, (queue, (size, arrives, runs)) in enumerate(zip(queues, drawn, strict=True))
    ]


def _running(gpus: int, draw: random.Random) -> Iterator[tuple[int, float, float]]:
    """Return (size, 0, seconds left) of the jobs that run at midnight: arrival rate times run time (Little's law).

    The probability that a job is running is proportional to its run time, which shifts the lognormal by sigma squared;
    its elapsed time is uniform.
    """
    for size, part in _fitting(gpus):
        mean = math.exp(_mu(size) + SPREAD**2 / 2)
        for _ in range(_rounded(gpus * JOBS_PER_GPU / DAY * part * mean, draw)):
            length = min(draw.lognormvariate(_mu(size) + SPREAD**2, SPREAD), LONGEST_SECONDS)
            yield size, 0.0, length * draw.random()


def _arriving(gpus: int, draw: random.Random) -> Iterator[tuple[int, float, float]]:
    """Return (size, arrival, run time) of the jobs that arrive during the day."""
    sizes, parts = zip(*_fitting(gpus), strict=True)
    clock, most = 0.0, gpus * JOBS_PER_GPU / DAY * (1 + SWING)
    while (clock := clock + draw.expovariate(most)) < DAY:
        swing = SWING * math.cos(2 * math.pi * (clock / 3600 - BUSIEST_HOUR) / 24)
        if draw.random() * (1 + SWING) < 1 + swing:
            size = draw.choices(sizes, parts)[0]
            yield size, clock, min(draw.lognormvariate(_mu(size), SPREAD), LONGEST_SECONDS)


def _fitting(gpus: int) -> list[tuple[int, float]]:
    return [(size, part) for size, part in SIZES if size <= max(gpus, 1)]


def _mu(size: int) -> float:
    return math.log(MEDIAN_SECONDS) + GROWTH * math.log(size)


def _rounded(amount: float, draw: random.Random) -> int:
    """Round randomly up or down, so that small amounts keep their expectation."""
    return int(amount) + (draw.random() < amount % 1)


def manifests(jobs: Sequence[TraceJob], owned: Mapping[str, int]) -> list[Manifest]:
    """Return the jobs and the queues with their quotas; a job larger than a node is a gang of whole nodes."""
    queues = [generate.queue("cluster", "", sum(owned.values()))]
    queues += [generate.queue(name, "cluster", quota) for name, quota in owned.items()]
    objects = [*queues, *(_job(job) for job in jobs)]
    return [generate.manifest("--trace", number, obj) for number, obj in enumerate(objects)]


def _job(job: TraceJob) -> Object:
    pods = max(job.gpus // GPUS_PER_NODE, 1)
    shape = generate.JobShape(1, pods, job.gpus // pods, None, job.gpus)
    return generate.job(job.name, shape, (job.queue, TRAIN), (job.arrives, job.runs))
