"""The steps of a binding by name, as `--plugins` configures them: defaults, overrides, validation.

`{"name": {"enabled": bool, "priority": int, "arguments": {"key": "value"}}}` overrides the defaults: `enabled` and
`priority` one by one, `arguments` as a whole. Higher priorities run first, equal ones by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from msgspec import DecodeError, Struct, json
from msgspec.structs import asdict

from pykai.config.fields import FieldError, converted
from pykai.controllers.binder.bind_reconciler import DELIVERING
from pykai.controllers.binder.binding import Step
from pykai.controllers.binder.gpu_sharing import GpuSharing, NvFractions
from pykai.controllers.binder.resource_claims import ResourceClaims
from pykai.controllers.binder.volume_binding import Volumes
from pykai.kube.api import Api
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import Key

SHARING, HAMI, NVFRACTIONS = "gpusharing", "hamicore", "nvfractions"


@dataclass(frozen=True, slots=True)
class Plugin:
    """The configuration of one step."""

    enabled: bool = True
    priority: int = 0
    arguments: Mapping[str, str] = field(default_factory=dict)


DEFAULTS: dict[str, Plugin] = {
    "volumebinding": Plugin(True, 300, {"bindTimeoutSeconds": "120"}),
    "dynamicresources": Plugin(True, 200, {"bindTimeoutSeconds": "120"}),
    SHARING: Plugin(True, 100, {"cdiEnabled": "false"}),
    NVFRACTIONS: Plugin(False, 90, {"cdiEnabled": "false"}),
    HAMI: Plugin(False, 50),
}


class _PluginEntry(Struct, forbid_unknown_fields=True):
    enabled: bool | None = None
    priority: int | None = None
    arguments: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class StepContext:
    """What steps are built from; `wake` enqueues a waiting pod."""

    api: Api
    watches: InformerFactory
    wake: Callable[[Key], None]


def read_plugins(text: str) -> dict[str, Plugin]:
    """Return the plugins of a `--plugins` value (empty: the defaults); FieldError names the wrong field."""
    try:
        document = json.decode(text) if text else {}
    except DecodeError as error:
        raise FieldError("plugins", f"not JSON: {error}") from None
    given = converted(document, dict[str, _PluginEntry], "plugins")
    plugins = dict(DEFAULTS)
    for name, entry in given.items():
        if name not in DEFAULTS:
            raise FieldError(f"plugins.{name}", f"failed to get binder plugin {name}, known are {', '.join(DEFAULTS)}")
        overrides = {key: value for key, value in asdict(entry).items() if value is not None}
        plugins[name] = replace(plugins[name], **overrides)
    _check_order(plugins)
    for name in ("volumebinding", "dynamicresources"):
        if plugins[name].enabled:
            _seconds(name, plugins[name].arguments)
    for name in DELIVERING:
        if plugins[name].enabled:
            _flag(name, plugins[name].arguments, "cdiEnabled")
    return plugins


def build_steps(plugins: Mapping[str, Plugin], context: StepContext) -> tuple[Step, ...]:
    """Return the enabled steps in the order in which they run."""
    order = sorted(plugins, key=lambda name: (-plugins[name].priority, name))
    # HAMi core's limit is one more key of a ConfigMap that `gpusharing` writes: one write, not two.
    return tuple(_step(name, plugins, context) for name in order if plugins[name].enabled and name != HAMI)


def _step(name: str, plugins: Mapping[str, Plugin], context: StepContext) -> Step:
    arguments = plugins[name].arguments
    match name:
        case "volumebinding":
            return Volumes(context.api, context.watches, _seconds(name, arguments), context.wake)
        case "dynamicresources":
            return ResourceClaims(context.api, _seconds(name, arguments))
        case "nvfractions":
            return NvFractions(cdi=_flag(name, arguments, "cdiEnabled"))
    return GpuSharing(context.api, cdi=_flag(name, arguments, "cdiEnabled"), limits_memory=plugins[HAMI].enabled)


def _check_order(plugins: Mapping[str, Plugin]) -> None:
    hami, sharing = plugins[HAMI], plugins[SHARING]
    if not hami.enabled:
        return
    if not sharing.enabled:
        raise FieldError(f"plugins.{HAMI}", f'"{HAMI}" plugin requires "{SHARING}" plugin to be enabled')
    if sharing.priority <= hami.priority:
        raise FieldError(
            f"plugins.{HAMI}.priority",
            f'"{HAMI}" plugin requires "{SHARING}" to run before it (expected "{SHARING}".priority > '
            f'"{HAMI}".priority, got {sharing.priority} <= {hami.priority})',
        )


def _seconds(plugin: str, arguments: Mapping[str, str]) -> float:
    text = _argument(plugin, arguments, "bindTimeoutSeconds")
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise _invalid(plugin, "bindTimeoutSeconds", text, "expected a whole number of seconds above 0")
    return float(text)


def _flag(plugin: str, arguments: Mapping[str, str], key: str) -> bool:
    text = _argument(plugin, arguments, key)
    if text not in ("true", "false"):
        raise _invalid(plugin, key, text, "expected true or false")
    return text == "true"


def _argument(plugin: str, arguments: Mapping[str, str], key: str) -> str:
    if key not in arguments:
        raise FieldError(f"plugins.{plugin}.arguments", f'missing argument "{key}"')
    return arguments[key]


def _invalid(plugin: str, key: str, text: str, why: str) -> FieldError:
    return FieldError(f"plugins.{plugin}.arguments.{key}", f'invalid argument "{key}"="{text}": {why}')
