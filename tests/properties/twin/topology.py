"""§12 Topology-aware placement: SubsetNodes, step by step as the page numbers them.

A domain is the tuple of its label values from the widest level down; the root is the empty one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from pykai.model.gangs import TopologyRequirement
from pykai.model.resources import CPU, GPU, MEMORY, MIG_PREFIX, PODS
from tests.properties.twin.gangs import Member, podsets_of
from tests.properties.twin.places import matching
from tests.properties.twin.world import ACTIVE_ALLOCATED, World

Domain = tuple[str, ...]
ROOT: Domain = ()
SHORT = 1000.0
"""The ratio where something is asked for that a domain has nothing of."""
TITLES = {CPU: "CPU cores", MEMORY: "memory", GPU: "GPUs"}


@dataclass(frozen=True)
class Answer:
    """Node sets to be tried one after the other; why there are none; scores by node (None: no level is preferred)."""

    sets: Sequence[Sequence[int]]
    why: Sequence[str] = ()
    scores: dict[int, int] | None = None


class Tree:
    """A topology with those of some nodes that have all labels of its levels."""

    def __init__(self, world: World, levels: Sequence[str], nodes: Iterable[int]) -> None:
        self.levels = levels
        labels = world.snapshot.nodes.labels
        self.of_node: dict[int, Domain] = {
            node: tuple(labels[node][level] for level in levels)
            for node in nodes
            if all(level in labels[node] for level in levels)
        }

    def depth(self, level: str) -> int:
        """How many labels name a domain of the level; 0 for none and for a name the topology does not have."""
        return self.levels.index(level) + 1 if level in self.levels else 0

    def nodes(self, domain: Domain) -> list[int]:
        return [node for node, labels in self.of_node.items() if labels[: len(domain)] == domain]

    def children(self, domain: Domain) -> list[Domain]:
        """By id."""
        return sorted({self.of_node[node][: len(domain) + 1] for node in self.nodes(domain)} - {domain})

    def common(self, deepest: int) -> Domain:
        """Step 2: the lowest domain that holds all of the nodes."""
        domain = ROOT
        for depth in range(1, deepest + 1):
            found = {labels[:depth] for labels in self.of_node.values()}
            if len(found) != 1:
                break
            (domain,) = found
        return domain


def subset_nodes(world: World, group: Member, pods: Sequence[int], nodes: Sequence[int]) -> Answer:
    """SubsetNodes"""
    wish = group.topology
    if wish is None or not wish.topology:
        return Answer([nodes])
    levels = world.snapshot.topologies.get(wish.topology)
    if levels is None:
        return Answer([], [f"Requested topology {wish.topology} does not exist"])
    wrong = _wrong_names(group, wish, levels)
    return Answer([], wrong) if wrong else Subsets(world, group, wish, pods, nodes).answer()


def _wrong_names(group: Member, wish: TopologyRequirement, levels: Sequence[str]) -> list[str]:
    """Of step 7. Our rules: they come before shortages; the whole gang is called workload."""
    whom = f"sub-group {group.name}" if group.name else "workload"
    for kind, level in (("required", wish.required), ("preferred", wish.preferred)):
        if level and level not in levels:
            return [
                f"topology constraint error: {whom} specified '{level}' as the {kind} topology constraint level, "
                f"but the topology tree '{wish.topology}' does not contain a level with this name"
            ]
    if not wish.required and not wish.preferred:
        whom = f"subgroup {group.name}" if group.name else "workload"
        return [f"no topology constraints were found for {whom}, with topology name {wish.topology}"]
    return []


class Subsets:
    """One call of SubsetNodes for a constraint whose names are right.

    Our rules: of a domain only the given nodes count, not those that a constraint further up has excluded; the common
    domain is looked for down to the preferred, else the required level, and may be narrower than the required one.
    """

    def __init__(
        self, world: World, group: Member, wish: TopologyRequirement, pods: Sequence[int], nodes: Sequence[int]
    ) -> None:
        self.world, self.group, self.wish, self.pods = world, group, wish, pods
        levels = world.snapshot.topologies[wish.topology]
        self.tree, self.whole = Tree(world, levels, nodes), Tree(world, levels, range(len(world.nodes)))
        self.required, self.preferred = self.tree.depth(wish.required), self.tree.depth(wish.preferred)
        self.common = self.tree.common(self.preferred or self.required)

    def answer(self) -> Answer:
        if not self.fits(self.common):
            where = ".".join(self.common) or "the cluster"
            return Answer([], [f"{self._unsatisfied()}: not enough resources in {where} to allocate the job"])
        found = [domain for depth in self._levels() for domain in self._at(depth) if self._holds_the_others(domain)]
        fitting = [domain for domain in found if self.fits(domain)]
        if not fitting:
            top = [domain for domain in found if len(domain) == min(map(len, found))]
            errors = [error for domain in top for error in self._errors(domain)]
            return Answer([], [*errors, self._unsatisfied()], self._scores())
        return Answer([self.tree.nodes(domain) for domain in fitting], [], self._scores())

    # ------------------------------------------------------------------------------------- steps 3 and 4: what fits
    @cached_property
    def wanted(self) -> list[list[float]]:
        return [[float(x) for x in self.world.of_class(pod).request] for pod in self.pods]

    @cached_property
    def homogeneous(self) -> bool:
        uses_gpus = {self.world.of_class(pod).wants_gpu for pod in self.pods}
        others = [r for r in range(len(self.wanted[0])) if r not in (CPU, MEMORY, GPU)]
        return len(uses_gpus) == 1 and all(len({request[r] > 0 for request in self.wanted}) == 1 for r in others)

    def accommodation(self, node: int) -> int:
        """How many of the largest pod a node has room for."""
        largest = [max(amounts) for amounts in zip(*self.wanted, strict=True)]
        figures = self.world.nodes[node]
        free = [figures.free(r) for r in range(len(largest))]
        if any(c.shared and c.request[GPU] == largest[GPU] for c in map(self.world.of_class, self.pods)):
            free[GPU] += figures.free_portions(self.world.gpu_memory[node])
        if any(need > max(have, 0.0) for need, have in zip(largest, free, strict=True)) or not self._has_devices(node):
            return 0
        if not any(need for r, need in enumerate(largest) if r != PODS):
            return len(self.pods)
        return min(int(have / need) for need, have in zip(largest, free, strict=True) if need > 0)

    def _has_devices(self, node: int) -> bool:
        """Our rule: a node without the devices for any of the pods, all of which take shares, has no room."""
        classes = [self.world.of_class(pod) for pod in self.pods]
        whole = math.floor(self.world.nodes[node].free(GPU))
        return not all(c.shared for c in classes) or any(
            whole + len(matching(self.world, c, node)) >= c.devices for c in classes
        )

    def allocatable_pods(self, domain: Domain) -> int:
        return sum(self.accommodation(node) for node in self.tree.nodes(domain))

    def ratios(self, domain: Domain) -> dict[int, float]:
        """Of what is asked for to what is free, by resource; slots do not count."""
        found = {}
        for r, need in enumerate(sum(amounts) for amounts in zip(*self.wanted, strict=True)):
            free = sum(self.world.nodes[node].free(r) for node in self.tree.nodes(domain))
            if need > 0 and r != PODS:
                found[r] = need / free if free > 0 else SHORT
        return found

    def fits(self, domain: Domain) -> bool:
        if self.homogeneous:
            return self.allocatable_pods(domain) >= len(self.pods)
        return max(self.ratios(domain).values(), default=0.0) <= 1

    # ---------------------------------------------------------------------------------------- step 5: which one first
    def _at(self, depth: int) -> list[Domain]:
        """Domains of a level from left to right.

        Our rule: where the common domain is narrower than the level, it stands for the domain of the level.
        """
        found = [self.common]
        while found and len(found[0]) < depth:
            found = [child for domain in found for child in self._in_order(self.tree.children(domain))]
        return found

    def _in_order(self, siblings: Sequence[Domain]) -> list[Domain]:
        """Tightest first. Our rule: also below a preferred level that is wider than the required one."""
        return sorted(siblings, key=lambda domain: (-max(self.ratios(domain).values(), default=0.0), domain))

    # -------------------------------------------------------------------------------------------- step 6: node scores
    def _scores(self) -> dict[int, int] | None:
        if not self.preferred:
            return None
        domains = self._at(self.preferred)
        return {
            node: 10 * (place + 1) // len(domains) * 100_000
            for place, domain in enumerate(domains)
            for node in self.tree.nodes(domain)
        }

    # --------------------------------------------------------------------------- steps 7 to 9: which ones come into it
    def _levels(self) -> list[int]:
        """From the bottom: the narrower one of the two levels, up to the required one or the root."""
        levels = range(max(self.required, self.preferred), self.required - 1, -1)
        above = [depth for depth in levels if depth <= len(self.common)]
        return [depth for depth in levels if depth > len(self.common)] + above[:1]

    def _holds_the_others(self, domain: Domain) -> bool:
        """A gang that grows stays where it is. Our rule: where any podset of the sub-group is."""
        world = self.world
        rows = {podset.row for podset in podsets_of(self.group)}
        others = [p for p in world.having(world.gang[self.pods[0]], ACTIVE_ALLOCATED) if world.podset[p] in rows]
        of_node = self.whole.of_node
        homes = {of_node[node][: self.required] for p in others if (node := world.pods[p].node) in of_node}
        return not others or not self.required or domain[: self.required] in homes

    # ---------------------------------------------------------------------------------------------------------- texts
    def _unsatisfied(self) -> str:
        title = self.world.gangs.title(self.world.gang[self.pods[0]])
        level = self.wish.required or self.wish.preferred
        whom = f"<{title}>" + (f", subgroup {self.group.name}" if self.group.name else "")
        return f"topology {self.wish.topology}, requirement {level} couldn't be satisfied for job {whom}"

    def _errors(self, domain: Domain) -> list[str]:
        if self.homogeneous:
            able = self.allocatable_pods(domain)
            return [f"node-group {'.'.join(domain)} can allocate only {able} of {len(self.pods)} required pods"]
        return [_lack(self.world.snapshot.space.names[r], r) for r, ratio in self.ratios(domain).items() if ratio > 1]


def _lack(name: str, resource: int) -> str:
    if name.startswith(MIG_PREFIX):
        return f"node-group(s) didn't have enough of mig profile: {name}"
    return f"node-group(s) didn't have enough resources: {TITLES.get(resource, name)}"
