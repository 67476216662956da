"""What room the nodes and domains of a topology have for a gang, kept up to date while a cycle places pods.

A placement touches few nodes of few domains. Figures per node follow the trial's list of touched nodes instead of
being computed anew for every gang, and so do their sums per domain. Not a plugin: the state the topology plugin keeps
in the memory of a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pykai.kernels.domains import DomainTree, domain_tree, sum_again, sums_by_depth, within
from pykai.model.nodes import NodeTable
from pykai.model.resources import Rows
from pykai.plugins.domain_ask import Ask, Kind, ask_for, figures_of

if TYPE_CHECKING:
    from pykai.engine.cycle import Cycle
    from pykai.engine.trial import Trial
    from pykai.plugins.domain_order import Domains
    from pykai.plugins.topology_levels import Depths

PARTS_KEPT = 256
"""Trees of parts of a topology that are remembered in a cycle: enough for the racks of a large cluster."""
ROOMS_KEPT = 64
"""Kinds of asks whose figures are remembered per tree."""


class Site:
    """Where the nodes of one tree of domains are: positions are places in its tree order. `nodes`: of the cluster."""

    def __init__(self, tree: DomainTree, nodes: int) -> None:
        self.tree = tree
        self.positions: Rows = np.full(nodes, -1, dtype=np.int64)
        """By node row; -1 outside the tree."""
        self.positions[tree.order] = np.arange(len(tree.order))
        self._position: list[int] = self.positions.tolist()
        self._nodes: dict[tuple[int, int], Rows] = {}

    def places(self, nodes: Iterable[int]) -> list[int]:
        """Positions of node rows; nodes outside the tree are left out."""
        position = self._position
        return [at for node in nodes if (at := position[node]) >= 0]

    def nodes_of(self, depth: int, domain: int) -> Rows | None:
        """The node rows of a domain, ascending, the same array each time; None where it is the whole cluster."""
        rows = self._nodes.get((depth, domain))
        if rows is None:
            rows = self._nodes[depth, domain] = np.sort(self.tree.members(depth, domain))
        return None if len(rows) == len(self._position) else rows


def whole_site(nodes: NodeTable, levels: Sequence[str]) -> Site:
    """The site of all nodes that have a value of each of these labels, widest level first."""
    tree = domain_tree([[labels.get(key) for labels in nodes.labels] for key in levels])
    return Site(tree, len(nodes))


class DomainRoom:
    """Figures of the nodes and domains of a site for asks of one kind (`figures_of`), down to a depth.

    `figures`: [figure, position]. `sums`: by depth [figure][domain]. `changed`: the domains of the deepest depth whose
    figures changed, in order of change; readers remember how far they have read.
    """

    def __init__(self, trial: Trial, site: Site, ask: Ask, deepest: int) -> None:
        self._trial, self._site = trial, site
        self._ask = ask
        self._around = site.tree.around[deepest]
        self._read = len(trial.touched)
        self.figures = figures_of(trial, ask, site.tree.order)
        self.sums = sums_by_depth(site.tree, deepest, self.figures)
        self.changed: list[int] = []

    def refresh(self) -> None:
        """Bring the figures of everything touched since the last time up to date."""
        site, touched = self._site, self._trial.touched
        if self._read == len(touched):
            return
        places = site.places(set(touched[self._read :]))
        self._read = len(touched)
        if places:
            news = np.array(places)
            self.figures[:, news] = figures_of(self._trial, self._ask, site.tree.order.take(news))
            domains = {self._around[at] for at in places}
            self.changed.extend(domains)
            sum_again(site.tree, self.figures, self.sums, domains)


class Ground:
    """A site in a cycle, and what is known of its room. `whole`: the site of all nodes of the topology."""

    def __init__(self, trial: Trial, site: Site, whole: Site) -> None:
        self.site = site
        self.whole = whole
        self.views: dict[tuple[Ask, Depths], Domains] = {}
        """The domains as asks see them."""
        self._trial = trial
        self._rooms: dict[tuple[int, Kind], DomainRoom] = {}

    def room(self, ask: Ask, deepest: int) -> DomainRoom:
        """The up-to-date room for an ask."""
        room = self._rooms.get((deepest, ask.kind))
        if room is None:
            if len(self._rooms) >= ROOMS_KEPT:
                self._rooms.clear()
                self.views.clear()
            room = self._rooms[deepest, ask.kind] = DomainRoom(self._trial, self.site, ask, deepest)
        room.refresh()
        return room


@dataclass
class Grounds:
    """The trees of a cycle, whole ones and parts of them, and what its gangs ask for."""

    trial: Trial
    _whole: dict[str, Ground] = field(default_factory=dict)
    _parts: dict[tuple[str, bytes], Ground] = field(default_factory=dict)
    _asks: dict[tuple[int, ...], Ask] = field(default_factory=dict)

    @classmethod
    def of(cls, cycle: Cycle) -> Grounds:
        known: Grounds | None = cycle.memo.get("topology")
        if known is None:
            known = cycle.memo["topology"] = cls(cycle.trial)
        return known

    def ground(self, topology: str, nodes: Rows | None) -> Ground:
        """A known topology over the given node rows (None: all)."""
        whole = self._whole.get(topology)
        if whole is None:
            snapshot = self.trial.snapshot
            site = snapshot.nodes.derived(whole_site, snapshot.topologies[topology])
            whole = self._whole[topology] = Ground(self.trial, site, site)
        if nodes is None:
            return whole
        key = (topology, nodes.tobytes())
        part = self._parts.get(key)
        if part is None:
            if len(self._parts) >= PARTS_KEPT:
                self._parts.clear()
            tree = within(whole.site.tree, sorted(whole.site.places(nodes.tolist())))
            site = Site(tree, len(self.trial.snapshot.nodes))
            part = self._parts[key] = Ground(self.trial, site, whole.site)
        return part

    def ask(self, pods: Sequence[int]) -> Ask:
        """What the pods ask for; remembered, gangs of a kind are many."""
        key = tuple(self.trial.klass[pod] for pod in pods)
        known = self._asks.get(key)
        if known is None:
            known = self._asks[key] = ask_for(self.trial, pods)
        return known
