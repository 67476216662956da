"""GPU requests in pod annotations: parsing, validation, and the container that receives the devices.

Admission validates by these rules and the binder allocates by them. They work on plain annotations and container names,
because the two use different pod types.

Invariants: a request that passes `check` has either a portion (0 < p < 1 of each device) or an amount of memory (MiB of
each device), on a whole number of devices; the names of a container's ConfigMaps depend only on the pod's prefix
annotation and the container's index.
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
_INTEGER = re.compile(r"[0-9]+")
# No two adjacent parts of a pattern match the same character, against backtracking: annotations may have 256 KiB.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_NOT_FINITE = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE)

_LABEL_LENGTH: Final = 63
_MARK: Final = "shared-gpu"
_SUFFIX_LENGTH: Final = 7
_VOLUME_CHARACTERS = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True)
class ContainerRef:
    """A container of a pod; `index` counts among the init containers or among the regular ones."""

    name: str
    index: int
    init: bool

    @property
    def mark(self) -> str:
        """The container's part of object names: `0`, `1` ... or, for init containers, `i0`, `i1` ..."""
        return f"i{self.index}" if self.init else str(self.index)


@dataclass(frozen=True)
class SharedGpuNames:
    """The names of the objects for a container with a GPU share: two ConfigMaps and a volume."""

    capabilities: str
    environment: str
    volume: str


def shares_gpu(annotations: Mapping[str, str]) -> bool:
    """Whether the pod requests a fraction of a GPU, valid or not."""
    return requests_share(annotations) or requests_memory(annotations)


def received_share(annotations: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether the binder allocated a fraction of a GPU to the pod.

    It writes an annotation; if a user removed that, the label with the device's GPU group shows it as well.
    """
    received = annotations.get(RECEIVED_RESOURCE_TYPE)
    if received is None:
        return shares_gpu(annotations) and any(label.startswith(GPU_GROUP_LABEL) for label in labels)
    return received == RECEIVED_FRACTION


def requests_share(annotations: Mapping[str, str]) -> bool:
    """Whether the pod requests a fraction by a pod-level annotation, which names no container."""
    return GPU_FRACTION in annotations or GPU_MEMORY in annotations


def portion(text: str) -> float | None:
    """Parse a `gpu-fraction` annotation; None if it is not a portion between 0 and 1."""
    value = float(text) if _DECIMAL.fullmatch(text) else None
    return value if value is not None and 0 < value < 1 else None


def positive_count(text: str) -> int | None:
    """Parse a positive 64-bit integer (MiB of memory, number of devices); None if the text is none."""
    digits = text.lstrip("0")
    if not _INTEGER.fullmatch(text) or not digits or len(digits) > len(str(_MAX_UNSIGNED)):
        return None
    return int(digits) if int(digits) <= _MAX_UNSIGNED else None


def check(annotations: Mapping[str, str], whole_gpu_limit: bool) -> None:
    """Raise GpuRequestError for conflicting annotations or an invalid amount.

    `whole_gpu_limit`: a container or init container of the pod has a limit on whole GPUs.
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
    if _is_unsupported_notation(text):
        raise GpuRequestError(
            "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation "
            f".given value: {text}"
        )
    raise GpuRequestError(
        "gpu-fraction annotation value must be a positive number smaller than 1.0"
        f", given value: {text[:_SHOWN]}; for whole GPUs set a limit of {NVIDIA_GPU} on the container instead"
    )


def _is_unsupported_notation(text: str) -> bool:
    """Whether the text is nan, or a portion in hexadecimal notation, which Kubernetes does not parse."""
    if _NOT_FINITE.fullmatch(text):
        return text.lower() == "nan"
    if not _HEXADECIMAL.fullmatch(text):
        return False
    try:
        return 0 < float.fromhex(text) < 1
    except OverflowError:
        return False


def fraction_container(annotations: Mapping[str, str], init_names: Sequence[str], names: Sequence[str]) -> ContainerRef:
    """Return the container that receives the pod's GPU share; GpuRequestError if it does not exist.

    It is named by container-level annotations (NvFractions), else by the pod-level annotation. The name is looked up
    among init containers first, then regular ones, unless the type annotation selects one of the two. Without a name it
    is the first regular container or, for type InitContainer, the first init container.
    """
    wanted = named_container(annotations) or annotations.get(GPU_FRACTION_CONTAINER)
    kind = annotations.get(GPU_FRACTION_CONTAINER_TYPE)
    if kind not in (None, "", INIT_CONTAINER, REGULAR_CONTAINER):
        raise GpuRequestError(
            f"{GPU_FRACTION_CONTAINER_TYPE} annotation value must be {INIT_CONTAINER} or {REGULAR_CONTAINER}"
            f", given value: {kind}"
        )
    if not wanted:
        init = kind == INIT_CONTAINER
        candidates = init_names if init else names
        if not candidates:
            raise GpuRequestError(f"no {'init' if init else 'regular'} container found for fraction request")
        return ContainerRef(candidates[0], 0, init)
    if kind != REGULAR_CONTAINER and wanted in init_names:
        return ContainerRef(wanted, init_names.index(wanted), init=True)
    if kind != INIT_CONTAINER and wanted in names:
        return ContainerRef(wanted, names.index(wanted), init=False)
    kind_text = {INIT_CONTAINER: "init ", REGULAR_CONTAINER: "regular "}.get(kind or "", "")
    raise GpuRequestError(f"{kind_text}container with name {wanted} not found for fraction request")


def new_configmap_prefix(base: str, suffix: str, container: ContainerRef) -> str:
    """Return the value of a pod's ConfigMap annotation: `base` (owner or pod name, may be empty) and a random suffix.

    `base` is truncated so that every name made from the prefix fits a DNS label.
    """
    max_length = _LABEL_LENGTH - (_SUFFIX_LENGTH + 6) - len(_MARK) - (len(str(container.index)) + 1) - 5
    shortened = base[:max_length].rstrip(".-")
    return "-".join(part for part in (shortened, suffix, _MARK) if part)


def check_configmap_prefix(prefix: str, container: ContainerRef) -> None:
    """Raise GpuRequestError for a user-supplied prefix that would lead to invalid ConfigMap or volume names."""
    if not is_subdomain(prefix) or len(f"{prefix}-{container.mark}-evar") > _LABEL_LENGTH:
        raise GpuRequestError(
            f"{SHARED_GPU_CONFIGMAP} annotation value must be a lower-case DNS name of at most "
            f"{_LABEL_LENGTH - len(f'-{container.mark}-evar')} characters, given value: {prefix}"
        )


def shared_gpu_names(prefix: str, container: ContainerRef) -> SharedGpuNames:
    """Return the names of the objects for the container's share, from the pod's prefix annotation."""
    capabilities = f"{prefix}-{container.mark}"
    volume = _VOLUME_CHARACTERS.sub("-", f"{capabilities}-vol".lower()).strip("-")
    return SharedGpuNames(capabilities, f"{capabilities}-evar", volume)
