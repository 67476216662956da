"""Topologies of Kueue taken over before a new version starts.

A topology that exists is never changed: from the first copy on it belongs to its administrator.
"""

from __future__ import annotations

from typing import Final

import structlog

from pykai.kube.api import Api, Object, Resource
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.kube.resources import CRD, TOPOLOGY

MIGRATED_FROM: Final = "kai.scheduler/migrated-from"
KUEUE: Final = Resource("kueue.x-k8s.io", "v1beta1", "topologies", "Topology", False)

log = structlog.get_logger("upgrade")


async def topologies(api: Api) -> list[str]:
    """Copy the topologies of Kueue that have no namesake here; the names of those that were copied."""
    copied = []
    for found in await _kueue_topologies(api):
        name = found["metadata"]["name"]
        levels = [{"nodeLabel": level["nodeLabel"]} for level in (found.get("spec") or {}).get("levels") or ()]
        metadata = {"name": name, "annotations": {MIGRATED_FROM: KUEUE.group}}
        try:
            await api.create(TOPOLOGY, {"metadata": metadata, "spec": {"levels": levels}})
        except AlreadyExists:
            continue
        copied.append(name)
        log.info("topology copied", name=name, levels=len(levels))
    return copied


async def _kueue_topologies(api: Api) -> list[Object]:
    """Those of the version the cluster stores; none where Kueue is not installed."""
    try:
        definition = await api.get(CRD.ref(KUEUE.qualified), Object)
    except NotFound:
        return []
    versions = definition["spec"]["versions"]
    version = next((each["name"] for each in versions if each.get("storage")), KUEUE.version)
    stored = Resource(KUEUE.group, version, KUEUE.plural, KUEUE.kind, False)
    return list((await api.list(stored, Object)).items)
