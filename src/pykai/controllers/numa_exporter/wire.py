"""The kubelet's answer in protocol buffers (`v1.ListPodResourcesResponse`), read field by field.

Only the fields we use are looked at, by their numbers; all others are skipped, so newer kubelets can be read too.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykai.controllers.numa_exporter.placement import Devices, Memory, PodResources

Value = int | bytes
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIGN = 1 << 63


class WireError(ValueError):
    """The bytes are not the message that was expected."""


def pods_in(message: bytes) -> list[PodResources]:
    """The pods of a ListPodResourcesResponse."""
    return [_pod(_bytes(value)) for number, value in fields(message) if number == 1]


def _pod(message: bytes) -> PodResources:
    name = namespace = ""
    devices: list[Devices] = []
    cpus: list[int] = []
    memory: list[Memory] = []
    for number, value in fields(message):
        if number == 1:
            name = _bytes(value).decode()
        elif number == 2:
            namespace = _bytes(value).decode()
        elif number == 3:
            for inner, part in fields(_bytes(value)):
                if inner == 2:
                    devices.append(_devices(_bytes(part)))
                elif inner == 3:
                    cpus += _numbers(part)
                elif inner == 4:
                    memory.append(_memory(_bytes(part)))
    return PodResources(namespace, name, tuple(devices), tuple(cpus), tuple(memory))


def _devices(message: bytes) -> Devices:
    found = list(fields(message))
    resource = next((_bytes(value).decode() for number, value in found if number == 1), "")
    count = sum(1 for number, _ in found if number == 2)
    return Devices(resource, count, _nodes(found))


def _memory(message: bytes) -> Memory:
    found = list(fields(message))
    kind = next((_bytes(value).decode() for number, value in found if number == 1), "")
    size = next((value for number, value in found if number == 2 and isinstance(value, int)), 0)
    return Memory(kind, size, _nodes(found))


def _nodes(found: list[tuple[int, Value]]) -> tuple[int, ...]:
    """The NUMA nodes of a TopologyInfo in field 3; one whose id is left out is node 0."""
    nodes: list[int] = []
    for number, value in found:
        if number == 3:
            for inner, node in fields(_bytes(value)):
                if inner == 1:
                    ids = [part for place, part in fields(_bytes(node)) if place == 1 and isinstance(part, int)]
                    nodes.append(_signed(ids[-1]) if ids else 0)
    return tuple(nodes)


def _numbers(value: Value) -> list[int]:
    """A repeated number: one, or many packed together."""
    if isinstance(value, int):
        return [_signed(value)]
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(_signed(number))
    return found


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= _SIGN else number


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise WireError("a number stands where a message was expected")
    return value


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """(number, value) of every field of a message, in order."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if kind not in (_FIXED64, _BYTES, _FIXED32):
            raise WireError(f"wire type {kind} is not known")
        size, at = _varint(message, at) if kind == _BYTES else (8 if kind == _FIXED64 else 4, at)
        if at + size > len(message):
            raise WireError("the message is cut short")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise WireError("a number is cut short or too long")
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return number, at
