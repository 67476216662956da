"""The scheduler's configuration of a shard: tables, what the shard changes, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from pykai.config import scheduler_config as scheduler_file
from pykai.config.fields import FieldError
from pykai.controllers.operator.installation import read_shard
from pykai.controllers.operator.shards import config_document, scheduler_config_text
from pykai.plugins import registry

from .cluster import installation

BINPACK = [
    "predicates",
    "proportion",
    "priority",
    "nodeavailability",
    "resourcetype",
    "podaffinity",
    "preferences",
    "elastic",
    "kubeflow",
    "ray",
    "subgrouporder",
    "taskorder",
    "nominatednode",
    "dynamicresources",
    "minruntime",
    "topology",
    "snapshot",
    "backgroundpods",
    "sg-nodelocalgreedy",
    "sg-multinodegang",
    "gpupack",
    "nodeplacement",
    "gpusharingorder",
]
ACTIONS = "allocate, consolidation, reclaim, preempt, stalegangeviction"


def configured(config: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return config_document(read_shard("default", spec), installation(config))


def plugin_names(made: dict[str, Any]) -> list[str]:
    return [plugin["name"] for plugin in made["tiers"][0]["plugins"]]


def arguments(made: dict[str, Any], name: str) -> dict[str, str] | None:
    found: dict[str, str] | None = next(
        plugin.get("arguments") for plugin in made["tiers"][0]["plugins"] if plugin["name"] == name
    )
    return found


def test_the_default_shard() -> None:
    made = configured()
    assert made["actions"] == ACTIONS
    assert plugin_names(made) == BINPACK
    assert arguments(made, "nodeplacement") == {"cpu": "binpack", "gpu": "binpack"}
    assert arguments(made, "proportion") is None
    assert set(made) == {"actions", "tiers"}


def test_every_plugin_exists() -> None:
    for plugin in configured(placementStrategy={"gpu": "spread"})["tiers"][0]["plugins"]:
        registry.make(plugin["name"], plugin.get("arguments"))


@pytest.mark.parametrize(
    ("strategy", "gone", "come", "consolidates"),
    [
        ({"gpu": "spread"}, {"gpupack", "gpusharingorder"}, {"gpuspread"}, False),
        ({"cpu": "spread"}, set(), set(), False),
        ({"gpu": "spread", "cpu": "spread"}, {"gpupack", "gpusharingorder"}, {"gpuspread"}, False),
        ({"gpu": "binpack", "cpu": "binpack"}, set(), set(), True),
    ],
)
def test_strategies(strategy: dict[str, str], gone: set[str], come: set[str], consolidates: bool) -> None:
    made = configured(placementStrategy=strategy)
    assert set(plugin_names(made)) == (set(BINPACK) - gone) | come
    assert ("consolidation" in made["actions"]) is consolidates
    assert arguments(made, "nodeplacement") == {"cpu": "binpack", "gpu": "binpack", **strategy}


@pytest.mark.parametrize(
    ("change", "first", "given"),
    [
        ({"elastic": {"priority": 5000}}, "elastic", None),
        ({"mine": {}}, "predicates", None),
        ({"mine": {"priority": 5000, "arguments": {"a": "b"}}}, "mine", {"a": "b"}),
        ({"predicates": {"enabled": False}}, "proportion", None),
    ],
)
def test_changes_to_plugins(change: dict[str, Any], first: str, given: dict[str, str] | None) -> None:
    made = configured(plugins=change)
    assert plugin_names(made)[0] == first
    assert arguments(made, first) == given
    if "mine" in change:
        assert "mine" in plugin_names(made)


def test_arguments_replace_all_default_ones() -> None:
    made = configured(kValue=0.5, plugins={"nodeplacement": {"arguments": {"gpu": "spread"}}})
    assert arguments(made, "nodeplacement") == {"gpu": "spread"}
    assert arguments(made, "proportion") == {"kValue": "0.5"}
    assert arguments(configured(kValue=0.12345678), "proportion") == {"kValue": "0.12345678"}


def test_changes_to_actions() -> None:
    made = configured(actions={"reclaim": {"enabled": False}, "preempt": {"priority": 900}})
    assert made["actions"] == "preempt, allocate, consolidation, stalegangeviction"


def test_what_else_a_shard_says() -> None:
    made = configured(
        minRuntime={"preemptMinRuntime": "5m"},
        queueDepthPerAction={"allocate": 10},
        scenarioSearchBudgets={"maxJobSearchDuration": "1m"},
        usageDBConfig={"clientType": "prometheus", "connectionString": "http://p"},
    )
    assert arguments(made, "minruntime") == {"defaultPreemptMinRuntime": "5m"}
    assert made["queueDepthPerAction"] == {"allocate": 10}
    assert made["scenarioSearchBudgets"] == {"maxJobSearchDuration": "1m"}
    assert made["usageDBConfig"]["connectionString"] == "http://p"


@pytest.mark.parametrize(
    ("prometheus", "address"),
    [
        ({"enabled": True}, "http://usage-prometheus.kai-scheduler.svc.cluster.local:9090"),
        ({"enabled": True, "externalPrometheusUrl": "http://there"}, "http://there"),
        ({"externalPrometheusUrl": "http://there"}, "http://there"),
    ],
)
def test_the_usage_database_is_found(prometheus: dict[str, Any], address: str) -> None:
    made = configured({"prometheus": prometheus}, usageDBConfig={"clientType": "prometheus"})
    assert made["usageDBConfig"]["connectionString"] == address


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"queueDepthPerAction": {"dance": 1}}, "spec.queueDepthPerAction.dance"),
        ({"queueDepthPerAction": {"allocate": 0}}, "spec.queueDepthPerAction.allocate"),
        ({"scenarioSearchBudgets": {"maxActionSearchDuration": {"dance": "1s"}}}, "spec.scenarioSearchBudgets"),
        ({"actions": {"dance": {}}}, "spec.actions"),
        ({"actions": {name: {"enabled": False} for name in ACTIONS.split(", ")}}, "spec.actions"),
        ({"usageDBConfig": {"clientType": "prometheus"}}, "spec.usageDBConfig.connectionString"),
    ],
)
def test_what_the_scheduler_would_refuse(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(FieldError) as refusal:
        configured(**spec)
    assert refusal.value.path.startswith(path)


def test_the_file_is_what_the_scheduler_reads() -> None:
    shard = read_shard("default", {"kValue": 2})
    read = scheduler_file.read(yaml.safe_load(scheduler_config_text(shard, installation())))
    assert read.plugins is not None
    assert [choice.name for choice in read.plugins] == BINPACK
    assert dict(read.plugins[1].arguments) == {"kValue": "2"}
