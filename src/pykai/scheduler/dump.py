"""/get-snapshot: what a cycle would see now, as a file KAI's snapshot tool and `kai replay` read (spec/tools.md §1).

The scheduler keeps only the fields it reads, so the objects are listed anew, whole, page by page into a zip archive.
Of config maps only the metadata is written: no decision reads their data, and they may hold what should not leave.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import structlog
from msgspec import Raw

from pykai.config.scheduler import SchedulerConfig, budgets_document
from pykai.engine.budgets import SearchBudgets
from pykai.kube import resources
from pykai.kube.api import Api, Object, Paging
from pykai.kube.codec import decode, encode
from pykai.kube.errors import ApiError, NotFound
from pykai.model.params import SchedulerParams
from pykai.scheduler.feed import SOURCES, Source, selection

MEMBER = "snapshot.json"
PAGE = 500
IN_MEMORY = 32 * 1024 * 1024
_NANOSECONDS = 1_000_000_000

log = structlog.get_logger(component="scheduler")


@dataclass(frozen=True)
class Circumstances:
    """What else belongs into the file: configuration, the plugins that run where it names none, and flags."""

    config: SchedulerConfig
    built_in: tuple[str, ...]
    period: float = 1.0
    status_workers: int = 5


async def write_snapshot(api: Api, params: SchedulerParams, about: Circumstances) -> IO[bytes]:
    """The archive, as an open file at its beginning; who asked closes it."""
    file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(MEMBER, "w") as out:
        out.write(b'{"config":' + encode(config_document(about)))
        out.write(b',"schedulerParams":' + encode(params_document(params, about)))
        out.write(b',"rawObjects":{')
        installed = []
        for number, source in enumerate(SOURCES):
            out.write((b"," if number else b"") + encode(source.section) + b":[")
            if await _write_objects(api, params, source, out):
                installed.append(source)
        out.write(b'},"discovery":' + encode(discovery_document(installed)) + b"}")
    file.seek(0)
    return file


async def _write_objects(api: Api, params: SchedulerParams, source: Source, out: IO[bytes]) -> bool:
    """The objects of one kind and the end of their list; False where the kind is not installed."""
    first, installed = True, True
    try:
        async for item in _objects(api, params, source):
            out.write(b"" if first else b",")
            out.write(item)
            first = False
    except NotFound:
        installed = False
    except ApiError as error:
        log.warning(f"Error getting raw {source.section}", error=error.message)
    out.write(b"]")
    return installed


async def _objects(api: Api, params: SchedulerParams, source: Source) -> AsyncIterator[bytes]:
    where, token = selection(source, params, selective=True), ""
    while True:
        page = await api.list(source.resource, Raw, where, Paging(PAGE, token))
        for item in page.items:
            yield _named(item, source) if source.names_only else bytes(item)
        token = page.token
        if not token:
            return


def _named(item: Raw, source: Source) -> bytes:
    """An object of which only the metadata was listed, under its own kind."""
    metadata = decode(item, Object)["metadata"]
    return encode({"apiVersion": source.resource.api_version, "kind": source.resource.kind, "metadata": metadata})


# ------------------------------------------------------------------------------------------------------------ documents
def config_document(about: Circumstances) -> Object:
    """The configuration as its file would say it, with the built-in plugins written out."""
    config = about.config
    chosen: list[tuple[str, Mapping[str, str]]] = [(name, {}) for name in about.built_in]
    if config.plugins is not None:
        chosen = [(choice.name, choice.arguments) for choice in config.plugins]
    plugins = [{"name": name, **({"arguments": dict(given)} if given else {})} for name, given in chosen]
    document: Object = {"actions": ", ".join(config.actions), "tiers": [{"plugins": plugins}]}
    if config.queue_depth:
        document["queueDepthPerAction"] = dict(config.queue_depth)
    if config.usage_db:
        document["usageDBConfig"] = dict(config.usage_db)
    if config.budgets != SearchBudgets():
        document["scenarioSearchBudgets"] = budgets_document(config.budgets)
    return document


def params_document(params: SchedulerParams, about: Circumstances) -> Object:
    """The flags; durations are nanoseconds, a zero value is left out."""
    pool = {"NodePoolLabelKey": params.node_pool_key, "NodePoolLabelValue": params.node_pool}
    given: dict[str, Any] = {
        "schedulerName": params.scheduler_name,
        "restrictSchedulingNodes": params.restrict_nodes,
        "partitionParams": pool if params.partitioned else {"NodePoolLabelKey": "", "NodePoolLabelValue": ""},
        "maxNumberConsolidationPreemptees": params.max_consolidation_victims,
        "scheduleCSIStorage": params.schedule_csi_storage,
        "useSchedulingSignatures": params.use_signatures,
        "fullHierarchyFairness": params.full_hierarchy_fairness,
        "allowConsolidatingReclaim": params.allow_consolidating_reclaim,
        "numOfStatusRecordingWorkers": about.status_workers,
        "globalDefaultStalenessGracePeriod": int(params.staleness_grace * _NANOSECONDS),
        "schedulePeriod": int(about.period * _NANOSECONDS),
        "stuckInReleasingThreshold": int(params.stuck_in_releasing * _NANOSECONDS),
        "detailedFitErrors": params.detailed_fit_errors,
        "updatePodEvictionCondition": params.update_eviction_condition,
        "queueLabelKey": params.queue_label_key,
    }
    return {name: value for name, value in given.items() if value}


def discovery_document(installed: list[Source]) -> Object | None:
    """What the server serves, told only where it lacks something a reader would assume: the DRA API."""
    found = [source.resource for source in installed]
    if resources.RESOURCE_CLAIM in found:
        return None
    lists: dict[str, list[Object]] = {}
    for resource in found:
        entry = {"name": resource.plural, "kind": resource.kind, "namespaced": resource.namespaced}
        lists.setdefault(resource.api_version, []).append(entry)
    return {
        "serverVersion": None,
        "resources": [{"groupVersion": version, "resources": kinds} for version, kinds in lists.items()],
    }
