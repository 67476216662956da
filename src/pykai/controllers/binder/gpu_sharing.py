"""How a container gets its share of a GPU: two ConfigMaps, or annotations of the pod (NvFractions).

ConfigMaps: admission refers the container to them, and the kubelet does not start it until both exist. The pod owns
them, and they are deleted with it. Their content is a function of the pod, the bind request and the devices, so writing
them again changes nothing. An annotation of the pod names them, and a user may set it: the binder changes and deletes
only ConfigMaps that it created for this very pod, recognised by owner and label, and refuses the bind where another one
has the name.

Annotations: a function of the pod, the node and the bind request. They travel with the bind, so a bound pod has all of
them and an unbound one has none: there is nothing to undo.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import floor

import structlog

from pykai.controllers.binder.binding import BindAttempt, BindError, Step, WaitingStep
from pykai.controllers.binder.device_index import labelled_groups
from pykai.kube.api import Api, Deletion, Object, Patch
from pykai.kube.api_resources import CONFIG_MAP
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.objects import names, nvfractions
from pykai.objects.gpu_request import (
    CUDA_MEMORY_LIMIT,
    NUM_OF_GPUS,
    PORTION,
    VISIBLE_DEVICES,
    ContainerRef,
    GpuRequestError,
    SharedGpuNames,
    fraction_container,
    positive_count,
    shared_gpu_names,
)
from pykai.objects.kinds import BindRequest, Node, Pod
from pykai.objects.nvfractions import DEVICES, MEMORY_LIMIT, MEMORY_REQUEST
from pykai.objects.pod_template import Container, PodTemplate, decode_template

MANAGER = "kai-binder"

log = structlog.get_logger("binder")


@dataclass(frozen=True, slots=True)
class Environment:
    """The content of the two ConfigMaps of a share; None is a key that must be absent."""

    names: SharedGpuNames
    capabilities: Mapping[str, str | None]
    direct: Mapping[str, str | None]


def environment(attempt: BindAttempt, *, cdi: bool, limits_memory: bool) -> Environment:
    """Return the content for the pod's container; BindError if the pod names no ConfigMap."""
    template = decode_template(attempt.pod.spec)
    place, container = _container(attempt.pod, template)
    portion = attempt.request.spec.received_gpu.portion if attempt.request.spec.received_gpu else ""
    devices = device_names(attempt, cdi)
    # A container reads its devices either from one key of the capabilities map or from the whole other map.
    entries = [entry for entry in container.env or () if entry.get("name") == VISIBLE_DEVICES]
    by_key = any((entry.get("valueFrom") or {}).get("configMapKeyRef") for entry in entries)
    limit = memory_limit(attempt.node, portion) if limits_memory else None
    if limits_memory and limit is None:
        raise BindError(
            f"hamicore: the memory limit of pod {attempt.title} cannot be computed: node {attempt.node.metadata.name} "
            f"has no valid label {names.GPU_MEMORY_LABEL}, or the received portion {portion!r} is no number"
        )
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
    """Return the share's part of a device's memory as HAMi core reads it; None if node or portion give no number."""
    try:
        return f"{int(int((node.metadata.labels or {})[names.GPU_MEMORY_LABEL]) * float(portion))}m"
    except (KeyError, ValueError, OverflowError):
        return None


def _container(pod: Pod, template: PodTemplate) -> tuple[SharedGpuNames, Container]:
    ref = _receiver(pod, template)
    prefix = (pod.metadata.annotations or {}).get(names.SHARED_GPU_CONFIGMAP)
    if not prefix:
        title = pod.metadata.title
        raise BindError(f"no desired configmap name found in pod {title} annotations")
    containers = template.init_containers if ref.init else template.containers
    return shared_gpu_names(prefix, ref), containers[ref.index]


def _receiver(pod: Pod, template: PodTemplate) -> ContainerRef:
    """Return the container that receives the share."""
    init, regular = ([each.name for each in listed] for listed in (template.init_containers, template.containers))
    try:
        return fraction_container(pod.metadata.annotations or {}, init, regular)
    except GpuRequestError as error:
        raise BindError(str(error)) from None


def device_names(attempt: BindAttempt, cdi: bool) -> str:
    """Return the devices of a share as containers get them."""
    prefix = names.CDI_DEVICE_PREFIX if cdi else ""
    return ",".join(f"{prefix}{device}" for device in attempt.devices)


class GpuSharing(Step):
    """The step `gpusharing`; with `limits_memory` it also does the work of the plugin `hamicore`.

    There are no orphans: a pod with ConfigMaps carries the labels of its GPU groups.
    """

    name = "gpusharing"

    def __init__(self, api: Api, *, cdi: bool, limits_memory: bool) -> None:
        self._api = api
        self._cdi = cdi
        self._limits_memory = limits_memory

    async def prepare(self, attempt: BindAttempt) -> WaitingStep | None:
        """Write the ConfigMaps of a pod that gets a share."""
        if not attempt.devices:
            return None
        content = environment(attempt, cdi=self._cdi, limits_memory=self._limits_memory)
        await self._write(attempt.pod, content.names.capabilities, content.capabilities)
        await self._write(attempt.pod, content.names.environment, content.direct)
        log.info(
            "GPU share prepared", pod=attempt.title, gpus=list(attempt.devices), config_map=content.names.capabilities
        )
        return None

    async def undo(self, pod: Pod, request: BindRequest | None) -> None:
        """Delete the ConfigMaps of a pod that was to get a share; without a request its group labels show that."""
        fraction = request is not None and request.spec.received_resource_type == names.RECEIVED_FRACTION
        if not (fraction or (request is None and labelled_groups(pod.metadata.labels))):
            return
        try:
            place, _ = _container(pod, decode_template(pod.spec))
        except BindError:
            return
        for name in (place.capabilities, place.environment):
            ref = CONFIG_MAP.ref(name, pod.metadata.namespace)
            with suppress(NotFound):
                found = await self._api.get(ref, Object)
                if is_created_for(found, pod):
                    await self._api.delete(ref, Deletion(uid=found["metadata"]["uid"]))

    async def _write(self, pod: Pod, name: str, data: Mapping[str, str | None]) -> None:
        meta = pod.metadata
        body = {
            "metadata": {
                "name": name,
                "labels": {names.MANAGED_BY_LABEL: MANAGER},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}],
            },
            "data": {key: value for key, value in data.items() if value is not None},
        }
        try:
            await self._api.create(CONFIG_MAP, body, meta.namespace)
        except AlreadyExists:
            ref = CONFIG_MAP.ref(name, meta.namespace)
            found = await self._api.get(ref, Object)
            if not is_created_for(found, pod):
                raise BindError(
                    f'configmap "{name}" named by annotation {names.SHARED_GPU_CONFIGMAP} exists and was not created '
                    "for this pod by the binder: remove the annotation or the configmap"
                ) from None
            changes = data_changes(found, data)
            if changes:
                version = {"resourceVersion": found["metadata"]["resourceVersion"]}
                await self._api.patch(ref, Patch.merge({"metadata": version, "data": changes}))


def is_created_for(config_map: Object, pod: Pod) -> bool:
    """Whether the binder created a ConfigMap for this pod: the pod is its only owner, and no other manager labels it.

    ConfigMaps of KAI and of earlier versions have no label.
    """
    metadata = config_map["metadata"]
    owners = [owner.get("uid") for owner in metadata.get("ownerReferences") or ()]
    manager = (metadata.get("labels") or {}).get(names.MANAGED_BY_LABEL, MANAGER)
    return owners == [pod.metadata.uid] and manager == MANAGER


def data_changes(found: Object, data: Mapping[str, str | None]) -> Object:
    """Return the changes that give an existing ConfigMap this content; None removes a key."""
    held: Object = found.get("data") or {}
    wanted = dict(data)
    devices = data.get(VISIBLE_DEVICES)
    if names.LEGACY_VISIBLE_DEVICES in held and devices:
        wanted[names.LEGACY_VISIBLE_DEVICES] = devices
    return {key: value for key, value in wanted.items() if held.get(key) != value}


def share_annotations(attempt: BindAttempt, cdi: bool) -> dict[str, str]:
    """Return the annotations of the container that receives the share; BindError where an amount cannot be computed."""
    held = attempt.pod.metadata.annotations or {}
    container = _receiver(attempt.pod, decode_template(attempt.pod.spec)).name
    request, limit = (nvfractions.key(container, suffix) for suffix in (MEMORY_REQUEST, MEMORY_LIMIT))
    added: dict[str, str] = {}
    if request not in held and held.get(limit):
        added[request] = held[limit]
    elif request not in held:
        received = attempt.request.spec.received_gpu
        if received is None:
            raise BindError("missing data for NvFractions annotation calculation")
        added[request] = _device_memory(attempt.node, received.portion, "request")
    portion_limit = held.get(nvfractions.portion_limit_key(container))
    if portion_limit is not None and limit not in held:
        added[limit] = _device_memory(attempt.node, portion_limit, "limit")
    return added | {nvfractions.key(container, DEVICES): device_names(attempt, cdi)}


def _device_memory(node: Node, portion: str, what: str) -> str:
    """Return a portion of the memory of each device of a node, as a quantity; `what` names its use in errors."""
    text = (node.metadata.labels or {}).get(names.GPU_MEMORY_LABEL)
    if text is None:
        raise BindError(f"node does not include {names.GPU_MEMORY_LABEL} label")
    device_mib = positive_count(text)
    if device_mib is None:
        raise BindError(f'invalid {names.GPU_MEMORY_LABEL} label value "{text}"')
    try:
        share = float(portion)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise BindError(f'invalid received gpu portion "{portion}"')
    mib = floor(device_mib * share)
    if mib <= 0:
        raise BindError(f"calculated gpu memory {what} is zero")
    return f"{mib}Mi"


class NvFractions(Step):
    """Gives the bind of a share its annotations; nothing is written before the bind."""

    name = "nvfractions"

    def __init__(self, *, cdi: bool) -> None:
        self._cdi = cdi

    async def prepare(self, attempt: BindAttempt) -> WaitingStep | None:
        """Add the annotations to the bind of a pod that gets a share."""
        if attempt.devices:
            added = share_annotations(attempt, self._cdi)
            attempt.annotations.update(added)
            log.info("GPU share prepared", pod=attempt.title, gpus=list(attempt.devices), annotations=added)
        return None
