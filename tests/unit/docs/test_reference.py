"""The reference names everything there is, and what the hand-written tables beside it say is true of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest
from docs.generate import fields, flags, metrics, objects, policies, workloads

import pykai
from pykai.controllers.podgrouper.rules import defaults
from pykai.controllers.podgrouper.rules.workload_kinds import ONE_GROUP, TABLE
from pykai.objects import names
from pykai.observe.metrics import SCHEDULER
from pykai.plugins import registry

SOURCE = Path(pykai.__file__).parent
TOLD = ("Labels", "Annotations", "Pod grouping")
OF_OTHERS = ("training.kubeflow.org/job-role", "ray.io/node-type", "kubernetes.io/hostname")
OF_KAI = """
e2e_scheduling_latency_milliseconds open_session_latency_milliseconds close_session_latency_milliseconds
plugin_scheduling_latency_milliseconds action_scheduling_latency_milliseconds task_scheduling_latency_milliseconds
task_bind_latency_milliseconds podgroups_scheduled_by_action podgroups_acted_on_by_action
scenarios_simulation_by_action scenarios_filtered_by_action total_preemption_attempts queue_fair_share_cpu_cores
queue_fair_share_memory_gb queue_fair_share_gpu queue_cpu_usage queue_memory_usage queue_gpu_usage
usage_query_latency_milliseconds pod_group_evicted_pods_total scenario_search_jobs_total
scenario_search_action_budget_configured_seconds scenario_search_job_budget_configured_seconds
scenario_search_generator_budget_configured_seconds scenario_search_action_budget_exhausted_total
scenario_search_duration_seconds scenario_search_scenarios_total queue_info queue_deserved_gpus
queue_quota_cpu_cores queue_quota_memory_bytes queue_allocated_gpus queue_allocated_cpu_cores
queue_allocated_memory_bytes
"""
"""Metrics of KAI's scheduler and queue controller (spec/operations.md §6, spec/controllers.md §1.3)."""


def test_every_flag_has_a_meaning() -> None:
    options = [
        (name, option) for name, command in flags.commands() for option in command.params
        if isinstance(option, click.Option)
    ]  # fmt: skip
    assert len(options) > 100
    silent = [f"{name} {option.opts[0]}" for name, option in options if not flags.meaning(option)]
    assert silent == []


def test_the_environment_variables_are_those_that_are_read() -> None:
    assert set(flags.ENVIRONMENT) == flags.variables_read()


def test_every_field_and_value_has_a_meaning() -> None:
    for page in (fields.values_page(), fields.configuration_page(), objects.page()):
        rows = [line for line in page.splitlines() if line.startswith("| `")]
        assert len(rows) > 50
        assert [row for row in rows if row.split("|")[3].strip() in ("-", "")] == []


def test_plugins_and_their_arguments_are_described() -> None:
    assert [name for name in registry.PLUGINS if not policies.meaning(name)] == []
    described = {name for of_plugin in policies.ARGUMENTS.values() for name in of_plugin}
    assert described == policies.arguments_read()


def test_labels_and_annotations_are_described() -> None:
    sections = re.split(r"^# (.*)$", Path(names.__file__).read_text(), flags=re.MULTILINE)
    told = [text for title, text in zip(sections[1::2], sections[2::2], strict=True) if title in TOLD]
    wanted = {value for text in told for value in re.findall(r'Final = "(.*)"', text)}
    described = {*objects.WRITTEN_BY_USERS, *objects.WRITTEN_BY_KAI}
    assert wanted - described == {names.DEFAULT_QUEUE, names.PARENT_QUEUE, *OF_OTHERS}


def test_every_kind_of_workload_is_described() -> None:
    default = {row.kind for row in TABLE.values() if row.starts == ONE_GROUP}
    assert default == {row.kind for row in TABLE.values() if row.rule is defaults.group}
    assert [row.kind for row in TABLE.values() if f"| {row.starts} |" not in workloads.page()] == []


def test_every_metric_of_kai_is_here_or_explained() -> None:
    ours = {row.name for _, _, rows in metrics.SECTIONS for row in rows}
    assert {name for name in OF_KAI.split() if name not in ours} <= set(metrics.NOT_HERE)
    assert not ours & set(metrics.NOT_HERE)


@pytest.mark.parametrize("name", [row.name for row in SCHEDULER])
def test_every_metric_of_the_scheduler_is_set_somewhere(name: str) -> None:
    assert any(name in _constants(path) for path in (SOURCE / "scheduler").glob("*.py"))


def _constants(path: Path) -> set[object]:
    return {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
