"""Packing bounds: whether pods that must come back, and the wanted ones, could find places together.

What is counted is necessary, not sufficient: places for all pods of at least a size, what sizes can fill of each device
or node, and at last a search for a packing that gives up early. What passes is left to a simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil, floor

import numpy as np

from pykai.engine.device_room import Bins, FreeDevices
from pykai.engine.node_room import Fitting, least_of
from pykai.engine.trial import Trial
from pykai.engine.victims import VictimPool
from pykai.model.resources import CPU, GPU, MEMORY, PODS, Column, Mask, Rows

_SLACK = 1e-9
_MIB = 2e-4
"""More than a MiB of a device, as a part of it, and what rounding to four digits adds."""
MOST_TRIES = 200
"""Of ways to put pods into free places; what is not refuted by then is left to a simulation."""
_TIGHT = 1.25
"""Where the free places hold more than this times the requests of all, nothing is tried."""
MOST_SUMS = 1000
"""So many sums of sizes are looked at to find out how full a place can get."""
MOST_KINDS = 16
"""The number of different requests that are distinguished; of more only the least counts."""

Freed = dict[int, Column]
"""What is freed, by node."""


class Repacking:
    """For some wanted pods: the free places, of nodes within reach, that they compete for with pods that come back."""

    def __init__(self, pool: VictimPool, wanted: Sequence[int], fitting: Fitting, within: tuple[Mask, Rows]) -> None:
        """`within`: by node whether it is in reach, and the domain that all wanted pods must share; -1 is none."""
        self.cycle = pool.cycle
        self._pool = pool
        self._wanted = wanted
        self._fitting = fitting
        self._reach, self._domains = within

    def possible(self, gone: Sequence[int], back: Sequence[int]) -> bool:
        """Whether without some pods, all that is counted allows places for the wanted ones and those that come back."""
        return self.has_devices(gone, back) and self._places(gone, back) and self._shortest(gone, back)

    # ---------------------------------------------------------------------------------------------------- by amounts
    def _places(self, gone: Sequence[int], back: Sequence[int]) -> bool:
        """Whether there are places enough for all that request at least as much as each of those that come back, and
        may be at no other nodes."""
        if not back:
            return True
        reach = self._reach
        free, need, wanted = self._free_without(gone)[:, reach], self._fitting.need, len(self._wanted)
        allowed = self._fitting.allowed[reach]
        if not self.cycle.counts_alike:
            free[GPU], need = np.inf, np.where(np.arange(len(need)) == GPU, 0.0, need)
        if wanted == 1:
            allowed = self._near(self._wanted[0], gone, self._fitting.allowed)[reach]
            takers = np.flatnonzero(allowed & (free >= need[:, None]).all(axis=0))
            if len(takers) == 1:
                free[:, takers] -= need[:, None]
                wanted = 0
            elif not len(takers):
                return False
        kinds, counts, nodes = self._kinds(gone, back)
        usable = (free >= np.minimum(need, kinds.min(axis=1))[:, None]).all(axis=0)
        if (np.where(usable, free, 0.0).sum(axis=1) + _SLACK < kinds @ counts + need * wanted).any():
            return False
        for kind, mask in zip(kinds.T, nodes[:, reach], strict=True):
            requested = np.flatnonzero(kind)
            if len(requested):
                rivals = (kinds >= kind[:, None]).all(axis=0) & ~(nodes[:, reach] & ~mask).any(axis=1)
                more = counts[rivals].sum() + wanted * bool((need >= kind).all() and not (allowed & ~mask).any())
                places = np.floor(np.maximum(free[requested][:, mask], 0.0) / kind[requested, None]).min(axis=0).sum()
                if places < more:
                    return False
        return True

    def _shortest(self, gone: Sequence[int], back: Sequence[int]) -> bool:
        """Whether all could be packed by the cores alone, or the memory alone, where little of it is left."""
        trial, pods = self.cycle.trial, [*self._wanted, *back]
        free = self._free_without(gone)[:, self._reach]
        for resource, unit in ((CPU, 1e3), (MEMORY, 2.0**30)):
            requested = [float(trial.of_class(pod).request[resource]) / unit for pod in pods]
            sizes = sorted([size for size in requested if size > 0], reverse=True)
            bins = np.maximum(free[resource], 0.0) / unit
            if sizes and sum(sizes) * _TIGHT > bins[bins >= sizes[-1]].sum() and not could_pack(sizes, bins):
                return False
        return True

    def _kinds(self, gone: Sequence[int], pods: Sequence[int]) -> tuple[Column, Rows, Mask]:
        """[resource, kind]: the different requests of pods, how many have each, and [kind, node] where they may be."""
        trial, (requests, by_memory) = self.cycle.trial, self._pool.class_requests
        rows, first, counts = np.unique([trial.klass[pod] for pod in pods], return_index=True, return_counts=True)
        kinds = requests.take(rows, axis=1)
        kinds[GPU, by_memory[rows]] = 0.0  # differs from node to node: `has_devices` looks at it
        if not self.cycle.counts_alike:
            kinds[GPU] = 0.0
        if len(rows) > MOST_KINDS:
            every = np.ones((1, len(self._reach)), dtype=bool)
            return kinds.min(axis=1)[:, None], np.array([len(pods)]), every
        allowed = [self.cycle.node_facts.allowed(trial.of_class(pods[at])) for at in first.tolist()]
        for number in np.flatnonzero(counts == 1).tolist():
            allowed[number] = self._near(pods[int(first[number])], gone, allowed[number])
        return kinds, counts, np.array(allowed)

    def _near(self, pod: int, gone: Sequence[int], nodes: Mask) -> Mask:
        """Those of some nodes that are near to the pods that a pod must be near to, if none of these moves."""
        trial = self.cycle.trial
        for state in self.cycle.resources.of(pod).all:
            for near, companions in state.companions(pod):
                moving = np.asarray(gone)[companions.includes(gone)].tolist()
                if not moving:
                    nodes = nodes & near
                elif moving == [pod]:
                    present = companions.present.copy()
                    present[companions.domains[trial.node[pod]]] -= 1
                    if present.any():
                        nodes = nodes & (present > 0)[companions.domains]
        return nodes

    def _free_without(self, gone: Sequence[int]) -> Column:
        """[resource, node]: what is idle or being released once some pods are gone."""
        free = self._pool.room.refreshed() + _SLACK
        for node, amount in freed_by(self.cycle.trial, gone).items():
            free[:, node] += amount
        return free

    # ---------------------------------------------------------------------------------------------------- by devices
    def has_devices(self, gone: Sequence[int], back: Sequence[int]) -> bool:
        """Whether whole devices go to nodes, and shares to devices. Where a share counts differently on other nodes,
        nothing is known."""
        trial = self.cycle.trial
        if not self.cycle.counts_alike:
            return True
        sizes = [size for pod in self._wanted for size in self._parts(pod, self._least_gpus(pod))]
        sizes += [size for pod in back for size in self._parts(pod, trial.accepted_gpus(pod))]
        whole = sorted([size for size in sizes if size >= 1], reverse=True)
        shares = sorted([size for size in sizes if 0 < size < 1], reverse=True)
        if not whole and not shares:
            return True
        free = self.free_devices(gone)
        if whole and not could_pack(whole, free.whole):
            return False
        if not self._beside_wanted(free, back):
            return False
        devices = int(free.whole.sum() - sum(whole) + _SLACK)
        return not shares or could_pack(shares, [*free.parts, *[1.0] * min(devices, len(shares))])

    def _beside_wanted(self, free: FreeDevices, back: Sequence[int]) -> bool:
        """Whether some domain holds all wanted shares so that for each size that comes back places enough are left."""
        trial, domains = self.cycle.trial, self._domains
        need = [parts for pod in self._wanted for parts in self._parts(pod, self._least_gpus(pod)) if parts < 1]
        if not need or domains.min() == domains.max() == 0:
            return True
        returning = [size for pod in back for size in self._parts(pod, trial.accepted_gpus(pod)) if size > 0]
        bins, left = free.bins(domains), np.zeros(int(domains.max()) + 1)
        for least in {min(size, 1.0) for size in returning}:
            size = least if least == 1 else max(least - _MIB, _MIB)
            per_device = floor(1 / size + _SLACK)
            items = sum([floor(each) * per_device if each >= 1 else 1 for each in returning if each >= least])
            left = np.minimum(left, places_beside(bins, (len(need), max(min(need) - _MIB, _MIB)), size) - items)
        return bool((left >= 0).any())

    def _parts(self, pod: int, gpus: float) -> list[float]:
        """What a pod of so many GPUs takes of each of its devices, if it shares them; else all of it at once."""
        c = self.cycle.trial.of_class(pod)
        return [gpus / c.devices] * c.devices if c.shared else [gpus]

    def _least_gpus(self, pod: int) -> float:
        """How many GPUs a wanted pod takes at least."""
        return float(least_of(self.cycle.node_facts, self.cycle.trial.of_class(pod))[GPU])

    def usable_spare(self) -> Column:
        """By node: how much of what is left of its shared devices other shares could fill, if none leaves a device."""
        devices, memory = self._pool.room.devices, self.cycle.snapshot.nodes.gpu_memory
        held = devices.held()
        used = np.flatnonzero(held > 0)
        nodes = devices.nodes[used]
        spare, of_spare = np.unique(np.round(1 - held[used] / memory[nodes], 4), return_inverse=True)
        wanted = [size for pod in self._wanted for size in self._parts(pod, self._least_gpus(pod))]
        sizes = sorted({round(size, 4) for size in (*wanted, *self._pool.share_sizes) if 0 < size < 1})
        fill = np.array([_usable(tuple(sizes), free) for free in spare.tolist()])
        return np.asarray(np.bincount(nodes, weights=fill[of_spare], minlength=len(memory)), dtype=np.float64)

    def free_devices(self, gone: Sequence[int]) -> FreeDevices:
        """The free devices of nodes within reach once some pods are gone."""
        return FreeDevices(self.cycle.trial, self._pool.room.devices, gone, self._reach)


def places_beside(bins: Bins, wanted: tuple[int, float], size: float) -> Column:
    """[group]: how many items of a size all bins hold at most once so many wanted ones of another size are in those of
    the group; negative infinity where these do not fit.

    What a bin has left beside as many items as it holds takes wanted ones for nothing; then they cost places.
    """
    room, times, group = bins
    count, least = wanted
    places = np.floor(room / size + _SLACK)
    spare = np.maximum(room - places * size, 0.0)
    beside = np.floor(spare / least + _SLACK)
    more = np.where(places > 1, ceil(size / least), np.floor((spare + size) / least + _SLACK) - beside)
    more[places == 0] = 0.0
    mine = np.flatnonzero((group >= 0) & (times > 0))
    free = np.bincount(group[mine], weights=(beside * times)[mine], minlength=int(group.max()) + 1)
    per_place = np.zeros(len(free))
    np.maximum.at(per_place, group[mine], more[mine])
    short = np.maximum(count - free, 0.0)
    lost = np.where(short > 0, np.ceil(short / np.maximum(per_place, _SLACK)), 0.0)
    return np.where((short > 0) & (per_place == 0), -np.inf, (places * times).sum() - lost)


def could_pack(sizes: Sequence[float], bins: Sequence[float] | Column) -> bool:
    """Whether items, largest first, could go into bins; True where that takes too long to find out."""
    room, items = np.asarray(bins), np.array(sizes)
    kinds = tuple(sorted(set(sizes)))
    for size in kinds:
        if np.count_nonzero(items >= size - _SLACK) > np.floor(room / size + _SLACK).sum():
            return False
    left, equal = np.unique(room[room + _SLACK >= kinds[0]], return_counts=True)
    equal = np.minimum(equal, len(sizes))
    if len(kinds) <= MOST_KINDS:
        fill = sum(most_filled(kinds, round(free, 6)) * count for free, count in zip(left.tolist(), equal, strict=True))
        if sum(sizes) > fill + 1e-6 * len(sizes):
            return False
    return _packed(list(sizes), left.repeat(equal).tolist(), [MOST_TRIES])


@lru_cache(maxsize=4096)
def most_filled(kinds: tuple[float, ...], free: float) -> float:
    """Return how much of a bin items of some sizes can fill at most, each as often as one likes; all of it where that
    takes too long to find out."""
    reached, most = {0.0}, 0.0
    edge = [0.0]
    while edge:
        if len(reached) > MOST_SUMS:
            return free
        sums = {round(at + size, 6) for at in edge for size in kinds}
        edge = [at for at in sums if at <= free + 1e-6 and at not in reached]
        reached.update(edge)
        most = max(most, max(edge, default=0.0))
    return most


def _usable(kinds: tuple[float, ...], free: float) -> float:
    """The same, not less, of a device that shares are granted in whole MiB of, and for any number of sizes."""
    if not kinds or free < kinds[0] - _MIB:
        return 0.0
    if len(kinds) > MOST_KINDS or kinds[0] <= 2 * _MIB:
        return free
    least = tuple(kind - _MIB for kind in kinds)
    return min(most_filled(least, free) + _MIB * floor(free / least[0]), free)


def _packed(sizes: list[float], bins: list[float], tries: list[int]) -> bool:
    """The same by trying, tightest bins first; equal ones are tried once."""
    if not sizes:
        return True
    size, rest, before = sizes[0], sizes[1:], -1.0
    for at, free in enumerate(bins):
        if free + _SLACK < size or free == before:
            continue
        tries[0] -= 1
        if tries[0] <= 0 or _packed(rest, sorted([*bins[:at], free - size, *bins[at + 1 :]]), tries):
            return True
        before = free
    return False


def freed_by(trial: Trial, pods: Iterable[int]) -> Freed:
    """Return what pods that go free at most, by node: a share also the slot of the pod that reserves its device."""
    freed: Freed = {}
    for pod in pods:
        c = trial.of_class(pod)
        amount = c.request
        if c.shared:
            amount = amount.copy()
            amount[PODS] += c.devices
            if c.memory_mib:
                amount[GPU] = trial.accepted_gpus(pod)
        node = trial.node[pod]
        freed[node] = freed[node] + amount if node in freed else amount
    return freed
