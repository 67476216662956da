"""The Grafana dashboard as a table of panels; `make docs` writes deploy/grafana/kai-scheduler.json from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

UID = "kai-scheduler"
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_QUEUE = 'queue_metadata_name=~"$queue"'
_BY_QUEUE = "{{queue_metadata_name}}"
_OURS = 'namespace="$namespace"'
_WIDTH, _HEIGHT, _LINE = 8, 8, 24


@dataclass(frozen=True)
class Panel:
    """A graph: `series` are (expression, legend); `unit` in Grafana's words."""

    title: str
    unit: str
    series: tuple[tuple[str, str], ...]
    about: str = ""


def _by_queue(metric: str) -> str:
    """A figure of each queue, once however many replicas show it."""
    return f"max by (queue_metadata_name) ({metric}{{{_QUEUE}}})"


def _percentiles(metric: str, by: str = "") -> tuple[tuple[str, str], ...]:
    groups, legend = (f"le, {by}", f"{{{{{by}}}}} ") if by else ("le", "")
    rates = f"sum by ({groups}) (rate({metric}_bucket[5m]))"
    return tuple((f"histogram_quantile({part}, {rates})", f"{legend}p{part * 100:.0f}") for part in (0.5, 0.99))


ROWS: dict[str, tuple[Panel, ...]] = {
    "Queues": (
        Panel(
            "GPUs in use",
            "short",
            ((_by_queue("kai_queue_allocated_gpus"), _BY_QUEUE),),
            "What running workloads of each queue hold.",
        ),
        Panel(
            "GPUs in use beyond quota",
            "short",
            (
                (
                    f"{_by_queue('kai_queue_allocated_gpus')} - ({_by_queue('kai_queue_deserved_gpus')} >= 0)",
                    _BY_QUEUE,
                ),
            ),
            "Above 0 can be reclaimed by others; queues with unlimited quota are not shown.",
        ),
        Panel(
            "Fair share of GPUs",
            "short",
            ((_by_queue("kai_queue_fair_share_gpu"), _BY_QUEUE),),
            "What each queue may call its own at the moment.",
        ),
        Panel("Cores in use", "short", ((_by_queue("kai_queue_allocated_cpu_cores"), _BY_QUEUE),)),
        Panel("Memory in use", "bytes", ((_by_queue("kai_queue_allocated_memory_bytes"), _BY_QUEUE),)),
        Panel(
            "GPU use over time",
            "percentunit",
            ((_by_queue("kai_queue_gpu_usage"), _BY_QUEUE),),
            "The part of the cluster each queue has used in the window; 0 without a usage database.",
        ),
    ),
    "Scheduling": (
        Panel(
            "Time of a cycle",
            "ms",
            (
                ("max(kai_e2e_scheduling_latency_milliseconds)", "whole"),
                ("max by (action) (kai_action_scheduling_latency_milliseconds)", "{{action}}"),
            ),
        ),
        Panel("From creation of a pod to its decision", "ms", _percentiles("kai_task_scheduling_latency_milliseconds")),
        Panel("Writing a decision", "ms", _percentiles("kai_task_bind_latency_milliseconds")),
        Panel(
            "PodGroups placed",
            "short",
            (("sum by (action) (increase(kai_podgroups_scheduled_by_action[5m]))", "{{action}}"),),
            "In five minutes, by action.",
        ),
        Panel(
            "Pods evicted",
            "short",
            (("sum by (action) (increase(kai_pod_group_evicted_pods_total[5m]))", "{{action}}"),),
            "In five minutes, by action.",
        ),
        Panel(
            "Tried PodGroups and simulated scenarios",
            "short",
            (
                ("sum by (action) (increase(kai_podgroups_acted_on_by_action[5m]))", "{{action}} tried"),
                ("sum by (action) (increase(kai_scenarios_simulation_by_action[5m]))", "{{action}} simulated"),
            ),
        ),
        Panel(
            "Searches for victims",
            "short",
            (
                (
                    "sum by (action, result) (increase(kai_scenario_search_jobs_total[5m]))",
                    "{{action}} {{result}}",
                ),
            ),
            "In five minutes, by how they ended. deadline_exhausted and not_attempted: for want of time.",
        ),
        Panel("Time of a search", "s", _percentiles("kai_scenario_search_duration_seconds", "generator")),
        Panel(
            "Plugins at the opening of a cycle",
            "ms",
            (
                (
                    'max by (plugin) (kai_plugin_scheduling_latency_milliseconds{OnSession="OnSessionOpen"} > 0)',
                    "{{plugin}}",
                ),
            ),
        ),
    ),
    "Components": (
        Panel(
            "Trouble",
            "short",
            (
                ("sum(increase(kai_failed_cycles_total[5m]))", "failed cycles"),
                ("sum(increase(kai_refused_plans_total[5m]))", "refused plans"),
                (
                    f"sum by (controller) (increase(controller_runtime_reconcile_errors_total{{{_OURS}}}[5m]))",
                    "{{controller}} errors",
                ),
            ),
            "All of this should be 0.",
        ),
        Panel("Waiting work", "short", ((f"sum by (name) (workqueue_depth{{{_OURS}}})", "{{name}}"),)),
        Panel("Time of a run", "s", _percentiles("controller_runtime_reconcile_time_seconds", "controller")),
        Panel("Processor", "short", ((f"rate(process_cpu_seconds_total{{{_OURS}}}[5m])", "{{pod}}"),), "Cores."),
        Panel("Memory", "bytes", ((f"process_resident_memory_bytes{{{_OURS}}}", "{{pod}}"),)),
        Panel("Usage database", "ms", _percentiles("kai_usage_query_latency_milliseconds")),
    ),
}
VARIABLES: tuple[dict[str, Any], ...] = (
    {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
    {"name": "namespace", "label": "Namespace of KAI", "type": "textbox", "query": "kai-scheduler"},
    {
        "name": "queue",
        "label": "Queue",
        "type": "query",
        "datasource": _SOURCE,
        "query": "label_values(kai_queue_info, queue_metadata_name)",
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "refresh": 2,
    },
)


def expressions() -> list[str]:
    """Every expression of the dashboard."""
    return [expression for panels in ROWS.values() for panel in panels for expression, _ in panel.series]


def document() -> str:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": _place(0, top, _LINE, 1)})
        for at, panel in enumerate(row):
            line, column = divmod(at * _WIDTH, _LINE)
            panels.append(_graph(panel, _place(column, top + 1 + line * _HEIGHT, _WIDTH, _HEIGHT)))
        top += 1 + -(-len(row) * _WIDTH // _LINE) * _HEIGHT
    for number, drawn in enumerate(panels, 1):
        drawn["id"] = number
    made = {
        "uid": UID,
        "title": "KAI scheduler",
        "tags": ["kai"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(VARIABLES)},
        "panels": panels,
    }
    return json.dumps(made, indent=2) + "\n"


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _graph(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
        for at, (expression, legend) in enumerate(panel.series)
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }
