"""The resources of one pod in the status of its group: those it requests and those it holds.

A pod requests until it ends and holds from the moment it is scheduled. Besides the requests of its containers count its
share of a GPU, which is in annotations, and the GPUs of its resource claims, by device class. Init containers count as
the scheduler counts them, and a pod that is being resized is charged the larger amounts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from pykai.objects import gpu_request, names, nvfractions, pod_resize, units
from pykai.objects.units import ResourceList, canonical

Object = Mapping[str, Any]

_ACTIVE_PHASES = frozenset({"Pending", "Running"})
_WHOLE_DEVICE = frozenset({"1", "1.0"})
_MEGABYTE = 10**6


class PodResourcesError(ValueError):
    """The resources of a pod are not known yet; the text names the annotation, label or object at fault."""


def is_active(pod: Object) -> bool:
    """Whether the pod requests resources: it has not ended."""
    return pod.get("status", {}).get("phase") in _ACTIVE_PHASES


def is_allocated(pod: Object) -> bool:
    """Whether the pod holds resources: it runs, or it is scheduled and will."""
    status = pod.get("status", {})
    if status.get("phase") != "Pending":
        return bool(status.get("phase") == "Running")
    conditions = status.get("conditions") or ()
    return any(each.get("type") == "PodScheduled" and each.get("status") == "True" for each in conditions)


def requested(pod: Object, claims: Sequence[Object]) -> list[ResourceList]:
    """The resources that an active pod requests, its claims included, as lists to sum."""
    return [*_container_requests(pod), requested_share(pod), *claimed_gpus(claims)]


def allocated(pod: Object, claims: Sequence[Object], node: Object | None) -> list[ResourceList]:
    """The resources that an allocated pod holds, as lists to sum; `node` is its own, None if unknown."""
    return [*_container_requests(pod), allocated_share(pod, node), *claimed_gpus(claims)]


def requested_share(pod: Object) -> ResourceList:
    """The GPU share in the annotations: devices, or MiB of device memory."""
    annotations = _annotations(pod)
    if annotations.get(names.GPU_FRACTION):
        return {names.NVIDIA_GPU: canonical(_portion(annotations) * _devices(annotations))}
    memory = _memory(annotations)
    return {names.GPU_MEMORY_RESOURCE: canonical(Fraction(memory * _devices(annotations)))} if memory else {}


def allocated_share(pod: Object, node: Object | None) -> ResourceList:
    """The GPU share, in devices, that the binder gave the pod; empty for pods that share no GPU."""
    annotations = _annotations(pod)
    if not gpu_request.received_share(annotations, pod["metadata"].get("labels") or {}):
        return {}
    return {names.NVIDIA_GPU: canonical(device_share(annotations, node) * _devices(annotations))}


def device_share(annotations: Mapping[str, str], node: Object | None) -> Fraction:
    """The part of each of its devices that a sharing pod holds on this node."""
    if annotations.get(names.GPU_FRACTION):
        return _portion(annotations)
    memory = _memory(annotations)
    if not memory:
        raise PodResourcesError(
            f"neither annotation {names.GPU_FRACTION} nor {names.GPU_MEMORY} nor one of a container "
            "gives the size of the share"
        )
    if node is None:
        raise PodResourcesError("the node of the pod does not exist, so its GPU memory is not known")
    return Fraction(memory) / node_gpu_memory(node)


def node_gpu_memory(node: Object) -> Fraction:
    """The memory of one GPU of the node in MiB, from the labels of its vendor."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    nvidia = labels.get(names.GPU_MEMORY_LABEL)
    amd = sorted(key for key in labels if key.startswith(names.AMD_GPU_MEMORY_LABEL_PREFIX))
    where = f"node {node['metadata'].get('name', '')}"
    if nvidia is not None and amd:
        raise PodResourcesError(f"{where} has GPU memory labels of two vendors: {names.GPU_MEMORY_LABEL} and {amd[0]}")
    if nvidia is not None:
        memory = Fraction(gpu_request.positive_count(nvidia) or 0)
    elif amd:
        memory = next(filter(None, map(_amd_memory, amd)), Fraction(0))
    else:
        raise PodResourcesError(f"{where} has no label with the memory of its GPUs")
    if memory <= 0:
        labels_found = ", ".join(amd) or names.GPU_MEMORY_LABEL
        raise PodResourcesError(f"{where}: label {labels_found} holds no amount of memory")
    return memory


def _amd_memory(label: str) -> Fraction:
    """The amount that ends the label's key, as in beta.amd.com/gpu.vram.64G; 0 where there is none.

    Nodes whose GPUs are all alike have a label without an amount beside it, beta.amd.com/gpu.vram.
    """
    text = re.sub(r"^[^0-9]*", "", label)
    try:
        return units.parse_quantity(text) / _MEGABYTE
    except units.QuantityError:
        return Fraction(0)


def claimed_gpus(claims: Sequence[Object]) -> list[ResourceList]:
    """The number of devices that resource claims ask of GPU device classes, one list per request."""
    return [_claimed(each) for claim in claims for each in claim["spec"].get("devices", {}).get("requests") or ()]


def _claimed(request: Object) -> ResourceList:
    exact = request.get("exactly") or {}
    device_class = exact.get("deviceClassName", "")
    if "gpu" not in device_class.lower():
        return {}
    counted = exact.get("allocationMode", "ExactCount") == "ExactCount"
    return {device_class: max(1, exact.get("count", 1)) if counted else 1}


def _container_requests(pod: Object) -> list[ResourceList]:
    return [pod_resize.pod_requests(pod, actual=True)]


def _annotations(pod: Object) -> Mapping[str, str]:
    return pod["metadata"].get("annotations") or {}


def _portion(annotations: Mapping[str, str]) -> Fraction:
    text = annotations[names.GPU_FRACTION]
    portion = 1.0 if text in _WHOLE_DEVICE else gpu_request.portion(text)
    if portion is None:
        raise PodResourcesError(f"annotation {names.GPU_FRACTION} holds no part of a device: {text!r}")
    return Fraction(str(portion))  # the decimal text: the exact value of the float is not what was written


def _memory(annotations: Mapping[str, str]) -> int:
    """MiB of each device, 0 where none are asked for; annotations of containers go before that of the pod."""
    of_container = nvfractions.memory_mib(annotations)
    return of_container or (_count(annotations, names.GPU_MEMORY) if annotations.get(names.GPU_MEMORY) else 0)


def _devices(annotations: Mapping[str, str]) -> int:
    return _count(annotations, names.GPU_FRACTION_DEVICES) if annotations.get(names.GPU_FRACTION_DEVICES) else 1


def _count(annotations: Mapping[str, str], key: str) -> int:
    count = gpu_request.positive_count(annotations[key])
    if count is None:
        raise PodResourcesError(f"annotation {key} holds no whole number above 0: {annotations[key]!r}")
    return count
