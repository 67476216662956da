"""Which pod has which GPU. The scheduler gives out nodes and shares; the hollow kubelets here give out device numbers.

A device is held by one pod as a whole, or by the pods of one group, each with a portion. A pod for which no device is
left was placed wrongly: that is refused, whatever the scheduler's own books say.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pykai.model.plan import Bind, Key

ROUNDING = 0.01
"""Portions of memory requests come rounded up to hundredths."""


class NoDeviceError(RuntimeError):
    """A pod was bound to a node that has no device for it."""


@dataclass
class Device:
    """One GPU: portions by pod. `group` is empty where a pod has it as a whole, or nobody has it."""

    group: str = ""
    holders: dict[Key, float] = field(default_factory=dict)


@dataclass
class DeviceLedger:
    """The devices of every node, by number."""

    nodes: dict[str, list[Device]] = field(default_factory=dict)

    def add_node(self, name: str, devices: int) -> None:
        """A node came, or offers another number of devices than before."""
        known = self.nodes.setdefault(name, [])
        known.extend(Device() for _ in range(devices - len(known)))

    def take(self, bind: Bind) -> tuple[int, ...]:
        """Give a pod its devices and return their numbers, in order."""
        numbers = [self._shared(bind, group) for group in bind.gpu_groups] or self._whole(bind)
        return tuple(numbers)

    def _whole(self, bind: Bind) -> list[int]:
        if bind.resource_type != "Regular":
            return []
        free = [number for number, device in enumerate(self.nodes.get(bind.node, ())) if not device.holders]
        if len(free) < bind.devices:
            raise NoDeviceError(f"{'/'.join(bind.pod)} needs {bind.devices} GPUs on {bind.node}, {len(free)} are free")
        for number in free[: bind.devices]:
            self.nodes[bind.node][number].holders[bind.pod] = 1.0
        return free[: bind.devices]

    def _shared(self, bind: Bind, group: str) -> int:
        devices = self.nodes.get(bind.node, [])
        joined = [number for number, device in enumerate(devices) if device.holders and device.group == group]
        number = next(iter(joined or [n for n, device in enumerate(devices) if not device.holders]), None)
        if number is None or not _has_room(devices[number], bind.portion):
            who = "/".join(bind.pod)
            raise NoDeviceError(f"{who} needs {bind.portion:g} of GPU {group} on {bind.node}, which is full")
        devices[number].group = group
        devices[number].holders[bind.pod] = bind.portion
        return number

    def release(self, node: str, pod: Key) -> None:
        """A pod has left its devices."""
        for device in self.nodes.get(node, ()):
            if device.holders.pop(pod, None) is not None and not device.holders:
                device.group = ""


def _has_room(device: Device, portion: float) -> bool:
    used = [*device.holders.values(), portion]
    return sum(used) <= 1.0 + ROUNDING * len(used)
