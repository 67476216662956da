"""Who holds what on one node: the kubelet's own accounting, which has the last word on every bound pod.

Invariants: the sum of what admitted pods hold never exceeds what the node has; a device (or a slice of one) is held by
at most one pod. A pod that would break either is refused, as a real kubelet does, whatever the scheduler thought.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pykai.hollow.shapes import Device
from pykai.objects import names, units

Amounts = dict[str, Fraction]


def amounts(resources: Mapping[str, Any] | None) -> Amounts:
    """A resource list as exact amounts."""
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


def _of_container(container: Mapping[str, Any]) -> Amounts:
    return amounts((container.get("resources") or {}).get("requests"))


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
    """What a pod needs at its busiest moment, plus one of `pods`.

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


class RefusalError(Exception):
    """The node cannot take the pod; `reason` is the word in the pod's status, the text its message."""

    def __init__(self, resource: str, requested: Fraction, used: Fraction, capacity: Fraction) -> None:
        scale = 1000 if resource == "cpu" else 1
        asked, held, there = (int(value * scale) for value in (requested, used, capacity))
        super().__init__(
            f"Node didn't have enough resource: {resource}, requested: {asked}, used: {held}, capacity: {there}"
        )
        self.reason = f"OutOf{resource}"


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod holds."""

    requests: Amounts
    devices: tuple[Device, ...]


class NodeLedger:
    """The resources and devices of one node and the pods (by uid) that hold them."""

    def __init__(self, devices: Sequence[Device], allocatable: Mapping[str, Any]) -> None:
        self._devices = tuple(devices)
        self._holdings: dict[str, Holding] = {}
        self.resize(allocatable)

    def resize(self, allocatable: Mapping[str, Any]) -> None:
        """Take over what the Node object says now; pods already admitted stay."""
        self._capacity = amounts(allocatable)

    def used(self) -> Amounts:
        """What all admitted pods hold."""
        return _sum(holding.requests for holding in self._holdings.values())

    def admit(self, uid: str, requests: Amounts, prefer: str = "") -> tuple[Device, ...]:
        """The devices the pod gets; `prefer` is the UUID of one it had before. RefusalError if it does not fit."""
        if uid not in self._holdings:
            self._refuse_shortage(requests)
            self._holdings[uid] = Holding(requests, self._choose(requests.get(names.NVIDIA_GPU, Fraction(0)), prefer))
        return self._holdings[uid].devices

    def devices_of(self, uid: str) -> tuple[Device, ...]:
        """The devices an admitted pod holds; none for any other pod."""
        holding = self._holdings.get(uid)
        return holding.devices if holding else ()

    def release(self, uid: str) -> None:
        """Take back all the pod holds; nothing happens if it holds nothing."""
        self._holdings.pop(uid, None)

    def _refuse_shortage(self, requests: Amounts) -> None:
        used = self.used()
        for resource, requested in requests.items():
            held, capacity = used.get(resource, Fraction(0)), self._capacity.get(resource, Fraction(0))
            if requested > 0 and held + requested > capacity:
                raise RefusalError(resource, requested, held, capacity)

    def _choose(self, wanted: Fraction, prefer: str) -> tuple[Device, ...]:
        taken = {device for holding in self._holdings.values() for device in holding.devices}
        free = [device for device in self._devices if device not in taken]
        if wanted > len(free):
            raise RefusalError(names.NVIDIA_GPU, wanted, Fraction(len(taken)), Fraction(len(self._devices)))
        return tuple(sorted(free, key=lambda device: device.uuid != prefer)[: int(wanted)])
