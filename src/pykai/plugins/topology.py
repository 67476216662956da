"""topology: the members of a gang, or of a sub-group, close together (spec/scheduling.md §12).

A required level confines all of them to one domain of that level. With a preferred level narrow domains are tried
first, then wider ones up to the required level or the whole topology. Among domains of a level the tightest that can
take everybody goes first, so that large domains stay whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pykai.engine.reasons import POD_ERRORS, GangError
from pykai.kernels.domains import common_depth, domain_sums, left_to_right, position_scores, tightness
from pykai.model.gangs import PodSet, SubGroupSet, TopologyRequirement
from pykai.model.resources import CPU, GPU, MEMORY, MIG_PREFIX, Column, Mask, Rows
from pykai.model.status import IS_ACTIVE_ALLOCATED
from pykai.plugins.domain_room import Ask, Ground, Grounds

if TYPE_CHECKING:
    from pykai.engine.cycle import Cycle

Group = SubGroupSet | PodSet
NodeSets = list[Rows | None]

NO_ROOM = "Not enough resources for the workload"
TITLES = {CPU: "CPU cores", MEMORY: "memory", GPU: "GPUs"}


@dataclass(frozen=True)
class Topology:
    """Node sets by domain, and scores that draw what exceeds one preferred domain to the emptier ones."""

    def subsets(self, cycle: Cycle, gang: int, group: Group, pods: Sequence[int], nodes: Rows | None) -> NodeSets:
        wish = group.topology
        if wish is None or not wish.topology:
            return [nodes]
        levels = cycle.snapshot.topologies.get(wish.topology)
        if levels is None:
            return _refuse(cycle, gang, f"Requested topology {wish.topology} does not exist")
        try:
            wanted = depths(levels, wish, f"sub-group {group.name}" if group.name else "workload")
        except LevelError as error:
            return _refuse(cycle, gang, str(error))
        grounds = Grounds.of(cycle)
        ground = grounds.ground(wish.topology, nodes)
        return node_sets(cycle, (gang, group), Domains(ground, grounds.ask(pods), wanted), nodes)

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None:
        scores: dict[int, Column] | None = cycle.memo.get("group_scores")
        return scores.get(cycle.trial.podset[pod]) if scores else None


# ------------------------------------------------------------------------------------------------------------- levels
class LevelError(ValueError):
    """A constraint names no level, or one that its topology does not have."""


@dataclass(frozen=True)
class Depths:
    """Depths of the levels a constraint names, 1 for the widest; 0: none named."""

    required: int
    preferred: int

    @property
    def deepest(self) -> int:
        return max(self.required, self.preferred)


def depths(levels: Sequence[str], wish: TopologyRequirement, who: str) -> Depths:
    """Where the levels of a constraint are in its topology; `who` stated it."""
    if not wish.required and not wish.preferred:
        name = who.removeprefix("sub-group ")
        raise LevelError(f"no topology constraints were found for subgroup {name}, with topology name {wish.topology}")
    known = {"": 0, **{level: depth for depth, level in enumerate(levels, start=1)}}
    for kind, level in (("required", wish.required), ("preferred", wish.preferred)):
        if level not in known:
            raise LevelError(
                f"topology constraint error: {who} specified '{level}' as the {kind} topology constraint level, "
                f"but the topology tree '{wish.topology}' does not contain a level with this name"
            )
    return Depths(known[wish.required], known[wish.preferred])


# ------------------------------------------------------------------------------------------------------------ domains
@dataclass(frozen=True, eq=False)
class Domains:
    """The domains of one tree as one ask sees them."""

    ground: Ground
    ask: Ask
    wanted: Depths

    @property
    def common(self) -> int:
        """How far down one domain holds all nodes."""
        return common_depth(self.ground.tree, self.wanted.preferred or self.wanted.required)

    def candidate_depths(self) -> range:
        """Narrow domains first; those that hold all nodes are looked at once."""
        return range(self.wanted.deepest, max(self.wanted.required, self.common) - 1, -1)

    def room(self, depth: int) -> Column:
        """How many of the pods each domain could take."""
        return domain_sums(self.ground.tree, depth, self.ground.room(self.ask))

    def free(self, depth: int) -> Column:
        """[resource, domain], of the resources that are asked for."""
        return domain_sums(self.ground.tree, depth, self.ground.free()[self.ask.dims])

    def tight(self, depth: int) -> Column:
        return tightness(self.ask.total[self.ask.dims], self.free(depth))

    def fit(self, depth: int) -> Mask:
        if self.ask.uniform:
            return self.room(depth) >= self.ask.count
        return self.tight(depth) <= 1

    def orders(self) -> list[Rows]:
        """The domains of each depth in tree order; the root is depth 0."""
        below = left_to_right(self.ground.tree, [self.tight(depth) for depth in range(1, self.wanted.deepest + 1)])
        return [np.zeros(1, dtype=np.int64), *below]

    def holding(self, nodes: Rows) -> Mask:
        """Which domains of the required level hold one of the node rows."""
        tree, depth = self.ground.tree, self.wanted.required
        mask = np.zeros(tree.count(depth), dtype=bool)
        mask[tree.domain_of(depth, self.ground.positions(nodes))] = True
        return mask


# ------------------------------------------------------------------------------------------------------------- search
@dataclass(frozen=True, eq=False)
class Member:
    """The sub-group whose pods go together, of a gang."""

    cycle: Cycle
    gang: int
    group: Group

    @property
    def podsets(self) -> list[int]:
        return [self.group.row] if isinstance(self.group, PodSet) else [podset.row for podset in self.group.podsets()]

    def active_nodes(self) -> Rows:
        """Where its pods are that have a place already."""
        trial, podsets = self.cycle.trial, self.podsets
        if not any(trial.active_allocated[row] for row in podsets):
            return np.zeros(0, dtype=np.int64)
        pods = [pod for pod in self.cycle.snapshot.gangs.pods(self.gang) if trial.podset[pod] in podsets]
        return np.array([trial.node[pod] for pod in pods if IS_ACTIVE_ALLOCATED[trial.status[pod]]], dtype=np.int64)

    def unsatisfied(self) -> str:
        wish = self.group.topology or TopologyRequirement("")
        title = self.cycle.snapshot.gangs.title(self.gang)
        sub_group = f", subgroup {self.group.name}" if self.group.name else ""
        level = wish.required or wish.preferred
        return f"topology {wish.topology}, requirement {level} couldn't be satisfied for job <{title}>{sub_group}"


def node_sets(member: Member, domains: Domains) -> NodeSets:
    """The domains with room for everybody, narrow ones first and from left to right; why not, where there is none."""
    cycle, gang, wanted = member.cycle, member.gang, domains.wanted
    if not domains.fit(0)[0]:
        place = domains.title(domains.common) if domains.common else "the cluster"
        return _refuse(cycle, gang, f"{member.unsatisfied()}: not enough resources in {place} to allocate the job")
    orders = domains.orders()
    if wanted.preferred:
        _keep_scores(member, domains, orders[wanted.preferred])
    active = member.active_nodes() if wanted.required else ()
    found: NodeSets = []
    for depth in domains.candidate_depths():
        open_ = domains.fit(depth) & (domains.around(active, depth) if len(active) else True)
        found.extend(domains.ground.nodes_of(depth, domain) for domain in orders[depth][open_[orders[depth]]].tolist())
    if not found:
        ...
    return found
