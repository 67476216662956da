"""GPU shares: two ConfigMaps give the container its devices; admission refers the container to them.

The kubelet does not start the container until both exist. The pod owns them, and they are deleted with it. Their
content is a function of the pod, the bind request and the devices, so writing them again changes nothing.

An annotation of the pod names them, and a user may set it: the binder changes and deletes only ConfigMaps that it
created for this very pod, recognised by owner and label, and refuses the bind where another one has the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import structlog

from pykai.controllers.binder.binding import BindAttempt, BindError, WaitingStep
from pykai.controllers.binder.device_index import Key, labelled_groups
from pykai.kube.api import Api, Deletion, Object, Patch, Ref
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

MANAGER = "kai-binder"

log = structlog.get_logger("binder")


@dataclass(frozen=True, slots=True)
class Environment:
    """The content of the two ConfigMaps of a share; None is a key that must be absent."""

    names: SharedGpuNames
    capabilities: Mapping[str, str | None]
    direct: Mapping[str, str | None]


def environment(attempt: BindAttempt, *, cdi: bool, limits_memory: bool) -> Environment:
    """The content for the pod's container; BindError if the pod names no ConfigMap."""
    template = decode_template(attempt.pod.spec)
    place, container = _container(attempt.pod, template)
    portion = attempt.request.spec.received_gpu.portion if attempt.request.spec.received_gpu else ""
    devices = device_names(attempt, cdi)
    by_key = _reads_by_key(container)
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
    """The share's part of a device's memory as HAMi core reads it; None if node or portion give no number."""
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
    """Whether the container reads its devices from a key of the capabilities map, not from the whole other map."""
    entries = [entry for entry in container.env or () if entry.get("name") == VISIBLE_DEVICES]
    return any((entry.get("valueFrom") or {}).get("configMapKeyRef") for entry in entries)


def device_names(attempt: BindAttempt, cdi: bool) -> str:
    """The devices of a share as containers get them."""
    prefix = names.CDI_DEVICE_PREFIX if cdi else ""
    return ",".join(f"{prefix}{device}" for device in attempt.devices)


class GpuSharing:
    """The step `gpusharing`; with `limits_memory` it also does the work of the plugin `hamicore`."""

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
            await self._delete(pod, CONFIG_MAP.ref(name, pod.metadata.namespace))

    async def orphans(self) -> Iterable[Key]:
        """None: a pod with ConfigMaps carries the labels of its GPU groups."""
        return ()

    def forget(self, pod: Key) -> None:
        """There is no state of a pod."""

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

    async def _delete(self, pod: Pod, ref: Ref) -> None:
        try:
            found = await self._api.get(ref, Object)
            if is_created_for(found, pod):
                await self._api.delete(ref, Deletion(uid=found["metadata"]["uid"]))
        except NotFound:
            return


def is_created_for(config_map: Object, pod: Pod) -> bool:
    """Whether the binder created a ConfigMap for this pod: the pod is its only owner, and no other manager labels it.

    ConfigMaps of KAI and of earlier versions have no label.
    """
    metadata = config_map["metadata"]
    owners = [owner.get("uid") for owner in metadata.get("ownerReferences") or ()]
    manager = (metadata.get("labels") or {}).get(names.MANAGED_BY_LABEL, MANAGER)
    return owners == [pod.metadata.uid] and manager == MANAGER


def data_changes(found: Object, data: Mapping[str, str | None]) -> Object:
    """The changes that give an existing ConfigMap this content; None removes a key."""
    held: Object = found.get("data") or {}
    wanted = dict(data)
    devices = data.get(VISIBLE_DEVICES)
    if names.LEGACY_VISIBLE_DEVICES in held and devices:
        wanted[names.LEGACY_VISIBLE_DEVICES] = devices
    return {key: value for key, value in wanted.items() if held.get(key) != value}
