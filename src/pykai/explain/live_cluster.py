"""The decided state of a live cluster: everything that the scheduler reads, listed once with the caller's permissions.

Nothing is written. The configuration of a shard's scheduler is derived from the Config and SchedulingShard objects, as
the operator derives it; if these are missing or may not be read, the defaults apply, with a note.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
from msgspec import Raw

from pykai.cache.cluster import ClusterCache
from pykai.config import scheduler_config
from pykai.config.fields import FieldError
from pykai.config.scheduler_config import Scalar, SchedulerConfig
from pykai.controllers.operator.component_flags import sharing_mode
from pykai.controllers.operator.installation import Installation, Shard, read_config, read_shard
from pykai.controllers.operator.shards import config_document
from pykai.explain.source import Decided, Sections, decided, joined
from pykai.kube.api import Api, Object
from pykai.kube.api_resources import CONFIG, RESOURCE_CLAIM, SHARD
from pykai.kube.clock import wall
from pykai.kube.codec import decode
from pykai.kube.errors import Forbidden, NotFound
from pykai.kube.operations import pages
from pykai.model.params import SchedulerParams
from pykai.plugins import registry
from pykai.scheduler.informers import SOURCES, selection

DEFAULT_SHARD = "default"


class UnreadableError(RuntimeError):
    """A required kind may not be listed; the message names it."""


@dataclass(frozen=True)
class SchedulerSetting:
    """The parameters and configuration of a shard's scheduler."""

    params: SchedulerParams = SchedulerParams()
    config: SchedulerConfig = SchedulerConfig()
    notes: tuple[str, ...] = ()
    gpu_sharing_mode: str = ""
    """Empty if no readable Config states it."""


async def live(api: Api, shard: str = DEFAULT_SHARD, now: float | None = None) -> Decided:
    """Decide on a live cluster; `now` None: the current time. UnreadableError if a required kind may not be listed."""
    setting = await setting_of(api, shard)
    raw, notes = await listed(api, setting.params)
    params = replace(setting.params, dra_enabled=RESOURCE_CLAIM.plural in raw)
    kinds = {source.section: source.kind for source in SOURCES}
    sections = {source.resource.plural: source.section for source in SOURCES}
    objects = [decode(item, kinds[sections[plural]]) for plural, items in raw.items() for item in items]
    policy = scheduler_config.policy(setting.config, registry.make, registry.BUILT_IN)
    cache = ClusterCache(scheduler_config.params_for(policy, params))
    cache.load(joined(objects))
    found = decided(cache, policy, wall() if now is None else now)

    def whole() -> Sections:
        return {sections[plural]: [msgspec.json.decode(item) for item in items] for plural, items in raw.items()}

    mode = setting.gpu_sharing_mode
    return replace(found, objects=whole, notes=(*setting.notes, *notes), gpu_sharing_mode=mode)


async def listed(api: Api, params: SchedulerParams) -> tuple[dict[str, list[Raw]], list[str]]:
    """Return all objects that the scheduler reads, by plural, and notes on kinds that may not be listed."""
    found: dict[str, list[Raw]] = {}
    notes: list[str] = []
    for source in SOURCES:
        if source.for_csi and not params.schedule_csi_storage:
            continue
        try:
            where = selection(source, params, selective=True)
            listing = pages(api, source.resource, Raw, where)
            found[source.resource.plural] = [item async for items in listing for item in items]
        except NotFound:
            if not source.optional:
                raise UnreadableError(f"the cluster has no {source.resource.qualified}: is pykai installed?") from None
        except Forbidden as error:
            if source.section in ("nodes", "pods", "queues", "podGroups"):
                raise UnreadableError(f"{error.message}: all {source.section} must be known") from error
            notes.append(f"you may not list {source.resource.qualified}: it is assumed that there are none")
    return found, notes


# ------------------------------------------------------------------------------------------------------------- setting
async def setting_of(api: Api, shard: str) -> SchedulerSetting:
    """Return the setting of a shard's scheduler; UnreadableError if shards exist, but none of this name."""
    try:
        shards = {each["metadata"]["name"]: each for each in (await api.list(SHARD, Object)).items}
        configs = (await api.list(CONFIG, Object)).items
    except (NotFound, Forbidden) as error:
        why = "there are none" if isinstance(error, NotFound) else "you may not read them"
        return SchedulerSetting(notes=(f"SchedulingShards: {why}; the built-in configuration is assumed",))
    if shard not in shards and shards:
        raise UnreadableError(f"there is no SchedulingShard {shard}, but {', '.join(sorted(shards))}")
    try:
        installation = Installation(read_config((configs[0].get("spec") if configs else None) or {}))
        mode = sharing_mode(installation.config) if configs else ""
        if not shards:
            return SchedulerSetting(gpu_sharing_mode=mode)
        read = read_shard(shard, shards[shard].get("spec") or {})
        config = scheduler_config.read(config_document(read, installation))
        params = _params(read, installation)
    except FieldError as error:
        raise UnreadableError(f"Config and SchedulingShard {shard}: {error}") from error
    past = ("past use counts in this cluster and is not known here: fair shares may differ",) if config.usage_db else ()
    return SchedulerSetting(params, replace(config, usage_db=None), past, mode)


def _params(shard: Shard, installation: Installation) -> SchedulerParams:
    """Return the parameters of a shard's scheduler; its `args` take precedence."""
    shared = installation.config.shared
    given: dict[str, Scalar] = {
        "scheduler-name": shared.scheduler_name,
        "nodepool-label-key": shared.node_pool_label_key,
        "partition-label-value": shard.spec.partition_label_value,
        "queue-label-key": shared.queue_label_key,
        "resource-reservation-app-label": installation.config.binder.resource_reservation.app_label,
        "gpu-sharing-mode": sharing_mode(installation.config),
    }
    return scheduler_config.params_of_flags({**given, **shard.spec.args})
