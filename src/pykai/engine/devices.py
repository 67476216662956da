"""Shared GPUs: which pods hold how much memory of which device (docs/concepts/gpu-sharing.md).

A device that is shared is a *group*; its id is what the binder's reservation pod is named after. All amounts are MiB
of device memory. What a device takes of a node's idle and releasing GPUs follows from who shares it now, whatever the
order in which they came and went (`whole_device`).
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
    """Whether a pod had the device in this cycle, or was given it at once: it exists now."""
    mode: int = 0
    """How those who share it share its processors; pods of another compute mode may not join."""

    def holds_now(self, memory: float, capacity: float) -> bool:
        """Whether a request fits without waiting for a release; a device that was only ever promised is waited for."""
        return self.met and capacity - self.allocated - memory >= 0


EMPTY = Share()


Shares = dict[str, Share]
"""Group id -> state, of one node."""


def with_room(shares: Shares, memory: float, capacity: float, mode: int | None = None) -> list[tuple[str, Share]]:
    """The devices on which a request fits beside what stays there, counting what is being released; None: in whatever
    compute mode."""
    return [
        (group, share)
        for group, share in shares.items()
        if share[0] != 0
        and share[1] != share[2]
        and capacity - share[1] + share[2] - memory >= 0
        and (mode is None or share[4] == mode)
    ]


def rooms(shares: Shares, capacity: float, mode: int) -> list[float]:
    """The largest request that would fit on each device, ascending: what `with_room` counts, for many requests."""
    left = [
        capacity - share[1] + share[2]
        for share in shares.values()
        if share[0] != 0 and share[1] != share[2] and share[4] == mode
    ]
    return sorted(left)


class DeviceLedger:
    """The shared devices of all nodes, and the whole devices and pod slots that follow, in the trial's columns of idle
    and releasing amounts. Every change goes through the trial's journal.
    """

    def __init__(self, journal: Journal, columns: tuple[Column, Column], pods: PodTable) -> None:
        self.journal = journal
        self.idle, self.releasing = columns
        self._named_groups = {group for groups in pods.gpu_groups.values() for group in groups}
        """Devices that were shared before this cycle: their reservation pods are pods of the snapshot."""
        self._reserved: set[tuple[int, str]] = set()
        """Nodes and devices with such a pod: it leaves with the last who shares the device."""
        self._modes = pods.group_modes
        self.shares: dict[int, Shares] = {}

    def settle(self, reserved: Iterable[tuple[int, str]]) -> None:
        """All who share devices in the snapshot are charged; these nodes and devices have reservation pods."""
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
        """How many of a pod's own devices, if chosen again, need a slot for a reservation pod again."""
        return len([group for group in own if group in chosen and self._given_back(node, group)])

    def _given_back(self, node: int, group: str) -> bool:
        """Whether the slot of the reservation pod is free while no pod stays on the device."""
        return group not in self._named_groups or (node, group) in self._reserved

    def fresh_name(self, number: int) -> tuple[str, int]:
        """A name for a device that no pod shares yet, and its number: the first free one above `number`."""
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
        """What a device adds to the idle and to the releasing (GPUs, pod slots) of its node: it needs a pod that
        reserves it as long as a pod stays; if none shared it before this cycle, the pod is still to be made."""
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
    """What a device adds to the idle and to the releasing GPUs of its node: it is idle until a pod has it, being
    released while only leavers have it, and one of those to be released while all who share it wait."""
    if share.used <= 0:
        return 0.0, 0.0
    if share.allocated <= 0:
        return 0.0, -1.0
    return -1.0, 1.0 if share.used == share.releasing else 0.0


def _stays(share: Share) -> bool:
    """Whether a pod that is not leaving shares a device."""
    return share.used > 0 and share.used != share.releasing


def only_promised(share: Share) -> bool:
    """Whether all who share a device wait for it: it is no device in use yet, but one of those to be released."""
    return share.used > 0 and share.allocated <= 0
