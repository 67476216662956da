"""Feasibility bounds: whether victims could help, by arithmetic, before anything is simulated.

`FeasibilityBound` holds an upper bound, per node, of how many pending pods fit: from what is free, what is freed and
what filters allow. Prefix sums per node and topology domain show, for a whole order of victims at once, how far one has
to go until all pending pods could fit. `SinglePodFit` is exact about devices and neighbours, for one pod and a few
victims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import floor

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.node_room import least_of
from pykai.engine.pod_locations import PodCounts
from pykai.engine.ranked import UNFIT
from pykai.engine.victims import Batch, VictimPool
from pykai.model.resources import GPU, Column, Mask, Rows

Freed = dict[int, Column]
"""What is freed, by node."""
_SLACK = 1e-9
MOST_TRIES = 200
"""Of ways to put pods into free places; what is not refuted by then is left to a simulation."""


class FeasibilityBound:
    """The bound for some pods, with `freed` already taken into account. `domains`: by node, where all of the pods must
    share a domain; -1 is none."""

    def __init__(self, pool: VictimPool, pods: Sequence[int], freed: Freed, domains: Rows | None = None) -> None:
        self.cycle = cycle = pool.cycle
        self._pods = pods
        trial, room = cycle.trial, pool.room
        self.free = room.refreshed()
        self._fitting = room.of({trial.klass[pod]: trial.of_class(pod) for pod in pods}, cycle.node_facts)
        self.reach = pool.reach(self._fitting.allowed)
        self.domains = room.one_domain if domains is None else domains
        self._domain_count = int(self.domains.max(initial=0)) + 1 if domains is not None else 1
        self.counts = self._fitting.counts
        if freed:
            self.free, self.counts = self.free.copy(), self.counts.copy()
            nodes = np.fromiter(freed, dtype=np.int64, count=len(freed))
            self.free[:, nodes] += np.array([*freed.values()]).T
            self.counts[nodes] = self._fitting.fit(self.free, nodes)
        self.open = self._fitting.allowed
        """Nodes that may take some of the pods."""
        if domains is not None:
            self.open = self.open & (domains >= 0)
            self.counts = np.where(domains >= 0, self.counts, 0.0)
        self._missing_in = len(pods) - self._by_domain(self.counts)
        self.missing: Column = self._missing_in[self.domains]
        """By node: how many pods more must fit into its domain."""

    @cached_property
    def _gpus_short(self) -> float:
        """The GPUs that the pods need beyond those that are free within reach; negative if fewer are needed."""
        free = np.maximum(self.free[GPU, self.reach], 0.0).sum()
        return float(self._fitting.need[GPU]) * len(self._pods) - float(free)

    def _by_domain(self, counts: Column) -> Column:
        """[domain] sums of figures of nodes; those of nodes without a domain come last."""
        if self._domain_count == 1 and self.domains.min(initial=0) == 0:
            return np.array([float(counts.sum()), 0.0])
        sums = np.bincount(self.domains + 1, weights=counts, minlength=2)
        return np.asarray(np.append(sums[1:], sums[0]), dtype=np.float64)

    @property
    def holds(self) -> bool:
        """Whether all pods could fit into a domain as things are."""
        return bool((self._missing_in[:-1] <= 0).any())

    def node_by_node(self) -> list[tuple[int, int]]:
        """By domain, those that are alike once: how many pods fit, and how many more if one more node were empty."""
        allocatable = self.cycle.snapshot.nodes.allocatable
        gain = self._fitting.fit(allocatable, np.arange(len(self.counts))) - self.counts
        most = np.zeros(self._domain_count + 1)
        np.maximum.at(most, self.domains, gain)  # nodes without a domain count for the last entry
        fit = np.clip(len(self._pods) - self._missing_in, 0.0, len(self._pods))
        return list(dict.fromkeys(zip(fit[:-1].astype(int).tolist(), most[:-1].astype(int).tolist(), strict=True)))

    def enough_gpus(self, freed: Column | float) -> Mask:
        """Whether so many freed GPUs, wherever they are, and those that are free within reach cover the need."""
        return np.asarray(freed + _SLACK >= self._gpus_short)

    def packs(self, gone: Sequence[int], back: Sequence[int]) -> bool:
        """Whether, without some pods, the wanted ones and those that must come back could have a place together. Where
        a share counts differently on other nodes, nothing is known."""
        trial = self.cycle.trial
        if not self.cycle.counts_alike:
            return True
        sizes = [size for pod in self._pods for size in self._parts(pod, self._size(pod))]
        returning = [pod for pod in back if self.reach[trial.node[pod]]]
        sizes += [size for pod in returning for size in self._parts(pod, trial.accepted_gpus(pod))]
        whole = sorted([size for size in sizes if size >= 1], reverse=True)
        shares = sorted([size for size in sizes if 0 < size < 1], reverse=True)
        free, parts = self._free_devices(gone)
        if whole and not could_pack(whole, free):
            return False
        devices = int(free.sum() - sum(whole) + _SLACK)
        return not shares or could_pack(shares, [*parts, *[1.0] * min(devices, len(shares))])

    def _parts(self, pod: int, gpus: float) -> list[float]:
        """What a pod of so many GPUs takes of each of its devices, if it shares them; else all of it at once."""
        c = self.cycle.trial.of_class(pod)
        return [gpus / c.devices] * c.devices if c.shared else [gpus]

    def _size(self, pod: int) -> float:
        """How many GPUs a wanted pod takes at least."""
        return float(least_of(self.cycle.node_facts, self.cycle.trial.of_class(pod))[GPU])

    def _free_devices(self, gone: Sequence[int]) -> tuple[Column, list[float]]:
        """By node how many whole devices are free without some pods, and what is free of each of the others; both are
        nothing out of reach."""
        trial, nodes = self.cycle.trial, self.cycle.snapshot.nodes
        free = np.floor(np.maximum(trial.idle[GPU] + trial.releasing[GPU], 0.0) + _SLACK)
        left: dict[tuple[int, str], float] = {}
        for node, shares in trial.shares.items():
            for group, share in shares.items():
                if self.reach[node] and share.allocated - share.releasing > 0:
                    left[node, group] = share.allocated - share.releasing
        free[~self.reach] = 0.0
        for pod in gone:
            node = trial.node[pod]
            if not self.reach[node]:
                continue
            if trial.of_class(pod).shared:
                for group in trial.gpu_groups.get(pod, ()):
                    left[node, group] -= trial.share_memory(trial.of_class(pod), node)
            else:
                free[node] += trial.accepted_gpus(pod)
        parts = []
        for (node, _), held in left.items():
            if held <= _SLACK:
                free[node] += 1
            else:
                parts.append(1 - held / float(nodes.gpu_memory[node]))
        return free, parts

    def enough_devices(self, gone: Sequence[int]) -> bool:
        """Whether enough whole devices are free without some pods; True where a wanted pod needs no whole one."""
        trial, size = self.cycle.trial, float(self._fitting.need[GPU])
        if size < 1 or not trial.shares or any(trial.of_class(pod).shared for pod in self._pods):
            return True
        fitting = np.floor(self._free_devices(gone)[0] / size + _SLACK)
        return bool((self._by_domain(np.where(self.open, fitting, 0.0))[:-1] >= len(self._pods)).any())

    def movable(self, amounts: Column) -> Mask:
        """Which pods, by what they free [resource, pod], could find another place among what is free within reach."""
        free = np.maximum(self.free[:, self.reach], 0.0)
        found = np.ones(amounts.shape[1], dtype=bool)
        for gpus in np.unique(amounts[GPU]).tolist():
            some, nodes = amounts[GPU] == gpus, free[GPU] + _SLACK >= gpus
            least = amounts[:, some].min(axis=1)
            if not (free[:, nodes].max(axis=1, initial=0.0) + _SLACK >= least).all():
                found[some] = False
        return found

    def enough(self, batches: Sequence[Batch]) -> bool:
        """Whether all pods could fit once these batches are gone."""
        freed = freed_by(self.cycle, batches)
        nodes = np.fromiter((n for n in freed if self.open[n]), dtype=np.int64)
        if not len(nodes):
            return self.holds
        amounts = np.array([freed[node] for node in nodes.tolist()]).T
        after = self._fitting.fit(self.free, nodes, amounts)
        gained = np.bincount(self.domains[nodes], weights=after - self.counts[nodes], minlength=self._domain_count)
        return bool((gained >= self._missing_in[:-1]).any())

    def gains(self, nodes: Rows, amounts: Column) -> tuple[Column, Column]:
        """For pods that go one after the other, on `nodes`, freeing `amounts` [resource, pod]: how many more of the
        wanted pods fit into its domain after each, and how many more on its own node."""
        if not len(nodes):
            return np.zeros(0), np.zeros(0)
        order = np.argsort(nodes, kind="stable")
        sorted_nodes, freed = nodes[order], amounts.take(order, axis=1)
        first = np.ones(len(order), dtype=bool)
        np.not_equal(sorted_nodes[1:], sorted_nodes[:-1], out=first[1:])
        running = np.cumsum(freed, axis=1)
        starts = np.flatnonzero(first)
        before = (running - freed).take(starts[np.cumsum(first) - 1], axis=1)
        after = self._fitting.fit(self.free, sorted_nodes, running - before)
        own = after - self.counts[sorted_nodes]
        if self._domain_count > 1:
            own[self.domains[sorted_nodes] < 0] = 0.0
        step = own.copy()
        step[1:] -= np.where(first[1:], 0.0, own[:-1])
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        steps = step[back]
        total = np.cumsum(steps) if self._domain_count == 1 else cumulated(self.domains[nodes], steps)
        return total, own[back]


@lru_cache(maxsize=4096)
def grows_to(total: int, fit: int, more: int) -> bool:
    """Whether growing prefixes (`next_size`) can end with all of `total` pods, if so many fit and each prefix that is
    solved adds `more` at most."""
    return fit + more >= total or (more > 0 and _grows((0, total, total), 1, fit, more))


def _grows(known: tuple[int, int, int], size: int, fits: int, more: int) -> bool:
    """The same from what is `known` (see `next_size`), if a prefix of this size is next and so many fit by now."""
    solved, possible, total = known
    if solved >= possible:
        return bool(solved) and fits + more >= total
    if size <= fits + more:
        longer = (size, possible, total)
        if size == total or _grows(longer, next_size(longer, size), fits + more, more):
            return True
    shorter = (solved, size - 1, total)
    return _grows(shorter, next_size(shorter, size), fits, more)


def next_size(known: tuple[int, int, int], size: int) -> int:
    """Of the prefix of a gang to solve next, if `known` are the longest that is solved, the longest that could be, and
    all: twice as long until one is not solved, then by halves."""
    solved, possible, total = known
    return min(size * 2, total) if possible == total else (solved + possible + 1) // 2


def could_pack(sizes: Sequence[float], bins: Sequence[float] | Column) -> bool:
    """Whether items, largest first, could go into bins; True where that takes too long to find out."""
    room, items = np.asarray(bins), np.array(sizes)
    for size in set(sizes):
        if np.count_nonzero(items >= size - _SLACK) > np.floor(room / size + _SLACK).sum():
            return False
    left, equal = np.unique(room[room + _SLACK >= sizes[-1]], return_counts=True)
    return _packed(list(sizes), left.repeat(np.minimum(equal, len(sizes))).tolist(), [MOST_TRIES])


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


def freed_by(cycle: Cycle, batches: Sequence[Batch]) -> Freed:
    """What evicting batches frees, by node."""
    trial = cycle.trial
    freed: Freed = {}
    for batch in batches:
        for pod in batch.pods:
            amount = trial.of_class(pod).request
            if trial.of_class(pod).memory_mib:
                amount = amount.copy()
                amount[GPU] = trial.accepted_gpus(pod)
            node = trial.node[pod]
            freed[node] = freed[node] + amount if node in freed else amount
    return freed


def cumulated(groups: Rows, values: Column) -> Column:
    """For values one after the other: the sum of those of the same group so far."""
    order = np.argsort(groups, kind="stable")
    running = np.cumsum(values[order])
    first = np.flatnonzero(np.diff(groups[order], prepend=-2))
    sizes = np.diff(np.append(first, len(groups)))
    found = np.empty(len(groups))
    found[order] = running - np.repeat((running - values[order])[first], sizes)
    return found


@dataclass(frozen=True)
class Leaving:
    """Pods that go one after the other: where they are, whether each can go, and how many GPUs it frees."""

    pods: Rows
    nodes: Rows
    goes: Mask
    gpus: Column


class SinglePodFit:
    """One pod that waits, and the cluster as it is now."""

    def __init__(self, pool: VictimPool, pod: int) -> None:
        self.cycle = pool.cycle
        self._shares = pool.room.devices
        self.pod = pod
        self._class = pool.cycle.trial.of_class(pod)

    @cached_property
    def _fits_now(self) -> list[int]:
        """Nodes that would take it as things are, as far as amounts go."""
        rows: list[int] = np.flatnonzero(self.cycle.rankings.of(self._class).total > UNFIT).tolist()
        return rows

    @cached_property
    def _blockers(self) -> list[PodCounts]:
        """Pods of which none may stay in the domain of the pod's node."""
        states = self.cycle.resources.of_class(self._class).all
        return [counts for state in states for counts in state.blockers(self.pod)]

    def on_node(self, node: int, gone: Sequence[int]) -> bool:
        """Whether a node would take the pod without these pods of it, as far as bounds can say."""
        allowed = node >= 0 and self.cycle.node_facts.allowed(self._class)[node]
        return bool(allowed) and self._holds(node, gone) and self._open(node, gone)

    def possible(self, gone: Sequence[int]) -> bool:
        """Whether the pod could find a place without these pods. True where only a simulation can decide."""
        if any(self._open(node, gone) for node in self._fits_now):
            return True
        trial, by_node = self.cycle.trial, dict[int, list[int]]()
        for pod in gone:
            by_node.setdefault(trial.node[pod], []).append(pod)
        allowed = self.cycle.node_facts.allowed(self._class)
        return any(
            node >= 0 and allowed[node] and self._holds(node, pods) and self._open(node, gone)
            for node, pods in by_node.items()
        )

    def opening(self, leaving: Leaving) -> Mask:
        """For pods that go one after the other, node by node: after which of them the own node has devices for the pod
        and no pod that keeps it from there, or one less does from a node that would take it."""
        pods, nodes = leaving.pods, leaving.nodes
        found = np.ones(len(pods), dtype=bool)
        helps = np.zeros(len(pods), dtype=bool)
        for tally in self._blockers:
            blocks = tally.includes(pods) & leaving.goes
            found &= cumulated(nodes, blocks.astype(np.float64)) >= tally.present[tally.domains[nodes]]
            wanted = np.unique(tally.domains[self._fits_now])
            helps |= blocks & np.isin(tally.domains[nodes], wanted[wanted > 0])
        return np.asarray((found & self._devices_open(leaving)) | helps)

    def _devices_open(self, leaving: Leaving) -> Mask:
        """After which pods the own node has devices; always where the pod wants shares of several devices, or none, or
        has a place already and waits for something else."""
        trial, c, nodes = self.cycle.trial, self._class, leaving.nodes
        need = 1.0 if c.shared else float(self.cycle.node_facts.least(c)[GPU])
        if c.devices > 1 or need < 1 or not trial.shares or self._fits_now:
            return np.ones(len(nodes), dtype=bool)
        devices, memory = self._shares.of(leaving.pods, nodes)
        shared = devices >= 0
        left = np.where(shared, self._shares.held()[devices], 0.0)
        left -= cumulated(devices, np.where(leaving.goes, memory, 0.0))
        whole = np.where(shared, left <= _SLACK, np.ceil(leaving.gpus))
        free = np.floor(trial.idle[GPU] + trial.releasing[GPU] + _SLACK)[nodes]
        opened = free + cumulated(nodes, np.where(leaving.goes, whole, 0.0)) >= need - _SLACK
        if c.shared:
            spared = {
                node: trial.amounts.gpu_memory[node] - trial.share_memory(c, node) for node in set(nodes.tolist())
            }
            beside = left <= np.array([spared[node] for node in nodes.tolist()]) + _SLACK
            opened |= cumulated(nodes, (shared & leaving.goes & beside).astype(np.float64)) > 0
        return np.asarray(opened)

    def _holds(self, node: int, gone: Sequence[int]) -> bool:
        """Whether the node has what the pod asks for."""
        trial, c, least = self.cycle.trial, self._class, self._least
        freed = [trial.amounts.of_node(trial.klass[pod], node) for pod in gone]
        gpus = float(trial.idle[GPU, node] + trial.releasing[GPU, node]) + sum([float(each[GPU]) for each in freed])
        whole, sharable = self._devices(node, gone) if node in trial.shares else (0, 0)
        need = c.devices - sharable if c.shared else least[GPU]
        if (floor(gpus + whole + _SLACK) if c.shared else gpus + whole + _SLACK) < need:
            return False  # of most nodes: what else it lacks is not asked then
        free = (trial.idle[:, node] + trial.releasing[:, node] + sum(freed)).tolist()
        return not any(free[row] + _SLACK < least[row] for row in c.dims.tolist() if row != GPU)

    @cached_property
    def _least(self) -> list[float]:
        """[resource]: what the pod must find free."""
        least: list[float] = self.cycle.node_facts.least(self._class).tolist()
        return least

    def _devices(self, node: int, gone: Sequence[int]) -> tuple[int, int]:
        """Shared devices that only those who are gone had, and those beside whose other users the pod fits."""
        trial = self.cycle.trial
        capacity = trial.amounts.gpu_memory[node]
        memory = trial.share_memory(self._class, node) if self._class.shared else capacity
        freed: dict[str, float] = {}
        for pod in gone:
            if trial.amounts.shared[trial.klass[pod]]:
                for group in trial.gpu_groups.get(pod, ()):
                    freed[group] = freed.get(group, 0.0) + trial.share_memory(trial.of_class(pod), node)
        whole = sharable = 0
        for group, share in trial.shares.get(node, {}).items():
            held = share.allocated - share.releasing  # by those who stay, or were promised it
            left = held - freed.get(group, 0.0)
            if left <= _SLACK:
                whole += held > _SLACK
            elif capacity - left >= memory and share.mode == self._class.compute_mode:
                sharable += 1
        return whole, sharable

    def _open(self, node: int, gone: Sequence[int]) -> bool:
        """Whether no pod stays in the node's domains that the pod may not be near."""
        place = self.cycle.trial.node
        for tally in self._blockers:
            domain = tally.domains[node]
            if domain:
                leaving = [pod for pod in gone if tally.domains[place[pod]] == domain]
                if tally.present[domain] > np.count_nonzero(tally.includes(leaving)):
                    return False
        return True
