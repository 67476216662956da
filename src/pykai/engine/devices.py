"""Shared GPUs: which pods hold how much memory of which device (docs/concepts/gpu-sharing.md).

A shared device is a *group*; the binder's reservation pod is named after its id. All amounts are MiB of device memory.
What a device takes of a node's idle and releasing GPUs depends only on the pods that share it now, not on the order in
which they came and left (`whole_device`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pykai.engine.journal import Journal
from pykai.model.pods import PodTable
from pykai.model.resources import GPU, PODS, Column
from pykai.model.status import Status

_PIPELINED, _RELEASING = int(Status.PIPELINED), int(Status.RELEASING)


class Share(NamedTuple):
    """The state of one shared device."""

    used: float = 0.0
    allocated: float = 0.0
    releasing: float = 0.0
    met: bool = False
    """Whether some pod has held the device in this cycle without waiting for it."""
    mode: int = 0
    """The compute mode of its pods; pods of another mode may not share it."""

    def holds_now(self, memory: float, capacity: float) -> bool:
        """Whether a request fits without waiting; False for a device that only pipelined pods have shared."""
        return self.met and capacity - self.allocated - memory >= 0


EMPTY = Share()


Shares = dict[str, Share]
"""Group id -> state of the shared devices of one node."""


def with_room(shares: Shares, memory: float, capacity: float, mode: int | None = None) -> list[tuple[str, Share]]:
    """Return the shared devices on which a request fits beside the pods that stay, counting releasing memory as free.
    `mode` None: of any compute mode."""
    return [
        (group, share)
        for group, share in shares.items()
        if share[0] != 0
        and share[1] != share[2]
        and capacity - share[1] + share[2] - memory >= 0
        and (mode is None or share[4] == mode)
    ]


def rooms(shares: Shares, capacity: float, mode: int) -> list[float]:
    """Return the largest request that fits on each device by the rule of `with_room`, ascending."""
    left = [
        capacity - share[1] + share[2]
        for share in shares.values()
        if share[0] != 0 and share[1] != share[2] and share[4] == mode
    ]
    return sorted(left)


def free_portions(shares: Shares, capacity: float) -> float:
    """Return what is left of shared devices, in devices of this capacity; releasing memory counts as free."""
    return sum(capacity - share[1] + share[2] for _, share in with_room(shares, 0.0, capacity)) / capacity


class DeviceLedger:
    """The shared devices of all nodes, and the GPUs and pod slots that they take from the trial's idle and releasing
    columns. Every change goes through the trial's journal.
    """

    def __init__(self, journal: Journal, columns: tuple[Column, Column], pods: PodTable) -> None:
        self.journal = journal
        self.idle, self.releasing = columns
        self._named_groups = {group for groups in pods.gpu_groups.values() for group in groups}
        """Devices that were shared before this cycle: their reservation pods are pods of the snapshot."""
        self._reserved: set[tuple[int, str]] = set()
        """Nodes and devices with a reservation pod, which leaves with the last pod that shares the device."""
        self._modes = pods.group_modes
        self.shares: dict[int, Shares] = {}

    def settle(self, reserved: Iterable[tuple[int, str]]) -> None:
        """Set the nodes and devices with reservation pods, after all shares of the snapshot are charged."""
        self._reserved = set(reserved)
        for node, group in self._reserved:
            if not _stays(self.shares.get(node, {}).get(group, EMPTY)):
                self.releasing[PODS, node] += 1

    def change(self, node: int, groups: Iterable[str], share: tuple[float, int], how: tuple[int, int]) -> None:
        """Charge (+1) or return (-1) a share on each device, (MiB, compute mode), for a pod of the given status."""
        memory, mode = share
        for group in groups:
            before = self.shares.get(node, {}).get(group, EMPTY)
            if before is EMPTY and (mode or self._modes):
                before = Share(mode=self._modes.get((node, group), mode))
            self._put(node, group, before, _changed(before, memory, how))

    def unreserved(self, node: int, own: Iterable[str], chosen: Sequence[str]) -> int:
        """Return how many of the pod's `own` devices among `chosen` need a new slot for a reservation pod."""
        return len([group for group in own if group in chosen and self._given_back(node, group)])

    def _given_back(self, node: int, group: str) -> bool:
        """Whether the slot of the reservation pod counts as free while no pod stays on the device."""
        return group not in self._named_groups or (node, group) in self._reserved

    def fresh_name(self, number: int) -> tuple[str, int]:
        """Return a name for a device that no pod shares yet, and its number: the first free one above `number`."""
        number += 1
        while f"new-{number}" in self._named_groups:
            number += 1
        return f"new-{number}", number

    def _put(self, node: int, group: str, before: Share, after: Share) -> None:
        shares = self.shares.get(node)
        if shares is None:
            shares = {}
            self.journal.put_new(self.shares, node, shares)
        self.journal.put_new(shares, group, after)
        if before.allocated > 0 < after.allocated and not before.releasing and not after.releasing:
            return  # a device in use before and after: the node has as many as before
        was, now = self._of_node(node, group, before), self._of_node(node, group, after)
        for block, (gpus, slots), (gpus_now, slots_now) in zip((self.idle, self.releasing), was, now, strict=True):
            if gpus != gpus_now or slots != slots_now:
                self.journal.column(block, node)
                block[GPU, node] += gpus_now - gpus
                block[PODS, node] += slots_now - slots

    def _of_node(self, node: int, group: str, share: Share) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return what a device adds to the idle and to the releasing (GPUs, pod slots) of its node. The slots are for
        its reservation pod, which exists while a pod stays on the device, and is new if no pod shared it before."""
        (idle, releasing), stays = whole_device(share), _stays(share)
        if group not in self._named_groups and stays:
            return ((idle, 0.0), (releasing, -1.0)) if only_promised(share) else ((idle, -1.0), (releasing, 0.0))
        return (idle, 0.0), (releasing, 1.0 if not stays and (node, group) in self._reserved else 0.0)


def _changed(s: Share, memory: float, how: tuple[int, int]) -> Share:
    status, sign = how
    more = memory * sign
    if status == _PIPELINED:
        return Share(s.used + more, s.allocated, s.releasing - more, s.met, s.mode)
    releasing = s.releasing + more if status == _RELEASING else s.releasing
    return Share(s.used + more, s.allocated + more, releasing, s.met or sign > 0, s.mode)


def whole_device(share: Share) -> tuple[float, float]:
    """Return what a device adds to the idle and to the releasing GPUs of its node: (-1, 0) if a pod stays on it,
    (-1, 1) if all its pods leave, (0, -1) if all are pipelined, (0, 0) if it has none."""
    if share.used <= 0:
        return 0.0, 0.0
    if share.allocated <= 0:
        return 0.0, -1.0
    return -1.0, 1.0 if share.used == share.releasing else 0.0


def _stays(share: Share) -> bool:
    """Whether a pod that is not leaving shares a device."""
    return share.used > 0 and share.used != share.releasing


def only_promised(share: Share) -> bool:
    """Whether all pods of a device are pipelined: it is not in use yet, but takes one of the releasing devices."""
    return share.used > 0 and share.allocated <= 0
