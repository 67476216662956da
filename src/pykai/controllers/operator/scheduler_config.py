"""A shard's scheduler configuration: the tables of plugins and actions, what the shard changes, and the file of it.

Whatever the scheduler would refuse at its start is refused here, with the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from pykai.config import scheduler as scheduler_file
from pykai.config.fields import FieldError
from pykai.controllers.operator.installation import Installation
from pykai.controllers.operator.overrides import Row, changed, in_order
from pykai.controllers.operator.shard_settings import Shard
from pykai.objects.shard_kinds import ShardSpec

FILE: Final = "config.yaml"
FOLDER: Final = "/etc/config"
SPREAD: Final = "spread"

PLUGINS: Final = {
    "predicates": 1900,
    "proportion": 1800,
    "priority": 1700,
    "nodeavailability": 1600,
    "resourcetype": 1500,
    "podaffinity": 1400,
    "elastic": 1300,
    "kubeflow": 1200,
    "ray": 1100,
    "subgrouporder": 1000,
    "taskorder": 900,
    "nominatednode": 800,
    "dynamicresources": 700,
    "minruntime": 600,
    "topology": 500,
    "snapshot": 400,
    "sg-nodelocalgreedy": 360,
    "sg-multinodegang": 350,
    "gpupack": 300,
    "gpuspread": 300,
    "nodeplacement": 200,
    "gpusharingorder": 100,
}
ACTIONS: Final = {"allocate": 500, "consolidation": 400, "reclaim": 300, "preempt": 200, "stalegangeviction": 100}
_PACKING = ("gpupack", "gpusharingorder")
_SPREADING = ("gpuspread",)


def plugins(spec: ShardSpec) -> dict[str, Row]:
    """Every plugin the shard knows, complete."""
    packs = spec.placement_strategy.gpu != SPREAD
    off = _SPREADING if packs else _PACKING
    arguments = _arguments(spec)
    usual = {name: Row(name not in off, priority, arguments.get(name, {})) for name, priority in PLUGINS.items()}
    return changed(usual, spec.plugins)


def actions(spec: ShardSpec) -> dict[str, Row]:
    """Every action the shard knows, complete; work that is to be spread is not packed together again."""
    spreads = SPREAD in (spec.placement_strategy.gpu, spec.placement_strategy.cpu)
    usual = {name: Row(not (spreads and name == "consolidation"), at, {}) for name, at in ACTIONS.items()}
    return changed(usual, spec.actions)


def document(shard: Shard, installation: Installation) -> dict[str, Any]:
    """The configuration as the scheduler reads it; FieldError names the field of the shard that is wrong."""
    spec = shard.spec
    rows = [_plugin(name, row) for name, row in in_order(plugins(spec))]
    names = [name for name, _ in in_order(actions(spec))]
    if not names:
        raise FieldError("spec.actions", "all actions are switched off: the scheduler would do nothing")
    made: dict[str, Any] = {
        "actions": ", ".join(names),
        "tiers": [{"plugins": rows}],
    }
    parts = {
        "queueDepthPerAction": dict(spec.queue_depth_per_action),
        "usageDBConfig": usage_database(spec, installation),
        "scenarioSearchBudgets": dict(spec.scenario_search_budgets),
    }
    made |= {name: part for name, part in parts.items() if part}
    try:
        scheduler_file.read(made)
    except FieldError as error:
        raise FieldError(f"spec.{error.path}" if error.path else "spec", error.message) from error
    return made


def text(shard: Shard, installation: Installation) -> str:
    """The configuration file."""
    return yaml.safe_dump(document(shard, installation), sort_keys=False, width=110)


def usage_database(spec: ShardSpec, installation: Installation) -> dict[str, Any] | None:
    """Where past use is read from; a Prometheus without address is ours, or the one Config names."""
    asked = spec.usage_db_config
    if not asked or asked.get("clientType") != "prometheus":
        return asked
    if asked.get("connectionString") or asked.get("connectionStringEnvVar"):
        return asked
    database = installation.config.prometheus
    if database.external_prometheus_url:
        return {**asked, "connectionString": database.external_prometheus_url}
    if database.enabled:
        address = f"http://usage-prometheus.{installation.config.namespace}.svc.cluster.local:9090"
        return {**asked, "connectionString": address}
    raise FieldError(
        "spec.usageDBConfig.connectionString",
        "prometheus connection string not configured: either enable internal prometheus or configure external "
        "TSDB connection URL",
    )


def _arguments(spec: ShardSpec) -> Mapping[str, dict[str, str]]:
    waits = {
        "defaultPreemptMinRuntime": spec.min_runtime.preempt_min_runtime,
        "defaultReclaimMinRuntime": spec.min_runtime.reclaim_min_runtime,
    }
    return {
        "proportion": {} if spec.k_value is None else {"kValue": f"{spec.k_value:.15g}"},
        "minruntime": {name: value for name, value in waits.items() if value},
        "nodeplacement": {"cpu": spec.placement_strategy.cpu, "gpu": spec.placement_strategy.gpu},
    }


def _plugin(name: str, row: Row) -> dict[str, Any]:
    return {"name": name, "arguments": dict(row.arguments)} if row.arguments else {"name": name}
