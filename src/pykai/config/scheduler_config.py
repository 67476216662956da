"""The scheduler's configuration file: actions, plugins with their arguments, queue depth per action, search budgets.

The format is KAI's (`actions`, `tiers`, `queueDepthPerAction`, `usageDBConfig`, `scenarioSearchBudgets`). A missing
field takes its default; an invalid field is an error with its path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from weakref import ref

from msgspec import Struct
from msgspec import field as struct_field

from pykai.config import documents
from pykai.config.fields import FieldError, converted, path_prefix
from pykai.engine.budgets import DEFAULT, GENERATOR_SECONDS, SEARCHING, SearchBudgets
from pykai.engine.policy import ACTIONS, Policy
from pykai.model.params import SchedulerParams
from pykai.objects import names, units

Arguments = Mapping[str, str]
Make = Callable[[str, Arguments], tuple[object, ...]]
"""Makes the plugin objects for a name and arguments; ValueError for an unknown plugin or invalid arguments."""
Scalar = str | int | float | bool


class _Plugin(Struct, rename="camel", forbid_unknown_fields=True):
    """A plugin of a tier. The `disable` fields are legacy fields of KAI, without effect there, too."""

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
    usage_db_config: dict[str, Any] | None = struct_field(default=None, name="usageDBConfig")
    scenario_search_budgets: dict[str, Any] | None = None


@dataclass(frozen=True)
class PluginChoice:
    """A configured plugin: its path in the file, name and arguments."""

    path: str
    name: str
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True)
class SchedulerConfig:
    """The content of a configuration file. `plugins`: None if the file lists none; then the built-in ones run."""

    actions: tuple[str, ...] = ACTIONS
    plugins: tuple[PluginChoice, ...] | None = None
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    usage_db: Mapping[str, Any] | None = None
    budgets: SearchBudgets = SearchBudgets()


def load(path: Path) -> SchedulerConfig:
    """Load a YAML file; FieldError names the file and the field."""
    text = documents.read_text(path)
    with path_prefix(f"{path}: "):
        document = documents.read_one(text)
        return read({} if document is None else document)


def read(document: object) -> SchedulerConfig:
    """Read a parsed document; FieldError names the field."""
    file = converted(document, _File)
    actions = _actions(file.actions)
    return SchedulerConfig(
        actions=actions,
        plugins=tuple(_plugin_choices(file.tiers)) if file.tiers else None,
        queue_depth=_queue_depths(file.queue_depth_per_action or {}, actions),
        usage_db=file.usage_db_config,
        budgets=read_budgets(file.scenario_search_budgets or {}),
    )


def policy(config: SchedulerConfig, make: Make, built_in: Sequence[str]) -> Policy:
    """Return the policy of a configuration; `built_in`: the plugins to run if the configuration lists none."""
    choices = config.plugins
    if choices is None:
        choices = tuple(PluginChoice("", name) for name in built_in)
    plugins: list[tuple[str, object]] = []
    for choice in choices:
        try:
            plugins += [(choice.name, plugin) for plugin in make(choice.name, choice.arguments)]
        except ValueError as error:
            raise FieldError(choice.path, str(error)) from error
    return Policy(
        plugins=tuple(plugin for _, plugin in plugins),
        actions=config.actions,
        queue_depth=config.queue_depth,
        budgets=config.budgets,
        names=tuple(name for name, _ in plugins),
    )


def params_for(policy: Policy, params: SchedulerParams) -> SchedulerParams:
    """Return the parameters, extended by what the plugins of the policy need in the snapshot."""
    return replace(params, image_locality="imagelocality" in policy.names)


_FLAGS: Final = {
    "scheduler-name": "scheduler_name",
    "nodepool-label-key": "node_pool_key",
    "partition-label-value": "node_pool",
    "queue-label-key": "queue_label_key",
    "restrict-node-scheduling": "restrict_nodes",
    "cpu-worker-node-label-key": "cpu_worker_key",
    "gpu-worker-node-label-key": "gpu_worker_key",
    "mig-worker-node-label-key": "mig_worker_key",
    "resource-reservation-app-label": "reservation_app",
    "max-consolidation-preemptees": "max_consolidation_victims",
    "allow-consolidating-reclaim": "allow_consolidating_reclaim",
    "full-hierarchy-fairness": "full_hierarchy_fairness",
    "use-scheduling-signatures": "use_signatures",
    "default-staleness-grace-period": "staleness_grace",
    "stuck-in-releasing-threshold": "stuck_in_releasing",
    "schedule-csi-storage": "schedule_csi_storage",
    "detailed-fit-errors": "detailed_fit_errors",
    "update-pod-eviction-condition": "update_eviction_condition",
    "enable-workload-eviction-metrics": "workload_eviction_metrics",
}
"""Flags of the scheduler -> the parameters that they set."""


def params_of_flags(flags: Mapping[str, Scalar]) -> SchedulerParams:
    """Return the parameters that the scheduler's flags set, given as texts or parsed; other flags are ignored.

    FieldError names the invalid flag.
    """
    defaults, given = SchedulerParams(), dict[str, Any]()
    for flag, name in _FLAGS.items():
        if flag in flags:
            given[name] = _parsed(flag, flags[flag], getattr(defaults, name))
    params = replace(defaults, **given, nvfractions=flags.get("gpu-sharing-mode") == names.NVFRACTIONS)
    return replace(params, partitioned=bool(params.node_pool_key))


def _parsed(flag: str, value: Scalar, default: Scalar) -> Scalar:
    """Return the value of a flag in the type of its default; floats are durations in seconds."""
    if isinstance(default, bool):
        return str(value).lower() in ("true", "1", "t")
    try:
        return units.parse_duration(str(value)) if isinstance(default, float) else type(default)(value)
    except ValueError as error:
        raise FieldError(flag, str(error)) from error


def plugin_names(config: SchedulerConfig, built_in: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the plugins that run; `built_in`: the default if the configuration lists none."""
    return tuple(built_in) if config.plugins is None else tuple(choice.name for choice in config.plugins)


def _actions(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip()) or ACTIONS
    for name in names:
        if name not in ACTIONS:
            known = f"there are: {', '.join(ACTIONS)}"
            raise FieldError("actions", f"failed to find Action {name} as given in the config ({known})")
    if len(set(names)) < len(names):
        raise FieldError("actions", f"{text!r} names an action twice")
    return names


def _plugin_choices(tiers: Sequence[_Tier]) -> Iterable[PluginChoice]:
    for tier_number, tier in enumerate(tiers):
        for number, plugin in enumerate(tier.plugins):
            given = plugin.arguments.items()
            arguments = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given}
            yield PluginChoice(f"tiers[{tier_number}].plugins[{number}]", plugin.name, arguments)


def _queue_depths(depths: Mapping[str, int], actions: Sequence[str]) -> Mapping[str, int]:
    for action, depth in depths.items():
        path = f"queueDepthPerAction.{action}"
        if action not in actions:
            listed = f"the scheduler's actions are {', '.join(actions)}"
            raise FieldError(path, f"{listed}. {action} isn't one of them, making the queueDepthPerAction invalid")
        if depth < 1:
            raise FieldError(path, f"must be at least 1, not {depth}")
    return dict(depths)


# Search budgets
_BUDGETS = "scenarioSearchBudgets"
_ACTIONS, _GENERATORS = "maxActionSearchDuration", "maxGeneratorSearchDuration"
_MIN_BACKOFF, _MAX_BACKOFF = "minFailedSearchBackoff", "maxFailedSearchBackoff"
_JOB, _LEAST_JOB = "maxJobSearchDuration", "minJobSearchDuration"
_BUDGET_MAPS: dict[str, tuple[str, ...]] = {
    _ACTIONS: (DEFAULT, *SEARCHING),
    _GENERATORS: tuple(GENERATOR_SECONDS),
    _MIN_BACKOFF: (DEFAULT, *SEARCHING),
    _MAX_BACKOFF: (DEFAULT, *SEARCHING),
}
_JOB_BUDGETS = {_JOB: "job", _LEAST_JOB: "least_job"}


def read_budgets(document: Mapping[str, Any]) -> SearchBudgets:
    """Read `scenarioSearchBudgets`; FieldError names the field."""
    for name in document:
        if name not in _BUDGET_MAPS and name not in _JOB_BUDGETS:
            raise FieldError(_BUDGETS, f"unknown field {name!r}")
    single = {
        _JOB_BUDGETS[name]: _budget_seconds(f"{_BUDGETS}.{name}", document[name], name)
        for name in _JOB_BUDGETS
        if name in document
    }
    budgets = SearchBudgets(
        actions=_budget_map(document, _ACTIONS),
        generators=_budget_map(document, _GENERATORS),
        first_backoff=_budget_map(document, _MIN_BACKOFF),
        longest_backoff=_budget_map(document, _MAX_BACKOFF),
        **single,
    )
    if budgets.job and budgets.least_job >= budgets.job:
        raise FieldError(_BUDGETS, f"{_LEAST_JOB} must be less than {_JOB}")
    return budgets


def budgets_document(budgets: SearchBudgets) -> dict[str, Any]:
    """Return the budgets in the form of `scenarioSearchBudgets`."""
    maps = {
        _ACTIONS: budgets.actions,
        _GENERATORS: budgets.generators,
        _MIN_BACKOFF: budgets.first_backoff,
        _MAX_BACKOFF: budgets.longest_backoff,
    }
    return {
        _JOB: units.render_duration(budgets.job),
        _LEAST_JOB: units.render_duration(budgets.least_job),
        **{name: {key: units.render_duration(each) for key, each in given.items()} for name, given in maps.items()},
    }


def _budget_map(given: Mapping[str, Any], name: str) -> dict[str, float]:
    path, keys, value = f"{_BUDGETS}.{name}", _BUDGET_MAPS[name], given.get(name, {})
    if not isinstance(value, Mapping):
        raise FieldError(path, "expected a map")
    for key in value:
        if key not in keys:
            kind = "generator" if name == _GENERATORS else "action"
            valid = f"valid {kind} keys: {', '.join(keys)}"
            raise FieldError(path, f'{name} contains invalid {kind} key "{key}"; {valid}')
    return {key: _budget_seconds(f"{path}.{key}", text, f'{name}["{key}"]') for key, text in value.items()}


def _budget_seconds(path: str, value: object, name: str) -> float:
    """Parse a budget to seconds; `name`: how KAI's error for a negative value names the field."""
    try:
        seconds = (
            value / 1e9 if isinstance(value, int) and not isinstance(value, bool) else units.parse_duration(str(value))
        )
    except units.DurationError as error:
        raise FieldError(path, str(error)) from error
    if seconds < 0:
        raise FieldError(path, f"{name} must be non-negative")
    return seconds


# Settings without effect
def _duration_remark(text: str) -> str:
    try:
        return "is negative: 0s is used" if units.parse_long_duration(text) < 0 else ""
    except units.DurationError:
        return "is not a duration such as 30m or 1h: 0s is used"


_IGNORED_VALUES: Final[Mapping[tuple[str, str], Callable[[str], str]]] = {
    ("minruntime", "defaultPreemptMinRuntime"): _duration_remark,
    ("minruntime", "defaultReclaimMinRuntime"): _duration_remark,
    ("minruntime", "reclaimResolveMethod"): lambda text: (
        "" if text in ("lca", "queue") else "is neither lca nor queue: lca is used"
    ),
}
"""Checks of arguments whose invalid values are ignored: they return a remark, empty for a valid value."""


class _RecordingArguments(Mapping[str, str]):
    """Plugin arguments that record which keys are read."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self.keys_read: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.keys_read.add(key)
        return self._given[key]

    def __iter__(self) -> Iterator[str]:
        self.keys_read.update(self._given)
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def remarks(config: SchedulerConfig, make: Make) -> list[str]:
    """Return a line with path for each part of a valid configuration that has no effect."""
    choices = config.plugins or ()
    return [line for number, choice in enumerate(choices) for line in _plugin_remarks(choice, choices[:number], make)]


def _plugin_remarks(choice: PluginChoice, before: tuple[PluginChoice, ...], make: Make) -> Iterator[str]:
    if choice.name in (other.name for other in before):
        yield f"{choice.path}.name: plugin {choice.name} is listed twice and counts twice"
    known_arguments = _arguments_read(choice, make)
    known = f"known: {', '.join(sorted(known_arguments))}" if known_arguments else "it takes none"
    for name, text in choice.arguments.items():
        path = f"{choice.path}.arguments.{name}"
        if name not in known_arguments:
            yield f"{path}: plugin {choice.name} has no such argument ({known}): it has no effect"
        elif (check := _IGNORED_VALUES.get((choice.name, name))) and (remark := check(text)):
            yield f"{path}: {text!r} {remark}"


def _arguments_read(choice: PluginChoice, make: Make) -> set[str]:
    """Return the arguments that the plugin reads in its constructor; all if it keeps the mapping for later reads."""
    recorded = _RecordingArguments(choice.arguments)
    keys_read, kept = recorded.keys_read, ref(recorded)
    made = make(choice.name, recorded)
    del recorded
    return {*choice.arguments} if made and kept() is not None else keys_read
