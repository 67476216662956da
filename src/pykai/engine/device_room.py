"""How many of some wanted pods the devices of each node could hold, as things are and as victims leave.

Amounts alone promise too much where devices are shared: eight devices that are half free count as four GPUs, but hold
no pod that wants a whole GPU, and none that wants 0.6 of one. Here every device counts by itself. What is said is an
upper bound: each of the pods is counted as if it asked for no more than the least of them does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from pykai.engine.node_facts import NodeFacts
from pykai.engine.node_room import SharedDevices, cumulated, least_of
from pykai.engine.trial import Trial
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column, Mask, Rows

_SLACK = 1e-9
_MOST_ALIKE = 16
"""The number of shares of one device that are distinguished by pod; where a device holds more, all are counted."""


@dataclass(frozen=True)
class Leaving:
    """Pods that go one after the other: where they are, whether each can go, and how many GPUs it frees."""

    pods: Rows
    nodes: Rows
    goes: Mask
    gpus: Column


@dataclass(frozen=True)
class DeviceNeed:
    """What each of `pods` wanted pods takes at least: so many different `devices`, and of each so much `memory`, which
    may depend on the node."""

    pods: int
    devices: float
    memory: Column

    @classmethod
    def of(cls, trial: Trial, facts: NodeFacts, wanted: Sequence[PodClass]) -> list[DeviceNeed]:
        """The need of the pods that share devices, and that of the pods that want whole ones, where there are any;
        `wanted` is the class of each pod. Pods that want no GPU, or partitions of some, are left out."""
        found, capacity = list[DeviceNeed](), np.maximum(trial.snapshot.nodes.gpu_memory, 1.0)
        shares = [c for c in wanted if c.shared]
        if shares:
            classes = {c.row: c for c in shares}.values()
            memory = np.minimum.reduce([trial.amounts.share_memories(c) for c in classes])
            found.append(cls(len(shares), min(c.devices for c in classes), memory))
        whole = [least for c in wanted if not c.shared and (least := float(least_of(facts, c)[GPU])) >= 1]
        return [*found, cls(len(whole), min(whole), capacity)] if whole else found


Bins = tuple[Column, Column, Rows]
"""Free parts of devices: how much of one, how many of them, and the group that each belongs to."""


class FreeDevices:
    """What is free of the devices of each node once some pods are gone, on the nodes within reach."""

    def __init__(self, trial: Trial, devices: SharedDevices, gone: Collection[int], reach: Mask) -> None:
        self._trial, self._devices, self._reach = trial, devices, reach
        self._capacity = np.maximum(trial.snapshot.nodes.gpu_memory, 1.0)
        free = np.floor(np.maximum(trial.idle[GPU] + trial.releasing[GPU], 0.0) + _SLACK)
        held = devices.held().copy()
        used = held > 0
        for pod in gone:
            if trial.of_class(pod).shared:
                memory = trial.share_memory(trial.of_class(pod), trial.node[pod])
                held[devices.numbers(pod, trial.node[pod])] -= memory
            else:
                free[trial.node[pod]] += trial.accepted_gpus(pod)
        emptied = used & (held <= _SLACK)
        free += np.bincount(devices.nodes[emptied], minlength=len(free))
        free[~reach] = 0.0
        self.whole: Column = free
        """By node: the number of unused devices."""
        self._held = held
        """By device: the memory that the pods have that stay."""
        self._shared = np.flatnonzero(used & ~emptied & reach[devices.nodes])
        """Devices of which a part is taken."""

    @property
    def parts(self) -> list[float]:
        """Of each device of which a part is taken, the part that is free."""
        nodes = self._devices.nodes[self._shared]
        return (1 - self._held[self._shared] / self._capacity[nodes]).tolist()  # type: ignore[no-any-return]

    def bins(self, groups: Rows) -> Bins:
        """The devices of which a part is taken, and the unused ones of each node; `groups`: by node."""
        parts, nodes = np.array(self.parts), self._devices.nodes[self._shared]
        room, times = np.append(parts, np.ones(len(self.whole))), np.append(np.ones(len(parts)), self.whole)
        return room, times, np.append(groups[nodes], groups)

    def places(self, need: DeviceNeed) -> Column:
        """By node: how many of the wanted pods could have devices."""
        slots = self._slots_by_node(need)
        if need.devices == 1:
            return slots
        found, most = np.zeros(len(slots)), min(int(self._on_whole(need).max(initial=1)), _MOST_ALIKE)
        for pods in range(1, most + 1):  # each of so many pods takes one slot of a device
            found[self._slots_by_node(need, pods) >= need.devices * pods] = pods
        return np.where(found == most, np.floor(slots / need.devices), found)

    def places_after(self, need: DeviceNeed, leaving: Leaving) -> Column:
        """By pod: how many of the wanted pods could have devices of its node once it and those before it are gone."""
        nodes, (pod, device, memory) = leaving.nodes, self._shares_of(leaving)
        left = self._held[device] - cumulated(device, memory)
        after, before = (self._slots(need, device, held) for held in (left, left + memory))
        whole = np.where(leaving.goes & (self._devices.shared_by[leaving.pods] == 0), np.ceil(leaving.gpus), 0.0)
        on_whole = self._on_whole(need)[nodes]
        more = np.bincount(pod, weights=after - before, minlength=len(nodes))
        slots = self._slots_by_node(need)[nodes] + cumulated(nodes, more + whole * on_whole)
        if need.devices == 1:
            return slots
        more = np.bincount(pod, weights=np.minimum(after, 1) - np.minimum(before, 1), minlength=len(nodes))
        open_devices = self._slots_by_node(need, 1)[nodes] + cumulated(nodes, more + whole * np.minimum(on_whole, 1))
        return np.where(open_devices >= need.devices, np.floor(slots / need.devices + _SLACK), 0.0)

    def _shares_of(self, leaving: Leaving) -> tuple[Rows, Rows, Column]:
        """The shares of devices that pods have, pod by pod: the position of the pod, the device, and the memory that
        it frees."""
        device, memory = self._devices.of(leaving.pods, leaving.nodes)
        several = np.flatnonzero((device < 0) & (self._devices.shared_by[leaving.pods] > 0)).tolist()
        alone = np.flatnonzero(device >= 0)
        found = [alone], [device[alone]], [np.where(leaving.goes[alone], memory[alone], 0.0)]
        for at in several:
            pod, node = int(leaving.pods[at]), int(leaving.nodes[at])
            numbers = self._devices.numbers(pod, node)
            freed = self._trial.share_memory(self._trial.of_class(pod), node) if leaving.goes[at] else 0.0
            for column, values in zip(found, ([at] * len(numbers), numbers, [freed] * len(numbers)), strict=True):
                column.append(np.array(values))
        positions, devices, amounts = (np.concatenate(column) for column in found)
        order = np.argsort(positions, kind="stable")
        return positions[order], devices[order], amounts[order]

    def _slots_by_node(self, need: DeviceNeed, most: float = np.inf) -> Column:
        """By node: how many times a free device, or a free part, has the memory that one pod takes of a device; each
        device counts so many times at most."""
        parts = np.minimum(self._slots(need, self._shared, self._held[self._shared]), most)
        on_parts = np.bincount(self._devices.nodes[self._shared], weights=parts, minlength=len(self.whole))
        return np.asarray(on_parts + self.whole * np.minimum(self._on_whole(need), most))

    def _slots(self, need: DeviceNeed, devices: Rows, held: Column) -> Column:
        """The same of some devices of which pods hold so much memory."""
        nodes = self._devices.nodes[devices]
        return np.asarray(np.floor((self._capacity[nodes] - held) / need.memory[nodes] + _SLACK))

    def _on_whole(self, need: DeviceNeed) -> Column:
        """By node: the same of an unused device."""
        return np.asarray(np.floor(self._capacity / need.memory + _SLACK))
