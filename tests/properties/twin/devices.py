"""§4 Node accounting: what of a node is idle, what is being released, and who shares which device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pykai.model.resources import GPU
from pykai.model.status import Status

PARTS_OF_STATUS = {Status.RELEASING: "releasing", Status.PIPELINED: "pipelined"}
"""How a status is charged; all others that sit on nodes are charged as "other"."""


@dataclass(frozen=True)
class Device:
    """A shared device, in MiB: UsedMem, AllocMem, RelMem, the mark, and whether it is known in AllocMem."""

    used: float = 0.0
    allocated: float = 0.0
    releasing: float = 0.0
    marked: bool = False
    known: bool = False

    @property
    def promised(self) -> bool:
        """Our rule: a device whose sharers all wait is none in use, but one of those to be released."""
        return self.used > 0 and self.allocated <= 0

    def matches(self, capacity: float, memory: float) -> bool:
        """Whether a request fits beside those who stay."""
        room = capacity - self.allocated + self.releasing - memory
        return self.used != 0 and self.allocated != self.releasing and room >= 0

    def enough_idle(self, capacity: float, memory: float) -> bool:
        return self.known and capacity - self.allocated - memory >= 0


@dataclass
class NodeFigures:
    """Idle and Releasing by resource, whole GPUs in use, and the shared devices by group."""

    gpus: float
    idle: list[float]
    releasing: list[float]
    used_gpus: float = 0.0
    devices: dict[str, Device] = field(default_factory=dict)

    def copy(self) -> NodeFigures:
        return NodeFigures(self.gpus, self.idle[:], self.releasing[:], self.used_gpus, dict(self.devices))

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
        self.used_gpus += sign * amounts[GPU]
        for resource, amount in enumerate(amounts):
            if status is not Status.PIPELINED:
                self.idle[resource] -= sign * amount
            if status is Status.RELEASING:
                self.releasing[resource] += sign * amount
            elif status is Status.PIPELINED:
                self.releasing[resource] -= sign * amount

    def share(self, group: str, memory: float, status: Status, sign: int) -> None:
        """The same for a share of a device."""
        device = self.devices.get(group, Device())
        part = PARTS_OF_STATUS.get(status, "other")
        change = {
            ("releasing", 1): self._add_releasing,
            ("pipelined", 1): self._add_pipelined,
            ("other", 1): self._add_other,
            ("releasing", -1): self._remove_releasing,
            ("pipelined", -1): self._remove_pipelined,
            ("other", -1): self._remove_other,
        }[part, sign]
        change(group, replace(device, used=device.used + sign * memory), memory)

    @property
    def _overcounted(self) -> bool:
        """gpusOnNode < int(Idle.gpu) + usedGPUs"""
        shared = sum(device.used > 0 for device in self.devices.values())
        return self.gpus < int(self.idle[GPU]) + int(self.used_gpus) + shared

    def _add_releasing(self, group: str, d: Device, m: float) -> None:
        after = replace(d, releasing=d.releasing + m, allocated=d.allocated + m, known=True)
        self.devices[group] = after
        if after.used == after.releasing:
            if not after.marked:
                self.releasing[GPU] += 1
                self.devices[group] = replace(after, marked=True)
            if self._overcounted:
                self.idle[GPU] -= 1

    def _add_pipelined(self, group: str, d: Device, m: float) -> None:
        self.devices[group] = replace(d, releasing=d.releasing - m)
        if d.used - m == d.releasing:
            self.releasing[GPU] -= 1

    def _add_other(self, group: str, d: Device, m: float) -> None:
        was_promised = replace(d, used=d.used - m).promised
        self.devices[group] = replace(d, allocated=d.allocated + m, known=True, marked=False)
        if was_promised:
            self.idle[GPU] -= 1
            self.releasing[GPU] += 1
        elif d.used <= m and self._overcounted:
            self.idle[GPU] -= 1
        if d.marked:
            self.releasing[GPU] -= 1

    def _remove_releasing(self, group: str, d: Device, m: float) -> None:
        free = d.used <= 0
        self.devices[group] = replace(
            d, releasing=d.releasing - m, allocated=d.allocated - m, marked=d.marked and not free
        )
        if free:
            if not self._overcounted:
                self.idle[GPU] += 1
            if d.marked:
                self.releasing[GPU] -= 1

    def _remove_pipelined(self, group: str, d: Device, m: float) -> None:
        after = self.devices[group] = replace(d, releasing=d.releasing + m)
        if d.used + m == d.releasing or (after.used == 0 and after.releasing == 0):
            self.releasing[GPU] += 1

    def _remove_other(self, group: str, d: Device, m: float) -> None:
        after = self.devices[group] = replace(d, allocated=d.allocated - m)
        if after.promised:
            self.idle[GPU] += 1
            self.releasing[GPU] -= 1
        elif after.used <= 0 and not self._overcounted:
            self.idle[GPU] += 1
        if after.used != 0 and after.releasing == after.used and not after.marked:
            self.releasing[GPU] += 1
            self.devices[group] = replace(after, marked=True)
