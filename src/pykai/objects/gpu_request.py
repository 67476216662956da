"""GPU requests in pod annotations: parsing, validation, and the container that receives the devices.

Admission refuses by these rules and the binder delivers by them, so they are written once, on plain annotations and
container names: neither side has to share the other's pod object.

Invariants: a request that passed `check` has exactly one of a portion (0 < p < 1 of each device) or an amount of
memory (MiB of each device), on a whole number of devices; the names of one container's ConfigMaps are a function of
the pod's prefix annotation and that container's place in the pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pykai.objects.names import (
    GPU_FRACTION,
    GPU_FRACTION_CONTAINER,
    GPU_FRACTION_CONTAINER_TYPE,
    GPU_FRACTION_DEVICES,
    GPU_GROUP_LABEL,
    GPU_MEMORY,
    MPS,
    NVIDIA_GPU,
    RECEIVED_FRACTION,
    RECEIVED_RESOURCE_TYPE,
    SHARED_GPU_CONFIGMAP,
    is_subdomain,
)
from pykai.objects.nvfractions import GpuRequestError as GpuRequestError
from pykai.objects.nvfractions import named_container, requests_memory

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
NUM_OF_GPUS: Final = "RUNAI_NUM_OF_GPUS"
PORTION: Final = "GPU_PORTION"
CUDA_MEMORY_LIMIT: Final = "CUDA_DEVICE_MEMORY_LIMIT"

INIT_CONTAINER: Final = "InitContainer"
REGULAR_CONTAINER: Final = "RegularContainer"

_MAX_UNSIGNED: Final = 2**64 - 1
_SHOWN: Final = 64
_WHOLE = re.compile(r"[0-9]+")
# No two neighbouring parts of a pattern accept the same character: an annotation may be 256 KiB of digits.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_NOT_FINITE = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE)

_LABEL_LENGTH: Final = 63
_MARK: Final = "shared-gpu"
_SUFFIX_LENGTH: Final = 7
_VOLUME_CHARACTERS = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True)
class ContainerRef:
    """One container of a pod by its place: `index` counts within init containers or within regular ones."""

    name: str
    index: int
    init: bool

    @property
    def mark(self) -> str:
        """How the container appears in names made for it: `0`, `1` ... or, for init containers, `i0`, `i1` ..."""
        return f"i{self.index}" if self.init else str(self.index)


@dataclass(frozen=True)
class SharedGpuNames:
    """The objects created for a container with a GPU share: two ConfigMaps and the pod's volume."""

    capabilities: str
    environment: str
    volume: str


def shares_gpu(annotations: Mapping[str, str]) -> bool:
    """Whether the pod asks for part of a device, validly or not."""
    return requests_share(annotations) or requests_memory(annotations)


def received_share(annotations: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether the binder gave the pod part of a device.

    It writes that as an annotation, which a user can remove; then the label of the device says it as well.
    """
    received = annotations.get(RECEIVED_RESOURCE_TYPE)
    if received is None:
        return shares_gpu(annotations) and any(label.startswith(GPU_GROUP_LABEL) for label in labels)
    return received == RECEIVED_FRACTION


def requests_share(annotations: Mapping[str, str]) -> bool:
    """Whether it does so by an annotation of the pod as a whole, which names no container."""
    return GPU_FRACTION in annotations or GPU_MEMORY in annotations


def portion(text: str) -> float | None:
    """The portion of a device written in a `gpu-fraction` annotation; None when the text is not a portion."""
    value = float(text) if _DECIMAL.fullmatch(text) else None
    return value if value is not None and 0 < value < 1 else None


def positive_count(text: str) -> int | None:
    """A whole number of at least 1 that fits 64 bits (MiB of memory, number of devices); None for anything else."""
    digits = text.lstrip("0")
    if not _WHOLE.fullmatch(text) or not digits or len(digits) > len(str(_MAX_UNSIGNED)):
        return None
    return int(digits) if int(digits) <= _MAX_UNSIGNED else None


def check(annotations: Mapping[str, str], whole_gpu_limit: bool) -> None:
    """Refuse a GPU request that contradicts itself or holds no valid amount; the first broken rule is raised.

    `whole_gpu_limit`: some container or init container of the pod has a limit on whole GPUs.
    """
    _check_combination(annotations, whole_gpu_limit)
    _check_amounts(annotations)


def _check_combination(annotations: Mapping[str, str], whole_gpu_limit: bool) -> None:
    fraction, memory = GPU_FRACTION in annotations, GPU_MEMORY in annotations
    if annotations.get(MPS) == "true" and not shares_gpu(annotations):
        raise GpuRequestError("MPS is only supported with GPU fraction request")
    if fraction and whole_gpu_limit:
        raise GpuRequestError("cannot have both GPU fraction request and whole GPU resource request/limit")
    if memory and fraction:
        raise GpuRequestError(
            "cannot request both GPU and GPU memory: "
            f"annotations {GPU_FRACTION} and {GPU_MEMORY} are mutually exclusive, keep one of them"
        )
    if memory and whole_gpu_limit:
        raise GpuRequestError(
            "cannot request both GPU and GPU memory: "
            f"annotation {GPU_MEMORY} and a limit on whole GPUs are mutually exclusive"
        )
    if GPU_FRACTION_DEVICES in annotations and not shares_gpu(annotations):
        raise GpuRequestError(
            "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"
        )


def _check_amounts(annotations: Mapping[str, str]) -> None:
    memory, devices = annotations.get(GPU_MEMORY), annotations.get(GPU_FRACTION_DEVICES)
    if memory is not None and positive_count(memory) is None:
        raise GpuRequestError(
            f"gpu-memory annotation value must be a positive integer greater than 0, given value: {memory[:_SHOWN]}; "
            "it counts MiB, such as 2000"
        )
    if GPU_FRACTION in annotations:
        _check_portion(annotations[GPU_FRACTION])
    if devices is not None and positive_count(devices) is None:
        given = f"given value: {devices[:_SHOWN]}"
        raise GpuRequestError(f"fraction count annotation value must be a positive integer greater than 0, {given}")


def _check_portion(text: str) -> None:
    if portion(text) is not None:
        return
    if _foreign_notation(text):
        raise GpuRequestError(
            "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation "
            f".given value: {text}"
        )
    raise GpuRequestError(
        "gpu-fraction annotation value must be a positive number smaller than 1.0"
        f", given value: {text[:_SHOWN]}; for whole GPUs set a limit of {NVIDIA_GPU} on the container instead"
    )


def _foreign_notation(text: str) -> bool:
    """Whether the text is a number in range (or not comparable at all) in a notation Kubernetes does not read."""
    if _NOT_FINITE.fullmatch(text):
        return text.lower() == "nan"
    if not _HEXADECIMAL.fullmatch(text):
        return False
    try:
        return 0 < float.fromhex(text) < 1
    except OverflowError:
        return False


def fraction_container(annotations: Mapping[str, str], init_names: Sequence[str], names: Sequence[str]) -> ContainerRef:
    """The one container that receives the pod's share; raises GpuRequestError when the annotations name none.

    Annotations of containers (NvFractions) name it, else the annotation of the pod for this. By name, init containers
    are searched before regular ones, unless the type annotation says which to search. Without a name it is the first
    regular container or, when the type is InitContainer, the first init container.
    """
    wanted = named_container(annotations) or annotations.get(GPU_FRACTION_CONTAINER)
    kind = annotations.get(GPU_FRACTION_CONTAINER_TYPE)
    if kind not in (None, "", INIT_CONTAINER, REGULAR_CONTAINER):
        raise GpuRequestError(
            f"{GPU_FRACTION_CONTAINER_TYPE} annotation value must be {INIT_CONTAINER} or {REGULAR_CONTAINER}"
            f", given value: {kind}"
        )
    if not wanted:
        return _first_container(init_names if kind == INIT_CONTAINER else names, init=kind == INIT_CONTAINER)
    if kind != REGULAR_CONTAINER and wanted in init_names:
        return ContainerRef(wanted, init_names.index(wanted), init=True)
    if kind != INIT_CONTAINER and wanted in names:
        return ContainerRef(wanted, names.index(wanted), init=False)
    kind_text = {INIT_CONTAINER: "init ", REGULAR_CONTAINER: "regular "}.get(kind or "", "")
    raise GpuRequestError(f"{kind_text}container with name {wanted} not found for fraction request")


def _first_container(names: Sequence[str], init: bool) -> ContainerRef:
    if not names:
        raise GpuRequestError(f"no {'init' if init else 'regular'} container found for fraction request")
    return ContainerRef(names[0], 0, init)


def new_configmap_prefix(base: str, suffix: str, container: ContainerRef) -> str:
    """The value of a pod's ConfigMap annotation: `base` (owner or pod name, may be empty), a suffix of 7 characters.

    `base` is cut so that every name made from the prefix still fits a DNS label.
    """
    room = _LABEL_LENGTH - (_SUFFIX_LENGTH + 6) - len(_MARK) - (len(str(container.index)) + 1) - 5
    kept = base[:room].rstrip(".-")
    return "-".join(part for part in (kept, suffix, _MARK) if part)


def check_configmap_prefix(prefix: str, container: ContainerRef) -> None:
    """Reject a user-supplied prefix annotation from which no valid ConfigMap and volume names can be made."""
    if not is_subdomain(prefix) or len(f"{prefix}-{container.mark}-evar") > _LABEL_LENGTH:
        raise GpuRequestError(
            f"{SHARED_GPU_CONFIGMAP} annotation value must be a lower-case DNS name of at most "
            f"{_LABEL_LENGTH - len(f'-{container.mark}-evar')} characters, given value: {prefix}"
        )


def shared_gpu_names(prefix: str, container: ContainerRef) -> SharedGpuNames:
    """The names of what serves the container's share, from the pod's prefix annotation."""
    capabilities = f"{prefix}-{container.mark}"
    volume = _VOLUME_CHARACTERS.sub("-", f"{capabilities}-vol".lower()).strip("-")
    return SharedGpuNames(capabilities, f"{capabilities}-evar", volume)
