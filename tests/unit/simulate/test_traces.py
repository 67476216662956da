"""A day of jobs has the figures that were published."""

from __future__ import annotations

import math
from statistics import median

import pytest
from click.testing import CliRunner

from pykai.cli.simulate import SimulateOptions, read_input, simulate
from pykai.objects import names
from pykai.simulate import traces
from pykai.simulate.traces import DAY, JOBS_PER_GPU, SIZES, SPREAD

GPUS = 6_416


def _mean_seconds(size: int) -> float:
    return traces.MEDIAN_SECONDS * math.pow(size, traces.GROWTH) * math.exp(SPREAD**2 / 2)


def test_sizes_and_run_times_are_the_published_ones() -> None:
    assert sum(part for _, part in SIZES) == pytest.approx(1)
    assert sum(size * part for size, part in SIZES) == pytest.approx(3.72, abs=0.01)
    assert sum(part * _mean_seconds(size) for size, part in SIZES) == pytest.approx(6_652, rel=0.02)
    time = {size: size * part * _mean_seconds(size) for size, part in SIZES}
    assert 0.03 <= time[1] / sum(time.values()) <= 0.12
    assert 0.65 <= JOBS_PER_GPU * sum(time.values()) / DAY <= 0.90
    arrived = [job for job in traces.day(GPUS, 1) if job.arrives > 0]
    assert len(arrived) == pytest.approx(1_580_464 / 183, rel=0.05)
    assert median(job.runs for job in arrived) == pytest.approx(206, rel=0.1)


def test_a_day_begins_with_a_cluster_at_work() -> None:
    running = [job for job in traces.day(GPUS, 1) if job.arrives == 0]
    assert 0.6 <= sum(job.gpus for job in running) / GPUS <= 1.0


def test_a_day_depends_on_its_seed_and_on_nothing_else() -> None:
    assert traces.day(800, 1) == traces.day(800, 1) != traces.day(800, 2)
    arrivals = [job.arrives for job in traces.day(800, 1)]
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] < DAY


def test_queues_own_all_gpus_and_no_job_is_larger_than_the_cluster() -> None:
    assert sum(traces.quotas(800).values()) == 800
    assert max(job.gpus for job in traces.day(16, 3)) <= 16


def test_jobs_larger_than_a_node_are_gangs_of_whole_nodes() -> None:
    found = read_input(SimulateOptions(nodes=20, trace=traces.NAME)).objects
    jobs = [one.obj for one in found if one.obj["kind"] == "Job"]
    assert len(jobs) == len(traces.day(160, 0))
    for job in jobs:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        gpus = int(container["resources"]["limits"][names.NVIDIA_GPU])
        pods = job["spec"]["parallelism"]
        assert gpus == 8 or pods == 1
        assert job["metadata"]["annotations"].get(names.BATCH_MIN_MEMBER) == (str(pods) if pods > 1 else None)


def test_a_trace_needs_nodes() -> None:
    refused = CliRunner().invoke(simulate, ["examples", "--trace", traces.NAME])
    assert refused.exit_code == 2
    assert "--trace requires --nodes" in refused.output
