"""topology: the members of a gang, or of a sub-group, close together (spec/scheduling.md §12).

A required level confines all of them to one domain of that level. With a preferred level narrow domains are tried
first, then wider ones up to the required level or the whole topology. Among domains of a level the tightest that can
take everybody goes first, so that large domains stay whole. Depths count levels from the widest, 1; 0 is the root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pykai.engine.points import NodeSets
from pykai.engine.reasons import POD_ERRORS, GangError
from pykai.kernels.domains import common_depth, left_to_right, position_scores, sums_by_depth, tightness
from pykai.model.gangs import PodSet, SubGroupSet, TopologyRequirement
from pykai.model.pods import PodClass
from pykai.model.resources import CPU, GPU, MEMORY, MIG_PREFIX, Column, Mask, Rows
from pykai.model.status import IS_ACTIVE_ALLOCATED
from pykai.plugins.domain_room import Ask, Ground, Grounds

if TYPE_CHECKING:
    from pykai.engine.cycle import Cycle

Group = SubGroupSet | PodSet
NO_ROOM = "Not enough resources for the workload"
TITLES = {CPU: "CPU cores", MEMORY: "memory", GPU: "GPUs"}


@dataclass(frozen=True)
class Topology:
    """Node sets by domain, and scores that draw what exceeds one preferred domain to the emptier ones."""

    def subsets(self, cycle: Cycle, gang: int, group: Group, pods: Sequence[int], nodes: Rows | None) -> NodeSets:
        wish = group.topology
        if wish is None or not wish.topology:
            return NodeSets([nodes])
        try:
            wanted = depths(cycle.snapshot.topologies, wish, group.name)
        except ConstraintError as error:
            return NodeSets((), [GangError(POD_ERRORS, str(error))])
        grounds = Grounds.of(cycle)
        domains = Domains.of(grounds.ground(wish.topology, nodes), grounds.ask(pods), wanted)
        return node_sets(Member(cycle, gang, group, wish), domains)

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return bool(cycle.snapshot.topologies)

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None:
        scores: dict[int, Column] | None = cycle.memo.get("group_scores")
        return scores.get(cycle.trial.podset[pod]) if scores else None


# -------------------------------------------------------------------------------------------------------- constraints
class ConstraintError(ValueError):
    """A constraint that no cluster could satisfy: it names an unknown topology, an unknown level, or no level."""


@dataclass(frozen=True)
class Depths:
    """Depths of the levels a constraint names; 0 where it names none."""

    required: int
    preferred: int

    @property
    def deepest(self) -> int:
        return max(self.required, self.preferred)

    def candidates(self, common: int = 0) -> range:
        """Depths to look for domains at, narrow ones first; one domain holds all nodes down to depth `common`."""
        return range(self.deepest, max(self.required, common) - 1, -1)


def depths(topologies: Mapping[str, Sequence[str]], wish: TopologyRequirement, sub_group: str) -> Depths:
    """Where the levels are that a constraint of a sub-group names; without a name it is the whole workload's."""
    if wish.topology not in topologies:
        raise ConstraintError(f"Requested topology {wish.topology} does not exist")
    if not wish.required and not wish.preferred:
        text = f"no topology constraints were found for subgroup {sub_group}, with topology name {wish.topology}"
        raise ConstraintError(text)
    who = f"sub-group {sub_group}" if sub_group else "workload"
    known = {"": 0, **{level: depth for depth, level in enumerate(topologies[wish.topology], start=1)}}
    for kind, level in (("required", wish.required), ("preferred", wish.preferred)):
        if level not in known:
            raise ConstraintError(
                f"topology constraint error: {who} specified '{level}' as the {kind} topology constraint level, "
                f"but the topology tree '{wish.topology}' does not contain a level with this name"
            )
    return Depths(known[wish.required], known[wish.preferred])


# ------------------------------------------------------------------------------------------------------------- search
@dataclass(frozen=True, eq=False)
class Domains:
    """The domains of one tree as one ask sees them; figures by depth."""

    ground: Ground
    ask: Ask
    wanted: Depths
    room: list[Column]
    """[domain]: how many of the pods each could take."""
    free: list[Column]
    """[resource, domain], of the resources that are asked for."""

    @classmethod
    def of(cls, ground: Ground, ask: Ask, wanted: Depths) -> Domains:
        sums = sums_by_depth(ground.tree, wanted.deepest, ground.figures(ask))
        return cls(ground, ask, wanted, [block[0] for block in sums], [block[1:] for block in sums])

    @property
    def common(self) -> int:
        """How far down one domain holds all nodes."""
        return common_depth(self.ground.tree, self.wanted.preferred or self.wanted.required)

    def fit(self, depth: int) -> Mask:
        if self.ask.uniform:
            return self.room[depth] >= self.ask.count
        return tightness(self.ask.wants, self.free[depth]) <= 1

    def orders(self) -> list[Rows]:
        """The domains of each depth from left to right."""
        below = left_to_right(self.ground.tree, [tightness(self.ask.wants, free) for free in self.free[1:]])
        return [np.zeros(1, dtype=np.int64), *below]

    def near(self, nodes: Sequence[int], depth: int) -> Mask:
        """Which domains of a depth lie in a domain of the required level that holds one of the node rows."""
        tree, required = self.ground.tree, self.wanted.required
        holds = np.zeros(tree.count(required), dtype=bool)
        holds[tree.domain_of(required, self.ground.positions(np.array(nodes)))] = True
        return np.asarray(holds[tree.domain_of(required, tree.starts[depth])])


def node_sets(member: Member, domains: Domains) -> NodeSets:
    """The nodes of each domain with room for everybody, in the order to try them."""
    wanted, common = domains.wanted, domains.common
    if not domains.fit(0)[0]:
        place = member.domain_id(domains, common, 0) if common else "the cluster"
        return NodeSets((), [member.unsatisfied(f": not enough resources in {place} to allocate the job")])
    orders = domains.orders()
    if wanted.preferred:
        member.keep_scores(domains, orders[wanted.preferred])
    active = member.active_nodes() if wanted.required else []
    chosen: list[tuple[int, Rows]] = []
    for depth in wanted.candidates(common):
        fit = domains.fit(depth) & domains.near(active, depth) if active else domains.fit(depth)
        chosen.append((depth, orders[depth][fit[orders[depth]]]))
    if not any(len(found) for _, found in chosen):
        return NodeSets((), shortages(member, domains, depth, domains.near(active, depth) if active else None))
    return NodeSets(domains.ground.nodes_of(depth, domain) for depth, found in chosen for domain in found.tolist())


@dataclass(frozen=True, eq=False)
class Member:
    """The pods that go together: a gang's sub-group, or all of the gang, and what is remembered and said about it."""

    cycle: Cycle
    gang: int
    group: Group
    wish: TopologyRequirement

    @property
    def podsets(self) -> list[int]:
        return [self.group.row] if isinstance(self.group, PodSet) else [podset.row for podset in self.group.podsets()]

    def active_nodes(self) -> list[int]:
        """Where its pods are that have a place already."""
        trial, podsets = self.cycle.trial, self.podsets
        if not any(trial.active_allocated[row] for row in podsets):
            return []
        pods = [pod for pod in self.cycle.snapshot.gangs.pods(self.gang) if trial.podset[pod] in podsets]
        return [trial.node[pod] for pod in pods if IS_ACTIVE_ALLOCATED[trial.status[pod]]]

    def keep_scores(self, domains: Domains, order: Rows) -> None:
        """Remember node scores for the pods of all its podsets, until a sub-group of it has scores of its own."""
        tree = domains.ground.tree
        column = np.zeros(len(self.cycle.snapshot.nodes))
        column[tree.order] = position_scores(tree, domains.wanted.preferred, order)
        self.cycle.memo.setdefault("group_scores", {}).update(dict.fromkeys(self.podsets, column))

    def domain_id(self, domains: Domains, depth: int, domain: int) -> str:
        tree, snapshot = domains.ground.tree, self.cycle.snapshot
        labels = snapshot.nodes.labels[int(tree.order[tree.starts[depth][domain]])]
        return ".".join(labels[level] for level in snapshot.topologies[self.wish.topology][:depth])

    def unsatisfied(self, why: str = "") -> GangError:
        level = self.wish.required or self.wish.preferred
        sub_group = f", subgroup {self.group.name}" if self.group.name else ""
        return GangError(
            POD_ERRORS,
            f"topology {self.wish.topology}, requirement {level} couldn't be satisfied for job "
            f"<{self.cycle.snapshot.gangs.title(self.gang)}>{sub_group}{why}",
        )


# ------------------------------------------------------------------------------------------------------------ reasons
def shortages(member: Member, domains: Domains, depth: int, allowed: Mask | None) -> Iterator[GangError]:
    """What each domain of a depth lacks, and that the constraint cannot be met therefore."""
    ask, memo = domains.ask, member.cycle.memo.setdefault("topology_shortages", {})
    key = (domains.ground, ask.classes, ask.count, depth, allowed is None or allowed.tobytes())
    moment = len(member.cycle.trial.touched)
    if memo.get(key, (-1,))[0] != moment:
        shown = np.arange(domains.ground.tree.count(depth)) if allowed is None else np.flatnonzero(allowed)
        memo[key] = (moment, list(_lacking(member, domains, depth, shown.tolist())))
    yield from memo[key][1]
    yield member.unsatisfied()


def _lacking(member: Member, domains: Domains, depth: int, shown: Sequence[int]) -> Iterator[GangError]:
    ask = domains.ask
    room, short = domains.room[depth], domains.free[depth] < ask.wants[:, None]
    for domain in shown:
        title = member.domain_id(domains, depth, domain)
        if ask.uniform:
            text = f"node-group {title} can allocate only {room[domain]:.0f} of {ask.count} required pods"
            yield GangError(NO_ROOM, text, node_group=title)
        else:
            for row in ask.dims[short[:, domain]].tolist():
                yield GangError(NO_ROOM, _short_of(member.cycle.snapshot.space.names[row], row), node_group=title)


def _short_of(name: str, row: int) -> str:
    if name.startswith(MIG_PREFIX):
        return f"node-group(s) didn't have enough of mig profile: {name}"
    return f"node-group(s) didn't have enough resources: {TITLES.get(row, name)}"
