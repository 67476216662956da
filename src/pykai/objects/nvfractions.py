"""NvFractions: GPU shares by container-level annotations, `nvidia.com/container.<container>.<suffix>`.

    gpu-memory.request   scheduled and charged memory of each device; the limit if absent
    gpu-memory.limit     memory that the container may use, at least the request
    gpu-compute.mode     time-slicing (default) or sm-sharing; pods of different modes never share a device
    gpus.devices         the devices, written by the binder only

The limit of a fraction is in `kai.scheduler/container.<container>.gpu-memory.portion.limit`. Admission rejects
malformed annotations; scheduler and binder ignore them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Final

from pykai.objects.names import (
    COMPUTE_MODES,
    GPU_FRACTION,
    NVFRACTIONS_PREFIX,
    PORTION_LIMIT_PREFIX,
    TIME_SLICING,
)
from pykai.objects.units import QuantityError, parse_quantity

MEMORY_REQUEST: Final = "gpu-memory.request"
MEMORY_LIMIT: Final = "gpu-memory.limit"
COMPUTE_MODE: Final = "gpu-compute.mode"
DEVICES: Final = "gpus.devices"
SUFFIXES: Final = (MEMORY_REQUEST, MEMORY_LIMIT, COMPUTE_MODE, DEVICES)
PORTION_LIMIT: Final = "gpu-memory.portion.limit"
_REQUEST_SUFFIXES: Final = (f".{MEMORY_REQUEST}", f".{MEMORY_LIMIT}")
MEBIBYTE: Final = 1024 * 1024


class GpuRequestError(ValueError):
    """The pod's GPU request is invalid; the text is shown to the user."""


@dataclass(frozen=True)
class ContainerShare:
    """The annotations of one container; amounts in bytes of each device, None if absent."""

    request: Fraction | None = None
    limit: Fraction | None = None
    mode: str | None = None


def key(container: str, suffix: str) -> str:
    """Return the annotation key of a container."""
    return f"{NVFRACTIONS_PREFIX}{container}.{suffix}"


def portion_limit_key(container: str) -> str:
    """Return the annotation key of the limit of a container's fraction."""
    return f"{PORTION_LIMIT_PREFIX}{container}.{PORTION_LIMIT}"


def split(annotation: str) -> tuple[str, str]:
    """Split an annotation key with the NvFractions prefix into container and suffix; GpuRequestError if unknown."""
    rest = annotation.removeprefix(NVFRACTIONS_PREFIX)
    for suffix in SUFFIXES:
        container = rest.removesuffix(f".{suffix}")
        if container and container != rest:
            return container, suffix
    raise GpuRequestError(f"invalid NvFractions annotation key: {annotation}")


def requests_memory(annotations: Mapping[str, str]) -> bool:
    """Whether a container requests GPU memory, valid or not."""
    return any(name.startswith(NVFRACTIONS_PREFIX) and name.endswith(_REQUEST_SUFFIXES) for name in annotations)


def is_class_annotation(annotation: str) -> bool:
    """Whether the annotation belongs to a pod's equivalence class: it affects scheduling."""
    return annotation.startswith(NVFRACTIONS_PREFIX) and annotation.endswith((*_REQUEST_SUFFIXES, f".{COMPUTE_MODE}"))


def parse(annotations: Mapping[str, str]) -> dict[str, ContainerShare]:
    """Parse the requests by container; GpuRequestError names the first invalid annotation."""
    shares: dict[str, ContainerShare] = {}
    for name in sorted(each for each in annotations if each.startswith(NVFRACTIONS_PREFIX)):
        container, suffix = split(name)
        if suffix == DEVICES:
            continue
        share, text = shares.get(container, ContainerShare()), annotations[name]
        if suffix == COMPUTE_MODE:
            if text not in COMPUTE_MODES:
                raise GpuRequestError(f"invalid NvFractions compute mode: {text}")
            shares[container] = replace(share, mode=text)
            continue
        memory = quantity(text)
        if memory is None:
            raise GpuRequestError(f"{name} annotation value must be a valid Kubernetes memory quantity greater than 0")
        is_request = suffix == MEMORY_REQUEST
        shares[container] = replace(share, request=memory) if is_request else replace(share, limit=memory)
    return shares


def quantity(text: str) -> Fraction | None:
    """Parse a positive quantity to base units; None if the text is none."""
    try:
        value = parse_quantity(text)
    except QuantityError:
        return None
    return value if value > 0 else None


# ---------------------------------------------------------------------------------------------- of admitted pods
def memory_mib(annotations: Mapping[str, str]) -> int:
    """Return the GPU memory requested by container-level annotations, in MiB of each device, rounded up; else 0.

    A `gpu-fraction` takes precedence: for such a pod the binder itself writes these annotations, and the fraction stays
    the charged amount.
    """
    if GPU_FRACTION in annotations:
        return 0
    for suffix in (MEMORY_REQUEST, MEMORY_LIMIT):
        for text in _values(annotations, suffix):
            value = quantity(text)
            if value is not None:
                return ceil(value / MEBIBYTE)
    return 0


def compute_mode(annotations: Mapping[str, str] | None) -> str:
    """Return the compute sharing mode of a pod; a reservation pod carries that of the pods that share its device."""
    for text in _values(annotations or {}, COMPUTE_MODE):
        if text in COMPUTE_MODES:
            return text
    return TIME_SLICING


def _values(annotations: Mapping[str, str], suffix: str) -> Iterator[str]:
    ending = f".{suffix}"
    for name in sorted(annotations):
        if name.startswith(NVFRACTIONS_PREFIX) and name.endswith(ending):
            yield annotations[name]


def named_container(annotations: Mapping[str, str]) -> str:
    """Return the container that the annotations name, the first by name; empty if there is none."""
    for name in sorted(annotations):
        if name.startswith(NVFRACTIONS_PREFIX):
            try:
                return split(name)[0]
            except GpuRequestError:
                continue
    return ""
