"""§4 Node accounting: what of a node is idle, what is being released, and who shares which device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pykai.model.resources import GPU
from pykai.model.status import Status


@dataclass(frozen=True)
class Device:
    """A shared device: who shares it, with which status and how much memory (MiB), and whether it is known in AllocMem,
    as somebody had it."""

    sharers: tuple[tuple[Status, float], ...] = ()
    known: bool = False
    mode: int | None = None
    """Compute mode of those who share it; None before somebody does."""

    def _memory(self, *statuses: Status) -> float:
        return sum(memory for status, memory in self.sharers if status in statuses)

    @property
    def used(self) -> float:
        """UsedMem"""
        return sum(memory for _, memory in self.sharers)

    @property
    def allocated(self) -> float:
        """AllocMem"""
        return self.used - self._memory(Status.PIPELINED)

    @property
    def releasing(self) -> float:
        """RelMem"""
        return self._memory(Status.RELEASING) - self._memory(Status.PIPELINED)

    @property
    def promised(self) -> bool:
        """Our rule: a device whose sharers all wait is none in use, but one of those to be released."""
        return self.used > 0 and self.allocated <= 0

    @property
    def given_up(self) -> bool:
        """Whether all leave who share it, and nobody waits for it."""
        return self.used > 0 and self.used == self.releasing

    def matches(self, capacity: float, memory: float, mode: int) -> bool:
        """Whether a request fits beside those who stay, and shares the processors as they do."""
        room = capacity - self.allocated + self.releasing - memory
        return self.mode == mode and self.used != 0 and self.allocated != self.releasing and room >= 0

    def enough_idle(self, capacity: float, memory: float) -> bool:
        return self.known and capacity - self.allocated - memory >= 0


@dataclass
class NodeFigures:
    """Idle and Releasing by resource, and the shared devices by group."""

    idle: list[float]
    releasing: list[float]
    devices: dict[str, Device] = field(default_factory=dict)

    def copy(self) -> NodeFigures:
        return NodeFigures(self.idle[:], self.releasing[:], dict(self.devices))

    def free(self, resource: int) -> float:
        return self.idle[resource] + self.releasing[resource]

    def free_gpus(self, capacity: float) -> float:
        """Idle and releasing, with the room that those leave who stay on shared devices of this capacity."""
        shared = [d for d in self.devices.values() if d.used > 0]
        return self.free(GPU) + sum((capacity - d.allocated + d.releasing) / capacity for d in shared)

    def free_portions(self, capacity: float) -> float:
        """What those leave who stay on shared devices, of which none is about to be free altogether."""
        shared = [d for d in self.devices.values() if d.used > 0 and d.allocated != d.releasing]
        return sum((capacity - d.allocated + d.releasing) / capacity for d in shared)

    def charge(self, amounts: Sequence[float], status: Status, sign: int) -> None:
        """addTask (+1) or removeTask (-1), shared devices left out."""
        for resource, amount in enumerate(amounts):
            if status is not Status.PIPELINED:
                self.idle[resource] -= sign * amount
            if status is Status.RELEASING:
                self.releasing[resource] += sign * amount
            elif status is Status.PIPELINED:
                self.releasing[resource] -= sign * amount

    def share(self, group: str, share: tuple[float, int], status: Status, sign: int) -> None:
        """The same for a share of a device.

        Our rule: what that does to Idle and Releasing follows from who shares which device now. By the letter it also
        depends on who came and went before, and a device that was given up while somebody waited for it may get lost.
        """
        memory, mode = share
        in_use, given_up = self._whole_devices()
        device = self.devices.get(group, Device())
        sharers = list(device.sharers)
        if sign > 0:
            sharers.append((status, memory))
        else:
            sharers.remove((status, memory))
        known = device.known or (sign > 0 and status is not Status.PIPELINED)
        self.devices[group] = Device(tuple(sharers), known, mode if device.mode is None else device.mode)
        in_use_now, given_up_now = self._whole_devices()
        self.idle[GPU] -= in_use_now - in_use
        self.releasing[GPU] += given_up_now - given_up

    def _whole_devices(self) -> tuple[int, int]:
        """How many are in use, and how many are given up, less those that are only promised."""
        devices = self.devices.values()
        in_use = sum(device.used > 0 and not device.promised for device in devices)
        return in_use, sum(device.given_up for device in devices) - sum(device.promised for device in devices)
