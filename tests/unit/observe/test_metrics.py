"""Metrics keep the names dashboards know."""

from __future__ import annotations

import pytest

from pykai.observe.metrics import PROCESS, SCHEDULER, Metric, MetricKind, Metrics, WorkMetrics


def test_counters_are_shown_under_the_name_of_the_table() -> None:
    metrics = Metrics(SCHEDULER, "kai")
    metrics.add("podgroups_scheduled_by_action", 2, {"action": "allocate"})
    metrics.add("refused_plans_total")
    shown = metrics.text().decode()
    assert 'kai_podgroups_scheduled_by_action{action="allocate"} 2.0' in shown
    assert "# TYPE kai_podgroups_scheduled_by_action counter" in shown
    assert "kai_refused_plans_total 1.0" in shown
    assert "_created" not in shown


def test_without_a_prefix_names_are_those_of_the_table_too() -> None:
    metrics = Metrics(SCHEDULER, "")
    metrics.add("podgroups_scheduled_by_action", 2, {"action": "allocate"})
    metrics.add("refused_plans_total")
    shown = metrics.text().decode()
    assert '\npodgroups_scheduled_by_action{action="allocate"} 2.0' in shown
    assert "\nrefused_plans_total 1.0" in shown


def test_gauges_can_be_forgotten() -> None:
    metrics = Metrics([Metric("g", MetricKind.GAUGE, "A gauge", ("queue",))], "x")
    metrics.put("g", 1.0, {"queue": "a"})
    metrics.reset("g")
    metrics.put("g", 2.0, {"queue": "b"})
    shown = metrics.text().decode()
    assert 'x_g{queue="b"} 2.0' in shown
    assert 'queue="a"' not in shown


def test_a_name_that_is_not_in_the_table_is_an_error() -> None:
    with pytest.raises(KeyError):
        Metrics(SCHEDULER).put("no_such_metric", 1.0)


def test_histograms_have_the_bounds_of_the_table() -> None:
    metrics = Metrics(SCHEDULER)
    metrics.observe("task_bind_latency_milliseconds", 6.0)
    shown = metrics.text().decode()
    assert 'kai_task_bind_latency_milliseconds_bucket{le="5.0"} 0.0' in shown
    assert 'kai_task_bind_latency_milliseconds_bucket{le="10.0"} 1.0' in shown
    assert 'le="2560.0"' in shown


def test_every_process_tells_about_itself() -> None:
    shown = WorkMetrics().text().decode()
    assert [row.name for row in PROCESS if f"\n{row.name} " not in shown] == []
