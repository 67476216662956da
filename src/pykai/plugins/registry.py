"""The table of plugins: the names configuration knows, and how each is made from its arguments.

Third parties add names through the entry point group `pykai.plugins`; an entry point is a callable that takes the
arguments of the configuration and returns a plugin or a tuple of plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from math import isfinite, nan
from typing import Any

from pykai.engine.plugin_api import gaps
from pykai.plugins import ordering, scoring
from pykai.plugins.affinity import PreferredPodAffinity
from pykai.plugins.backgroundpods import BackgroundPods
from pykai.plugins.disruption_budgets import DisruptionBudgets
from pykai.plugins.dra import DynamicResources
from pykai.plugins.minruntime import MinRuntime, MinRuntimePolicy
from pykai.plugins.nominated import NominatedNode, ReservedForOthers
from pykai.plugins.numa import Numa
from pykai.plugins.predicates import PREDICATES
from pykai.plugins.preferences import ImageLocality, PreferNoSchedule, PreferredNodeAffinity
from pykai.plugins.proportion import Proportion
from pykai.plugins.spread import SoftSpread
from pykai.plugins.topology import Topology
from pykai.plugins.victim_choices import FewNodes, OneNode

Arguments = Mapping[str, str]
Made = tuple[object, ...]


class UnknownPluginError(ValueError):
    """Configuration names a plugin that does not exist."""


class IncompletePluginError(ValueError):
    """A plugin implements an extension point only in part, so it would never be called."""


def _number(arguments: Arguments, key: str, default: float) -> float:
    text = arguments.get(key)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise ValueError(f"arguments.{key}: {text!r} is not a number")
    return number


def _proportion(arguments: Arguments) -> Made:
    saturation = _number(
        arguments, "relcaimerSaturationMultiplier", _number(arguments, "reclaimerSaturationMultiplier", 1.0)
    )
    k = max(_number(arguments, "kValue", 1.0), 0.0)
    return (
        Proportion(
            k, max(saturation, 1.0), _choice(arguments, "queuePriorityInQuotaReclaim", ("false", "true")) == "true"
        ),
    )


def _choice(arguments: Arguments, key: str, choices: tuple[str, ...]) -> str:
    """One of the choices, the first if absent."""
    value = arguments.get(key, choices[0])
    if value not in choices:
        raise ValueError(f"arguments.{key}: {value!r} is not one of {', '.join(choices)}")
    return value


def _gpu_job_order(arguments: Arguments) -> Made:
    mode = _choice(arguments, "mode", ("prefer-larger", "prefer-smaller"))
    return (ordering.GpuJobOrder(smaller_first=mode == "prefer-smaller"),)


def _nothing(_: Arguments) -> Made:
    """Names that select a part of the program which is not a decision plugin (pages it serves)."""
    return ()


def _node_placement(arguments: Arguments) -> Made:
    return scoring.node_placement(**{key: arguments.get(key, "binpack") for key in ("gpu", "cpu")})


PLUGINS: dict[str, Callable[[Arguments], Made]] = {
    "predicates": lambda _: PREDICATES,
    "proportion": _proportion,
    "priority": lambda _: (ordering.Priority(),),
    "gpujoborder": _gpu_job_order,
    "elastic": lambda _: (ordering.Elastic(),),
    "kubeflow": lambda _: (ordering.Kubeflow(),),
    "ray": lambda _: (ordering.Ray(),),
    "subgrouporder": lambda _: (ordering.SubGroupOrder(),),
    "taskorder": lambda _: (ordering.TaskPriority(),),
    "nodeavailability": lambda _: (scoring.NodeAvailability(),),
    "gpusharingorder": lambda _: (scoring.GpuSharingOrder(),),
    "gpupack": lambda _: (scoring.GpuPack(),),
    "gpuspread": lambda _: (scoring.GpuSpread(),),
    "resourcetype": lambda _: (scoring.ResourceType(),),
    "nominatednode": lambda _: (NominatedNode(), ReservedForOthers()),
    "nodeplacement": _node_placement,
    "podaffinity": lambda _: (PreferredPodAffinity(),),
    "preferences": lambda _: (PreferredNodeAffinity(), PreferNoSchedule(), SoftSpread()),
    "imagelocality": lambda _: (ImageLocality(),),
    "dynamicresources": lambda _: (DynamicResources(),),
    "numa": lambda arguments: (Numa.from_arguments(arguments),),
    "disruptionbudgets": lambda arguments: DisruptionBudgets.from_arguments(arguments),
    "minruntime": lambda arguments: (MinRuntime(MinRuntimePolicy.from_arguments(arguments)),),
    "topology": lambda _: (Topology(),),
    "snapshot": _nothing,
    "reflectjoborder": _nothing,
    "backgroundpods": lambda arguments: (BackgroundPods.from_arguments(arguments),),
    "sg-nodelocalgreedy": lambda _: (OneNode(),),
    "sg-multinodegang": lambda _: (FewNodes(),),
}

BUILT_IN = (
    "predicates",
    "proportion",
    "priority",
    "elastic",
    "kubeflow",
    "ray",
    "nodeavailability",
    "gpusharingorder",
    "gpupack",
    "resourcetype",
    "podaffinity",
    "preferences",
    "subgrouporder",
    "taskorder",
    "nominatednode",
    "dynamicresources",
    "nodeplacement",
    "minruntime",
    "topology",
    "snapshot",
    "backgroundpods",
    "sg-nodelocalgreedy",
    "sg-multinodegang",
)
"""What runs where configuration says nothing."""


@cache
def _third_party() -> dict[str, Callable[[Arguments], Any]]:
    return {point.name: point.load() for point in entry_points(group="pykai.plugins")}


def make(name: str, arguments: Arguments | None = None) -> Made:
    """The plugin objects behind a configured name."""
    maker = PLUGINS.get(name) or _third_party().get(name)
    if maker is None:
        known = ", ".join(sorted({*PLUGINS, *_third_party()}))
        raise UnknownPluginError(f"plugin {name!r} does not exist (known: {known})")
    made = maker(arguments or {})
    made = made if isinstance(made, tuple) else (made,)
    for plugin in made:
        if wrong := gaps(plugin):
            raise IncompletePluginError(f"plugin {name!r}: {type(plugin).__name__}: {'; '.join(wrong)}")
    return made


def make_all(configured: Iterable[tuple[str, Arguments]]) -> Made:
    """All plugins of a configuration, in its order."""
    return tuple(plugin for name, arguments in configured for plugin in make(name, arguments))
