"""reference/metrics.md: every metric, and those of KAI that do not exist here."""

from __future__ import annotations

from collections.abc import Iterable

from docs.generate import markdown
from pykai.controllers import queue_status
from pykai.controllers.past_usage import QUERY_LATENCY
from pykai.observe import metrics
from pykai.observe.metrics import Metric

HEAD = """# Metrics

Generated from the code by `make docs`. Every component serves `/metrics` in the text format of Prometheus, on :8080
unless a flag says otherwise. See also the [Grafana dashboard](../../deploy/grafana/kai-scheduler.json),
[alerts](../../deploy/prometheus/alerts.yaml) and the ServiceMonitors of the chart (`serviceMonitors.enabled`).
"""
SECTIONS: tuple[tuple[str, str, Iterable[Metric]], ...] = (
    (
        "Scheduler",
        "The value of the flag `--metrics-namespace` and an underscore precede each name: `kai_...`. Replicas that are "
        "not the\nleader show no queues and count nothing.",
        (*metrics.SCHEDULER, QUERY_LATENCY),
    ),
    (
        "Scheduler with `--enable-workload-eviction-metrics`",
        "Instead of the metric of the same name above. PodGroups that hold resources have series from the start.",
        metrics.WORKLOAD_EVICTIONS,
    ),
    (
        "Queue controller",
        "The same prefix. Further labels by `--queue-label-to-metric-label`. Cores, bytes, devices; -1 is unlimited.",
        queue_status.ROWS,
    ),
    (
        "Every component",
        "What its work queues do, under the names of Go controllers, without a prefix; and the process.",
        (*metrics.CONTROLLERS, *metrics.PROCESS),
    ),
)
NOT_HERE = {
    "rest_client_*, go_*": "libraries of Go programs",
}


def page() -> str:
    """The text of the page."""
    parts = [HEAD, *(f"## {title}\n\n{about}\n\n{_table(rows)}" for title, about, rows in SECTIONS)]
    absent = [(f"`{name}`", why) for name, why in NOT_HERE.items()]
    return "\n".join([*parts, "## Metrics of KAI that do not exist here\n", markdown.table(("name", "why"), absent)])


def _table(rows: Iterable[Metric]) -> str:
    cells = [(f"`{row.name}`", row.kind.value, ", ".join(f"`{one}`" for one in row.labels), row.help) for row in rows]
    return markdown.table(("name", "type", "labels", "meaning"), cells)
