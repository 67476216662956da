"""What containers see of GPUs: the share that a pod asks for, and no device of which it was given nothing.

A pod that shares a GPU gets the container with the share connected to the ConfigMaps that the binder will fill. They do
not exist yet at admission. The container's references are not optional, so the kubelet holds the container back until
the binder has written which device it may use. A second pass over the same pod changes nothing.

The NVIDIA runtime shows a container every device that NVIDIA_VISIBLE_DEVICES names, whether or not the scheduler gave
it one. On creation the variable is set to `void` where no device was requested; other values are refused.
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
    containers_without_share,
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
from pykai.objects.names import MIG_PREFIX, NVIDIA_GPU, SHARED_GPU_CONFIGMAP
from pykai.objects.units import parse_quantity

_NO_DEVICE = "void"
_HARMLESS = ("", "void", "none")


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


def hide_devices(draft: PodObject) -> None:
    """Show no device to the containers that requested none, except the one that receives the pod's share."""
    for container in containers_without_share(draft):
        if not _requests_device(container):
            set_environment(container, {"name": VISIBLE_DEVICES, "value": _NO_DEVICE})


def check_device_access(pod: Mapping[str, Any]) -> None:
    """Refuse a container that names devices by hand."""
    for container in containers_without_share(pod):
        for entry in container.get("env") or []:
            if entry.get("name") == VISIBLE_DEVICES:
                _check_entry(container.get("name") or "", entry)


def _check_entry(container: str, entry: Mapping[str, Any]) -> None:
    what = f"container {container} has an environment variable {VISIBLE_DEVICES} defined with a"
    value = entry.get("value") or ""
    if value not in _HARMLESS:
        raise RefusedError(
            f"{what} value of {value}. This is forbidden due to conflicts with Nvidia's device plugin. "
            "The only values that are allowed are 'void' or 'none'"
        )
    if not value and entry.get("valueFrom") is not None:
        raise RefusedError(
            f"{what} valueFrom reference. This is forbidden due to possible conflicts with Nvidia's device plugin"
        )


def _requests_device(container: ContainerObject) -> bool:
    requests = (container.get("resources") or {}).get("requests") or {}
    devices = [amount for name, amount in requests.items() if name == NVIDIA_GPU or name.startswith(MIG_PREFIX)]
    return any(_is_some(amount) for amount in devices)


def _is_some(amount: str | int | float) -> bool:
    try:
        return parse_quantity(amount) != 0
    except ValueError:
        # Not a quantity: the API server refuses the pod itself.
        return False
