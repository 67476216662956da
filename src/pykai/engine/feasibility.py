"""Feasibility bounds: whether victims could help, by arithmetic, before anything is simulated.

`FeasibilityBound` holds an upper bound, per node, of how many pending pods fit: from what is free, what is freed and
what filters allow. Prefix sums per node and topology domain show, for a whole order of victims at once, how far one has
to go until all pending pods could fit. `SinglePodFit` is exact about devices and neighbours, for one pod and a few
victims.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import floor

import numpy as np

from pykai.engine.device_room import DeviceNeed, FreeDevices, Leaving
from pykai.engine.node_room import cumulated
from pykai.engine.packing import MOST_KINDS, Repacking, freed_by
from pykai.engine.plugin_api import Companions
from pykai.engine.pod_locations import PodCounts
from pykai.engine.sub_domains import SubDomains, sub_domains
from pykai.engine.victims import Batch, VictimPool
from pykai.model.resources import CPU, GPU, MEMORY, PODS, QUEUE_RESOURCES, Column, Mask, Rows

_SLACK = 1e-9


class FeasibilityBound:
    """The bound for some pods once others are `gone`. `domains`: by node, where all of the pods must share a domain; -1
    is none."""

    def __init__(
        self, pool: VictimPool, pods: Sequence[int], gone: Sequence[int] = (), domains: Rows | None = None
    ) -> None:
        self.cycle = cycle = pool.cycle
        self._pool = pool
        self._pods = pods
        self._gone = gone
        trial, room = cycle.trial, pool.room
        self.free = room.refreshed()
        self._fitting = room.of({trial.klass[pod]: trial.of_class(pod) for pod in pods}, cycle.node_facts)
        self.reach = pool.reach(self._fitting.allowed)
        self.domains = room.one_domain if domains is None else domains
        self._domain_count = int(self.domains.max(initial=0)) + 1 if domains is not None else 1
        self._by_amounts = self._fitting.counts
        """By node: how many of the pods fit, by amounts alone."""
        self._freed = freed_by(trial, gone)
        if gone:
            self.free, self._by_amounts = self.free.copy(), self._by_amounts.copy()
            nodes = np.fromiter(self._freed, dtype=np.int64, count=len(self._freed))
            self.free[:, nodes] += np.array([*self._freed.values()]).T
            self._by_amounts[nodes] = self._fitting.fit(self.free, nodes)
        self.open = self._fitting.allowed
        """Nodes that may take some of the pods."""
        if domains is not None:
            self.open = self.open & (domains >= 0)

    @cached_property
    def counts(self) -> Column:
        """By node: how many of the pods fit at most."""
        counts = self._by_amounts
        if self._device_need is not None:
            counts = np.minimum(counts, self._devices.places(self._device_need))
        return counts if self.open is self._fitting.allowed else np.where(self.domains >= 0, counts, 0.0)

    @cached_property
    def _missing_in(self) -> Column:
        """[domain]: how many pods more must fit; last for nodes without a domain."""
        return len(self._pods) - self._by_domain(self.counts)

    @cached_property
    def missing(self) -> Column:
        """By node: how many pods more must fit into its domain."""
        return np.asarray(self._missing_in[self.domains])

    @cached_property
    def _devices(self) -> FreeDevices:
        """The free devices as they are, without those who are gone."""
        return self._repacking.free_devices(self._gone)

    @cached_property
    def _device_needs(self) -> list[DeviceNeed]:
        """What the pods want of devices, where amounts alone do not say whether they get it."""
        trial = self.cycle.trial
        classes = [trial.of_class(pod) for pod in self._pods]
        if not trial.shares and not any(c.shared for c in classes):
            return []
        return DeviceNeed.of(trial, self.cycle.node_facts, classes)

    @cached_property
    def _device_need(self) -> DeviceNeed | None:
        """What all of the pods want of devices; None where they differ, or amounts say it all."""
        needs = self._device_needs
        return needs[0] if needs and needs[0].pods == len(self._pods) else None

    @cached_property
    def _short(self) -> Column:
        """[resource of queues]: what the pods need beyond what is free within reach; negative if they need less."""
        free = np.maximum(self.free[:QUEUE_RESOURCES, self.reach], 0.0).sum(axis=1)
        return np.asarray(self._fitting.need[:QUEUE_RESOURCES] * len(self._pods) - free)

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

    @cached_property
    def _sub_domains(self) -> list[SubDomains]:
        return sub_domains(self.cycle, self._pods, self.domains)

    @cached_property
    def _narrow(self) -> list[SubDomains]:
        """Those that every pod needs: then victims elsewhere are of no use."""
        return [each for each in self._sub_domains if sum(each.sizes) == len(self._pods)]

    def tightest(self, gained: Column, domain: int, first: int) -> Mask:
        """By node, if so many more of the pods fit on each: whether it is in one of the narrower domains to look at for
        the sub-groups (`SubDomains.tightest`), where every pod is in one of these."""
        masks = [each.tightest(self.counts + gained, domain, first) for each in self._narrow]
        return np.asarray(np.logical_and.reduce([self.open, *masks]))

    def node_by_node(self) -> list[tuple[int, int]]:
        """By domain, those that are alike once: how many pods fit, and how many more if one more node were empty."""
        allocatable = self.cycle.snapshot.nodes.allocatable
        gain = self._fitting.fit(allocatable, np.arange(len(self.counts))) - self.counts
        most = np.zeros(self._domain_count + 1)
        np.maximum.at(most, self.domains, gain)  # nodes without a domain count for the last entry
        fit = np.clip(len(self._pods) - self._missing_in, 0.0, len(self._pods))
        return list(dict.fromkeys(zip(fit[:-1].astype(int).tolist(), most[:-1].astype(int).tolist(), strict=True)))

    @cached_property
    def in_need(self) -> bool:
        """Whether the pods need more of some resource than is free within reach: then moves alone make no room."""
        return bool((self._short > _SLACK).any())

    def covered(self, obtainable: Column, unusable: Column | float = 0.0) -> Mask:
        """Whether what is free within reach and what could be had of victims [resource of queues, ...] cover the need.
        `unusable`: GPUs that are free and of no use (`unusable`)."""
        enough = np.asarray(obtainable[GPU] + _SLACK >= self._short[GPU] + unusable)
        for resource in (CPU, MEMORY):
            if self._short[resource] > 0:
                enough = enough & (obtainable[resource] * (1 + _SLACK) >= self._short[resource])
        return enough

    @property
    def bounding(self) -> tuple[int, ...]:
        """Resources of queues that decide whether victims help: of those that the pods request, GPUs and what they are
        short of; if they request no GPUs, all."""
        need = self._fitting.need[:QUEUE_RESOURCES]
        return tuple(r for r in np.flatnonzero(need).tolist() if r == GPU or self._short[r] > 0 or not need[GPU])

    @cached_property
    def unusable(self) -> Column:
        """By node within reach: what is left of its shared devices and too little for any share, in GPUs; it is of no
        use unless victims leave that node."""
        unusable = np.zeros(len(self.counts))
        if self.cycle.trial.shares:
            spare = self._pool.room.devices.spare() - self._repacking.usable_spare()
            unusable[self.reach] = np.maximum(spare, 0.0)[self.reach]
            unusable[list(self._freed)] = 0.0
        return unusable

    def packs(self, gone: Sequence[int], back: Sequence[int]) -> bool:
        """Whether, without some pods, the wanted ones and those that must come back could have a place together."""
        return self._repacking.possible(gone, [pod for pod in back if self.reach[self.cycle.trial.node[pod]]])

    def has_devices(self, gone: Sequence[int], back: Sequence[int]) -> bool:
        """The same, as far as devices go; of those that must come back only what they take of devices counts."""
        return self._repacking.has_devices(gone, [pod for pod in back if self.reach[self.cycle.trial.node[pod]]])

    @cached_property
    def _repacking(self) -> Repacking:
        return Repacking(self._pool, self._pods, self._fitting, (self.reach, self.domains))

    def enough_devices(self, gone: Sequence[int]) -> bool:
        """Whether devices enough of one domain are free without some pods, for those that share devices and for those
        that want whole ones; each is counted as if the others wanted nothing."""
        if not self._device_needs:
            return True
        free, enough = self._repacking.free_devices(gone), np.ones(self._domain_count, dtype=bool)
        for need in self._device_needs:
            enough &= self._by_domain(np.where(self.open, free.places(need), 0.0))[:-1] >= need.pods
        return bool(enough.any())

    def movable(self, pods: Rows, amounts: Column) -> Mask:
        """Which pods, by what they free [resource, pod], could find another place among what is free within reach."""
        free, classes = np.maximum(self.free[:, self.reach], 0.0) + _SLACK, self.cycle.snapshot.pods.klass[pods]
        found = np.ones(len(pods), dtype=bool)
        for gpus in np.unique(amounts[GPU]).tolist():
            some, nodes = amounts[GPU] == gpus, free[:, free[GPU] >= gpus]
            if not (nodes.max(axis=1, initial=0.0) >= amounts[:, some].min(axis=1)).all():
                found[some] = False
                continue
            kinds, first, of_kind = np.unique(classes[some], return_index=True, return_inverse=True)
            if len(kinds) <= MOST_KINDS:
                fits = [(nodes >= least[:, None]).all(axis=0).any() for least in amounts[:, some][:, first].T]
                found[some] = np.array(fits)[of_kind]
        return found

    def enough(self, batches: Sequence[Batch]) -> bool:
        """Whether all pods could fit once these batches are gone."""
        gone = [pod for batch in batches for pod in batch.pods]
        if self._narrow:
            return self.sub_groups_fit(gone)
        nodes, after = self._without(gone)
        if not len(nodes):
            return self.holds
        gained = np.bincount(self.domains[nodes], weights=after - self.counts[nodes], minlength=self._domain_count)
        return bool((gained >= self._missing_in[:-1]).any())

    def sub_groups_fit(self, gone: Sequence[int]) -> bool:
        """Whether sub-groups that need narrower domains could fit, all in one domain, without some pods."""
        if not self._sub_domains:
            return True
        counts = self.counts.copy()
        nodes, after = self._without(gone)
        counts[nodes] = after
        fit = self._by_domain(counts)[:-1] >= len(self._pods)
        return bool(np.logical_and.reduce([fit, *(each.fit(counts, len(fit)) for each in self._sub_domains)]).any())

    def _without(self, gone: Sequence[int]) -> tuple[Rows, Column]:
        """The nodes that some pods leave, and how many of the wanted ones fit on each by then."""
        freed = freed_by(self.cycle.trial, gone)
        nodes = np.array([node for node in freed if self.open[node]], dtype=np.int64)
        amounts = np.array([freed[node] for node in nodes.tolist()]).T
        return nodes, self._fitting.fit(self.free, nodes, amounts) if len(nodes) else np.zeros(0)

    def gains(self, leaving: Leaving, amounts: Column) -> tuple[Column, Column]:
        """For pods that go one after the other, of which each frees `amounts` [resource, pod] if it goes: how many more
        of the wanted pods fit into its domain after each, and how many more on its own node."""
        nodes = leaving.nodes
        if not len(nodes):
            return np.zeros(0), np.zeros(0)
        order = np.argsort(nodes, kind="stable")
        freed = np.where(leaving.goes, amounts, 0.0)
        if self.cycle.trial.shares:
            freed[PODS] += self._pool.room.devices.shared_by[leaving.pods] * leaving.goes
        sorted_nodes, freed = nodes[order], freed.take(order, axis=1)
        first = np.ones(len(order), dtype=bool)
        np.not_equal(sorted_nodes[1:], sorted_nodes[:-1], out=first[1:])
        running = np.cumsum(freed, axis=1)
        starts = np.flatnonzero(first)
        before = (running - freed).take(starts[np.cumsum(first) - 1], axis=1)
        after = self._fitting.fit(self.free, sorted_nodes, running - before)
        if self._device_need is not None:
            after = np.minimum(after, self._devices.places_after(self._device_need, leaving)[order])
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


class SinglePodFit:
    """One pod that waits, and the cluster as it is now."""

    def __init__(self, pool: VictimPool, pod: int) -> None:
        self.cycle = pool.cycle
        self.pod = pod
        self._class = pool.cycle.trial.of_class(pod)

    @cached_property
    def _fits_now(self) -> list[int]:
        """Nodes that would take it as things are, as far as amounts go."""
        rows: list[int] = self.cycle.rankings.feasible(self._class).tolist()
        return rows

    @cached_property
    def _blockers(self) -> list[PodCounts]:
        """Pods of which none may stay in the domain of the pod's node."""
        states = self.cycle.resources.of_class(self._class).all
        return [counts for state in states for counts in state.blockers(self.pod)]

    @cached_property
    def _companions(self) -> list[Companions]:
        """Pods near to which the pod must be."""
        states = self.cycle.resources.of_class(self._class).all
        return [companions for state in states for companions in state.companions(self.pod)]

    def on_node(self, node: int, gone: Sequence[int]) -> bool:
        """Whether a node would take the pod without these pods of it, as far as bounds can say."""
        return node >= 0 and bool(self._nodes(gone)[node]) and self._holds(node, gone) and self._open(node, gone)

    def possible(self, gone: Sequence[int]) -> bool:
        """Whether the pod could find a place without these pods. True where only a simulation can decide."""
        nodes = self._nodes(gone)
        if any(nodes[node] and self._open(node, gone) for node in self._fits_now):
            return True
        trial, by_node = self.cycle.trial, dict[int, list[int]]()
        for pod in gone:
            by_node.setdefault(trial.node[pod], []).append(pod)
        return any(
            node >= 0 and nodes[node] and self._holds(node, pods) and self._open(node, gone)
            for node, pods in by_node.items()
        )

    def _nodes(self, gone: Sequence[int]) -> Mask:
        """Nodes that admit the pod, and are near to those it must be near to unless one of these moves."""
        if not self._companions or any(each.pods.includes(gone).any() for each in self._companions):
            return self.cycle.node_facts.allowed(self._class)
        return self._near

    @cached_property
    def _near(self) -> Mask:
        near = [each.nodes for each in self._companions]
        return np.asarray(np.logical_and.reduce([self.cycle.node_facts.allowed(self._class), *near]))

    def opening(self, leaving: Leaving) -> Mask:
        """For pods that go one after the other, node by node: after which of them the own node has those near to which
        the pod must be and none that keeps it from there, or one less does from a node that would take it."""
        pods, nodes = leaving.pods, leaving.nodes
        found = np.ones(len(pods), dtype=bool)
        helps = np.zeros(len(pods), dtype=bool)
        for tally in self._blockers:
            blocks = tally.includes(pods) & leaving.goes
            found &= cumulated(nodes, blocks.astype(np.float64)) >= tally.present[tally.domains[nodes]]
            wanted = np.unique(tally.domains[self._fits_now])
            helps |= blocks & np.isin(tally.domains[nodes], wanted[wanted > 0])
        for near, companions in self._companions:
            moves = companions.includes(pods) & leaving.goes
            found &= near[nodes] | (cumulated(nodes, moves.astype(np.float64)) > 0)
            helps |= moves
        return np.asarray(found | helps)

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
        free[PODS] += whole  # of the pods that reserve them
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
