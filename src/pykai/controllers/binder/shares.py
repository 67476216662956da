"""Tell the container that gets a share which devices it may use: two ConfigMaps that admission wired it to.

The kubelet holds the container back until both exist. They belong to the pod and go with it. What they say is a
function of the pod, the bind request and the devices, so writing them again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from pykai.controllers.binder.attempt import Attempt, BindError, Waiting
from pykai.controllers.binder.groups import Key
from pykai.kube.api import Api, Object, Patch
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.kube.resources import CONFIG_MAP
from pykai.objects import names
from pykai.objects.gpu_request import (
    CUDA_MEMORY_LIMIT,
    NUM_OF_GPUS,
    PORTION,
    VISIBLE_DEVICES,
    GpuRequestError,
    SharedGpuNames,
    fraction_container,
    shared_gpu_names,
)
from pykai.objects.kinds import BindRequest, Node, Pod
from pykai.objects.pod_template import Container, PodTemplate, decode_template

log = structlog.get_logger("binder")


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables in the two ConfigMaps of a share; None is a variable that must not be there."""

    names: SharedGpuNames
    capabilities: Mapping[str, str | None]
    direct: Mapping[str, str | None]


def environment(attempt: Attempt, *, cdi: bool, limits_memory: bool) -> Environment:
    """What the pod's container is told; BindError if the pod does not say where to put it."""
    template = decode_template(attempt.pod.spec)
    place, container = _container(attempt.pod, template)
    portion = attempt.request.spec.received_gpu.portion if attempt.request.spec.received_gpu else ""
    prefix = names.CDI_DEVICE_PREFIX if cdi else ""
    devices = ",".join(f"{prefix}{device}" for device in attempt.devices)
    by_key = _reads_by_key(container)
    limit = memory_limit(attempt.node, portion) if limits_memory else None
    return Environment(
        place,
        {
            VISIBLE_DEVICES: devices if by_key else None,
            NUM_OF_GPUS: portion,
            PORTION: portion,
            CUDA_MEMORY_LIMIT: limit,
        },
        {VISIBLE_DEVICES: None if by_key else devices},
    )


def memory_limit(node: Node, portion: str) -> str | None:
    """The share's part of a device's memory as HAMi core reads it; None where node or portion do not say."""
    try:
        return f"{int(int((node.metadata.labels or {})[names.GPU_MEMORY_LABEL]) * float(portion))}m"
    except (KeyError, ValueError, OverflowError):
        return None


def _container(pod: Pod, template: PodTemplate) -> tuple[SharedGpuNames, Container]:
    annotations = pod.metadata.annotations or {}
    lists = template.init_containers, template.containers
    try:
        init, regular = ([container.name for container in each] for each in lists)
        ref = fraction_container(annotations, init, regular)
    except GpuRequestError as error:
        raise BindError(str(error)) from None
    prefix = annotations.get(names.SHARED_GPU_CONFIGMAP)
    if not prefix:
        title = f"{pod.metadata.namespace}/{pod.metadata.name}"
        raise BindError(f"no desired configmap name found in pod {title} annotations")
    return shared_gpu_names(prefix, ref), (lists[0] if ref.init else lists[1])[ref.index]


def _reads_by_key(container: Container) -> bool:
    """Whether the container takes its devices from a key of the capabilities map, not from the whole other map."""
    entries = [entry for entry in container.env or () if entry.get("name") == VISIBLE_DEVICES]
    return any((entry.get("valueFrom") or {}).get("configMapKeyRef") for entry in entries)


class GpuShares:
    """The step `gpusharing`; with `limits_memory` it also does what the plugin `hamicore` is for."""

    name = "gpusharing"

    def __init__(self, api: Api, *, cdi: bool, limits_memory: bool) -> None:
        self._api = api
        self._cdi = cdi
        self._limits_memory = limits_memory

    async def prepare(self, attempt: Attempt) -> Waiting | None:
        """Write the ConfigMaps of a pod that gets a share."""
        if not attempt.devices:
            return None
        told = environment(attempt, cdi=self._cdi, limits_memory=self._limits_memory)
        await self._write(attempt.pod, told.names.capabilities, told.capabilities)
        await self._write(attempt.pod, told.names.environment, told.direct)
        log.info(
            "GPU share prepared", pod=attempt.title, gpus=list(attempt.devices), config_map=told.names.capabilities
        )
        return None

    async def undo(self, pod: Pod, request: BindRequest | None) -> None:
        """Delete the ConfigMaps of a pod that was to get a share."""
        if request is None or request.spec.received_resource_type != names.RECEIVED_FRACTION:
            return
        try:
            place, _ = _container(pod, decode_template(pod.spec))
        except BindError:
            return
        for name in (place.capabilities, place.environment):
            try:
                await self._api.delete(CONFIG_MAP.ref(name, pod.metadata.namespace))
            except NotFound:
                continue

    def forget(self, pod: Key) -> None:
        """Nothing is remembered."""

    async def _write(self, pod: Pod, name: str, data: Mapping[str, str | None]) -> None:
        meta = pod.metadata
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
        body = {
            "metadata": {"name": name, "ownerReferences": [owner]},
            "data": {key: value for key, value in data.items() if value is not None},
        }
        try:
            await self._api.create(CONFIG_MAP, body, meta.namespace)
        except AlreadyExists:
            ref = CONFIG_MAP.ref(name, meta.namespace)
            change = difference(await self._api.get(ref, Object), owner, data)
            if change:
                await self._api.patch(ref, Patch.merge(change))


def difference(found: Object, owner: Object, data: Mapping[str, str | None]) -> Object:
    """The merge patch that makes an existing ConfigMap say the same and belong to the pod; empty if it does."""
    held: Object = found.get("data") or {}
    wanted = dict(data)
    devices = data.get(VISIBLE_DEVICES)
    if names.LEGACY_VISIBLE_DEVICES in held and devices:
        wanted[names.LEGACY_VISIBLE_DEVICES] = devices
    changed = {key: value for key, value in wanted.items() if held.get(key) != value}
    owners = (found.get("metadata") or {}).get("ownerReferences") or []
    change: Object = {"data": changed} if changed else {}
    if [each.get("uid") for each in owners] != [owner["uid"]]:
        change["metadata"] = {"ownerReferences": [owner]}
    return change
