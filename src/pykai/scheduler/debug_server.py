"""The debug endpoints /get-snapshot and /get-job-order.

A snapshot is the input of a cycle at this moment, as a file that KAI's snapshot tool and `kai replay` read. The
informers keep only the fields that the scheduler reads, so complete objects are listed again, page by page into a zip
archive. Of ConfigMaps only the metadata is written: no decision reads their data, which may be confidential.
"""

from __future__ import annotations

import asyncio
import tempfile
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import IO

import msgspec
import structlog
from aiohttp import web
from msgspec import Raw

from pykai.config.scheduler_config import SchedulerConfig, budgets_document
from pykai.engine.budgets import SearchBudgets
from pykai.engine.decide import service_order
from pykai.engine.policy import Policy
from pykai.kube import api_resources
from pykai.kube.api import Api, Object
from pykai.kube.codec import decode, encode
from pykai.kube.errors import ApiError, NotFound
from pykai.kube.operations import pages, review_access, review_token
from pykai.model.params import SchedulerParams
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from pykai.objects.kinds import Pod
from pykai.scheduler.informers import SOURCES, Source, selection

SnapshotFile = Callable[[bool], Awaitable[IO[bytes]]]
"""Argument: whether to include environment variables."""
MayRead = Callable[[str, str], Awaitable[bool]]
"""Arguments: bearer token and path; returns whether its user may GET the path."""
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
JobOrder = Callable[[], dict[str, object] | None]
"""Returns None before the first cycle; runs in a thread."""
CHUNK = 256 * 1024


def debug_routes(
    snapshot: SnapshotFile | None, order: JobOrder | None, may_read: MayRead | None = None
) -> web.Application:
    """Return the application with /get-snapshot and /get-job-order, each only if its plugin is configured (not None).

    Clients on loopback may read both. Others need a bearer token that `may_read` accepts; None: none is accepted.
    """

    async def get_snapshot(request: web.Request) -> web.StreamResponse:
        assert snapshot is not None
        await _authorize(request, may_read)
        with await snapshot(request.query.get("env") == "true") as file:
            return await _send(request, file)

    async def get_order(request: web.Request) -> web.Response:
        assert order is not None
        await _authorize(request, may_read)
        found = await asyncio.to_thread(order)
        if found is None:
            return web.Response(status=503, text="Job order data not ready")
        text = msgspec.json.format(msgspec.json.encode(found), indent=2)
        return web.Response(body=text, content_type="application/json")

    async def unknown(_: web.Request) -> web.Response:
        return web.Response(status=404, text="plugin not found")

    app = web.Application()
    if snapshot is not None:
        app.router.add_route("*", "/get-snapshot", get_snapshot)
    if order is not None:
        app.router.add_route("*", "/get-job-order", get_order)
    app.router.add_route("*", "/{other:.*}", unknown)
    return app


async def _authorize(request: web.Request, may_read: MayRead | None) -> None:
    """Reject a client that is not on loopback and has no token that may read this path."""
    if request.remote is not None and ip_address(request.remote).is_loopback:
        return
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token or may_read is None:
        raise web.HTTPUnauthorized(text="a bearer token is needed", headers={"WWW-Authenticate": "Bearer"})
    if not await may_read(token.strip(), request.path):
        raise web.HTTPForbidden(text=f"the token does not allow to get {request.path}")


async def may_read(api: Api, token: str, path: str) -> bool:
    """Whether the API server authenticates the token and allows its user to GET the path (a nonResourceURL in RBAC)."""
    try:
        user = await review_token(api, token)
        return user is not None and await review_access(api, user, nonResourceAttributes={"path": path, "verb": "get"})
    except ApiError as error:
        log.warning("token not reviewed", error=error.message)
        return False


def job_order(snapshot: Snapshot, policy: Policy, now: float) -> Object:
    """Return the order in which the allocate action serves pending gangs, overall and by queue."""
    gangs, order = snapshot.gangs, service_order(snapshot, policy, now)
    rows = gangs.rows_of(order)
    entries = [(rows[key], {"id": "/".join(key), "priority": gangs.priority[rows[key]]}) for key in order]
    by_queue: dict[str, list[dict[str, object]]] = {}
    for row, entry in entries:
        by_queue.setdefault(gangs.queue_name(row), []).append(entry)
    return {"global_order": [entry for _, entry in entries], "queue_order": by_queue}


async def _send(request: web.Request, file: IO[bytes]) -> web.StreamResponse:
    disposition = "attachment; filename=snapshot.zip"
    response = web.StreamResponse(headers={"Content-Type": "application/zip", "Content-Disposition": disposition})
    await response.prepare(request)
    while chunk := file.read(CHUNK):
        await response.write(chunk)
    await response.write_eof()
    return response


MEMBER = "snapshot.json"
IN_MEMORY = 32 * 1024 * 1024
_NANOSECONDS = 1_000_000_000

log = structlog.get_logger(component="scheduler")


@dataclass(frozen=True)
class SnapshotContext:
    """What else the file contains: configuration, the plugins used if it names none, and flags."""

    config: SchedulerConfig
    built_in: tuple[str, ...]
    period: float = 1.0
    status_workers: int = 5
    gpu_sharing_mode: str = ""
    """The mode of the cluster; "" if unknown: the scheduler itself only knows whether it is NvFractions."""


async def write_snapshot(
    api: Api, params: SchedulerParams, about: SnapshotContext, with_env: bool = False
) -> IO[bytes]:
    """Return the archive as an open file positioned at its start; the caller closes it.

    Environment variables are omitted unless `with_env`: no decision reads them, and they may hold secrets.
    """
    file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(MEMBER, "w") as out:
        out.write(b'{"config":' + encode(config_document(about)))
        out.write(b',"schedulerParams":' + encode(params_document(params, about)))
        out.write(b',"rawObjects":{')
        installed = []
        for number, source in enumerate(SOURCES):
            out.write((b"," if number else b"") + encode(source.section) + b":[")
            if await _write_objects(_objects(api, params, source, with_env), source, out):
                installed.append(source)
        out.write(b'},"discovery":' + encode(discovery_document(installed)) + b"}")
    file.seek(0)
    return file


async def _write_objects(objects: AsyncIterator[bytes], source: Source, out: IO[bytes]) -> bool:
    """Write the objects of one kind and the end of their list; False if the kind is not installed."""
    first, installed = True, True
    try:
        async for item in objects:
            out.write(b"" if first else b",")
            out.write(item)
            first = False
    except NotFound:
        installed = False
    except ApiError as error:
        log.warning(f"Error getting raw {source.section}", error=error.message)
    out.write(b"]")
    return installed


async def _objects(api: Api, params: SchedulerParams, source: Source, with_env: bool) -> AsyncIterator[bytes]:
    async for items in pages(api, source.resource, Raw, selection(source, params, selective=True)):
        for item in items:
            if source.names_only:
                kind, metadata = source.resource.kind, decode(item, Object)["metadata"]
                yield encode({"apiVersion": source.resource.api_version, "kind": kind, "metadata": metadata})
            else:
                yield bytes(item) if source.kind is not Pod or with_env else _without_env(item)


def _without_env(item: Raw) -> bytes:
    """Return a pod without the environment variables of its containers."""
    pod = decode(item, Object)
    for containers in _CONTAINERS:
        for container in (pod.get("spec") or {}).get(containers) or ():
            container.pop("env", None)
            container.pop("envFrom", None)
    return encode(pod)


# ------------------------------------------------------------------------------------------------------------ documents
def config_document(about: SnapshotContext) -> Object:
    """Return the configuration as in its file, with the built-in plugins listed."""
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


def params_document(params: SchedulerParams, about: SnapshotContext) -> Object:
    """Return the flags; durations in nanoseconds, zero values are omitted."""
    pool = {"NodePoolLabelKey": params.node_pool_key, "NodePoolLabelValue": params.node_pool}
    given: Object = {
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
        "gpuSharingMode": about.gpu_sharing_mode or (names.NVFRACTIONS if params.nvfractions else ""),
    }
    return {name: value for name, value in given.items() if value}


def discovery_document(installed: list[Source]) -> Object | None:
    """Return the kinds the server serves; None if it serves DRA, which readers of the file assume."""
    found = [source.resource for source in installed]
    if api_resources.RESOURCE_CLAIM in found:
        return None
    lists: dict[str, list[Object]] = {}
    for resource in found:
        entry = {"name": resource.plural, "kind": resource.kind, "namespaced": resource.namespaced}
        lists.setdefault(resource.api_version, []).append(entry)
    return {
        "serverVersion": None,
        "resources": [{"groupVersion": version, "resources": kinds} for version, kinds in lists.items()],
    }
