"""What a configuration says in vain is told; what it says to some effect is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pykai.config import scheduler
from pykai.config.scheduler import remarks
from pykai.plugins import registry

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
    return remarks(scheduler.read({"tiers": [{"plugins": list(plugins)}]}), registry.make)


def test_what_has_an_effect_is_not_remarked_on() -> None:
    assert remarks_on(*USEFUL) == []
    assert remarks(scheduler.SchedulerConfig(), registry.make) == []


@pytest.mark.parametrize("name", sorted(registry.PLUGINS))
def test_every_plugin_tells_which_arguments_it_asks_for(name: str) -> None:
    (line,) = remarks_on({"name": name, "arguments": {"colour": "red"}})
    assert line.startswith(f"tiers[0].plugins[0].arguments.colour: plugin {name} has no such argument (")


class Later:
    """A plugin that keeps its arguments and asks for them while it works."""

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self.ask = arguments.get


def test_nothing_is_said_of_arguments_that_a_plugin_may_ask_for_later() -> None:
    config = scheduler.read({"tiers": [{"plugins": [{"name": "later", "arguments": {"colour": "red"}}]}]})
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
    assert line == "tiers[0].plugins[2].name: plugin priority is named before: its word counts twice"


def test_no_tiers_are_the_built_in_ones() -> None:
    assert scheduler.read({"tiers": []}).plugins is None
