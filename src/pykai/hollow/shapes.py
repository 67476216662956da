"""What a hollow node looks like: a shape, the Node object made of it, and the file a user describes nodes in.

The labels are those that GPU feature discovery puts on a real node. A time-sliced device is offered `time_slices`
times: the node then has more `nvidia.com/gpu` than devices, and its product name ends in `-SHARED`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from pykai.config import documents, fields
from pykai.config.fields import FieldError, below, converted, joined
from pykai.hollow.addresses import HOST
from pykai.objects import names

_NAMESPACE = uuid.UUID("5a5bb1f8-0d7e-5f6e-9a43-6a1f3c9d2b10")
_LONGEST_NAME = 63
"""It becomes the label of the host's name."""
Amount = str | int | float


class GpuShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The GPUs of a node: physical devices, MiB of each, product name, and how often each is offered."""

    count: int = 8
    memory_mib: int = msgspec.field(default=81559, name="memoryMiB")
    product: str = "NVIDIA-H100-80GB-HBM3"
    time_slices: int = 1

    def problems(self) -> Iterator[tuple[str, str]]:
        """What is wrong, by field; the product becomes a label."""
        given = {"count": self.count, "memoryMiB": self.memory_mib, "timeSlices": self.time_slices}
        yield from ((field, f"must be at least 1, not {value}") for field, value in given.items() if value < 1)
        yield from ((joined("", path), message) for path, message in fields.labels({"product": self.product}, ""))


class NodeShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One hollow node; `gpus` None is a node without GPUs, `resources` are further extended resources."""

    name: str
    gpus: GpuShape | None = None
    cpu: Amount = "64"
    memory: Amount = "512Gi"
    pods: Annotated[int, msgspec.Meta(ge=0)] = 250
    labels: dict[str, str] = {}
    taints: list[dict[str, Any]] = []
    resources: dict[str, Amount] = {}


class Device(msgspec.Struct, frozen=True):
    """One schedulable GPU: a physical device, or the `slice`-th share of its time."""

    index: int
    uuid: str
    product: str
    memory_mib: int
    slice: int = 0


def devices(shape: NodeShape) -> tuple[Device, ...]:
    """What the node's device plugin offers; a device's UUID depends on nothing but the node's name and its index."""
    gpus = shape.gpus
    if gpus is None:
        return ()
    return tuple(
        Device(index, f"GPU-{uuid.uuid5(_NAMESPACE, f'{shape.name}/{index}')}", gpus.product, gpus.memory_mib, part)
        for part in range(gpus.time_slices)
        for index in range(gpus.count)
    )


def _gpu_labels(gpus: GpuShape) -> dict[str, str]:
    sliced = gpus.time_slices > 1
    return {
        "nvidia.com/gpu.present": "true",
        names.GPU_COUNT_LABEL: str(gpus.count),
        names.GPU_MEMORY_LABEL: str(gpus.memory_mib),
        "nvidia.com/gpu.product": gpus.product + ("-SHARED" if sliced else ""),
        "nvidia.com/gpu.replicas": str(gpus.time_slices),
        "nvidia.com/gpu.sharing-strategy": "time-slicing" if sliced else "none",
        "nvidia.com/mig.capable": "false",
    }


def _labels(shape: NodeShape) -> dict[str, str]:
    own = {
        names.HOSTNAME_LABEL: shape.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "pykai.io/hollow": "true",
    }
    return own | (_gpu_labels(shape.gpus) if shape.gpus else {}) | shape.labels


def allocatable(shape: NodeShape) -> dict[str, str]:
    """The node's resources, all of which pods may use."""
    own: dict[str, Amount] = {"cpu": shape.cpu, "memory": shape.memory, "ephemeral-storage": "1Ti", "pods": shape.pods}
    gpus = {names.NVIDIA_GPU: len(devices(shape))} if shape.gpus else {}
    return {resource: str(amount) for resource, amount in (own | gpus | shape.resources).items()}


_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def conditions(now: str) -> list[dict[str, str]]:
    """The conditions of a healthy node as of `now` (RFC 3339)."""
    keys = ("type", "status", "reason", "message")
    stamps = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return [dict(zip(keys, row, strict=True)) | stamps for row in _HEALTHY]


def node_object(shape: NodeShape, now: str, kubelet_port: int = 0) -> dict[str, Any]:
    """The Node as its kubelet registers it; `kubelet_port` 0 means that it serves no logs."""
    resources = allocatable(shape)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": shape.name, "labels": _labels(shape)},
        "spec": {"taints": shape.taints, "providerID": f"pykai://hollow/{shape.name}"},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": conditions(now),
            "addresses": [{"type": "InternalIP", "address": HOST}, {"type": "Hostname", "address": shape.name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
            "nodeInfo": _NODE_INFO | {"machineID": shape.name, "systemUUID": shape.name, "bootID": shape.name},
        },
    }


_NODE_INFO = {
    "kernelVersion": "hollow",
    "osImage": "hollow node",
    "containerRuntimeVersion": "hollow://1",
    "kubeletVersion": "v1.35.4",
    "kubeProxyVersion": "",
    "operatingSystem": "linux",
    "architecture": "amd64",
}


def repeat(shape: NodeShape, count: int) -> list[NodeShape]:
    """`count` nodes of one shape, named NAME-0, NAME-1, ..."""
    return [msgspec.structs.replace(shape, name=f"{shape.name}-{number}") for number in range(count)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: list[dict[str, Any]]


def read_shapes(path: Path) -> list[NodeShape]:
    """The nodes a YAML file describes, `count` of each (named NAME-0, ... if more than one).

    FieldError names the file and the field that is wrong.
    """
    text = documents.text_of(path)
    with below(f"{path}: "):
        rows = converted(documents.only(text), _File).nodes
        shapes = [shape for number, row in enumerate(rows) for shape in _expand(row, f"nodes[{number}]")]
        _refuse_duplicates([shape.name for shape in shapes])
        return shapes


def _expand(row: dict[str, Any], place: str) -> list[NodeShape]:
    count = row.pop("count", 1)
    if type(count) is not int or count < 1:
        raise FieldError(f"{place}.count", f"expected a whole number of at least 1, got {count!r}")
    shape = converted(row, NodeShape, place)
    check(shape, place)
    return [shape] if count == 1 else repeat(shape, count)


def check(shape: NodeShape, place: str = "") -> None:
    """Refuse a node that no API server would take; FieldError names the field, its path below `place`."""
    for path, message in _problems(shape):
        raise FieldError(joined(place, path), message)


def _problems(shape: NodeShape) -> Iterator[tuple[str, str]]:
    yield from fields.name(shape.name, "name")
    if len(shape.name) > _LONGEST_NAME:
        yield "name", f"{shape.name!r} is longer than {_LONGEST_NAME} characters"
    yield from fields.amount(shape.cpu, "cpu")
    yield from fields.amount(shape.memory, "memory")
    yield from fields.amounts(shape.resources, "resources")
    yield from fields.labels(shape.labels, "labels")
    yield from fields.taints(shape.taints, "taints")
    if shape.gpus is not None:
        yield from ((f"gpus.{field}", message) for field, message in shape.gpus.problems())


def _refuse_duplicates(given: Sequence[str]) -> None:
    twice = sorted({name for name in given if given.count(name) > 1})
    if twice:
        raise FieldError("nodes", f"name {twice[0]!r} is used twice")
