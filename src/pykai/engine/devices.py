"""Shared GPUs: who holds how much memory of which device (spec/scheduling.md §4).

A device that is shared is a *group*; its id is what the binder's reservation pod is named after. All amounts are MiB
of device memory. A group that is only being released counts as a releasing whole device (`marked`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pykai.engine.journal import Journal
from pykai.model.resources import GPU, PODS, Column
from pykai.model.status import Status

_PIPELINED, _RELEASING = int(Status.PIPELINED), int(Status.RELEASING)


class Share(NamedTuple):
    """The state of one shared device."""

    used: float = 0.0
    allocated: float = 0.0
    releasing: float = 0.0
    marked: bool = False
    met: bool = False
    """Whether somebody had the device in this cycle, or was given it at once: it exists now, whoever waits for it."""

    def holds_now(self, memory: float, capacity: float) -> bool:
        """Whether a request fits without waiting for a release; a device that was only ever promised is waited for."""
        return self.met and capacity - self.allocated - memory >= 0


EMPTY = Share()


Shares = dict[str, Share]
"""Group id -> state, of one node."""


def with_room(shares: Shares, memory: float, capacity: float) -> list[tuple[str, Share]]:
    """The devices on which a request fits beside what stays there, counting what is being released."""
    return [
        (group, share)
        for group, share in shares.items()
        if share[0] != 0 and share[1] != share[2] and capacity - share[1] + share[2] - memory >= 0
    ]


def rooms(shares: Shares, capacity: float) -> list[float]:
    """The largest request that would fit on each device, ascending: what `with_room` counts, for many requests."""
    left = [capacity - share[1] + share[2] for share in shares.values() if share[0] != 0 and share[1] != share[2]]
    return sorted(left)


NodeColumns = tuple[Column, Column, list[float]]
"""Idle and releasing [resource, node], and devices in whole use per node: the trial's own."""


class DeviceLedger:
    """The shared devices of all nodes, and the whole devices that follow: a device leaves the idle ones with its first
    sharer and is one of the releasing ones while only leavers hold it. Every change goes through the trial's journal.
    `offered`: devices per node that can be given out; the count in a node's label may include broken ones.
    """

    def __init__(self, journal: Journal, columns: NodeColumns, offered: Column, named: set[str]) -> None:
        self.journal = journal
        self.idle, self.releasing, self.used_gpus = columns
        self._offered = offered
        self._named_groups = named
        """Devices that were shared before this cycle: their reservation pods are pods of the snapshot."""
        self._reserved: set[tuple[int, str]] = set()
        """Nodes and devices with such a pod: it leaves with the last who shares the device."""
        self.shares: dict[int, Shares] = {}

    def settle(self, reserved: Iterable[tuple[int, str]]) -> None:
        """All who share devices in the snapshot are charged; these nodes and devices have reservation pods."""
        self._reserved = set(reserved)
        for node, group in self._reserved:
            if not _stays(self.shares.get(node, {}).get(group, EMPTY)):
                self.releasing[PODS, node] += 1

    def change(self, node: int, groups: Iterable[str], memory: float, how: tuple[int, int]) -> None:
        """Charge (+1) or return (-1) a share of `memory` MiB on each device, for a pod of the given status."""
        status, sign = how
        for group in groups:
            if sign > 0:
                self._add(node, group, memory, status)
            else:
                self._remove(node, group, memory, status)

    def unreserved(self, node: int, own: Iterable[str], chosen: Sequence[str]) -> int:
        """How many of somebody's own devices, if chosen again, need a slot for a reservation pod again."""
        return len([group for group in own if group in chosen and self._given_back(node, group)])

    def _given_back(self, node: int, group: str) -> bool:
        """Whether the slot of the reservation pod is free while nobody stays on the device."""
        return group not in self._named_groups or (node, group) in self._reserved

    def fresh_name(self, number: int) -> tuple[str, int]:
        """A name for a device nobody shares yet, and its number: the first free one above `number`."""
        number += 1
        while f"new-{number}" in self._named_groups:
            number += 1
        return f"new-{number}", number

    def _put(self, node: int, group: str, share: Share) -> None:
        if node not in self.shares:
            self.journal.put_new(self.shares, node, {})
        before = self.shares[node].get(group, EMPTY)
        if group not in self._named_groups:
            self._reserve(node, before, share)
        elif (node, group) in self._reserved and _stays(before) != _stays(share):
            self.journal.column(self.releasing, node)
            self.releasing[PODS, node] += 1.0 if _stays(before) else -1.0
        self.journal.put_new(self.shares[node], group, share)

    def _reserve(self, node: int, before: Share, after: Share) -> None:
        """A device that nobody shared before this cycle needs a pod that reserves it, from when it is needed."""
        was, now = self._reserved_from(before), self._reserved_from(after)
        if was is now:
            return
        for block, by in ((was, 1.0), (now, -1.0)):
            if block is not None:
                self.journal.column(block, node)
                block[PODS, node] += by

    def _reserved_from(self, share: Share) -> Column | None:
        """What the pod that reserves a device is taken from; None: nobody stays on the device."""
        if not _stays(share):
            return None
        return self.idle if share.allocated > 0 else self.releasing

    def _gpus(self, block: Column, node: int, by: float) -> None:
        self.journal.column(block, node)
        block[GPU, node] += by

    def _surplus(self, node: int) -> bool:
        """Whether idle and used devices add up to more than the node has."""
        held = len([1 for share in self.shares.get(node, {}).values() if share[0] > 0])
        used = int(self.used_gpus[node]) + held
        return bool(self._offered[node] < int(self.idle[GPU, node]) + used)

    def _add(self, node: int, group: str, m: float, status: int) -> None:
        s = self.shares.get(node, {}).get(group, EMPTY)
        used = s.used + m
        if status == _RELEASING:
            new = Share(used, s.allocated + m, s.releasing + m, s.marked, met=True)
            whole = new.used == new.releasing
            self._put(node, group, new._replace(marked=new.marked or whole))
            if whole:
                if not s.marked:
                    self._gpus(self.releasing, node, 1)
                if self._surplus(node):
                    self._gpus(self.idle, node, -1)
        elif status == _PIPELINED:
            self._put(node, group, Share(used, s.allocated, s.releasing - m, s.marked, s.met))
            if s.used == s.releasing:
                self._gpus(self.releasing, node, -1)
        else:
            self._put(node, group, Share(used, s.allocated + m, s.releasing, marked=False, met=True))
            if only_promised(s):
                self._gpus(self.idle, node, -1)
                self._gpus(self.releasing, node, 1)
            elif used <= m and self._surplus(node):
                self._gpus(self.idle, node, -1)
            if s.marked:
                self._gpus(self.releasing, node, -1)

    def _remove(self, node: int, group: str, m: float, status: int) -> None:
        s = self.shares.get(node, {}).get(group, EMPTY)
        used = s.used - m
        if status == _RELEASING:
            freed = used <= 0
            marked = s.marked and not freed
            self._put(node, group, Share(used, s.allocated - m, s.releasing - m, marked, s.met))
            if freed:
                if not self._surplus(node):
                    self._gpus(self.idle, node, 1)
                if s.marked:
                    self._gpus(self.releasing, node, -1)
        elif status == _PIPELINED:
            self._put(node, group, Share(used, s.allocated, s.releasing + m, s.marked, s.met))
            if s.used == s.releasing or (used == 0 and s.releasing + m == 0):
                self._gpus(self.releasing, node, 1)
        else:
            leaving = used != 0 and s.releasing == used
            self._put(node, group, Share(used, s.allocated - m, s.releasing, s.marked or leaving, s.met))
            if only_promised(self.shares[node][group]):
                self._gpus(self.idle, node, 1)
                self._gpus(self.releasing, node, -1)
            elif used <= 0 and not self._surplus(node):
                self._gpus(self.idle, node, 1)
            if leaving and not s.marked:
                self._gpus(self.releasing, node, 1)


def _stays(share: Share) -> bool:
    """Whether somebody shares a device who is not leaving."""
    return share.used > 0 and share.used != share.releasing


def only_promised(share: Share) -> bool:
    """Whether all who share a device wait for it: it is no device in use yet, but one of those to be released."""
    return share.used > 0 and share.allocated <= 0
