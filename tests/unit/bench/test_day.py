"""What is computed of a day: the FIFO model, waits, and what queues lack of their quota."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import plot
from bench.day import FIFO, Case, Played, Stretch, fifo, figures, product, sheet

from pykai.simulate import traces
from pykai.simulate.traces import DAY, TraceJob


def job(name: str, gpus: int, arrives: float, runs: float, queue: str = "vc-1") -> TraceJob:
    return TraceJob(name, queue, gpus, arrives, runs)


def test_in_fifo_order_nobody_passes_the_oldest() -> None:
    jobs = [job("a", 6, 0, 100), job("large", 8, 10, 50), job("small", 1, 20, 5), job("late", 1, 500, DAY)]
    played = fifo(Case(jobs, 8))
    assert {each.job: (each.begin, each.end) for each in played.stretches} == {
        "a": (0, 100), "large": (100, 150), "small": (150, 155), "late": (500, DAY),
    }  # fmt: skip
    assert played.done == {"a": 100, "large": 150, "small": 155}


def test_what_a_queue_lacks_is_what_it_asks_for_within_its_quota_and_does_not_get() -> None:
    quota = traces.quotas(100)["vc-1"]
    jobs = [job("mine", quota, 100, 1000), job("more", 50, 100, 1000), job("other", 100, 0, 600, "vc-2")]
    held = [Stretch("other", 100, 0, 600), Stretch("mine", quota, 600, 1600), Stretch("more", 50, 600, 1600)]
    found = figures(Played(FIFO, held, {"other": 600, "mine": 1600, "more": 1600}), Case(jobs, 100))
    assert found.lacked["vc-1"] == pytest.approx(500 / 1500)
    assert found.lacked["vc-2"] == 0
    assert found.waits["16-64 GPUs"] == [500, 500]
    assert found.busy == pytest.approx((100 * 600 + (quota + 50) * 1000) / (100 * DAY))


def test_a_job_that_never_starts_waits_until_midnight() -> None:
    found = figures(Played(FIFO, [], {}), Case([job("x", 1, DAY - 60, 5)], 100))
    assert found.waits["1 GPU"] == [60]
    assert found.lacked["vc-1"] == 1


def test_part_of_a_day_counts_its_hours_only() -> None:
    case = Case([job("a", 4, 0, 90), job("b", 8, 30, 100)], 8, end=100)
    found = figures(fifo(case), case)
    assert found.busy == pytest.approx((4 * 90 + 8 * 10) / 800)
    assert found.waits["2-8 GPUs"] == [60]


def test_evicted_work_is_lost() -> None:
    held = [Stretch("x", 2, 0, 1800, lost=True), Stretch("x", 2, 2000, 5600)]
    found = figures(Played(FIFO, held, {"x": 5600}), Case([job("x", 2, 0, 3600)], 100))
    assert (found.lost_hours, found.evictions) == (1, 1)


def test_the_product_plays_the_jobs_and_its_day_is_drawn(tmp_path: Path) -> None:
    jobs = [job("gang", 16, 0, 600), job("single", 1, 5, 60), job("wide", 16, 10, 60, "vc-2")]
    case = Case(jobs, 16, seed=0)
    found = [figures(product(policy, case), case) for policy in ("pykai", "plain gang")]
    (wait,) = found[1].waits["1 GPU"]
    assert wait == pytest.approx(597, abs=5)
    assert found[1].evictions == 0
    assert [row[0] for row in sheet(found).rows] == ["pykai", "plain gang"]
    plot.write_day([*found, figures(fifo(case), case)], tmp_path / "day.png")
    assert (tmp_path / "day.png").stat().st_size > 1000
