"""What has to be done before a new version starts: its definitions in force, and topologies of Kueue taken over.

Definitions are applied on the server, so objects keep their data and gain the new fields. A topology that exists is
never changed: from the first copy on it belongs to its administrator.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog

from pykai.kube.api import Api, Patch, Ref, Resource
from pykai.kube.errors import AlreadyExists, NotFound, Timeout
from pykai.kube.resources import CRD, TOPOLOGY
from pykai.objects.crds import manifests

Object = dict[str, Any]
MANAGER: Final = "kai-upgrade"
MIGRATED_FROM: Final = "kai.scheduler/migrated-from"
KUEUE: Final = Resource("kueue.x-k8s.io", "v1beta1", "topologies", "Topology", False)
_LOOK_SECONDS = 0.1

log = structlog.get_logger("upgrade")


async def definitions(api: Api, seconds: float = 60.0) -> None:
    """Apply all definitions and wait until they are in force, at most `seconds` for each."""
    refs = [CRD.ref(manifest["metadata"]["name"]) for manifest in manifests()]
    for ref, manifest in zip(refs, manifests(), strict=True):
        await api.patch(ref, Patch.apply(manifest, MANAGER))
        log.info("definition applied", name=ref.name)
    for ref in refs:
        await _await_established(api, ref, seconds)


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


async def _await_established(api: Api, ref: Ref, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await _established(api, ref):
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        raise Timeout(f"definition {ref.name} is not in force after {seconds:g} s") from None


async def _established(api: Api, ref: Ref) -> bool:
    try:
        definition = await api.get(ref, Object)
    except NotFound:
        return False
    rows = (definition.get("status") or {}).get("conditions") or ()
    return any(row["type"] == "Established" and row["status"] == "True" for row in rows)
