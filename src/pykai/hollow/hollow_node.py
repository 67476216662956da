"""A hollow node: its shape, its Node object, the kubelet's accounting of its pods, and a fake NVML for them.

The labels are those of GPU feature discovery. A time-sliced device is offered `time_slices` times: the node then has
more `nvidia.com/gpu` than devices, and its product name ends in `-SHARED`.

The ledger admits or rejects every bound pod, as a real kubelet does, whatever the scheduler decided. Invariants: the
sum of the admitted requests never exceeds allocatable; a device (or a slice of one) is held by at most one pod.

The API server rejects endpoints on loopback, and listening on any other address needs privileges. So a pod has an
address in 10.128.0.0/9, and its processes listen on the corresponding one in 127.0.0.0/8, all loopback on Linux.
"""

from __future__ import annotations

import hashlib
import ipaddress
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import msgspec

from pykai.config import documents, fields
from pykai.config.fields import FieldError, converted, join_path, path_prefix
from pykai.kube.api import Fields, Object
from pykai.objects import names, units

HOST = "127.0.0.1"
"""The address of all hollow nodes: loopback."""
_PODS = ipaddress.ip_network("10.128.0.0/9")


def pod_ip(uid: str) -> str:
    """Return an address in 10.128.0.0/9 that depends only on the pod's uid."""
    high, middle, low = hashlib.sha256(uid.encode()).digest()[:3]
    return f"10.{128 + high % 128}.{middle}.{1 + low % 254}"


def on_this_machine(host: str) -> str:
    """Return the address to connect to for `host`: for a pod its loopback address, otherwise `host` itself."""
    try:
        is_pod = ipaddress.ip_address(host) in _PODS
    except ValueError:
        return host
    return f"127.{host.partition('.')[2]}" if is_pod else host


_NAMESPACE = uuid.UUID("5a5bb1f8-0d7e-5f6e-9a43-6a1f3c9d2b10")
_LONGEST_NAME = 63
"""The value of the hostname label."""
Amount = str | int | float


class GpuShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The GPUs of a node: physical devices, MiB per device, product name, and time slices per device."""

    count: int = 8
    memory_mib: int = msgspec.field(default=81559, name="memoryMiB")
    product: str = "NVIDIA-H100-80GB-HBM3"
    time_slices: int = 1

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield invalid fields and why; the product must be a valid label value."""
        given = {"count": self.count, "memoryMiB": self.memory_mib, "timeSlices": self.time_slices}
        yield from ((field, f"must be at least 1, not {value}") for field, value in given.items() if value < 1)
        yield from ((join_path("", path), message) for path, message in fields.labels({"product": self.product}, ""))


class NodeShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The shape of one hollow node. `gpus` None: no GPUs; `resources`: other extended resources."""

    name: str
    gpus: GpuShape | None = None
    cpu: Amount = "64"
    memory: Amount = "512Gi"
    pods: Annotated[int, msgspec.Meta(ge=0)] = 250
    labels: dict[str, str] = {}
    taints: list[Object] = []
    resources: dict[str, Amount] = {}


class HollowDevice(msgspec.Struct, frozen=True):
    """One schedulable GPU: a physical device, or the `slice`-th share of its time."""

    index: int
    uuid: str
    product: str
    memory_mib: int
    slice: int = 0


def shape_devices(shape: NodeShape) -> tuple[HollowDevice, ...]:
    """Return the devices of the node's device plugin; UUIDs depend only on the node's name and the device's index."""
    gpus = shape.gpus
    if gpus is None:
        return ()
    return tuple(
        HollowDevice(
            index, f"GPU-{uuid.uuid5(_NAMESPACE, f'{shape.name}/{index}')}", gpus.product, gpus.memory_mib, part
        )
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
    """Return the node's resources, all of which are allocatable."""
    own: dict[str, Amount] = {"cpu": shape.cpu, "memory": shape.memory, "ephemeral-storage": "1Ti", "pods": shape.pods}
    gpus = {names.NVIDIA_GPU: len(shape_devices(shape))} if shape.gpus else {}
    return {resource: str(amount) for resource, amount in (own | gpus | shape.resources).items()}


_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


_SHARES = (names.FRACTIONS_READY[0], "True", "Hollow", "a hollow node lets pods share its GPUs in every mode")


def node_conditions(now: str, gpus: bool) -> list[dict[str, str]]:
    """Return the conditions of a healthy node as of `now` (RFC 3339); one with GPUs is ready to share them."""
    keys = ("type", "status", "reason", "message")
    stamps = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return [dict(zip(keys, row, strict=True)) | stamps for row in (*_HEALTHY, *((_SHARES,) if gpus else ()))]


def node_object(shape: NodeShape, now: str, kubelet_port: int = 0) -> Object:
    """Return the Node as its kubelet registers it; `kubelet_port` 0: it serves no logs."""
    resources = allocatable(shape)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": shape.name, "labels": _labels(shape)},
        "spec": {"taints": shape.taints, "providerID": f"pykai://hollow/{shape.name}"},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": node_conditions(now, shape.gpus is not None),
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
    """Return `count` nodes of one shape, named NAME-0, NAME-1, ..."""
    return [msgspec.structs.replace(shape, name=f"{shape.name}-{number}") for number in range(count)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: list[Object]


def read_shapes(path: Path) -> list[NodeShape]:
    """Return the nodes that a YAML file describes, `count` of each (named NAME-0, ... if more than one).

    FieldError names the file and the invalid field.
    """
    text = documents.read_text(path)
    with path_prefix(f"{path}: "):
        rows = converted(documents.read_one(text), _File).nodes
        shapes = [shape for number, row in enumerate(rows) for shape in _expand(row, f"nodes[{number}]")]
        for name, times in Counter(shape.name for shape in shapes).items():
            if times > 1:
                raise FieldError("nodes", f"name {name!r} is used twice")
        return shapes


def _expand(row: Object, place: str) -> list[NodeShape]:
    count = row.pop("count", 1)
    if type(count) is not int or count < 1:
        raise FieldError(f"{place}.count", f"expected a whole number of at least 1, got {count!r}")
    shape = converted(row, NodeShape, place)
    for path, message in _shape_problems(shape):
        raise FieldError(join_path(place, path), message)
    return [shape] if count == 1 else repeat(shape, count)


def _shape_problems(shape: NodeShape) -> Iterator[tuple[str, str]]:
    """Yield (path, message) for every field that an API server would reject."""
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


Amounts = dict[str, Fraction]


def amounts(resources: Fields | None) -> Amounts:
    """Return a resource list as exact amounts."""
    return {name: units.parse_quantity(text) for name, text in (resources or {}).items()}


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def _largest(parts: Iterable[Amounts]) -> Amounts:
    largest: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            largest[name] = max(largest.get(name, Fraction(0)), amount)
    return largest


def _of_container(container: Fields) -> Amounts:
    return amounts((container.get("resources") or {}).get("requests"))


def pod_requests(spec: Fields) -> Amounts:
    """Return the pod's effective request, plus one of `pods`.

    Sidecars (init containers that restart) run beside everything after them; other init containers run alone.
    """
    sidecars: list[Amounts] = []
    moments: list[Amounts] = []
    for container in spec.get("initContainers") or ():
        own = _of_container(container)
        if container.get("restartPolicy") == "Always":
            sidecars.append(own)
        else:
            moments.append(_sum([*sidecars, own]))
    moments.append(_sum([*sidecars, *map(_of_container, spec.get("containers") or ())]))
    return _sum([_largest(moments), amounts(spec.get("overhead")), {"pods": Fraction(1)}])


def node_requests(pod: Fields) -> Amounts:
    """Return the pod's requests without the extended resources that its resource claim satisfies."""
    claimed = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("requestMappings") or ()
    served = {mapping["resourceName"] for mapping in claimed}
    return {name: amount for name, amount in pod_requests(pod["spec"]).items() if name not in served}


class RefusalError(Exception):
    """The kubelet rejects the pod; `reason` is the reason in the pod's status, the text its message."""

    def __init__(self, resource: str, requested: Fraction, used: Fraction, capacity: Fraction) -> None:
        scale = 1000 if resource == "cpu" else 1
        asked, held, there = (int(value * scale) for value in (requested, used, capacity))
        super().__init__(
            f"Node didn't have enough resource: {resource}, requested: {asked}, used: {held}, capacity: {there}"
        )
        self.reason = f"OutOf{resource}"


@dataclass(frozen=True, slots=True)
class Holding:
    """The resources and devices of one pod."""

    requests: Amounts
    devices: tuple[HollowDevice, ...]


class NodeLedger:
    """The resources and devices of one node and the pods (by uid) that hold them."""

    def __init__(self, devices: Sequence[HollowDevice], allocatable: Fields) -> None:
        self._devices = tuple(devices)
        self._holdings: dict[str, Holding] = {}
        self.resize(allocatable)

    def resize(self, allocatable: Fields) -> None:
        """Set allocatable to that of the Node object; admitted pods stay."""
        self._capacity = amounts(allocatable)

    def used(self) -> Amounts:
        """Return the resources that all admitted pods hold."""
        return _sum(holding.requests for holding in self._holdings.values())

    def admit(self, uid: str, requests: Amounts, prefer: str = "") -> tuple[HollowDevice, ...]:
        """Admit a pod and return its devices. `prefer`: UUID of its former device. RefusalError if it does not fit."""
        if uid not in self._holdings:
            used = self.used()
            for resource, requested in requests.items():
                held, capacity = used.get(resource, Fraction(0)), self._capacity.get(resource, Fraction(0))
                if requested > 0 and held + requested > capacity:
                    raise RefusalError(resource, requested, held, capacity)
            taken = {device for holding in self._holdings.values() for device in holding.devices}
            free = [device for device in self._devices if device not in taken]
            gpus = requests.get(names.NVIDIA_GPU, Fraction(0))
            if gpus > len(free):
                raise RefusalError(names.NVIDIA_GPU, gpus, Fraction(len(taken)), Fraction(len(self._devices)))
            chosen = sorted(free, key=lambda device: device.uuid != prefer)[: int(gpus)]
            self._holdings[uid] = Holding(requests, tuple(chosen))
        return self._holdings[uid].devices

    def devices_of(self, uid: str) -> tuple[HollowDevice, ...]:
        """Return the devices an admitted pod holds; none for any other pod."""
        holding = self._holdings.get(uid)
        return holding.devices if holding else ()

    def release(self, uid: str) -> None:
        """Release the resources and devices of the pod, if it has any."""
        self._holdings.pop(uid, None)


class NVMLError(Exception):
    """A call of the library failed; the message has the reason."""


class FakeNvml:
    """NVML for the devices that are visible to a container, by index; slices of one device count as one."""

    NVMLError = NVMLError

    def __init__(self, devices: Iterable[HollowDevice]) -> None:
        physical = {device.uuid: device for device in sorted(devices, key=lambda device: device.index)}
        self._devices = tuple(physical.values())
        self._open = False

    def nvmlInit(self) -> None:  # noqa: N802 - the binding's name
        """Open the library; every other call needs it."""
        self._open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Close the library."""
        self._open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """Return the number of devices visible to the container."""
        self._require_open()
        return len(self._devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> HollowDevice:  # noqa: N802
        """Return a device by its index among the visible ones."""
        self._require_open()
        if not 0 <= index < len(self._devices):
            raise NVMLError("Invalid Argument")
        return self._devices[index]

    def nvmlDeviceGetUUID(self, handle: HollowDevice) -> str:  # noqa: N802
        """Return the UUID of a device."""
        self._require_open()
        return handle.uuid

    def nvmlDeviceGetName(self, handle: HollowDevice) -> str:  # noqa: N802
        """Return the product name of a device."""
        self._require_open()
        return handle.product

    def _require_open(self) -> None:
        if not self._open:
            raise NVMLError("Uninitialized")
