"""topology: place the members of a gang, or of a sub-group, close together.

A required level confines all of them to one domain of that level. With a preferred level narrow domains are tried
first, then wider ones up to the required level or the whole topology. Among domains of a level the tightest that fits
all pods is tried first, so that large domains stay free. Depths count levels from the widest, 1; 0 is the root.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from pykai.engine.plugin_api import NodeSets
from pykai.engine.reasons import POD_ERRORS, GangError, Token
from pykai.kernels.domains import position_scores
from pykai.model.gangs import PodSet, SubGroupSet, TopologyRequirement
from pykai.model.pods import PodClass
from pykai.model.resources import CPU, GPU, MEMORY, MIG_PREFIX, Column, Mask, Rows
from pykai.model.status import IS_ACTIVE_ALLOCATED
from pykai.plugins.domains import Candidates, ConstraintError, TopologyUsage

if TYPE_CHECKING:
    from pykai.engine.cycle import Cycle

Group = SubGroupSet | PodSet
NO_ROOM = "Not enough resources for the workload"
TITLES = {CPU: "CPU cores", MEMORY: "memory", GPU: "GPUs"}


@dataclass(frozen=True)
class Topology:
    """Node sets by domain, and scores by which pods that exceed one preferred domain go to the emptier ones."""

    trees_only: ClassVar[bool] = True
    by_podset: ClassVar[bool] = True

    def subsets(self, cycle: Cycle, gang: int, group: Group, pods: Sequence[int], nodes: Rows | None) -> NodeSets:
        requirement = group.topology
        if requirement is None or not requirement.topology:
            return NodeSets([nodes])
        usage = cycle.state(TopologyUsage.open)
        try:
            wanted = usage.depths(requirement, group.name)
        except ConstraintError as error:
            return NodeSets((), [GangError(POD_ERRORS, str(error), token=Token.NO_TOPOLOGY)])
        domains = Candidates.of(usage.usage(requirement.topology, nodes), usage.request(pods), wanted)
        return node_sets(Member(cycle, gang, group, requirement), domains)

    def domains(self, cycle: Cycle, gang: int, group: Group) -> Rows | None:
        """By node: its domain of the required level; only that of the members that have a place already counts."""
        requirement = group.topology
        if requirement is None or not requirement.required:
            return None
        found = np.full(len(cycle.snapshot.nodes), -1)
        usage = cycle.state(TopologyUsage.open)
        try:
            depth = usage.depths(requirement, group.name).required
        except ConstraintError:
            return found
        layout = usage.usage(requirement.topology, None).layout
        found[layout.tree.order] = layout.tree.around[depth]
        active = [node for node in Member(cycle, gang, group, requirement).active_nodes() if node >= 0]
        if active:
            found[~np.isin(found, found[active])] = -1
        return found

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return bool(cycle.snapshot.topologies)

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None:
        kept = cycle.state(GroupScores)
        return kept.scores.get(cycle.trial.podset[pod]) if kept.attempt == cycle.attempt else None


class GroupScores:
    """Node scores by podset, of the sub-groups of the gang that is being placed: good for one attempt."""

    def __init__(self, _: Cycle) -> None:
        self.attempt = -1
        self.scores: dict[int, Column] = {}


# ------------------------------------------------------------------------------------------------------------- search
def node_sets(member: Member, domains: Candidates) -> NodeSets:
    """Return the nodes of each domain with room for all the pods, in the order to try them."""
    wanted, common = domains.wanted, domains.common
    if not domains.holds(0, 0):
        place = member.domain_id(domains, common, 0) if common else "the cluster"
        return NodeSets((), [member.unsatisfied(f": not enough resources in {place} to allocate the job")])
    if wanted.preferred:
        member.keep_scores(domains)
    active = member.active_nodes() if wanted.required else []
    found = _in_turn(domains, active)
    first = next(found, None)
    if first is None:
        depth = wanted.candidates(common)[-1]
        return NodeSets((), shortages(member, domains, depth, domains.near(active, depth) if active else None))
    return NodeSets(domains.layout.nodes_of(*place) for place in chain((first,), found))


def _in_turn(domains: Candidates, active: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (depth, domain) of each with room for all the pods; `active`: node rows of placed pods to stay near."""
    for depth in domains.wanted.candidates(domains.common):
        near = domains.near(active, depth) if active else None
        for domain in domains.fitting(depth):
            if near is None or near[domain]:
                yield depth, domain
                domains.refresh()  # what was tried in this one is undone


class Member(NamedTuple):
    """A group of pods to place together: a sub-group or the whole gang, with its scores and errors."""

    cycle: Cycle
    gang: int
    group: Group
    requirement: TopologyRequirement

    @property
    def podsets(self) -> list[int]:
        return [self.group.row] if isinstance(self.group, PodSet) else [podset.row for podset in self.group.podsets()]

    def active_nodes(self) -> list[int]:
        """Where its pods are that have a place already."""
        trial, podsets = self.cycle.trial, self.podsets
        if not any(map(trial.active_allocated.__getitem__, podsets)):
            return []
        pods = [pod for pod in self.cycle.snapshot.gangs.pods(self.gang) if trial.podset[pod] in podsets]
        return [trial.node[pod] for pod in pods if IS_ACTIVE_ALLOCATED[trial.status[pod]]]

    def keep_scores(self, domains: Candidates) -> None:
        """Remember node scores for the pods of all its podsets, until a sub-group of it has scores of its own."""
        tree, depth = domains.layout.tree, domains.wanted.preferred
        column = np.zeros(len(self.cycle.snapshot.nodes))
        column[tree.order] = position_scores(tree, depth, domains.order.level(depth))
        kept = self.cycle.state(GroupScores)
        if kept.attempt != self.cycle.attempt:
            kept.attempt, kept.scores = self.cycle.attempt, {}
        kept.scores.update(dict.fromkeys(self.podsets, column))

    def domain_id(self, domains: Candidates, depth: int, domain: int) -> str:
        tree, snapshot = domains.layout.tree, self.cycle.snapshot
        labels = snapshot.nodes.labels[int(tree.order[tree.starts[depth][domain]])]
        return ".".join(labels[level] for level in snapshot.topologies[self.requirement.topology][:depth])

    def unsatisfied(self, why: str = "") -> GangError:
        level = self.requirement.required or self.requirement.preferred
        sub_group = f", subgroup {self.group.name}" if self.group.name else ""
        return GangError(
            POD_ERRORS,
            f"topology {self.requirement.topology}, requirement {level} couldn't be satisfied for job "
            f"<{self.cycle.snapshot.gangs.title(self.gang)}>{sub_group}{why}",
            token=Token.TOPOLOGY,
        )


# ------------------------------------------------------------------------------------------------------------ reasons
def shortages(member: Member, domains: Candidates, depth: int, allowed: Mask | None) -> Iterator[GangError]:
    """What each domain of a depth lacks, and that the constraint cannot be met therefore."""
    request, known = domains.request, member.cycle.state(_Shortages)
    key = (domains.layout, request.classes, request.count, depth, allowed is None or allowed.tobytes())
    moment = len(member.cycle.trial.touched)
    if known.moment != moment:
        known.moment, known.errors = moment, {}
    if key not in known.errors:
        shown = np.arange(domains.layout.tree.count(depth)) if allowed is None else np.flatnonzero(allowed)
        known.errors[key] = list(_lacking(member, domains, depth, shown.tolist()))
    yield from known.errors[key]
    yield member.unsatisfied()


class _Shortages:
    """What domains lack, by request; valid until the next placement or eviction."""

    def __init__(self, _: Cycle) -> None:
        self.moment = -1
        self.errors: dict[Hashable, list[GangError]] = {}


def _lacking(member: Member, domains: Candidates, depth: int, shown: Sequence[int]) -> Iterator[GangError]:
    request = domains.request
    room, short = domains.room(depth), domains.free(depth) < request.wants[:, None]
    for domain in shown:
        title = member.domain_id(domains, depth, domain)
        if request.uniform:
            text = f"node-group {title} can allocate only {room[domain]:.0f} of {request.count} required pods"
            yield GangError(NO_ROOM, text, node_group=title, token=Token.TOPOLOGY)
        else:
            for row in request.dims[short[:, domain]].tolist():
                text = _short_of(member.cycle.snapshot.space.names[row], row)
                yield GangError(NO_ROOM, text, node_group=title, token=Token.TOPOLOGY)


def _short_of(name: str, row: int) -> str:
    if name.startswith(MIG_PREFIX):
        return f"node-group(s) didn't have enough of mig profile: {name}"
    return f"node-group(s) didn't have enough resources: {TITLES.get(row, name)}"
