"""The input of the desired objects as one value: Config, operator environment, observed cluster.

All components share one image; reservation and scaling pods have one each, built from the same file. Charts and Configs
written for KAI use the names of its images, which are also the schema's defaults: all of them map to our images.

Config and SchedulingShard are read with the defaults of their schemas. The API server applies defaults only inside
objects that are present; here absent objects are created first, so that a spec of `{}` becomes complete. A component
without `vpa` uses the global one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct

from pykai.config.fields import FieldError, converted
from pykai.kube.api import Fields, Object
from pykai.objects import names
from pykai.objects.config_kinds import Config, ImageSpec
from pykai.objects.crds import CONFIG, SHARD
from pykai.objects.names import is_subdomain
from pykai.objects.shard_kinds import ShardSpec

RESERVATION: Final = "resource-reservation"
SCALING_POD: Final = "scaling-pod"
COMPONENT_IMAGES: Final = frozenset(
    {
        "admission",
        "binder",
        "crd-upgrader",
        "helm-hooks",
        "nodescaleadjuster",
        "numa-placement-exporter",
        "operator",
        "podgroupcontroller",
        "podgrouper",
        "queuecontroller",
        "scheduler",
    }
)
IMAGE_ALIASES: Final = {"resourcereservation": RESERVATION, "scalingpod": SCALING_POD}


def image_reference(image: ImageSpec, environment: OperatorEnvironment) -> str:
    """Return `repository/name:tag`; parts that the image does not state come from the operator's environment."""
    name = environment.image if image.name in COMPONENT_IMAGES else IMAGE_ALIASES.get(image.name, image.name)
    return f"{image.repository or environment.registry}/{name}:{image.tag or environment.tag}"


SecretData = Mapping[str, str]
"""The data of a Secret: base64 by file name."""

VPA_KIND = "verticalpodautoscalers.autoscaling.k8s.io"
PROMETHEUS_KIND = "prometheuses.monitoring.coreos.com"
MONITOR_KIND = "servicemonitors.monitoring.coreos.com"


@dataclass(frozen=True)
class OperatorEnvironment:
    """The operator's own environment: its namespace, and the default registry and tag of images."""

    namespace: str = names.SYSTEM_NAMESPACE
    registry: str = "registry/local/kai-scheduler"
    tag: str = "latest"
    image: str = "pykai"
    pull_secret: str = ""


@dataclass(frozen=True)
class Leader:
    """The pod that holds a lease."""

    pod: str
    address: str
    node: str = ""


@dataclass(frozen=True)
class Facts:
    """The observed cluster.

    `installed`: which of the optional kinds exist, as `plural.group`. `certificates`: by Service, the present or wanted
    data of its Secret; `provided`: Services whose Secret the administrator supplies. `leaders`: by name of the lease.
    `database`: the Prometheus object we created, if it exists. `now`: seconds since 1970. `nri`: the GPU operator
    injects devices with its NRI plugin. `fractions`: why GPUs cannot be shared in mode NvFractions, empty if they can.
    """

    fake_gpu_nodes: bool = False
    cdi: bool = False
    nri: bool = False
    fractions: str = ""
    installed: frozenset[str] = frozenset()
    certificates: Mapping[str, SecretData] = field(default_factory=dict)
    provided: frozenset[str] = frozenset()
    leaders: Mapping[str, Leader] = field(default_factory=dict)
    database: Object | None = None
    now: float = 0.0


@dataclass(frozen=True)
class Installation:
    """The input from which the objects are generated."""

    config: Config
    environment: OperatorEnvironment = OperatorEnvironment()
    facts: Facts = field(default_factory=Facts)

    def replicas(self, own: int | None) -> int:
        """Return the replicas of a component: its own number, else the global one, else one."""
        if own is not None:
            return own
        return 1 if self.config.shared.replica_count is None else self.config.shared.replica_count


Schema = Fields

_WITH_AUTOSCALER = tuple(
    name for name, part in CONFIG.spec["properties"].items() if "vpa" in part.get("properties", {}) and name != "global"
)
_AS_WRITTEN = ("usageDBConfig", "scenarioSearchBudgets")
"""Fields of a shard that are passed to the scheduler without defaults."""


def read_config(spec: Object) -> Config:
    """Return a Config's spec with all defaults; FieldError names the wrong field."""
    if autoscaler := (spec.get("global") or {}).get("vpa"):
        spec = {**spec, **{name: {"vpa": autoscaler, **(spec.get(name) or {})} for name in _WITH_AUTOSCALER}}
    config = converted(with_defaults(spec, CONFIG.spec), Config, "spec")
    name = config.shared.scheduler_name
    if not is_subdomain(name):
        raise FieldError("spec.global.schedulerName", f"{name!r} cannot be part of names")
    if not is_subdomain(config.admission.service_name):
        raise FieldError(
            "spec.admission.serviceName", f"{config.admission.service_name!r} cannot be the name of a Service"
        )
    if config.shared.fips_only:
        raise FieldError("spec.global.fipsOnly", "there are no images with FIPS cryptography only")
    return config


class Shard(Struct, frozen=True):
    """A SchedulingShard by its name."""

    name: str
    spec: ShardSpec


def read_shard(name: str, spec: Object) -> Shard:
    """Return a SchedulingShard with all defaults; FieldError names the wrong field."""
    complete = {key: part for key, part in with_defaults(spec, SHARD.spec).items() if key not in _AS_WRITTEN}
    as_written = {key: spec[key] for key in _AS_WRITTEN if spec.get(key) is not None}
    return Shard(name, converted({**complete, **as_written}, ShardSpec, "spec"))


def with_defaults(value: Any, schema: Schema) -> Any:
    """Return the value with every default of the schema; absent objects with fields of their own are created."""
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
