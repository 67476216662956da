"""Configuration files: what they say, and how wrong ones are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pykai.config import scheduler_config
from pykai.config.fields import FieldError
from pykai.config.scheduler_config import remarks
from pykai.engine.budgets import SearchBudgets
from pykai.engine.policy import ACTIONS
from pykai.plugins import registry
from pykai.plugins.proportion import Proportion


def test_an_empty_document_is_the_built_in_configuration() -> None:
    config = scheduler_config.read({})
    assert config == scheduler_config.SchedulerConfig()
    policy = scheduler_config.policy(config, registry.make, registry.BUILT_IN)
    assert policy.actions == ACTIONS
    assert policy.plugins == registry.make_all((name, {}) for name in registry.BUILT_IN)


def test_plugins_get_their_arguments_as_text_and_keep_their_order() -> None:
    document = {
        "actions": "allocate, preempt",
        "tiers": [
            {"plugins": [{"name": "priority", "disableJobOrder": False}]},
            {"plugins": [{"name": "proportion", "arguments": {"kValue": 0.5, "relcaimerSaturationMultiplier": "2"}}]},
        ],
        "queueDepthPerAction": {"allocate": 10},
        "usageDBConfig": {"clientType": "prometheus"},
        "scenarioSearchBudgets": {"maxActionSearchDuration": {"default": "5m0s"}, "minJobSearchDuration": "0s"},
    }
    config = scheduler_config.read(document)
    assert config.usage_db == {"clientType": "prometheus"}
    policy = scheduler_config.policy(config, registry.make, ())
    assert policy.actions == ("allocate", "preempt")
    assert policy.queue_depth == {"allocate": 10}
    assert policy.plugins[-1] == Proportion(k=0.5, saturation=2.0)
    assert policy.names == ("priority", "proportion")


def test_search_budgets_are_part_of_the_policy() -> None:
    document = {
        "maxActionSearchDuration": {"default": "1m30s", "reclaim": "0s"},
        "maxJobSearchDuration": 1_500_000_000,
        "minJobSearchDuration": "250ms",
        "maxGeneratorSearchDuration": {"MultiNodeGang": "10s"},
    }
    config = scheduler_config.read({"scenarioSearchBudgets": document})
    expected = SearchBudgets({"default": 90.0, "reclaim": 0.0}, 1.5, 0.25, {"MultiNodeGang": 10.0})
    assert scheduler_config.policy(config, registry.make, ()).budgets == expected
    assert scheduler_config.read_budgets(scheduler_config.budgets_document(expected)) == expected
    assert scheduler_config.read({}).budgets == SearchBudgets()


def test_names_are_those_of_the_configuration_however_many_plugins_each_makes() -> None:
    policy = scheduler_config.policy(
        scheduler_config.SchedulerConfig(), registry.make, ("predicates", "snapshot", "nodeplacement")
    )
    assert len(policy.names) == len(policy.plugins)
    assert set(policy.names) == {"predicates", "nodeplacement"}


WRONG: list[tuple[Any, str, str]] = [
    ([], "", "expected a map, got a list"),
    ({"action": "allocate"}, "", "unknown field 'action'"),
    ({"actions": 3}, "actions", "expected a string, got a whole number"),
    ({"actions": "allocate, fly"}, "actions", "failed to find Action fly as given in the config"),
    ({"actions": "allocate, allocate"}, "actions", "names an action twice"),
    ({"tiers": [{"plugins": [{"arguments": {}}]}]}, "tiers[0].plugins[0]", "name is missing"),
    ({"tiers": [{"plugins": [{"name": "x", "argument": {}}]}]}, "tiers[0].plugins[0]", "unknown field 'argument'"),
    (
        {"queueDepthPerAction": {"fly": 1}},
        "queueDepthPerAction.fly",
        "fly isn't one of them, making the queueDepthPerAction invalid",
    ),
    ({"actions": "preempt", "queueDepthPerAction": {"reclaim": 1}}, "queueDepthPerAction.reclaim", "isn't one of them"),
    ({"queueDepthPerAction": {"reclaim": 0}}, "queueDepthPerAction.reclaim", "at least 1"),
    (
        {"scenarioSearchBudgets": {"maxActionSearchDuration": {"fly": "1s"}}},
        "scenarioSearchBudgets.maxActionSearchDuration",
        'maxActionSearchDuration contains invalid action key "fly"; valid action keys: default, reclaim, preempt',
    ),
    (
        {"scenarioSearchBudgets": {"maxJobSearchDuration": "-1s"}},
        "scenarioSearchBudgets.maxJobSearchDuration",
        "maxJobSearchDuration must be non-negative",
    ),
    (
        {"scenarioSearchBudgets": {"maxJobSearchDuration": "soon"}},
        "scenarioSearchBudgets.maxJobSearchDuration",
        "not a duration",
    ),
    (
        {"scenarioSearchBudgets": {"maxJobSearchDuration": "1s", "minJobSearchDuration": "2s"}},
        "scenarioSearchBudgets",
        "must be less than",
    ),
    ({"scenarioSearchBudgets": {"minJobSearchDuration": "4m"}}, "scenarioSearchBudgets", "must be less than"),
    ({"scenarioSearchBudgets": {"luck": "1s"}}, "scenarioSearchBudgets", "unknown field 'luck'"),
    (
        {"scenarioSearchBudgets": {"maxGeneratorSearchDuration": {"Luck": "1s"}}},
        "scenarioSearchBudgets.maxGeneratorSearchDuration",
        "valid generator keys: default, NodeLocalGreedy, MultiNodeGang",
    ),
    (
        {"scenarioSearchBudgets": {"maxGeneratorSearchDuration": "1s"}},
        "scenarioSearchBudgets.maxGeneratorSearchDuration",
        "expected a map",
    ),
    (
        {"scenarioSearchBudgets": {"maxActionSearchDuration": {"reclaim": True}}},
        "scenarioSearchBudgets.maxActionSearchDuration.reclaim",
        "not a duration",
    ),
]


@pytest.mark.parametrize(("document", "path", "message"), WRONG)
def test_wrong_documents_are_refused_with_the_path(document: Any, path: str, message: str) -> None:
    with pytest.raises(FieldError) as refused:
        scheduler_config.read(document)
    assert refused.value.path == path
    assert message in refused.value.message


WRONG_PLUGINS = [
    ({"name": "nosuch"}, "plugin 'nosuch' does not exist"),
    ({"name": "proportion", "arguments": {"kValue": "much"}}, "arguments.kValue: 'much' is not a number"),
    ({"name": "proportion", "arguments": {"kValue": "nan"}}, "arguments.kValue: 'nan' is not a number"),
    ({"name": "nodeplacement", "arguments": {"gpu": "pile"}}, "arguments.gpu: must be binpack or spread"),
]


@pytest.mark.parametrize(("plugin", "message"), WRONG_PLUGINS)
def test_wrong_plugins_are_refused_with_the_path(plugin: Any, message: str) -> None:
    config = scheduler_config.read({"tiers": [{"plugins": [{"name": "priority"}, plugin]}]})
    with pytest.raises(FieldError) as refused:
        scheduler_config.policy(config, registry.make, ())
    assert refused.value.path == "tiers[0].plugins[1]"
    assert message in refused.value.message


def test_a_file_is_named_in_its_refusals(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text("actions: fly\n")
    with pytest.raises(FieldError, match=r"scheduler\.yaml: actions: failed to find Action fly as given in the config"):
        scheduler_config.load(path)
    path.write_text("actions: [\n")
    with pytest.raises(FieldError, match=r"scheduler\.yaml: not YAML"):
        scheduler_config.load(path)
    path.write_text("")
    assert scheduler_config.load(path) == scheduler_config.SchedulerConfig()


USEFUL = [
    {"name": "proportion", "arguments": {"kValue": 2, "reclaimerSaturationMultiplier": 1.5}},
    {"name": "nodeplacement", "arguments": {"gpu": "spread", "cpu": "binpack"}},
    {
        "name": "minruntime",
        "arguments": {
            "defaultPreemptMinRuntime": "1h",
            "defaultReclaimMinRuntime": "1d",
            "reclaimResolveMethod": "queue",
        },
    },
    {"name": "numa", "arguments": {"ignoreList": "cpu", "reconstructAvailable": "false"}},
]


def remarks_on(*plugins: Any) -> list[str]:
    return remarks(scheduler_config.read({"tiers": [{"plugins": list(plugins)}]}), registry.make)


def test_what_has_an_effect_is_not_remarked_on() -> None:
    assert remarks_on(*USEFUL) == []
    assert remarks(scheduler_config.SchedulerConfig(), registry.make) == []


@pytest.mark.parametrize("name", sorted(registry.PLUGINS))
def test_every_plugin_tells_which_arguments_it_asks_for(name: str) -> None:
    (line,) = remarks_on({"name": name, "arguments": {"colour": "red"}})
    assert line.startswith(f"tiers[0].plugins[0].arguments.colour: plugin {name} has no such argument (")


class Later:
    """A plugin that keeps its arguments and asks for them while it works."""

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self.ask = arguments.get


def test_nothing_is_said_of_arguments_that_a_plugin_may_ask_for_later() -> None:
    config = scheduler_config.read({"tiers": [{"plugins": [{"name": "later", "arguments": {"colour": "red"}}]}]})
    assert remarks(config, lambda _, arguments: (Later(arguments),)) == []


VAIN = [
    ({"defaultPreemptMinRuntime": "5x"}, "defaultPreemptMinRuntime: '5x' is not a duration"),
    ({"defaultReclaimMinRuntime": "-5s"}, "defaultReclaimMinRuntime: '-5s' is negative: 0s is used"),
    ({"reclaimResolveMethod": "LCA"}, "reclaimResolveMethod: 'LCA' is neither lca nor queue: lca is used"),
]


@pytest.mark.parametrize(("arguments", "message"), VAIN)
def test_values_that_count_as_not_given(arguments: dict[str, str], message: str) -> None:
    (line,) = remarks_on({"name": "minruntime", "arguments": arguments})
    assert line.startswith(f"tiers[0].plugins[0].arguments.{message}")


def test_a_plugin_named_twice_counts_twice() -> None:
    (line,) = remarks_on({"name": "priority"}, {"name": "elastic"}, {"name": "priority"})
    assert line == "tiers[0].plugins[2].name: plugin priority is listed twice and counts twice"


def test_no_tiers_are_the_built_in_ones() -> None:
    assert scheduler_config.read({"tiers": []}).plugins is None
