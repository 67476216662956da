"""How many pods of a group the nodes and domains of a topology can take, updated while pods are placed.

A placement touches few nodes of few domains. Figures per node follow the trial's list of touched nodes instead of being
computed anew for every gang, and so do their sums per domain, and the order in which domains are tried: what one gang
leaves behind is where the next one begins. A part of the topology plugin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.devices import free_portions, with_room
from pykai.engine.trial import Trial
from pykai.kernels.domains import (
    DomainTree,
    TreeOrder,
    common_depth,
    domain_tree,
    pods_per_node,
    sum_again,
    sums_by_depth,
    tightness,
    tightness_of,
    within,
)
from pykai.model.gangs import TopologyRequirement
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, MEMORY, PODS, Column, Mask, Rows
from pykai.model.snapshot import NodeTable
from pykai.plugins import node_labels

Kind = tuple[tuple[int, ...], int]
"""Rows of classes, and how many pods where that matters."""
PARTS_KEPT = 256
"""Trees of parts of a topology that are remembered in a cycle: enough for the racks of a large cluster."""
ROOMS_KEPT = 64
"""Kinds of requests whose figures are remembered per tree."""


# --------------------------------------------------------------------------------------------------------------- levels
class ConstraintError(ValueError):
    """A constraint that no cluster could satisfy: it names an unknown topology, an unknown level, or no level."""


class Depths(NamedTuple):
    """Depths of the levels a constraint names; 0 where it names none."""

    required: int
    preferred: int

    @property
    def deepest(self) -> int:
        return max(self.required, self.preferred)

    def candidates(self, common: int = 0) -> range:
        """Depths to look for domains at, narrow ones first; one domain holds all nodes down to depth `common`."""
        return range(self.deepest, max(self.required, common) - 1, -1)


def depths(topologies: Mapping[str, Sequence[str]], requirement: TopologyRequirement, sub_group: str) -> Depths:
    """Return the depths of the levels that a constraint names; `sub_group` empty: the constraint of the workload."""
    if requirement.topology not in topologies:
        raise ConstraintError(f"Requested topology {requirement.topology} does not exist")
    if not requirement.required and not requirement.preferred:
        subject = f"subgroup {sub_group}" if sub_group else "workload"
        raise ConstraintError(
            f"no topology constraints were found for {subject}, with topology name {requirement.topology}"
        )
    who = f"sub-group {sub_group}" if sub_group else "workload"
    known = {"": 0, **{level: depth for depth, level in enumerate(topologies[requirement.topology], start=1)}}
    for kind, level in (("required", requirement.required), ("preferred", requirement.preferred)):
        if level not in known:
            raise ConstraintError(
                f"topology constraint error: {who} specified '{level}' as the {kind} topology constraint level, "
                f"but the topology tree '{requirement.topology}' does not contain a level with this name"
            )
    return Depths(known[requirement.required], known[requirement.preferred])


# -------------------------------------------------------------------------------------------------------------- request
@dataclass(frozen=True, eq=False)
class GroupRequest:
    """What pods that go together request for. Vectors are [resource]; a request in GPU memory has no GPU figure."""

    classes: tuple[int, ...]
    """Rows of the distinct classes, ascending."""
    count: int
    asked: Rows
    """Resources that are asked for."""
    need: Column
    """[asked]: the largest single request."""
    uniform: bool
    """Whether the pods want the same kinds of resources, so that room can be counted in pods."""
    dims: Rows
    """Resources by which domains are compared: all that are asked for but the pod slot."""
    wants: Column
    """[dims]: all requests together."""
    portions: bool
    """Whether what is left of shared devices counts: a pod that wants most of a GPU takes a share of a device."""
    sharers: tuple[PodClass, ...]
    """The classes, where all of them take shares of devices."""

    @cached_property
    def limited(self) -> bool:
        """Whether pods want anything but a slot."""
        return len(self.dims) > 0 or self.portions

    @cached_property
    def kind(self) -> Kind:
        """What the figures of nodes depend on: not on how many pods there are, unless all nodes have room for all."""
        return self.classes, 0 if self.limited else self.count


def group_request(trial: Trial, pods: Sequence[int]) -> GroupRequest:
    """What the pods request for together."""
    rows, counts = np.unique([trial.klass[pod] for pod in pods], return_counts=True)
    classes = [trial.snapshot.pods.classes[row] for row in rows.tolist()]
    requests = np.array([c.request for c in classes], dtype=np.float64).T
    kinds = np.array([_kinds(c) for c in classes])
    total: Column = requests @ counts.astype(np.float64)
    dims = np.array([row for row in np.flatnonzero(total > 0).tolist() if row != PODS], dtype=np.int64)
    most = requests[GPU].max()
    return GroupRequest(
        classes=tuple(rows.tolist()),
        count=len(pods),
        asked=np.flatnonzero(total > 0),
        need=requests.max(axis=1)[total > 0],
        uniform=bool((kinds == kinds[0]).all()),
        dims=dims,
        wants=total[dims],
        portions=any(c.shared and c.request[GPU] == most for c in classes),
        sharers=tuple(classes) if all(c.shared for c in classes) else (),
    )


def _kinds(c: PodClass) -> list[bool]:
    """Which resources beyond cpu and memory a pod of the class uses."""
    uses = (c.request > 0).tolist()
    uses[GPU] = uses[GPU] or c.shared
    return list(uses[MEMORY + 1 :])


def figures_of(trial: Trial, request: GroupRequest, rows: Rows) -> Column:
    """[figure, row]: how many of the pods each node could take, judged by the largest of them; then for each of
    `request.dims` what is free, counting what is being released."""
    if not request.limited:
        slots = trial.idle[PODS, rows] + trial.releasing[PODS, rows]
        return np.where(slots >= 1, float(request.count), 0.0)[None]
    free = trial.idle.take(rows, axis=1) + trial.releasing.take(rows, axis=1)
    figures = np.empty((1 + len(request.dims), len(rows)))
    figures[0], figures[1:] = _room(trial, request, rows, free), free.take(request.dims, axis=0)
    return figures


def _room(trial: Trial, request: GroupRequest, rows: Rows, free: Column) -> Column:
    if not request.portions:
        return pods_per_node(free.take(request.asked, axis=0), request.need)
    free, whole = free.copy(), np.floor(free[GPU])
    able = np.array([whole >= c.devices for c in request.sharers])
    for at, row in enumerate(rows.tolist()):
        if row in trial.shares:
            capacity = float(trial.snapshot.nodes.gpu_memory[row])
            free[GPU, at] += free_portions(trial.shares[row], capacity)
            for of_class, c in zip(able, request.sharers, strict=True):
                of_class[at] = whole[at] + _sharable(trial, c, row, capacity) >= c.devices
    counted = pods_per_node(free[request.asked], request.need)
    return np.where(able.any(axis=0), counted, 0.0) if request.sharers else counted


def _sharable(trial: Trial, c: PodClass, node: int, capacity: float) -> int:
    """How many shared devices of a node still hold a pod of the class."""
    return len(with_room(trial.shares[node], trial.share_memory(c, node), capacity, c.compute_mode))


# --------------------------------------------------------------------------------------------------------- domain usage
class Layout:
    """Where the nodes of one tree of domains are: positions are places in its tree order. `nodes`: of the cluster."""

    def __init__(self, tree: DomainTree, nodes: int) -> None:
        self.tree = tree
        self._position = {node: at for at, node in enumerate(tree.order.tolist())}
        self._all = nodes
        self._nodes: dict[tuple[int, int], Rows] = {}

    def places(self, nodes: Iterable[int]) -> list[int]:
        """Positions of node rows; nodes outside the tree are left out."""
        position = self._position
        return [position[node] for node in nodes if node in position]

    def nodes_of(self, depth: int, domain: int) -> Rows | None:
        """The node rows of a domain, ascending, the same array each time; None where it is the whole cluster."""
        rows = self._nodes.get((depth, domain))
        if rows is None:
            rows = self._nodes[depth, domain] = np.sort(self.tree.members(depth, domain))
        return None if len(rows) == self._all else rows


def whole_layout(nodes: NodeTable, levels: Sequence[str]) -> Layout:
    """The layout of all nodes that have a value of each of these labels, widest level first."""
    columns = nodes.derived(node_labels.labels)
    there = np.logical_and.reduce([columns[key].codes > 0 for key in levels], initial=True)
    rows = np.flatnonzero(np.broadcast_to(there, len(nodes)))
    some = [nodes.labels[row] for row in rows.tolist()]  # mostly all; of many small topologies each has a few
    tree = domain_tree([[labels.get(key) for labels in some] for key in levels])
    return Layout(replace(tree, order=rows[tree.order]), len(nodes))


class DomainRoom:
    """Figures of the nodes and domains of a layout for requests of one kind (`figures_of`), down to a depth.

    `figures`: [figure, position]. `sums`: by depth [figure][domain]. `changed`: the domains of the deepest depth whose
    figures changed, in order of change; readers remember how far they have read.
    """

    def __init__(self, trial: Trial, layout: Layout, request: GroupRequest, deepest: int) -> None:
        self._trial, self._site = trial, layout
        self._ask = request
        self._around = layout.tree.around[deepest]
        self._read = len(trial.touched)
        self.figures = figures_of(trial, request, layout.tree.order)
        self.sums = sums_by_depth(layout.tree, deepest, self.figures)
        self.changed: list[int] = []

    def refresh(self) -> None:
        """Bring the figures of everything touched since the last time up to date."""
        layout, touched = self._site, self._trial.touched
        if self._read == len(touched):
            return
        places = layout.places(self._trial.touched_since(self._read, layout.tree.order))
        self._read = len(touched)
        if places:
            moved = np.array(places)
            self.figures[:, moved] = figures_of(self._trial, self._ask, layout.tree.order.take(moved))
            domains = {self._around[at] for at in places}
            self.changed.extend(domains)
            sum_again(layout.tree, self.figures, self.sums, domains)


class DomainUsage:
    """A layout in a cycle, and what is known of its room. `whole`: the layout of all nodes of the topology."""

    def __init__(self, trial: Trial, layout: Layout, whole: Layout) -> None:
        self.layout = layout
        self.whole = whole
        self.views: dict[tuple[GroupRequest, Depths], Candidates] = {}
        """The domains as requests see them."""
        self._trial = trial
        self._rooms: dict[tuple[int, Kind], DomainRoom] = {}

    def room(self, request: GroupRequest, deepest: int) -> DomainRoom:
        """Return the up-to-date room for a request."""
        room = self._rooms.get((deepest, request.kind))
        if room is None:
            if len(self._rooms) >= ROOMS_KEPT:
                self._rooms.clear()
                self.views.clear()
            room = self._rooms[deepest, request.kind] = DomainRoom(self._trial, self.layout, request, deepest)
        room.refresh()
        return room


class TopologyUsage:
    """The trees of a cycle, whole ones and parts of them, and what its gangs request for."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self._whole: dict[str, DomainUsage] = {}
        self._parts: dict[tuple[str, bytes], DomainUsage] = {}
        self._requests: dict[tuple[int, ...], GroupRequest] = {}
        self._depths: dict[TopologyRequirement, Depths] = {}

    @classmethod
    def open(cls, cycle: Cycle) -> TopologyUsage:
        return cls(cycle.trial)

    def usage(self, topology: str, nodes: Rows | None) -> DomainUsage:
        """A known topology over the given node rows (None: all)."""
        whole = self._whole.get(topology)
        if whole is None:
            snapshot = self.trial.snapshot
            layout = snapshot.nodes.derived(whole_layout, snapshot.topologies[topology])
            whole = self._whole[topology] = DomainUsage(self.trial, layout, layout)
        if nodes is None:
            return whole
        key = (topology, nodes.tobytes())
        part = self._parts.get(key)
        if part is None:
            if len(self._parts) >= PARTS_KEPT:
                self._parts.clear()
            tree = within(whole.layout.tree, sorted(whole.layout.places(nodes.tolist())))
            layout = Layout(tree, len(self.trial.snapshot.nodes))
            part = self._parts[key] = DomainUsage(self.trial, layout, whole.layout)
        return part

    def depths(self, requirement: TopologyRequirement, sub_group: str) -> Depths:
        """Return the depths of a constraint, as the function does; remembered, gangs of a kind are many."""
        known = self._depths.get(requirement)
        if known is None:
            known = self._depths[requirement] = depths(self.trial.snapshot.topologies, requirement, sub_group)
        return known

    def request(self, pods: Sequence[int]) -> GroupRequest:
        """What the pods request for; remembered likewise."""
        klass = self.trial.klass
        key = tuple([klass[pod] for pod in pods])
        known = self._requests.get(key)
        if known is None:
            known = self._requests[key] = group_request(self.trial, pods)
        return known


# ----------------------------------------------------------------------------------------------------------- candidates
class Candidates:
    """The domains of a tree down to the deepest level that is wanted."""

    def __init__(self, usage: DomainUsage, request: GroupRequest, wanted: Depths) -> None:
        self.layout, self._whole = usage.layout, usage.whole
        self.request = request
        self.wanted = wanted
        self.common = common_depth(usage.layout.tree, wanted.preferred or wanted.required)
        """How far down one domain holds all nodes."""
        self._room = usage.room(request, wanted.deepest)
        self._read = len(self._room.changed)
        self._wants: list[float] = request.wants.tolist()
        tight = [tightness(request.wants, self.free(depth)).tolist() for depth in range(wanted.deepest + 1)]
        self.order = TreeOrder(usage.layout.tree, tight)

    @classmethod
    def of(cls, usage: DomainUsage, request: GroupRequest, wanted: Depths) -> Candidates:
        """Return the up-to-date domains of a usage for a request."""
        known = usage.views.get((request, wanted))
        if known is None:
            known = usage.views[request, wanted] = cls(usage, request, wanted)
        known.refresh()
        return known

    def refresh(self) -> None:
        """Follow the figures of what was touched since the last time."""
        self._room.refresh()
        changed = self._room.changed
        if self._read == len(changed):
            return
        domains = set(changed[self._read :])
        self._read = len(changed)
        for depth in range(self.wanted.deepest, -1, -1):
            _, *free = self._room.sums[depth]
            for domain in domains:
                self.order.put(depth, domain, tightness_of(self._wants, [column[domain] for column in free]))
            above = self.layout.tree.above[depth]
            domains = {above[domain] for domain in domains}

    def room(self, depth: int) -> Column:
        """[domain]: how many of the pods each could take."""
        return np.array(self._room.sums[depth][0])

    def free(self, depth: int) -> Column:
        """[resource, domain], of the resources that are asked for."""
        return np.array(self._room.sums[depth][1:]).reshape(len(self._wants), self.layout.tree.count(depth))

    def holds(self, depth: int, domain: int) -> bool:
        """Whether a domain has room for all the pods."""
        if self.request.uniform:
            return self._room.sums[depth][0][domain] >= self.request.count
        return self.order.tight[depth][domain] <= 1

    def fitting(self, depth: int, at: int = 0, domain: int = 0) -> Iterator[int]:
        """Yield the domains of a depth with room for all the pods, from left to right, within a domain of depth `at`
        that has room itself."""
        if at == depth:
            yield domain
            return
        family: Iterable[int] = self.order.family(at + 1, domain)
        if self.request.uniform:  # room counted in pods is never more in a part than in the whole
            room, count = self._room.sums[at + 1][0], self.request.count
            family = [child for child in family if room[child] >= count]
        elif at + 1 == depth:
            family = [child for child in family if self.holds(depth, child)]
        for child in family:
            yield from self.fitting(depth, at + 1, child)

    def near(self, nodes: Sequence[int], depth: int) -> Mask:
        """Which domains of a depth lie in a domain of the required level that holds one of the node rows, whether that
        node itself is on the usage or not."""
        whole, required, tree = self._whole, self.wanted.required, self.layout.tree
        holds = np.zeros(whole.tree.count(required), dtype=bool)
        holds[whole.tree.domain_of(required, np.array(whole.places(nodes), dtype=np.int64))] = True
        return np.asarray(
            holds[
                whole.tree.domain_of(
                    required, np.array(whole.places(tree.order[tree.starts[depth]].tolist()), dtype=np.int64)
                )
            ]
        )
