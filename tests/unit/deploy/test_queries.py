"""The dashboard and the alerts ask only for metrics and labels that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from deploy import dashboard
from docs.generate.metrics import SECTIONS

from pykai.observe.metrics import Metric, MetricKind

DEPLOY = Path(dashboard.__file__).parent
RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["spec"]["groups"][0]["rules"]
WITHOUT_PREFIX = ("workqueue_", "controller_runtime_", "process_")
OF_SCRAPES = {"namespace", "pod", "job", "instance", "service"}
"""Labels that Prometheus adds to whatever it collects."""
WORDS = {"sum", "max", "by", "rate", "increase", "changes", "absent", "histogram_quantile", "label_values"}


def series(row: Metric) -> dict[str, set[str]]:
    """The names a metric is queried by, with their labels."""
    name = row.name if row.name.startswith(WITHOUT_PREFIX) else f"kai_{row.name}"
    if row.kind is not MetricKind.HISTOGRAM:
        return {name: set(row.labels)}
    return {f"{name}_bucket": {*row.labels, "le"}, f"{name}_sum": set(row.labels), f"{name}_count": set(row.labels)}


KNOWN = {name: labels for _, _, rows in SECTIONS for row in rows for name, labels in series(row).items()}
VARIABLE = next(each["query"] for each in dashboard.VARIABLES if each["name"] == "queue")
QUERIES = [*dashboard.expressions(), *(rule["expr"] for rule in RULES)]


def unknown(query: str) -> list[str]:
    """What a query names that does not exist: metrics, and labels of none of its metrics."""
    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", query))
    for group in re.findall(r"\bby \(([^)]*)\)", query):
        labels |= {name.strip() for name in group.split(",")}
    bare = re.sub(r'"[^"]*"|\[[^\]]*\]|\{[^}]*\}|\bby \([^)]*\)', " ", query)
    metrics = set(re.findall(r"\b[a-zA-Z_]\w*", bare)) - WORDS
    allowed = OF_SCRAPES.union(*(KNOWN.get(name, set()) for name in metrics))
    return sorted((metrics - set(KNOWN)) | (labels - allowed))


@pytest.mark.parametrize("query", QUERIES)
def test_queries_name_only_what_exists(query: str) -> None:
    assert unknown(query) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("rate(kai_nothing_total[5m])", ["kai_nothing_total"]),
        ('sum by (planet) (kai_queue_info{colour="red"})', ["colour", "planet"]),
        ("kai_task_bind_latency_milliseconds", ["kai_task_bind_latency_milliseconds"]),
        ('kai_queue_info{queue_name="a"} / workqueue_depth', []),
    ],
)
def test_what_does_not_exist_is_found(query: str, found: list[str]) -> None:
    assert unknown(query) == found


def test_legends_name_labels_of_their_series() -> None:
    for panels in dashboard.ROWS.values():
        for panel in panels:
            for expression, legend in panel.series:
                for label in re.findall(r"\{\{(\w+)\}\}", legend):
                    assert unknown(f'{expression} {{{label}="x"}}') == [], (panel.title, legend)


def test_the_variable_of_queues_exists() -> None:
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", VARIABLE).groups()  # type: ignore[union-attr]
    assert label in KNOWN[metric]


def test_the_dashboard_is_complete_and_panels_do_not_overlap() -> None:
    panels = json.loads(dashboard.document())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_alerts_have_a_severity_and_say_what_is_wrong() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
