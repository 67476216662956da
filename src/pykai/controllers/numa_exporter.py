"""NUMA placement exporter: reports in an annotation on which NUMA nodes a kubelet placed a pod.

`placement` computes the annotation from the kubelet's response and the machine's CPUs; the exporter writes it. A poll
writes the changes since the last poll. The drift check compares with the API server and corrects annotations that other
clients changed or that were missed across a restart. An annotation is never removed: a pod's placement never changes.

The PodResources API of the kubelet is gRPC over a Unix socket: grpclib implements HTTP/2 and gRPC, protobuf decodes the
messages. They are declared here as a table of the fields that we read, with the field numbers of the API; protobuf
skips all others, so newer kubelets work too.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import structlog
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from msgspec import json

from pykai.kube.api import Api, Object, Patch, Selection
from pykai.kube.api_resources import POD
from pykai.kube.errors import ApiError, NotFound
from pykai.kube.informer_store import Key
from pykai.kube.workqueue import Pace, ReconcileLoop, RetryLater
from pykai.objects import kinds, names

METHOD: Final = "/v1.PodResourcesLister/List"
TIMEOUT_SECONDS = 10.0

_ONE, _MANY = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL, descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
_SCALARS = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
}
_MESSAGES: Final = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", 1, "PodResources", _MANY),),
    "PodResources": (
        ("name", 1, "string", _ONE),
        ("namespace", 2, "string", _ONE),
        ("containers", 3, "ContainerResources", _MANY),
    ),
    "ContainerResources": (
        ("devices", 2, "ContainerDevices", _MANY),
        ("cpu_ids", 3, "int64", _MANY),
        ("memory", 4, "ContainerMemory", _MANY),
    ),
    "ContainerDevices": (
        ("resource_name", 1, "string", _ONE),
        ("device_ids", 2, "string", _MANY),
        ("topology", 3, "TopologyInfo", _ONE),
    ),
    "ContainerMemory": (
        ("memory_type", 1, "string", _ONE),
        ("size", 2, "uint64", _ONE),
        ("topology", 3, "TopologyInfo", _ONE),
    ),
    "TopologyInfo": (("nodes", 1, "NUMANode", _MANY),),
    "NUMANode": (("id", 1, "int64", _ONE),),
}
"""Message -> fields as (name, number, type, cardinality)."""


def _message_classes() -> Object:
    """Return the classes of the messages."""
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package="v1", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, label in fields:
            if kind in _SCALARS:
                message.field.add(name=field, number=number, type=_SCALARS[kind], label=label)
            else:
                reference = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                message.field.add(name=field, number=number, type=reference, type_name=f".v1.{kind}", label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}")) for name in _MESSAGES}


MESSAGES: Final = _message_classes()


class KubeletError(RuntimeError):
    """The kubelet did not answer; the message states the reason."""


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices of one resource, with the NUMA nodes they are attached to."""

    resource: str
    count: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """A block of memory in bytes; `type` is `memory` or the name of a kind of huge pages."""

    type: str
    size: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PodResources:
    """The resources of a pod, all containers together; `cpus` are the ids of its exclusive CPUs."""

    namespace: str
    name: str
    devices: tuple[Devices, ...] = ()
    cpus: tuple[int, ...] = ()
    memory: tuple[Memory, ...] = ()


async def list_pod_resources(socket: str, timeout_seconds: float = TIMEOUT_SECONDS) -> list[PodResources]:
    """Return the resources of all pods of the node; raises KubeletError."""
    request, response = MESSAGES["ListPodResourcesRequest"], MESSAGES["ListPodResourcesResponse"]
    channel = Channel(path=socket)
    try:
        found = await UnaryUnaryMethod(channel, METHOD, request, response)(request(), timeout=timeout_seconds)
    except TimeoutError:
        raise KubeletError(f"{socket} gave no answer to {METHOD} in {timeout_seconds:g} s") from None
    except GRPCError as error:
        raise KubeletError(f"{socket} refused the call: {error.status.name}, {error.message}") from error
    except (DecodeError, OSError, ProtocolError, StreamTerminatedError) as error:
        raise KubeletError(f"{socket}: {error}") from error
    finally:
        channel.close()
    return [_pod(each) for each in found.pod_resources]


def _pod(pod: Any) -> PodResources:
    return PodResources(
        pod.namespace,
        pod.name,
        tuple(
            Devices(each.resource_name, len(each.device_ids), _nodes(each))
            for c in pod.containers
            for each in c.devices
        ),
        tuple(cpu for c in pod.containers for cpu in c.cpu_ids),
        tuple(Memory(each.memory_type, each.size, _nodes(each)) for c in pod.containers for each in c.memory),
    )


def _nodes(holder: Any) -> tuple[int, ...]:
    return tuple(node.id for node in holder.topology.nodes)


ListPods = Callable[[], Awaitable[list[PodResources]]]
Task = Literal["poll", "drift"]
_NODE = re.compile(r"node([0-9]+)")
_SPAN = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_PLAIN_MEMORY = frozenset({"", "memory"})
log = structlog.get_logger("numa-placement-exporter")


class TopologyError(RuntimeError):
    """The NUMA nodes of this machine are unknown."""


def parse_cpu_list(text: str) -> list[int]:
    """Return the ids in a list such as `0-3,8,12-13`; TopologyError for anything else."""
    found: list[int] = []
    for part in filter(None, (each.strip() for each in text.strip().split(","))):
        match = _SPAN.fullmatch(part)
        if match is None:
            raise TopologyError(f"{part!r} is not a range of CPUs")
        first = int(match[1])
        found += range(first, int(match[2] or first) + 1)
    return found


def numa_of_cpus(sysfs: Path) -> dict[int, int]:
    """Return the NUMA node of every CPU; TopologyError if there is none."""
    folder = sysfs / "devices/system/node"
    found: dict[int, int] = {}
    for path in folder.glob("node*/cpulist"):
        match = _NODE.fullmatch(path.parent.name)
        if match:
            found |= {cpu: int(match[1]) for cpu in parse_cpu_list(path.read_text())}
    if not found:
        raise TopologyError(f"no CPU of a NUMA node is listed below {folder}")
    return found


def placement(pod: PodResources, numa_of_cpu: Mapping[int, int]) -> str:
    """Return the value of the annotation; empty for a pod without pinned resources.

    Only resources on exactly one NUMA node count. Amounts are summed over containers; zones have the names of the
    node's NodeResourceTopology and are sorted, so that equal placements have equal texts.
    """
    zones: dict[int, Counter[str]] = {}
    for node, resource, amount in _pinned(pod, numa_of_cpu):
        zones.setdefault(node, Counter())[resource] += amount
    shown = sorted((f"node-{node}", amounts) for node, amounts in zones.items())
    entries = [
        {"zone": zone, "amount": {name: str(amounts[name]) for name in sorted(amounts)}} for zone, amounts in shown
    ]
    return json.encode(entries).decode() if entries else ""


def _pinned(pod: PodResources, numa_of_cpu: Mapping[int, int]) -> Iterable[tuple[int, str, int]]:
    """(NUMA node, resource, amount) of everything that is on one node."""
    for devices in pod.devices:
        if len(devices.nodes) == 1:
            yield devices.nodes[0], devices.resource, devices.count
    for block in pod.memory:
        if len(block.nodes) == 1:
            yield block.nodes[0], "memory" if block.type in _PLAIN_MEMORY else block.type, block.size
    for cpu in pod.cpus:
        if cpu in numa_of_cpu:
            yield numa_of_cpu[cpu], "cpu", 1


@dataclass(frozen=True)
class ExporterSettings:
    """The node, its CPUs by NUMA node, and the intervals in seconds; `drift_seconds` 0: never."""

    node: str
    numa_of_cpu: Mapping[int, int]
    poll_seconds: float = 1.0
    drift_seconds: float = 60.0


class Exporter:
    """The exporter of one node; `pods` lists the pods of the kubelet."""

    def __init__(self, api: Api, pods: ListPods, settings: ExporterSettings) -> None:
        self._api = api
        self._pods = pods
        self._settings = settings
        self._written: dict[Key, str] = {}
        pace = Pace(1, min(1.0, settings.poll_seconds), max(30.0, settings.poll_seconds))
        self._loop: ReconcileLoop[Task] = ReconcileLoop("numa-placement-exporter", pace)

    async def run(self, ready: asyncio.Event) -> None:
        """Export until cancelled."""
        self._loop.add("poll")
        if self._settings.drift_seconds:
            self._loop.add_after("drift", self._settings.drift_seconds)
        ready.set()
        await self._loop.run(self._reconcile)

    async def _reconcile(self, task: Task) -> float:
        try:
            numa_of_cpu = self._settings.numa_of_cpu
            found = {(pod.namespace, pod.name): placement(pod, numa_of_cpu) for pod in await self._pods()}
        except KubeletError as error:
            raise RetryLater(str(error)) from error
        if task == "poll":
            await self.poll(found)
            return self._settings.poll_seconds
        await self.resync(found)
        return self._settings.drift_seconds

    async def poll(self, found: Mapping[Key, str]) -> None:
        """Write what differs from the last write, and forget deleted pods."""
        self._written = {key: value for key, value in self._written.items() if key in found}
        for key, value in found.items():
            if value and self._written.get(key) != value:
                await self._write(key, value)

    async def resync(self, found: Mapping[Key, str]) -> None:
        """Write what differs from the API server."""
        page = await self._api.list(POD, kinds.Pod, Selection(fields=f"spec.nodeName={self._settings.node}"))
        for pod in page.items:
            key = pod.metadata.key
            value = found.get(key, "")
            if value and (pod.metadata.annotations or {}).get(names.NUMA_OBSERVED) != value:
                await self._write(key, value)

    async def _write(self, key: Key, value: str) -> None:
        """Write one annotation; a failure does not affect other pods and is retried at the next poll."""
        body = {"metadata": {"annotations": {names.NUMA_OBSERVED: value}}}
        pod = f"{key[0]}/{key[1]}"
        try:
            await self._api.patch(POD.ref(key[1], key[0]), Patch.merge(body))
        except NotFound:
            return
        except ApiError as error:
            log.warning("placement not written", pod=pod, error=error.message)
            return
        self._written[key] = value
        log.info("placement written", pod=pod, placement=value)


def kubelet(socket: str) -> ListPods:
    """Return a function that lists the pods of the kubelet behind a PodResources socket."""
    return partial(list_pod_resources, socket)
