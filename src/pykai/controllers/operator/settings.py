"""Config as the operator reads it: complete with the defaults of its schema.

A component without `vpa` has the global one.
"""

from __future__ import annotations

from pykai.config.fields import FieldError, converted
from pykai.controllers.operator.defaults import filled
from pykai.objects.config_kinds import Config, Object
from pykai.objects.crds import CONFIG
from pykai.objects.names import is_subdomain

_WITH_AUTOSCALER = tuple(
    name for name, part in CONFIG.spec["properties"].items() if "vpa" in part.get("properties", {}) and name != "global"
)


def read_config(spec: Object) -> Config:
    """A Config's spec with all defaults; FieldError names the field that is wrong."""
    config = converted(filled(_with_global_autoscaler(spec), CONFIG.spec), Config, "spec")
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
