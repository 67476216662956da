"""Client of the kubelet's PodResources API (gRPC over a Unix socket): the resources that each pod was given.

grpclib speaks HTTP/2 and gRPC, protobuf reads the messages. They are declared here as a table of the fields that we
read, with the numbers of the API; protobuf skips all others, so that newer kubelets are understood too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

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


def _declared() -> dict[str, Any]:
    """The classes of the messages."""
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


MESSAGES: Final = _declared()


class KubeletError(RuntimeError):
    """The kubelet did not answer; the text gives the reason."""


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
    """The resources of all pods of the node; raises PodResourcesError."""
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
