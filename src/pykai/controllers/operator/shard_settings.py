"""SchedulingShard as a typed value, complete with the defaults of its schema.

`usage_db_config` and `scenario_search_budgets` are passed on to the scheduler as they were written.
"""

from __future__ import annotations

from msgspec import Struct, field

from pykai.config.fields import converted
from pykai.controllers.operator.defaults import filled
from pykai.controllers.operator.settings import Labels, Object, Override
from pykai.objects.crds import SHARD


class Strategy(Struct, frozen=True):
    """binpack or spread, for workloads with and without GPUs."""

    gpu: str
    cpu: str


class MinRuntime(Struct, rename="camel", frozen=True):
    preempt_min_runtime: str = ""
    reclaim_min_runtime: str = ""


class ShardSpec(Struct, rename="camel", frozen=True):
    placement_strategy: Strategy
    min_runtime: MinRuntime
    args: Labels = {}
    partition_label_value: str = ""
    queue_depth_per_action: dict[str, int] = {}
    k_value: float | None = None
    usage_db_config: Object | None = field(default=None, name="usageDBConfig")
    scenario_search_budgets: Object = {}
    plugins: dict[str, Override] = {}
    actions: dict[str, Override] = {}


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
