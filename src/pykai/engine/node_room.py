"""The node figures of feasibility bounds: idle plus releasing amounts, how many pods fit, which pods share a device.

They are kept from one search to the next and updated node by node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pykai.engine.node_facts import NodeFacts
from pykai.engine.trial import Trial
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column, Mask, Rows

_SLACK = 1e-9
_UNKNOWN = -2


def least_of(facts: NodeFacts, c: PodClass) -> Column:
    """Return the least that a pod of the class takes on any node, by resource."""
    need = facts.least(c)
    if c.memory_mib:
        need = need.copy()
        need[GPU] = c.devices * c.memory_mib / float(facts.trial.snapshot.nodes.gpu_memory.max())
    return need


def cumulated(groups: Rows, values: Column) -> Column:
    """For values one after the other: the sum of those of the same group so far."""
    order = np.argsort(groups, kind="stable")
    running = np.cumsum(values[order])
    first = np.flatnonzero(np.diff(groups[order], prepend=-2))
    sizes = np.diff(np.append(first, len(groups)))
    found = np.empty(len(groups))
    found[order] = running - np.repeat((running - values[order])[first], sizes)
    return found


class Fitting:
    """An upper bound of how many pods of some classes fit on each node, by the smallest request of each resource."""

    def __init__(self, facts: NodeFacts, classes: Iterable[PodClass]) -> None:
        self.need: Column = np.minimum.reduce([least_of(facts, c) for c in classes])
        self._dims = np.flatnonzero(self.need > 0)
        self._asked = self.need[self._dims][:, None]
        self.allowed: Mask = np.logical_or.reduce([facts.allowed(c) for c in classes])
        self.counts: Column = np.zeros(0)
        self.read = 0

    def fit(self, free: Column, nodes: Rows, more: Column | None = None) -> Column:
        """How many fit on some nodes, by what is free of each resource there and is added to it."""
        parts = free[self._dims[:, None], nodes]
        parts += _SLACK if more is None else more.take(self._dims, axis=0) + _SLACK
        parts /= self._asked
        counts = np.floor(np.minimum.reduce(parts, initial=np.inf))
        return np.asarray(np.where(self.allowed[nodes], np.maximum(counts, 0.0), 0.0))

    def catch_up(self, free: Column, changed: Sequence[int]) -> None:
        """Count again on nodes that changed since the last call; on all nodes in the first call."""
        nodes = np.arange(free.shape[1]) if not len(self.counts) else np.array(changed[self.read :], dtype=np.int64)
        if not len(self.counts):
            self.counts = self.fit(free, nodes)
        elif len(nodes):
            self.counts[nodes] = self.fit(free, nodes)
        self.read = len(changed)


class NodeRoom:
    """What every node has idle or releasing, for bounds; updated node by node when a bound is made."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._free = trial.idle + trial.releasing
        self._read = 0
        self._shared = set(trial.shares)
        self.devices = SharedDevices(trial)
        self._changed: list[int] = []
        self._known: dict[frozenset[int], Fitting] = {}
        self.one_domain: Rows = np.zeros(trial.idle.shape[1], dtype=np.int64)

    def refreshed(self) -> Column:
        """[resource, node]: idle and being released, with what is left of shared devices; read only, and as it is now
        until the next bound is made."""
        trial = self._trial
        stale = {*trial.touched[self._read :], *self._shared}
        if stale:
            nodes = np.fromiter(stale, dtype=np.int64, count=len(stale))
            self._free[:, nodes] = trial.idle.take(nodes, axis=1) + trial.releasing.take(nodes, axis=1)
            if trial.shares:
                self._free[GPU, nodes] += self.devices.spare()[nodes]
            self._changed.extend(stale)
        self._read = len(trial.touched)
        self._shared.clear()
        return self._free

    def of(self, classes: Mapping[int, PodClass], facts: NodeFacts) -> Fitting:
        """How many pods of some classes fit; worked out anew where what a class must find depends on more."""
        key = frozenset(classes)
        known = None if facts.reliefs else self._known.get(key)
        if known is None:
            known = self._known[key] = Fitting(facts, classes.values())
        known.catch_up(self._free, self._changed)
        return known


class SharedDevices:
    """Shares of devices as columns: the device of each pod, and what is free of it. Kept up to date node by node."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._numbers: dict[tuple[int, str], int] = {}
        self._of_node: dict[int, list[int]] = {}
        self.nodes: Rows = np.zeros(0, dtype=np.int64)
        """By device: its node."""
        self._read = 0
        self._free: Column = np.zeros(trial.idle.shape[1])
        self._held: Column = np.zeros(0)
        self._stale = set(trial.shares)
        self._device: Rows = np.full(len(trial.status), _UNKNOWN, dtype=np.int64)
        self._memory: Column = np.zeros(len(trial.status))
        self._moved = len(trial.moved)
        shared = [c.devices if c.shared else 0 for c in trial.snapshot.pods.classes]
        self.shared_by: Rows = np.array(shared, dtype=np.int64)[trial.snapshot.pods.klass]
        """By pod: of how many devices it takes shares; 0 where it takes whole ones or none. A reservation pod holds
        each of these devices, and leaves its slot with the last share."""

    def spare(self) -> Column:
        """By node: what is left of its shared devices, in devices, counting what is being released."""
        self._refresh()
        return self._free

    def held(self) -> Column:
        """By device: the memory of those that stay."""
        self._refresh()
        return self._held

    def _refresh(self) -> None:
        trial = self._trial
        self._stale.update(trial.touched[self._read :])
        self._read = len(trial.touched)
        for node in self._stale & trial.shares.keys():
            capacity, shares = trial.amounts.gpu_memory[node], trial.shares[node]
            free = sum(capacity - s.allocated + s.releasing for s in shares.values() if s.used > 0)
            self._free[node] = free / capacity
            self._held[self._of_node.get(node, [])] = 0.0
            for group, share in shares.items():
                number = self._number(node, group)
                self._held[number] = share.allocated - share.releasing
        self._stale.clear()

    def _number(self, node: int, group: str) -> int:
        number = self._numbers.get((node, group))
        if number is None:
            number = self._numbers[node, group] = len(self._numbers)
            self._of_node.setdefault(node, []).append(number)
            if number >= len(self._held):
                more = max(number, 64)
                self._held = np.append(self._held, np.zeros(more))
                self.nodes = np.append(self.nodes, np.zeros(more, dtype=np.int64))
            self.nodes[number] = node
        return number

    def numbers(self, pod: int, node: int) -> list[int]:
        """Return the numbers of the devices that a pod on a node has shares of."""
        return [self._number(node, group) for group in self._trial.gpu_groups.get(pod, ())]

    def of(self, pods: Rows, nodes: Rows) -> tuple[Rows, Column]:
        """By pod: the number of the device it has a share of, -1 where it has none or several; and its memory there."""
        trial = self._trial
        self._device[trial.moved[self._moved :]] = _UNKNOWN
        self._moved = len(trial.moved)
        for at in np.flatnonzero(self._device[pods] == _UNKNOWN).tolist():
            self._note(int(pods[at]), int(nodes[at]))
        return self._device[pods], self._memory[pods]

    def _note(self, pod: int, node: int) -> None:
        trial, groups = self._trial, self._trial.gpu_groups.get(pod, ())
        alone = len(groups) == 1 and trial.amounts.shared[trial.klass[pod]]
        self._device[pod] = self._number(node, groups[0]) if alone else -1
        self._memory[pod] = trial.share_memory(trial.of_class(pod), node) if alone else 0.0
