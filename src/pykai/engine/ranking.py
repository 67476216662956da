"""Rankings: per pod class, which nodes fit and how they score, kept up to date instead of computed anew.

A placement touches one node, so it changes one entry of each ranking. A ranking remembers how far it has read the
trial's list of touched nodes and refreshes only those entries. A ranking of some nodes is cut out of that of all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import floor

import numpy as np

from pykai.engine.node_facts import NodeFacts, NodeState
from pykai.engine.points import NodeLook
from pykai.engine.ranked import UNFIT, Ranked
from pykai.engine.relative import Standing
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column, Mask, Rows

FEW = 12
"""Up to this many nodes are looked at one by one: a loop is faster than columns then."""


class Rankings:
    """The rankings of a cycle, by class."""

    def __init__(self, facts: NodeFacts) -> None:
        self._facts = facts
        self._known: dict[int, Ranking] = {}

    def of(self, pod_class: PodClass, nodes: Rows | None = None) -> Ranked:
        """The up-to-date ranking of a class over the given node rows, ascending (None: all)."""
        ranking = self.ranking(pod_class)
        if nodes is not None:
            return ranking.within(nodes)
        ranking.refresh()
        return ranking.ranked

    def ranking(self, pod_class: PodClass) -> Ranking:
        known = self._known.get(pod_class.row)
        if known is None:
            known = self._known[pod_class.row] = Ranking(self._facts, pod_class)
        return known


class Ranking:
    """Scores of one class over all nodes, kept up to date."""

    def __init__(self, facts: NodeFacts, pod_class: PodClass) -> None:
        self._facts = facts
        self.trial = facts.trial
        self.pod_class = pod_class
        self._allowed = facts.allowed(pod_class)
        self._allowed_list: list[bool] = self._allowed.tolist()
        self._amounts = self.trial.amounts
        self._shared = pod_class.shared
        self._dims: list[tuple[int, float]] = [(row, float(pod_class.request[row])) for row in pod_class.dims.tolist()]
        offered = self.trial.snapshot.nodes.allocatable > 0
        asked = [(plugin, plugin.measured(pod_class)) for plugin in facts.relative]
        self._relative = [Standing(plugin, row, offered[row]) for plugin, row in asked if row is not None]
        self._steady_scores: dict[tuple[bool, bool], Column] = {}
        count = len(self._allowed)
        self.ranked = Ranked(
            rows=facts.every,
            local=np.full(count, UNFIT),
            total=np.full(count, UNFIT),
            fits_now=np.zeros(count, dtype=bool),
            fits_twice=np.zeros(count, dtype=bool),
            by_order=len(self._relative) <= 1,
        )
        self._read = len(self.trial.touched)
        self._outdated: set[int] = set()
        """Nodes touched so far whose entries have not been looked at since."""
        self._settled = True
        """Whether `total` follows the extremes as they are."""
        self._update(facts.every)
        self.refresh()

    def refresh(self) -> None:
        """Bring the entries of all nodes touched since the last time up to date."""
        self._look_again(None)
        if not self._settled:
            self._settled = True
            if [standing for standing in self._relative if not standing.settled()]:
                self._add_up(self._facts.every)

    def _look_again(self, nodes: Rows | None) -> None:
        """Bring outdated entries up to date, where only those of some nodes matter just these."""
        touched, outdated = self.trial.touched, self._outdated
        if self._read < len(touched):
            outdated.update(touched[self._read :])
            self._read = len(touched)
        changed = outdated.copy() if nodes is None else outdated.intersection(nodes.tolist())
        if not changed:
            return
        outdated -= changed
        if len(changed) <= FEW and self._facts.steady:
            self._update_few(changed)
        else:
            self._update(np.fromiter(changed, dtype=np.int64, count=len(changed)))

    def within(self, nodes: Rows) -> Ranked:
        """The same over some nodes, ascending; what is relative is relative to those."""
        self._look_again(nodes)
        whole = self.ranked
        local = whole.local.take(nodes)
        total = local
        for standing in self._relative:
            total = total + standing.within(nodes)
        now, twice = whole.fits_now.take(nodes), whole.fits_twice.take(nodes)
        return Ranked(nodes, local, total, now, twice, whole.by_order)

    # ---------------------------------------------------------------------------------------------------- many nodes
    def _update(self, nodes: Rows) -> None:
        ranked, (look, fits) = self.ranked, self.look(nodes)
        scores: Column | float = 0.0
        if fits.any():
            for plugin in self._facts.scores:
                scores = scores + plugin.score(look)
        ranked.local[nodes] = np.where(fits, scores, UNFIT)
        ranked.fits_now[nodes] = look.fits_now & fits
        for standing in self._relative:
            standing.put_all(nodes, look.free[standing.resource])
        self._add_up(nodes)
        self._settled = False

    def _add_up(self, nodes: Rows) -> None:
        self.ranked.total[nodes] = self.ranked.local[nodes] + sum(standing.scores(nodes) for standing in self._relative)

    def look(self, nodes: Rows) -> tuple[NodeLook, Mask]:
        """The nodes as the class sees them, and whether it fits counting what is being released."""
        trial, c = self.trial, self.pod_class
        idle = trial.idle.take(nodes, axis=1)
        free = idle + trial.releasing.take(nodes, axis=1)
        need = self._facts.need(c, nodes)
        fits = np.logical_and.reduce(free >= need) & self._allowed[nodes]
        now: Mask = np.logical_and.reduce(idle >= need)
        sharable = np.zeros(len(nodes))
        if c.shared:
            sharable = self._sharable(nodes)
            fits &= np.floor(free[GPU]) + sharable >= c.devices
            fits &= trial.snapshot.nodes.gpu_memory[nodes] >= c.memory_mib
            now = now & (np.floor(idle[GPU]) + sharable >= c.devices)
        else:
            self.ranked.fits_twice[nodes] = np.logical_and.reduce(free >= 2 * need)
        return NodeLook(trial, c, nodes, idle, free, now, sharable), fits

    def _sharable(self, nodes: Rows) -> Column:
        """Devices already shared on each node on which the class still fits."""
        counts, shares, state = np.zeros(len(nodes)), self.trial.shares, self._facts.states()
        at = {node: position for position, node in enumerate(nodes.tolist())}
        for node in shares if len(shares) < len(at) else at:
            if node in at:
                counts[at[node]] = self._sharable_on(node, state(node).rooms)
        return counts

    def _sharable_on(self, node: int, left: Sequence[float]) -> int:
        """How many devices with this much room, ascending, hold a pod of the class."""
        return len(left) - bisect_left(left, self._amounts.share_memory(self.pod_class, node)) if left else 0

    # ------------------------------------------------------------------------------------------------------ few nodes
    def _update_few(self, nodes: Iterable[int]) -> None:
        """The same as `_update` with numbers instead of columns."""
        local, total, relative, state_of = self.ranked.local, self.ranked.total, self._relative, self._facts.states()
        for node in nodes:
            state = state_of(node)
            local[node] = score = self._score(node, state)
            for standing in relative:
                score += standing.put(node, state.free[standing.resource])
            total[node] = score
        self._settled = False

    def _score(self, node: int, state: NodeState) -> float:
        """The score of one node without relative ones; notes whether the class fits there at once, and twice."""
        ranked, (idle, free, left), now, twice, shared = self.ranked, state, True, True, 0
        fits = self._allowed_list[node]
        for row, need in self._dims:
            have = free[row]
            if have < need:
                fits = False
                break
            if have < 2 * need:
                twice = False
            if idle[row] < need:
                now = False
        if self._shared and fits:
            shared, devices = self._sharable_on(node, left), self.pod_class.devices
            fits = floor(free[GPU]) + shared >= devices and self._amounts.gpu_memory[node] >= self.pod_class.memory_mib
            now = now and floor(idle[GPU]) + shared >= devices
        ranked.fits_now[node], ranked.fits_twice[node] = fits and now, twice
        return float(self._steady(now, shared > 0)[node]) if fits else UNFIT

    def _steady(self, now: bool, shared: bool) -> Column:
        """Scores of all nodes, if the class fits at once everywhere or nowhere, and so for room on shared devices."""
        known = self._steady_scores.get((now, shared))
        if known is None:
            nodes, trial = self._facts.every, self.trial
            facts = (np.full(len(nodes), now), np.full(len(nodes), float(shared)))
            look = NodeLook(trial, self.pod_class, nodes, trial.idle, trial.idle, *facts)
            known = np.zeros(len(nodes))
            for plugin in self._facts.scores:
                known = known + plugin.score(look)
            self._steady_scores[now, shared] = known
        return known
