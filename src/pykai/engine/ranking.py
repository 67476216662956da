"""Rankings: the feasible nodes of a class of pods with their scores, updated incrementally.

A placement touches one node, so it changes one entry of each ranking. A ranking remembers how far it has read the
trial's list of touched nodes and refreshes only those entries. Classes with equal `NodeFacts.key` share a ranking; the
ranking of a subset of nodes is taken from the ranking of all nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pykai.engine.best_nodes import BestNodes, ordered_by_figures
from pykai.engine.common_order import CommonOrders, span_of
from pykai.engine.node_facts import NodeFacts
from pykai.engine.plugin_api import NodeLook
from pykai.engine.ranked import UNFIT, Filling, Ranked
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column, Mask, Rows

FEW = 8
"""Up to this many nodes are updated one by one, which is faster than array operations."""
MOST = 512
"""Number of rankings kept: where all requests differ, an old ranking is rarely used again."""


STREAK = 4
"""After this many pods of a class in a row, nodes are chosen for many more in advance; if fewer than this many nodes
result, that is not tried again for a while."""
MOST_AHEAD = 256
"""Number of pods for which nodes are chosen in advance."""
OFTEN = 8
"""After this many pods of a class its nodes are kept sorted; before, each lookup scans all scores."""
FIRST_PODS = 4
"""So many pods of a class are placed without a ranking, by an order of nodes that classes share."""


class Rankings:
    """The rankings of a cycle, by `NodeFacts.key` of the class."""

    def __init__(self, facts: NodeFacts) -> None:
        self._facts = facts
        self._known: dict[int, Ranking] = {}
        self._orders = CommonOrders(facts)
        self._asked: Counter[int] = Counter()
        """Calls of `first` by class row, up to `FIRST_PODS`."""

    def first(self, pod_class: PodClass) -> tuple[int, bool] | None:
        """Return what `Ranking.first` of the class does, by an order of nodes that classes share where there is one."""
        if self._facts.trial.amounts.shared[pod_class.row] or self._is_new(pod_class.row):
            found = self._orders.first(pod_class)
            if found is not None:
                return found if found[0] >= 0 else None
        return self.ranking(pod_class).first()

    def best(self, pod_class: PodClass, nodes: Rows | None, extra: Column | None) -> Iterator[tuple[int, bool]]:
        """Yield the nodes of `of` from best to worst, as `Ranked.best` does. The best of all nodes is found without the
        others: mostly it takes the pod."""
        first: tuple[int, bool] | None = None
        if nodes is None and extra is None:
            first = self.first(pod_class)
            if first is None:
                return
            yield first
        for found in self.of(pod_class, nodes).best(extra):
            if found != first:
                yield found

    def feasible(self, pod_class: PodClass) -> Rows:
        """Return the nodes on which the class fits, on idle plus releasing."""
        facts = self._facts
        if facts.reliefs or pod_class.shared:
            return np.flatnonzero(self.of(pod_class).local > UNFIT)
        free, fits = facts.states().free, facts.allowed(pod_class)
        for row, need in pod_class.demand:
            fits = fits & (free[row] >= need)
        return np.flatnonzero(fits)

    def _is_new(self, row: int) -> bool:
        """Whether few pods of a class were placed: for many a ranking of its own can choose nodes in advance."""
        asked = self._asked[row]
        if asked < FIRST_PODS:
            self._asked[row] = asked + 1
        return asked < FIRST_PODS

    def of(self, pod_class: PodClass, nodes: Rows | None = None) -> Ranked:
        """Return the up-to-date ranking of a class over the given node rows, ascending (None: all)."""
        return self.ranking(pod_class).ranked(nodes)

    def ranking(self, pod_class: PodClass) -> Ranking:
        key = self._facts.key(pod_class)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            known = self._known[key] = Ranking(self._facts, pod_class)
        return known


class _Chosen(NamedTuple):
    """The last result of `best_alike` for some nodes, and the nodes of further pods of the class; valid while nothing
    else is placed."""

    nodes: Rows
    last: list[int]
    """The nodes of that result."""
    seen: int
    """The length of `trial.touched` at that time."""
    rest: Filling


class Ranking:
    """Scores of one class over all nodes, kept up to date."""

    def __init__(self, facts: NodeFacts, pod_class: PodClass) -> None:
        self._facts = facts
        self.trial = facts.trial
        self.pod_class = pod_class
        self._allowed = facts.allowed(pod_class)
        self._allowed_cells = facts.allowed_cells(pod_class)
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
        self._span = span_of(facts.relative) if facts.steady else None
        self._read = len(self.trial.touched)
        self._outdated: set[int] = set()
        """Allowed nodes that were touched since their entries were computed."""
        self._local: Column = np.empty(0)
        """Scores without relative ones; -inf where the class does not fit."""
        self._fits_now: Mask = np.empty(0, dtype=bool)
        self._ahead: list[int] = []
        """Nodes chosen in advance for the next pods of the class, in reverse; valid while nothing else is placed."""
        self._ahead_now = True
        self._given = (-1, -2)
        """The last result of `first`, and the length of `trial.touched` at that time."""
        self._streak = 0
        """Number of calls of `first` in a row with only the placement of its result in between."""
        self._chosen: _Chosen | None = None
        self._looks = 0
        """Number of calls of `_best`."""
        self._best_nodes: BestNodes | None = None
        self._best_read = 0
        """How far `_best_nodes` has read `trial.touched`."""
        self._look_at_all()

    def first(self) -> tuple[int, bool] | None:
        """Return the best node for a pod of the class, and whether it fits there without waiting for a release; None:
        no node is feasible. After `STREAK` pods of the class in a row, nodes are chosen for many of them at once."""
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
        """Return the first of `ranked` without computing the rest."""
        self._looks += 1
        if self._looks > OFTEN and self._ordered:
            return self._best_in_order()
        self._look_again(None)
        total = self._total()
        best = int(total.argmax()) if len(total) else -1
        return None if best < 0 or total[best] == UNFIT else (best, bool(self._fits_now[best]))

    @cached_property
    def _ordered(self) -> bool:
        """Whether the order of two nodes depends on the state of these two only."""
        if self._span is None or len(self._relative) != 1:
            return False
        normalized, resource = self._relative[0]
        if not any(row == resource for row, _ in self._demand):  # else it fits only where there is some of it
            offered = self._shared or normalized.offered[self._allowed].all()
            if not offered or self._facts.states().free[resource].min(initial=0.0) < 0:
                return False
        columns = [self._steady.column(now, shared) for now in (True, False) for shared in (True, False)]
        return ordered_by_figures(np.concatenate(columns), self._span)

    def _best_in_order(self) -> tuple[int, bool] | None:
        states, touched, best = self._facts.states(), self.trial.touched, self._best_nodes
        if best is None or len(touched) - self._best_read > len(self._local):
            self._look_again(None)
            best = BestNodes(self._local, states.free[self._relative[0][1]], self._fits_now)
            self._best_nodes = best
        else:
            self._follow(best, self.trial.touched_since(self._best_read, self._facts.every))
        self._best_read = len(touched)
        found = best.first()
        return None if found is None else (found[2], found[3])

    def _follow(self, best: BestNodes, changed: Iterable[int]) -> None:
        """Update the entries of nodes that have changed."""
        allowed, resource = self._allowed_cells, self._relative[0][1]
        for node, score, now, free in self._scores([node for node in changed if allowed[node]]):
            best.put(node, None if score == UNFIT else (-score, free[resource], node, now))

    def _total(self) -> Column:
        """Return the total scores of all nodes; relative scores are left out where at most one node is feasible."""
        total = self._local
        if np.count_nonzero(total != UNFIT) <= 1:
            return total
        for normalized, resource in self._relative:
            total = total + normalized.scores(self._facts.seen.free[resource])
        return total

    def ranked(self, nodes: Rows | None = None) -> Ranked:
        """Return the ranking of all nodes, or of some, ascending; relative scores are normalized over these nodes."""
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

    def best_alike(self, count: int, nodes: Rows | None, extra: Column | None) -> Filling:
        """Return what `Ranked.best_alike` of these nodes does. Where only the class decides, the nodes of one array are
        chosen in advance for the next gangs that try the same domain."""
        if nodes is None or extra is not None:
            return self.ranked(nodes).best_alike(count, extra)
        known, touched = self._chosen, self.trial.touched
        if known is not None and known.nodes is nodes and touched[known.seen :] == known.last and len(known.rest.rows):
            chosen = known.rest
        else:
            chosen = self.ranked(nodes).best_alike(MOST_AHEAD, None)
        found, rest = chosen.split(count)
        self._chosen = _Chosen(nodes, found.rows.tolist(), len(touched), rest)
        return found

    def _look_again(self, nodes: Rows | None) -> None:
        """Update outdated entries of some nodes (None: of all)."""
        self._facts.states()
        touched, outdated = self.trial.touched, self._outdated
        if self._read < len(touched):
            allowed, changed = self._allowed_cells, self.trial.touched_since(self._read, self._facts.every)
            outdated.update([node for node in changed if allowed[node]])
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
        """Return the scores of the nodes of a look, without relative scores."""
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
        """Return steady scores, by whether the class fits at once and whether a shared device has room."""

        def scores(shared: bool) -> Column:
            now, later = self._steady.column(True, shared), self._steady.column(False, shared)
            if nodes is not None:
                now, later = now[nodes], later[nodes]
            return np.where(look.fits_now, now, later)

        if not self._shared or not look.sharable.any():
            return scores(False)
        return np.where(look.sharable > 0, scores(True), scores(False))

    def look(self, nodes: Rows | None) -> tuple[NodeLook, Mask]:
        """Return the current state of nodes (None: all) for the class, and where it fits on idle plus releasing."""
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
        """Return which of the candidates `among` have all that the class must find free."""
        if self._facts.reliefs:
            enough: Mask = np.logical_and.reduce(have >= self._facts.need(self.pod_class, rows))
            return among & enough
        for row, need in self._demand:
            among = among & (have[row] >= need)
            if row == GPU and not among.any():
                break
        return among

    def _twice(self, nodes: Rows) -> Mask:
        """Return on which of the nodes two pods of the class fit, on idle plus releasing."""
        states = self._facts.states()
        if self._facts.reliefs:
            need = 2 * self._facts.need(self.pod_class, nodes)
            enough: Mask = np.logical_and.reduce(states.free.take(nodes, axis=1) >= need)
            return enough
        masks: list[Mask] = []
        for row, amount in self._demand:
            masks.append(states.free_of(row, nodes) >= 2 * amount)
            if not np.count_nonzero(masks[-1]):
                return masks[-1]
        both: Mask = np.logical_and.reduce(masks)
        return both

    def _copies(self, nodes: Rows, wait: bool) -> Column:
        """Return how many pods of the class fit on each of the nodes; `wait`: on idle plus releasing."""
        states = self._facts.states()
        have = (states.free if wait else states.idle).take(nodes, axis=1)
        need = self._facts.need(self.pod_class, nodes)
        copies: Column = np.where(need > 0, have // np.where(need > 0, need, 1.0), np.inf).min(axis=0)
        return copies

    # ------------------------------------------------------------------------------------------------------ few nodes
    def _look_at_few(self, nodes: Iterable[int]) -> None:
        """Do the same as `_look_at` node by node."""
        local, fits_now = self._local, self._fits_now
        for node, score, now, _ in self._scores(nodes):
            local[node], fits_now[node] = score, now

    def _scores(self, nodes: Iterable[int]) -> list[tuple[int, float, bool, list[float]]]:
        """Return for allowed nodes: node, score without relative scores, whether the class fits at once, free amounts.

        One loop without calls, as every placement makes all rankings update a node."""
        cells, state_of, found = self._cells, self._facts.seen.of, []
        demand, (devices, mode, memory) = self._demand, self._share
        for node in nodes:
            (idle, free, rooms), now, shared = state_of(node), True, 0
            for row, need in demand:
                if free[row] < need:
                    found.append((node, UNFIT, False, free))
                    break
                now = now and idle[row] >= need
            else:
                if devices:
                    left = rooms[mode]
                    shared = len(left) - bisect_left(left, memory[node]) if left else 0
                    if free[GPU] + shared < devices or memory[node] == np.inf:
                        found.append((node, UNFIT, False, free))
                        continue
                    now = now and idle[GPU] + shared >= devices
                found.append((node, cells[now + 2 * (shared > 0)][node], now, free))
        return found

    @cached_property
    def _cells(self) -> list[list[float]]:
        """Scores by node without relative scores; at index 1 where the class fits at once, plus 2 where a shared device
        has room."""
        shares = (False, True) if self._shared else (False,)
        return [self._steady.cells(now, shared) for shared in shares for now in (False, True)]

    @cached_property
    def _share(self) -> tuple[int, int, list[float]]:
        """The number of devices that the class shares (0: none), the compute mode, and the MiB of each device by node,
        infinite where devices are too small."""
        c = self.pod_class
        if not self._shared:
            return 0, 0, []
        return c.devices, c.compute_mode, np.where(self._gpu_memory < c.memory_mib, np.inf, self._memory).tolist()
