"""The small parts: spans, the picture of a run, generated clusters."""

from __future__ import annotations

import pytest

from pykai.hollow.kubelet_settings import FOREVER, NEVER, Span, duration_span, seconds_span, span_number
from pykai.simulate import generate, manifest_validation
from pykai.simulate.history import PodLife
from pykai.simulate.result_tables import spark
from pykai.simulate.timeline import axis, cells, clock, phases


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("30s", 30.0, 30.0), ("1m30s", 90.0, 90.0), ("0s-5m", 0.0, 300.0), ("10s - 20s", 10.0, 20.0)],
)
def test_durations_and_ranges(text: str, low: float, high: float) -> None:
    assert duration_span(text) == Span(low, high)


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5s-1s", "5", "1s-", "nan"])
def test_wrong_durations(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        duration_span(text)


@pytest.mark.parametrize("text", ["", "-5", "9-1", "nan", "inf", "1e999", "five"])
def test_wrong_seconds(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        seconds_span(text)


def test_what_is_drawn_depends_on_the_seed_and_stays_in_range() -> None:
    span = seconds_span("10-20")
    drawn = {span.draw(f"{seed}") for seed in range(20)}
    assert len(drawn) > 10
    assert all(10 <= value <= 20 for value in drawn)
    assert span.draw("1") == span.draw("1")
    assert seconds_span(span_number(seconds_span(FOREVER).draw(""))).low == NEVER


def test_the_phases_of_a_life() -> None:
    life = PodLife("ns", "p", "q", "g", "", 10.0, scheduled_at=20.0, started_at=22.0, evicted_at=50.0, ended_at=55.0)
    assert list(phases(life, 100.0)) == [
        ("waiting", 10.0, 20.0),
        ("starting", 20.0, 22.0),
        ("running", 22.0, 50.0),
        ("leaving", 50.0, 55.0),
    ]
    assert list(phases(PodLife("ns", "p", "q", "g", "", 10.0), 100.0)) == [("waiting", 10.0, 100.0)]


def test_cells_show_the_most_telling_state() -> None:
    life = PodLife("ns", "p", "q", "g", "", 10.0, scheduled_at=20.0, started_at=22.0, evicted_at=50.0, ended_at=55.0)
    again = PodLife("ns", "r", "q", "g", "", 50.0)
    marks = cells([life, again], 100.0, 10)
    assert "".join(mark.character if mark else " " for mark in marks) == " ░███▒░░░░"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (83.9, "1:23"), (7500, "2:05:00")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_axis_and_spark() -> None:
    assert axis(200.0, 41) == "0:00      0:50      1:40      2:30      3:20"
    assert spark([(0.0, 4.0), (50.0, 1.0), (90.0, 0.0)], (100.0, 4.0), 10) == "██████▃▃▃▃"
    assert spark([(0.0, 0.0)], (100.0, 0.0), 10) == " " * 10


def test_generated_clusters_are_admitted_and_depend_on_the_seed() -> None:
    nodes, queues = generate.nodes(12, 8), generate.queues(96)
    first, again, other = (generate.jobs(50, generate.TEAMS, 96.0, seed) for seed in (1, 1, 2))
    assert first == again != other
    found = manifest_validation.admit(generate.with_defaults([*nodes, *queues, *first]))
    assert [one.obj["metadata"]["name"] for one in found if one.obj["kind"] == "Node"][:2] == ["node-00", "node-01"]
    arrivals = [one.arrives.low for one in found if one.obj["kind"] == "Job"]
    assert arrivals == sorted(arrivals)


def test_generated_jobs_fit_the_cluster() -> None:
    small = generate.jobs(200, ["q"], 2.0, 0)
    assert all(one.obj["spec"]["parallelism"] == 1 for one in small)


def test_what_is_alike_but_for_its_metadata_is_still_read_there() -> None:
    shape = generate.JobShape(1, 1, 1, None, 1)
    good, wrong = (generate.job(name, shape, ("team-a", "train"), (0.0, 60.0)) for name in ("good", "wrong"))
    wrong["metadata"]["lables"] = {}
    manifests = [generate.manifest("--jobs", number, obj) for number, obj in enumerate((good, wrong))]
    queue = generate.manifest("--jobs", 2, generate.queue("team-a", "", 1))
    with pytest.raises(
        manifest_validation.ManifestsError, match=r"metadata\.lables.*unknown field: did you mean labels"
    ):
        manifest_validation.admit([queue, *manifests])
