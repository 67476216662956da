"""Config and SchedulingShard as the operator reads them: complete with the defaults of their schemas.

The API server applies defaults only inside parts that are present. Here absent parts are created first, so that a spec
of `{}` comes out complete. A component without `vpa` has the global one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from pykai.config.fields import FieldError, converted
from pykai.objects.config_kinds import Config, Object
from pykai.objects.crds import CONFIG, SHARD
from pykai.objects.names import is_subdomain
from pykai.objects.shard_kinds import ShardSpec

Schema = Mapping[str, Any]

_WITH_AUTOSCALER = tuple(
    name for name, part in CONFIG.spec["properties"].items() if "vpa" in part.get("properties", {}) and name != "global"
)
_AS_WRITTEN = ("usageDBConfig", "scenarioSearchBudgets")
"""Fields of a shard that the scheduler reads: they are passed on without defaults."""


def read_config(spec: Object) -> Config:
    """A Config's spec with all defaults; FieldError names the wrong field."""
    config = converted(with_defaults(_with_global_autoscaler(spec), CONFIG.spec), Config, "spec")
    name = config.shared.scheduler_name
    if not is_subdomain(name):
        raise FieldError("spec.global.schedulerName", f"{name!r} cannot be part of names")
    return config


def _with_global_autoscaler(spec: Object) -> Object:
    autoscaler = (spec.get("global") or {}).get("vpa")
    if not autoscaler:
        return spec
    parts = {name: {"vpa": autoscaler, **(spec.get(name) or {})} for name in _WITH_AUTOSCALER}
    return {**spec, **parts}


class Shard(Struct, frozen=True):
    """A SchedulingShard by its name."""

    name: str
    spec: ShardSpec


def read_shard(name: str, spec: Object) -> Shard:
    """A SchedulingShard with all defaults; FieldError names the wrong field."""
    complete = {key: part for key, part in with_defaults(spec, SHARD.spec).items() if key not in _AS_WRITTEN}
    as_written = {key: spec[key] for key in _AS_WRITTEN if spec.get(key) is not None}
    return Shard(name, converted({**complete, **as_written}, ShardSpec, "spec"))


def with_defaults(value: Any, schema: Schema) -> Any:
    """The value with every default of the schema; absent objects with fields of their own are created."""
    if not isinstance(value, dict):
        return value
    known = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    result = {
        name: with_defaults(item, known.get(name) or (others if isinstance(others, Mapping) else {}))
        for name, item in value.items()
        if item is not None
    }
    for name, part in known.items():
        if name in result:
            continue
        if "default" in part:
            result[name] = copy.deepcopy(part["default"])
        elif part.get("properties"):
            result[name] = with_defaults({}, part)
    return result
