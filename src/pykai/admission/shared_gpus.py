"""GPU access of containers: the share that a pod requests, and no device that it was not allocated.

The container with the share gets references to ConfigMaps that the binder creates later. The references are not
optional, so the kubelet does not start the container until the binder has written its device. Mutation is idempotent.

The NVIDIA runtime shows a container every device that NVIDIA_VISIBLE_DEVICES names, whether or not the scheduler
gave it one. On creation the variable is set to `void` where no device was requested; other values are denied.

In the mode NvFractions shares are annotations of containers, without ConfigMaps. On creation the annotations of the
pod as a whole (`gpu-memory` and the shorthands for limits) are written for the container that receives the share,
which is what the device software on the node reads. The binder writes the devices with the bind; other writers are
rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from pykai.admission.pod_mutation import (
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
from pykai.admission.verdict import DeniedError
from pykai.kube.api import Fields, Object
from pykai.objects import nvfractions
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
    portion,
    positive_count,
    requests_share,
    shared_gpu_names,
    shares_gpu,
)
from pykai.objects.names import (
    GPU_FRACTION,
    GPU_FRACTION_CONTAINER,
    GPU_FRACTION_DEVICES,
    GPU_FRACTION_LIMIT,
    GPU_MEMORY,
    GPU_MEMORY_LIMIT,
    MIG_PREFIX,
    NVFRACTIONS,
    NVFRACTIONS_PREFIX,
    NVIDIA_GPU,
    PORTION_LIMIT_PREFIX,
    SHARED_GPU_CONFIGMAP,
)
from pykai.objects.nvfractions import DEVICES, MEBIBYTE, MEMORY_LIMIT, MEMORY_REQUEST, ContainerShare, requests_memory
from pykai.objects.units import parse_quantity

_NO_DEVICE = "void"
_HARMLESS = ("", "void", "none")


def connect_share(mutated: PodObject, suffix: str) -> None:
    """Add environment and volume of the share to its container and pod; other pods are unchanged.

    `suffix`: 7 lower-case letters and digits, different for every pod.
    """
    if not requests_share(annotations_of(mutated)) or not regular_containers(mutated):
        return
    place = fraction_container_of(mutated)
    if not annotations_of(mutated).get(SHARED_GPU_CONFIGMAP):
        metadata = mutated["metadata"]
        owner = (metadata.get("ownerReferences") or [{}])[0].get("name")
        base = owner or metadata.get("name") or metadata.get("generateName") or ""
        annotate(mutated, SHARED_GPU_CONFIGMAP, new_configmap_prefix(base, suffix, place))
    names = _names_of_share(mutated, place)
    container = container_at(mutated, place)
    for variable in (VISIBLE_DEVICES, NUM_OF_GPUS, PORTION):
        set_environment(container, _reference(variable, names))
    set_volume(mutated, {"name": names.volume, "configMap": {"name": names.capabilities}})
    sources = container.get("envFrom") or []
    if not any((source.get("configMapRef") or {}).get("name") == names.environment for source in sources):
        reference = {"name": names.environment, "optional": False}
        container["envFrom"] = [*sources, {"configMapRef": reference}]


def limit_memory(mutated: PodObject) -> None:
    """Let the container with the share read its memory limit (HAMi core); needs the annotation of `connect_share`."""
    if not requests_share(annotations_of(mutated)) or not regular_containers(mutated):
        return
    place = fraction_container_of(mutated)
    if not annotations_of(mutated).get(SHARED_GPU_CONFIGMAP):
        raise DeniedError(f"no desired configmap name found in pod {pod_label(mutated)} annotations")
    entry = _reference(CUDA_MEMORY_LIMIT, _names_of_share(mutated, place))
    entry["valueFrom"]["configMapKeyRef"]["optional"] = True
    set_environment(container_at(mutated, place), entry)


def check_gpu_request(pod: Fields, sharing_enabled: bool) -> None:
    """Deny a contradictory GPU request, and any share of a GPU while sharing is disabled."""
    annotations = annotations_of(pod)
    if shares_gpu(annotations) and not sharing_enabled:
        raise DeniedError(
            f"attempting to create a pod {pod_label(pod)} with gpu sharing request, while GPU sharing is disabled"
            "; enable it with the chart value global.gpuSharing=true (flag --gpu-sharing-enabled)"
        )
    if requests_memory(annotations):
        raise DeniedError(
            f"attempting to create a pod {pod_label(pod)} with annotations {NVFRACTIONS_PREFIX}<name>.gpu-memory, "
            f"while the GPU sharing mode is not {NVFRACTIONS}; set it with the chart value "
            f"global.gpuSharingMode={NVFRACTIONS} (flag --gpu-sharing-mode)"
        )
    try:
        check(annotations, has_whole_gpu_limit(pod))
    except GpuRequestError as problem:
        raise DeniedError(str(problem)) from None
    if shares_gpu(annotations) and regular_containers(pod):
        fraction_container_of(pod)


def has_whole_gpu_limit(pod: Fields) -> bool:
    """Whether some container has a limit on whole GPUs."""
    containers = (*regular_containers(pod), *init_containers(pod))
    return any(NVIDIA_GPU in ((container.get("resources") or {}).get("limits") or {}) for container in containers)


def _names_of_share(pod: Fields, place: ContainerRef) -> SharedGpuNames:
    prefix = annotations_of(pod)[SHARED_GPU_CONFIGMAP]
    try:
        check_configmap_prefix(prefix, place)
    except GpuRequestError as problem:
        raise DeniedError(str(problem)) from None
    return shared_gpu_names(prefix, place)


def _reference(variable: str, names: SharedGpuNames) -> Object:
    key = {"name": names.capabilities, "key": variable}
    return {"name": variable, "valueFrom": {"configMapKeyRef": key}}


def hide_devices(mutated: PodObject) -> None:
    """Hide all devices from containers that request none, except the one that receives the pod's share."""
    for container in containers_without_share(mutated):
        if not _requests_device(container):
            set_environment(container, {"name": VISIBLE_DEVICES, "value": _NO_DEVICE})


def check_device_access(pod: Fields) -> None:
    """Deny a pod with a container that sets the visible devices itself."""
    for container in containers_without_share(pod):
        for entry in container.get("env") or []:
            if entry.get("name") != VISIBLE_DEVICES:
                continue
            name, value = container.get("name") or "", entry.get("value") or ""
            what = f"container {name} has an environment variable {VISIBLE_DEVICES} defined with a"
            if value not in _HARMLESS:
                raise DeniedError(
                    f"{what} value of {value}. This is forbidden due to conflicts with Nvidia's device plugin. "
                    "The only values that are allowed are 'void' or 'none'"
                )
            if not value and entry.get("valueFrom") is not None:
                raise DeniedError(
                    f"{what} valueFrom reference. This is forbidden due to possible conflicts with Nvidia's device "
                    "plugin"
                )


def _requests_device(container: ContainerObject) -> bool:
    for name, amount in ((container.get("resources") or {}).get("requests") or {}).items():
        if name == NVIDIA_GPU or name.startswith(MIG_PREFIX):
            with suppress(ValueError):  # not a quantity: the API server rejects the pod itself
                if parse_quantity(amount) != 0:
                    return True
    return False


_DECIMALS = 5
_ALONE = "annotation can only be used together with the {} annotation"


@dataclass(frozen=True)
class Requester:
    """The user that writes the pod, the binder's account (empty: not configured), and the previous annotations."""

    user: str = ""
    binder: str = ""
    before: Mapping[str, str] | None = None


# ------------------------------------------------------------------------------------------------------ on creation
def annotate_containers(mutated: PodObject) -> None:
    """Copy the share requested by annotations of the pod to annotations of the container that receives it."""
    annotations = annotations_of(mutated)
    if not shares_gpu(annotations) or not regular_containers(mutated):
        return
    container = fraction_container_of(mutated).name
    memory = annotations.get(GPU_MEMORY)
    if memory is not None:
        count = positive_count(memory)
        if count is None:
            raise DeniedError(f"failed to parse gpu memory annotation value: {memory[:64]} is no number of MiB above 0")
        _set(mutated, nvfractions.key(container, MEMORY_REQUEST), f"{count}Mi", GPU_MEMORY)
    if GPU_MEMORY_LIMIT in annotations:
        _set(mutated, nvfractions.key(container, MEMORY_LIMIT), annotations[GPU_MEMORY_LIMIT], GPU_MEMORY_LIMIT)
    if GPU_FRACTION_LIMIT in annotations:
        _set(mutated, nvfractions.portion_limit_key(container), annotations[GPU_FRACTION_LIMIT], GPU_FRACTION_LIMIT)


def _set(mutated: PodObject, key: str, value: str, source: str) -> None:
    held = annotations_of(mutated).get(key)
    if held is None:
        annotate(mutated, key, value)
    elif held != value and (nvfractions.quantity(held) or held) != (nvfractions.quantity(value) or value):
        raise DeniedError(f"{source} annotation conflicts with {key} annotation")


# -------------------------------------------------------------------------------------------------------- validation
def check_container_shares(pod: Fields, writer: Requester) -> None:
    """Deny a pod that violates a rule of the mode; the first violation in the order of KAI is reported."""
    annotations = annotations_of(pod)
    try:
        _check_devices(pod, annotations, writer)
        _check_portion_limits(pod, annotations)
        _check_memory_limit(annotations)
        _check_request(pod, annotations, nvfractions.parse(annotations))
        check(annotations, has_whole_gpu_limit(pod))
    except GpuRequestError as problem:
        raise DeniedError(str(problem)) from None
    if shares_gpu(annotations) and regular_containers(pod):
        fraction_container_of(pod)


def _check_devices(pod: Fields, annotations: Mapping[str, str], writer: Requester) -> None:
    """Deny writes of a container's devices by users other than the binder."""
    for name in sorted(annotations):
        if not (name.startswith(NVFRACTIONS_PREFIX) and name.endswith(f".{DEVICES}")):
            continue
        _check_container(pod, nvfractions.split(name)[0])
        if writer.before is not None and writer.before.get(name) == annotations[name]:
            continue
        if not writer.binder:
            raise GpuRequestError(
                "binder service account username is not configured, cannot validate nvfractions device annotations "
                "change"
            )
        if writer.user != writer.binder:
            raise GpuRequestError(f".{DEVICES} annotations may only be modified by {writer.binder}")


def _check_portion_limits(pod: Fields, annotations: Mapping[str, str]) -> None:
    for name in _portion_limits(annotations):
        if GPU_FRACTION not in annotations:
            raise GpuRequestError(f"{name} {_ALONE.format(GPU_FRACTION)}")
        if name != GPU_FRACTION_LIMIT and regular_containers(pod):
            holder = fraction_container_of(pod).name
            if name != nvfractions.portion_limit_key(holder):
                raise GpuRequestError(f"{name} annotation must be of the container of the fraction, {holder}")
        text, what = annotations[name], f"{name} annotation value"
        if len(text.partition(".")[2]) > _DECIMALS:
            raise GpuRequestError(f"{what} must have at most {_DECIMALS} digits after the decimal point")
        value, fraction = portion(text), portion(annotations[GPU_FRACTION])
        if value is None:
            raise GpuRequestError(f"{what} must be a positive number smaller than 1.0")
        if fraction is not None and value <= fraction:
            given = annotations[GPU_FRACTION]
            raise GpuRequestError(f"{what} ({text}) must be greater than {GPU_FRACTION} annotation value ({given})")


def _portion_limits(annotations: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(annotations):
        if name == GPU_FRACTION_LIMIT:
            yield name
        elif name.startswith(PORTION_LIMIT_PREFIX):
            container = name.removeprefix(PORTION_LIMIT_PREFIX).removesuffix(f".{nvfractions.PORTION_LIMIT}")
            if not container or nvfractions.portion_limit_key(container) != name:
                raise GpuRequestError(f"invalid NvFractions annotation key: {name}")
            yield name


def _check_memory_limit(annotations: Mapping[str, str]) -> None:
    text = annotations.get(GPU_MEMORY_LIMIT)
    if text is None:
        return
    if GPU_MEMORY not in annotations:
        raise GpuRequestError(f"{GPU_MEMORY_LIMIT} {_ALONE.format(GPU_MEMORY)}")
    value, what = nvfractions.quantity(text), f"{GPU_MEMORY_LIMIT} annotation value"
    if value is None or text[-1:].isdigit() or text[-1:] == ".":
        raise GpuRequestError(f"{what} must be a positive Kubernetes memory quantity with a unit")
    request = positive_count(annotations[GPU_MEMORY])
    if request is not None and value < request * MEBIBYTE:
        raise GpuRequestError(f"{what} ({text}) must not be below {GPU_MEMORY} annotation value ({request} MiB)")


def _check_request(pod: Fields, annotations: Mapping[str, str], shares: Mapping[str, ContainerShare]) -> None:
    if not shares_gpu(annotations) and GPU_FRACTION_DEVICES in annotations:
        raise GpuRequestError(
            "cannot request multiple fractional devices without specifying fraction details (portion or memory)"
        )
    for container, share in shares.items():
        _check_container(pod, container)
        if share.request is not None and share.limit is not None and share.request > share.limit:
            raise GpuRequestError(f"invalid fraction request for container {container}: request is greater than limit")
    if len(shares) > 1:
        raise GpuRequestError("currently, kai doesn't support multiple containers with fractional GPU requests")
    named = annotations.get(GPU_FRACTION_CONTAINER)
    for container in shares:
        if named and named != container:
            raise GpuRequestError(
                f"{GPU_FRACTION_CONTAINER} annotation value {named} does not match container name {container}"
            )
    if shares_gpu(annotations) and has_whole_gpu_limit(pod):
        raise GpuRequestError("cannot have both GPU fraction request and whole GPU resource request/limit")
    for share in shares.values():
        if share.request is not None or share.limit is not None:
            _check_forms(pod, annotations, share)


def _check_forms(pod: Fields, annotations: Mapping[str, str], share: ContainerShare) -> None:
    """Deny different amounts in several forms; equal amounts are admitted.

    A bound pod also has the amount that the binder derived from its fraction.
    """
    if pod["spec"].get("nodeName"):
        return
    memory = annotations.get(GPU_MEMORY)
    shorthand = memory is not None and GPU_MEMORY_LIMIT in annotations
    if share.limit is not None and (GPU_FRACTION in annotations or (memory is not None and not shorthand)):
        raise GpuRequestError(
            f"cannot combine {NVFRACTIONS_PREFIX} limit annotation with {GPU_FRACTION} or {GPU_MEMORY} annotation"
        )
    if GPU_FRACTION in annotations:
        raise GpuRequestError(f"cannot request both {GPU_FRACTION} and GPU memory request")
    if memory is not None and share.request is not None:
        count = positive_count(memory)
        if count is None or share.request != Fraction(count * MEBIBYTE):
            request = next(text for name, text in annotations.items() if name.endswith(f".{MEMORY_REQUEST}"))
            raise GpuRequestError(
                f"NvFractions memory request ({request}) does not match {GPU_MEMORY} annotation value ({memory} MiB)"
            )


def _check_container(pod: Fields, container: str) -> None:
    names = [each.get("name") for each in (*init_containers(pod), *regular_containers(pod))]
    if container not in names:
        raise GpuRequestError(
            f"container {container} not found in pod spec, but a fractional annotation referencing it was found"
        )
