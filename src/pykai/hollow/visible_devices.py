"""The GPUs that each container of a simulated pod would see: its log says so, because no process in it can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pykai.hollow.hollow_node import HollowDevice
from pykai.kube.api import Object
from pykai.objects import names
from pykai.objects.gpu_request import fraction_container
from pykai.objects.nvfractions import MEMORY_LIMIT, MEMORY_REQUEST, GpuRequestError, key


def visible_devices(
    pod: Object, held: Sequence[HollowDevice], reserved: Mapping[str, HollowDevice]
) -> Iterator[tuple[str, str]]:
    """Yield the name of each container and the GPUs it would see.

    `held`: the whole devices of the pod, which regular containers get in their order; init containers, which run
    before them, see the first ones. `reserved`: the shared devices, by GPU group.
    """
    spec, left = pod["spec"], list(held)
    sharing, share = _share(pod)
    shared = [f"{_title(reserved[group])}, {share} of it" for group in _groups(pod) if group in reserved]
    for container in spec.get("initContainers") or ():
        whole = [_title(device) for device in held[: _count(container)]]
        yield _line(container["name"], whole, shared if container["name"] == sharing else ())
    for container in spec["containers"]:
        count = _count(container)
        whole, left = [_title(device) for device in left[:count]], left[count:]
        yield _line(container["name"], whole, shared if container["name"] == sharing else ())


def _line(name: str, whole: Sequence[str], shared: Sequence[str]) -> tuple[str, str]:
    return name, "; ".join((*whole, *shared)) or "no GPU"


def _title(device: HollowDevice) -> str:
    return f"GPU {device.index} ({device.uuid})"


def _count(container: Object) -> int:
    """Return the number of whole GPUs that a container requests."""
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    text = str(amounts.get(names.NVIDIA_GPU, "0"))
    return int(text) if text.isdigit() else 0


def _share(pod: Object) -> tuple[str, str]:
    """Return the container with the pod's share of a GPU and the share as requested; empty names without one."""
    notes, spec = pod["metadata"].get("annotations") or {}, pod["spec"]
    by_kind = ([each["name"] for each in spec.get(kind) or ()] for kind in ("initContainers", "containers"))
    try:
        name = fraction_container(notes, *by_kind).name
    except GpuRequestError:
        return "", ""
    fraction, memory = notes.get(names.GPU_FRACTION), notes.get(names.GPU_MEMORY)
    asked = fraction or (f"{memory} MiB" if memory else "")
    return name, asked or notes.get(key(name, MEMORY_REQUEST)) or notes.get(key(name, MEMORY_LIMIT)) or "a share"


def _groups(pod: Object) -> list[str]:
    """Return the GPU groups of the pod's share, which the binder writes as labels."""
    labels = pod["metadata"].get("labels") or {}
    several = [value for label, value in labels.items() if label.startswith(names.GPU_GROUP_LABEL_PREFIX)]
    one = labels.get(names.GPU_GROUP_LABEL)
    return sorted(several) or ([one] if one else [])
