"""Pods that share a GPU: connect the one container that gets the share to the ConfigMaps the binder will fill.

The ConfigMaps do not exist yet at admission. The container's references are not optional, so the kubelet holds the
container back until the binder has written which device it may use. A second pass over the same pod changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykai.admission.pod_draft import (
    ContainerObject,
    PodObject,
    annotate,
    annotations_of,
    container_at,
    fraction_container_of,
    init_containers,
    pod_label,
    regular_containers,
    set_environment,
    set_volume,
)
from pykai.admission.verdict import RefusedError
from pykai.objects.gpu_request import (
    CUDA_MEMORY_LIMIT,
    NUM_OF_GPUS,
    PORTION,
    VISIBLE_DEVICES,
    ContainerRef,
    GpuRequestError,
    SharedGpuNames,
    check,
    check_configmap_prefix,
    new_configmap_prefix,
    shared_gpu_names,
    shares_gpu,
)
from pykai.objects.names import NVIDIA_GPU, SHARED_GPU_CONFIGMAP


def connect_share(draft: PodObject, suffix: str) -> None:
    """Give the container with the share its environment and the pod its volume; other pods stay as they are.

    `suffix`: 7 lower-case letters and digits, different for every pod.
    """
    if not shares_gpu(annotations_of(draft)) or not regular_containers(draft):
        return
    place = fraction_container_of(draft)
    if not annotations_of(draft).get(SHARED_GPU_CONFIGMAP):
        annotate(draft, SHARED_GPU_CONFIGMAP, new_configmap_prefix(_base_name(draft), suffix, place))
    names = _names_of_share(draft, place)
    container = container_at(draft, place)
    for variable in (VISIBLE_DEVICES, NUM_OF_GPUS, PORTION):
        set_environment(container, _reference(variable, names))
    set_volume(draft, {"name": names.volume, "configMap": {"name": names.capabilities}})
    _import_environment(container, names)


def limit_memory(draft: PodObject) -> None:
    """Let the container with the share read its memory limit (HAMi core); needs the annotation of `connect_share`."""
    if not shares_gpu(annotations_of(draft)) or not regular_containers(draft):
        return
    place = fraction_container_of(draft)
    if not annotations_of(draft).get(SHARED_GPU_CONFIGMAP):
        raise RefusedError(f"no desired configmap name found in pod {pod_label(draft)} annotations")
    entry = _reference(CUDA_MEMORY_LIMIT, _names_of_share(draft, place))
    entry["valueFrom"]["configMapKeyRef"]["optional"] = True
    set_environment(container_at(draft, place), entry)


def check_gpu_request(pod: Mapping[str, Any], sharing_enabled: bool) -> None:
    """Refuse a GPU request that contradicts itself, and any share of a GPU while sharing is not enabled."""
    annotations = annotations_of(pod)
    if shares_gpu(annotations) and not sharing_enabled:
        raise RefusedError(
            f"attempting to create a pod {pod_label(pod)} with gpu sharing request, while GPU sharing is disabled"
            "; enable it with the chart value global.gpuSharing=true (flag --gpu-sharing-enabled)"
        )
    try:
        check(annotations, _has_whole_gpu_limit(pod))
    except GpuRequestError as problem:
        raise RefusedError(str(problem)) from None
    if shares_gpu(annotations) and regular_containers(pod):
        fraction_container_of(pod)


def _has_whole_gpu_limit(pod: Mapping[str, Any]) -> bool:
    containers = (*regular_containers(pod), *init_containers(pod))
    return any(NVIDIA_GPU in ((container.get("resources") or {}).get("limits") or {}) for container in containers)


def _base_name(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or [{}]
    return owners[0].get("name") or metadata.get("name") or metadata.get("generateName") or ""


def _names_of_share(pod: Mapping[str, Any], place: ContainerRef) -> SharedGpuNames:
    prefix = annotations_of(pod)[SHARED_GPU_CONFIGMAP]
    try:
        check_configmap_prefix(prefix, place)
    except GpuRequestError as problem:
        raise RefusedError(str(problem)) from None
    return shared_gpu_names(prefix, place)


def _reference(variable: str, names: SharedGpuNames) -> dict[str, Any]:
    key = {"name": names.capabilities, "key": variable}
    return {"name": variable, "valueFrom": {"configMapKeyRef": key}}


def _import_environment(container: ContainerObject, names: SharedGpuNames) -> None:
    sources = container.get("envFrom") or []
    if not any((source.get("configMapRef") or {}).get("name") == names.environment for source in sources):
        reference = {"name": names.environment, "optional": False}
        container["envFrom"] = [*sources, {"configMapRef": reference}]
