"""The scheduler's configuration file: actions, plugins with their arguments, how deep an action looks into a queue,
how long it may search.

The format is KAI's (`actions`, `tiers`, `queueDepthPerAction`, `usageDBConfig`, `scenarioSearchBudgets`). A part that
is missing takes the built-in value; a part that is wrong is refused with its path, never replaced by a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec import field as named

from pykai.config import budgets, documents
from pykai.config.fields import FieldError, below, converted
from pykai.engine.budgets import SearchBudgets
from pykai.engine.policy import ACTIONS, Policy

Arguments = Mapping[str, str]
Make = Callable[[str, Arguments], tuple[object, ...]]
"""The plugin objects of a configured name; ValueError tells what is wrong with it or its arguments."""
Scalar = str | int | float | bool


class _Plugin(Struct, rename="camel", forbid_unknown_fields=True):
    """The `disable` switches are KAI's legacy: read there too, and without effect there too."""

    name: str
    arguments: dict[str, Scalar] = {}
    disable_job_order: bool = False
    disable_task_order: bool = False
    disable_preemptable: bool = False
    disable_reclaimable: bool = False
    disable_queue_order: bool = False
    disable_predicate: bool = False
    disable_node_order: bool = False


class _Tier(Struct, forbid_unknown_fields=True):
    plugins: list[_Plugin] = []


class _File(Struct, rename="camel", forbid_unknown_fields=True):
    actions: str = ""
    tiers: list[_Tier] | None = None
    queue_depth_per_action: dict[str, int] | None = None
    usage_db_config: dict[str, Any] | None = named(default=None, name="usageDBConfig")
    scenario_search_budgets: dict[str, Any] | None = None


@dataclass(frozen=True)
class PluginChoice:
    """A plugin by name, and where in the file it was chosen."""

    path: str
    name: str
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True)
class SchedulerConfig:
    """What a configuration file says. `plugins` None: it says nothing, the built-in ones run."""

    actions: tuple[str, ...] = ACTIONS
    plugins: tuple[PluginChoice, ...] | None = None
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    usage_db: Mapping[str, Any] | None = None
    budgets: SearchBudgets = SearchBudgets()


def load(path: Path) -> SchedulerConfig:
    """The configuration in a YAML file; FieldError names the file and the field."""
    text = documents.text_of(path)
    with below(f"{path}: "):
        document = documents.only(text)
        return read({} if document is None else document)


def read(document: object) -> SchedulerConfig:
    """The configuration in a parsed document."""
    file = converted(document, _File)
    actions = _actions(file.actions)
    return SchedulerConfig(
        actions=actions,
        plugins=tuple(_plugins(file.tiers)) if file.tiers else None,
        queue_depth=_depths(file.queue_depth_per_action or {}, actions),
        usage_db=file.usage_db_config,
        budgets=budgets.read(file.scenario_search_budgets or {}),
    )


def policy(config: SchedulerConfig, make: Make, built_in: Sequence[str]) -> Policy:
    """The policy a configuration asks for; `built_in`: plugins to run where it names none."""
    choices = config.plugins
    if choices is None:
        choices = tuple(PluginChoice("", name) for name in built_in)
    made = [(choice.name, plugin) for choice in choices for plugin in _made(choice, make)]
    return Policy(
        plugins=tuple(plugin for _, plugin in made),
        actions=config.actions,
        queue_depth=config.queue_depth,
        budgets=config.budgets,
        names=tuple(name for name, _ in made),
    )


def plugin_names(config: SchedulerConfig, built_in: Sequence[str]) -> tuple[str, ...]:
    """The names of the plugins that run; `built_in`: those that do where the configuration names none."""
    return tuple(built_in) if config.plugins is None else tuple(choice.name for choice in config.plugins)


def _actions(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip()) or ACTIONS
    for name in names:
        if name not in ACTIONS:
            raise FieldError("actions", f"there is no action {name!r} (there are: {', '.join(ACTIONS)})")
    if len(set(names)) < len(names):
        raise FieldError("actions", f"{text!r} names an action twice")
    return names


def _plugins(tiers: Sequence[_Tier]) -> Iterable[PluginChoice]:
    for at, tier in enumerate(tiers):
        for number, plugin in enumerate(tier.plugins):
            arguments = {key: _text(value) for key, value in plugin.arguments.items()}
            yield PluginChoice(f"tiers[{at}].plugins[{number}]", plugin.name, arguments)


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _depths(depths: Mapping[str, int], actions: Sequence[str]) -> Mapping[str, int]:
    for action, depth in depths.items():
        path = f"queueDepthPerAction.{action}"
        if action not in actions:
            raise FieldError(path, f"the scheduler's actions are {', '.join(actions)}; {action} isn't one of them")
        if depth < 1:
            raise FieldError(path, f"must be at least 1, not {depth}")
    return dict(depths)


def _made(choice: PluginChoice, make: Make) -> tuple[object, ...]:
    try:
        return make(choice.name, choice.arguments)
    except ValueError as error:
        raise FieldError(choice.path, str(error)) from error
