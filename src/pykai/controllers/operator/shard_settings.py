"""SchedulingShard as the operator reads it: complete with the defaults of its schema."""

from __future__ import annotations

from msgspec import Struct

from pykai.config.fields import converted
from pykai.controllers.operator.defaults import filled
from pykai.objects.config_kinds import Object
from pykai.objects.crds import SHARD
from pykai.objects.shard_kinds import ShardSpec


class Shard(Struct, frozen=True):
    """A SchedulingShard by its name."""

    name: str
    spec: ShardSpec


_AS_WRITTEN = ("usageDBConfig", "scenarioSearchBudgets")


def read_shard(name: str, spec: Object) -> Shard:
    """A SchedulingShard with all defaults; FieldError names the field that is wrong."""
    complete = {key: part for key, part in filled(spec, SHARD.spec).items() if key not in _AS_WRITTEN}
    as_written = {key: spec[key] for key in _AS_WRITTEN if spec.get(key) is not None}
    return Shard(name, converted({**complete, **as_written}, ShardSpec, "spec"))
