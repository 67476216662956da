"""Rankings: which nodes fit pods of a class and how they score, kept up to date instead of computed anew.

A placement touches one node, so it changes one entry of each ranking. A ranking remembers how far it has read the
trial's list of touched nodes and refreshes only those entries. Classes that see the nodes alike share a ranking; a
ranking of some nodes is cut out of that of all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from math import floor

import numpy as np

from pykai.engine.node_facts import NodeFacts
from pykai.engine.node_states import NodeState
from pykai.engine.plugin_api import NodeLook, RelativeScore
from pykai.engine.ranked import UNFIT, Ranked
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column, Mask, Rows

FEW = 8
"""Up to this many nodes are looked at one by one: a loop is faster than columns then."""
MOST = 512
"""So many rankings are kept: where every pod asks for something else, an old one is hardly ever of use again."""


STREAK = 4
"""After so many pods of a class in a row nodes are looked up for more of them at once, if that gives so many."""
MOST_AHEAD = 256
"""For how many at once."""


class Rankings:
    """The rankings of a cycle, by what classes have in common."""

    def __init__(self, facts: NodeFacts) -> None:
        self._facts = facts
        self._known: dict[Hashable, Ranking] = {}

    def of(self, pod_class: PodClass, nodes: Rows | None = None) -> Ranked:
        """The up-to-date ranking of a class over the given node rows, ascending (None: all)."""
        return self.ranking(pod_class).ranked(nodes)

    def ranking(self, pod_class: PodClass) -> Ranking:
        key = self._facts.key(pod_class)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            known = self._known[key] = Ranking(self._facts, pod_class)
        return known


class Ranking:
    """Scores of one class over all nodes, kept up to date."""

    def __init__(self, facts: NodeFacts, pod_class: PodClass) -> None:
        self._facts = facts
        self.trial = facts.trial
        self.pod_class = pod_class
        self._allowed = facts.allowed(pod_class)
        self._allowed_list: list[bool] = facts.allowed_list(self._allowed)
        self._shared = pod_class.shared
        if self._shared:
            self._gpu_memory = self.trial.snapshot.nodes.gpu_memory
            self._memory = self.trial.amounts.share_memories(pod_class)
        self._demand = pod_class.demand
        states = facts.states()
        asked = [(plugin, plugin.measured(pod_class)) for plugin in facts.relative]
        self._relative = [(states.normalized(plugin, row), row) for plugin, row in asked if row is not None]
        """Normalized scores, and the resource each is measured by."""
        self._steady = facts.steady_scores(pod_class)
        self._span = _span(facts.relative) if facts.steady else None
        self._read = len(self.trial.touched)
        self._outdated: set[int] = set()
        """Nodes touched so far whose entries have not been looked at since, of those that the class may use."""
        self._local: Column = np.empty(0)
        """Scores without relative ones; -inf where the class does not fit."""
        self._fits_now: Mask = np.empty(0, dtype=bool)
        self._ahead: list[int] = []
        """Nodes for the next pods of the class, the next one last, if nothing else happens until then."""
        self._ahead_now = True
        self._given = (-1, -2)
        """The node that `first` gave last, and how many nodes had been touched by then."""
        self._streak = 0
        """How often `first` was asked with nothing in between but the pod that got its node."""
        self._look_at_all()

    def first(self) -> tuple[int, bool] | None:
        """The best node for a pod of the class that takes it, and whether it fits there without waiting for a release;
        None: there is none. Where pods of the class keep coming, with nothing else in between, it is looked up for
        many of them at once."""
        touched, (node, seen) = self.trial.touched, self._given
        if len(touched) == seen + 1 and touched[-1] == node:
            self._streak += 1
        else:
            self._streak = min(self._streak, 0)
            self._ahead.clear()
        if self._ahead:
            node, now = self._ahead.pop(), self._ahead_now
        else:
            found = self._look_ahead()
            if found is None:
                return None
            node, now = found
        self._given = (node, len(touched))
        return node, now

    def _look_ahead(self) -> tuple[int, bool] | None:
        if self._streak < STREAK or self._shared:
            return self._best()
        rows, copies, wait = self.ranked().best_alike(MOST_AHEAD, None)
        if not len(rows):
            return None
        self._ahead = (rows if copies is None else rows.repeat(copies))[::-1].tolist()
        self._ahead_now = not wait
        if len(self._ahead) < STREAK:
            self._streak = -MOST_AHEAD
        return self._ahead.pop(), self._ahead_now

    def _best(self) -> tuple[int, bool] | None:
        """The first of `ranked`, without the columns about the others."""
        self._look_again(None)
        total = self._total()
        best = int(total.argmax()) if len(total) else -1
        return None if best < 0 or total[best] == UNFIT else (best, bool(self._fits_now[best]))

    def _total(self) -> Column:
        """Scores of all nodes, relative ones among them; those do not matter where only one node is left."""
        total = self._local
        if np.count_nonzero(total != UNFIT) <= 1:
            return total
        for normalized, resource in self._relative:
            total = total + normalized.scores(self._facts.seen.free[resource])
        return total

    def ranked(self, nodes: Rows | None = None) -> Ranked:
        """All nodes, or some, ascending: what is relative is relative to those."""
        self._look_again(nodes)
        by_order = len(self._relative) <= 1
        if nodes is None:
            total = self._total()
            return Ranked(
                self._facts.every, self._local, total, self._fits_now, by_order, self._span, (self._twice, self._copies)
            )
        total = local = self._local.take(nodes)
        for normalized, resource in self._relative:
            total = total + normalized.within(nodes, self._facts.states().free_of(resource, nodes))
        return Ranked(
            nodes, local, total, self._fits_now.take(nodes), by_order, self._span, (self._twice, self._copies)
        )

    def _look_again(self, nodes: Rows | None) -> None:
        """Bring outdated entries up to date, where only those of some nodes matter just these."""
        self._facts.states()
        touched, outdated = self.trial.touched, self._outdated
        if self._read < len(touched):
            allowed = self._allowed_list
            outdated.update([node for node in touched[self._read :] if allowed[node]])
            self._read = len(touched)
        if not outdated:
            return
        changed = outdated.copy() if nodes is None else outdated.intersection(nodes.tolist())
        if not changed:
            return
        outdated -= changed
        if len(changed) <= FEW and self._facts.steady:
            self._look_at_few(changed)
        elif nodes is None and len(changed) * 4 > len(self._local):
            self._look_at_all()
        else:
            self._look_at(np.fromiter(changed, dtype=np.int64, count=len(changed)))

    # ---------------------------------------------------------------------------------------------------- many nodes
    def _look_at_all(self) -> None:
        look, fits = self.look(None)
        self._fits_now = look.fits_now & fits
        self._local = self._scored(look, fits, None)

    def _look_at(self, nodes: Rows) -> None:
        look, fits = self.look(nodes)
        self._fits_now[nodes] = look.fits_now & fits
        self._local[nodes] = self._scored(look, fits, nodes)

    def _scored(self, look: NodeLook, fits: Mask, nodes: Rows | None) -> Column:
        """Scores of the nodes of a look, without relative ones."""
        if not fits.any():
            return np.full(len(fits), UNFIT)
        scores: Column | float = 0.0
        if self._facts.steady:
            scores = self._looked_up(look, nodes)
        else:
            for plugin in self._facts.scores:
                scores = scores + plugin.score(look)
        return np.where(fits, scores, UNFIT)

    def _looked_up(self, look: NodeLook, nodes: Rows | None) -> Column:
        """Steady scores: of nodes where the class fits at once, or not, with room on a shared device, or not."""

        def scores(shared: bool) -> Column:
            now, later = self._steady.column(True, shared), self._steady.column(False, shared)
            if nodes is not None:
                now, later = now[nodes], later[nodes]
            return np.where(look.fits_now, now, later)

        if not self._shared or not look.sharable.any():
            return scores(False)
        return np.where(look.sharable > 0, scores(True), scores(False))

    def look(self, nodes: Rows | None) -> tuple[NodeLook, Mask]:
        """The nodes as the class sees them (None: all), and where it fits counting what is being released."""
        states, rows = self._facts.states(), self._facts.every if nodes is None else nodes
        if nodes is None:
            idle, free, allowed = states.idle, states.free, self._allowed
        else:
            idle, allowed = states.idle.take(nodes, axis=1), self._allowed[nodes]
            free = idle + self.trial.releasing.take(nodes, axis=1)
        fits = self._enough(free, allowed, rows)
        now = self._enough(idle, fits, rows)
        sharable = self._facts.nothing
        if self._shared:
            sharable = states.sharable(self._memory, self.pod_class.compute_mode)
            if nodes is not None:
                sharable = sharable[nodes]
            fits = fits & (np.floor(free[GPU]) + sharable >= self.pod_class.devices)
            fits &= self._gpu_memory[rows] >= self.pod_class.memory_mib
            now = now & (np.floor(idle[GPU]) + sharable >= self.pod_class.devices)
        elif nodes is not None:
            sharable = sharable[nodes]
        return NodeLook(self.trial, self.pod_class, rows, idle, free, now, sharable), fits

    def _enough(self, have: Column, among: Mask, rows: Rows) -> Mask:
        """Which of some nodes have all that the class must find, of those that are `among` the candidates."""
        if self._facts.reliefs:
            enough: Mask = np.logical_and.reduce(have >= self._facts.need(self.pod_class, rows))
            return among & enough
        for row, need in self._demand:
            among = among & (have[row] >= need)
            if row == GPU and not among.any():
                break
        return among

    def _twice(self, nodes: Rows) -> Mask:
        """On which of the nodes two pods of the class fit, counting what is being released."""
        states = self._facts.states()
        if self._facts.reliefs:
            need = 2 * self._facts.need(self.pod_class, nodes)
            enough: Mask = np.logical_and.reduce(states.free.take(nodes, axis=1) >= need)
            return enough
        masks: list[Mask] = []
        for row, amount in self._demand:
            masks.append(states.free_of(row, nodes) >= 2 * amount)
            if not masks[-1].any():
                return masks[-1]
        both: Mask = np.logical_and.reduce(masks)
        return both

    def _copies(self, nodes: Rows, wait: bool) -> Column:
        """How many pods of the class fit on each of the nodes, counting what is being released where they `wait`."""
        states = self._facts.states()
        have = (states.free if wait else states.idle).take(nodes, axis=1)
        need = self._facts.need(self.pod_class, nodes)
        copies: Column = np.where(need > 0, have // np.where(need > 0, need, 1.0), np.inf).min(axis=0)
        return copies

    # ------------------------------------------------------------------------------------------------------ few nodes
    def _look_at_few(self, nodes: Iterable[int]) -> None:
        """The same as `_look_at` with numbers instead of columns."""
        local, state_of = self._local, self._facts.seen.of
        scored = self._score_shared if self._shared else self._score
        for node in nodes:
            local[node] = scored(node, state_of(node))

    def _score(self, node: int, state: NodeState) -> float:
        """The score of one node without relative ones; notes whether the class fits there at once."""
        now = self._fits_at(node, state)
        self._fits_now[node] = bool(now)
        return UNFIT if now is None else self._steady.cells(now, False)[node]

    def _fits_at(self, node: int, state: NodeState) -> bool | None:
        """Whether amounts suffice at once on a node that the class may use, shares of devices apart; None: they do not,
        also counting releases."""
        idle, free, now = state[0], state[1], True
        for row, need in self._demand:
            if idle[row] < need:
                now = False
            if free[row] < need:
                return None
        return now

    def _score_shared(self, node: int, state: NodeState) -> float:
        now, shared = self._fits_at(node, state), 0
        if now is not None:
            amounts, c = self.trial.amounts, self.pod_class
            left = state[2][c.compute_mode]
            if left:
                shared = len(left) - bisect_left(left, amounts.share_memory(c, node))
            now = now and floor(state[0][GPU]) + shared >= c.devices
            if floor(state[1][GPU]) + shared < c.devices or amounts.gpu_memory[node] < c.memory_mib:
                now = None
        self._fits_now[node] = bool(now)
        return UNFIT if now is None else self._steady.cells(now, shared > 0)[node]


def _span(relative: Sequence[RelativeScore]) -> float | None:
    """How far relative scores lie apart at most, if less that is free never makes a node worse; else None."""
    spans: list[float] = [plugin.packs for plugin in relative if hasattr(plugin, "packs")]
    return sum(spans) if len(spans) == len(relative) else None
