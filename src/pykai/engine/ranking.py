"""Rankings: per pod class, which nodes fit and how they score, kept up to date instead of computed anew.

A placement touches one node, so it changes one entry of each ranking. A ranking remembers how far it has read the
trial's list of touched nodes and refreshes only those entries. The best node is the first maximum: node rows are in
name order, which is the tie rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from pykai.engine import points
from pykai.engine.devices import sharable
from pykai.engine.points import NodeLook, RelativeScore
from pykai.engine.policy import Policy
from pykai.engine.trial import Trial
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column, Mask, Rows

UNFIT = -np.inf
FEW = 32
"""Up to this many entries a loop is faster than a column."""
Relief = Callable[[PodClass, Rows], Column | None]


class Rankings:
    """The rankings of a cycle, by class and node set."""

    def __init__(self, trial: Trial, policy: Policy) -> None:
        self.trial = trial
        self.filters = policy.of(points.NodeFilter)  # type: ignore[type-abstract]
        self.scores = policy.of(points.NodeScore)  # type: ignore[type-abstract]
        self.relative = policy.of(points.RelativeScore)  # type: ignore[type-abstract]
        self.reliefs: tuple[Relief, ...] = ()
        """What a class need not find free on nodes, [resource, node]."""
        self._every = np.arange(len(trial.snapshot.nodes))
        self._allowed: dict[int, Mask] = {}
        self._needs: dict[int, Column] = {}
        self._whole: dict[int, Ranking] = {}
        self._subset: dict[tuple[int, bytes], Ranking] = {}

    def of(self, pod_class: PodClass, nodes: Rows | None = None) -> Ranking:
        """The up-to-date ranking of a class over the given node rows (None: all)."""
        if nodes is None:
            ranking = self._whole.get(pod_class.row)
            if ranking is None:
                ranking = self._whole[pod_class.row] = Ranking(self, pod_class, None)
        else:
            key = (pod_class.row, nodes.tobytes())
            ranking = self._subset.get(key) or self._subset.setdefault(key, Ranking(self, pod_class, nodes))
        ranking.refresh()
        return ranking

    def again(self, pod_class: PodClass) -> Ranking | None:
        """The ranking of a class over all nodes, if its best node is surely still the best although nothing was
        scored anew: nobody but pods that went there changed anything since, and packing likes full nodes."""
        if not self._packs or pod_class.shared:
            return None
        ranking = self._whole.get(pod_class.row)
        return ranking if ranking is not None and ranking.stays() else None

    @cached_property
    def _packs(self) -> bool:
        """Whether a node that takes a pod can only gain in comparison with the others."""
        packing = len(self.relative) == 1 and getattr(self.relative[0], "packs", False)
        return packing and all(getattr(plugin, "steady", False) for plugin in self.scores)

    def need(self, pod_class: PodClass, nodes: Rows) -> Column:
        """What a class must find free, [resource, node], one column where that is the same on all nodes; -inf where
        it asks for nothing: a node that is short of something does not matter to who does not want it."""
        need = self._needs.get(pod_class.row)
        if need is None:
            need = np.full((len(pod_class.request), 1), UNFIT)
            need[pod_class.dims, 0] = pod_class.request[pod_class.dims]
            self._needs[pod_class.row] = need
        for relief in self.reliefs:
            spared = relief(pod_class, nodes)
            if spared is not None:
                need = need - spared
        return need

    def least(self, pod_class: PodClass) -> Column:
        """What a class must find free at least, wherever it goes; read only."""
        least = pod_class.request
        for relief in self.reliefs:
            spared = relief(pod_class, self._every)
            if spared is not None:
                least = least - spared.max(axis=1, initial=0.0)
        return least

    def rejections(self, pod_class: PodClass) -> Iterator[points.Rejection]:
        for node_filter in self.filters:
            yield from node_filter.rejections(self.trial.snapshot, pod_class)

    def allowed(self, pod_class: PodClass) -> Mask:
        """Nodes no filter rejects for the class, whatever is placed where."""
        mask = self._allowed.get(pod_class.row)
        if mask is None:
            mask = np.ones(len(self.trial.snapshot.nodes), dtype=bool)
            for _, rejected in self.rejections(pod_class):
                mask &= ~rejected
            self._allowed[pod_class.row] = mask
        return mask


class Ranking:
    """Scores of one class over some nodes; -inf where it does not fit."""

    def __init__(self, rankings: Rankings, pod_class: PodClass, nodes: Rows | None) -> None:
        self._all = rankings
        self.trial = rankings.trial
        self.pod_class = pod_class
        size = len(self.trial.snapshot.nodes)
        self.rows: Rows = np.arange(size) if nodes is None else nodes
        self._position = None if nodes is None else {row: at for at, row in enumerate(nodes.tolist())}
        self._allowed = rankings.allowed(pod_class)[self.rows]
        count = len(self.rows)
        self.local = np.full(count, UNFIT)
        self.fits_now = np.zeros(count, dtype=bool)
        self._fits_twice = np.zeros(count, dtype=bool)
        self._measures = [np.full(count, np.nan) for _ in rankings.relative]
        self._extremes: list[tuple[float, float]] = [(np.nan, np.nan)] * len(rankings.relative)
        self._relative = [np.zeros(count) for _ in rankings.relative]
        self.total: Column = np.full(count, UNFIT)
        self.last = -1
        """The node that was best when last asked; -1 where that cannot be said of all pods of the class."""
        self._seen = 0
        self._read = len(self.trial.touched)
        self._update(np.arange(count))

    def refresh(self) -> None:
        """Bring the entries of nodes touched since the last time up to date."""
        touched = self.trial.touched
        if self._read == len(touched):
            return
        changed = set(touched[self._read :])
        self._read = len(touched)
        if self._position is not None:
            changed = {self._position[row] for row in changed if row in self._position}
        if changed:
            self._update(np.fromiter(changed, dtype=np.int64, count=len(changed)))

    def best(self, extra: Column | None = None) -> Iterator[int]:
        """Node rows from best to worst; the full order is only computed if the first one is not taken."""
        scores = self.total if extra is None else self.total + extra[self.rows]
        if not len(scores):
            return
        first = int(scores.argmax())
        if scores[first] == UNFIT:
            return
        self.last = int(self.rows[first]) if extra is None else -1
        self._seen = len(self.trial.touched)
        yield int(self.rows[first])
        for at in np.argsort(-scores, kind="stable").tolist():
            if scores[at] == UNFIT:
                return
            if at != first:
                yield int(self.rows[at])

    def stays(self) -> bool:
        """Whether the last best node is the only one touched since, and the class fits there as it did."""
        touched = self.trial.touched
        if self.last < 0 or any(node != self.last for node in touched[self._seen :]):
            return False
        self._seen = len(touched)
        need = self._all.need(self.pod_class, self.rows[:1])[:, 0]
        idle = self.trial.idle[:, self.last]
        free = idle + self.trial.releasing[:, self.last]
        return self.now(self.last) and bool((idle >= need).all() and (free >= need).all())

    def now(self, node: int) -> bool:
        """Whether the class fits on the node without waiting for a release."""
        return bool(self.fits_now[node if self._position is None else self._position[node]])

    def best_alike(self, count: int, extra: Column | None) -> tuple[Rows, bool]:
        """The nodes that `count` pods of the class would be given one after the other, as far as that can be said at
        once, and whether they must wait there; no rows: nothing fits.

        A pod that leaves no room for a second one on its node does not change the others' order: relative scores
        keep it, whatever their extremes. So all nodes that score like the best but for those are taken in order.
        """
        base = self.local if extra is None else self.local + extra[self.rows]
        total = self.total if extra is None else self.total + extra[self.rows]
        first = int(total.argmax()) if len(total) else 0
        if not len(total) or total[first] == UNFIT:
            return np.empty(0, dtype=np.int64), False
        wait = not self.fits_now[first]
        alike = (base == base[first]) & (self.fits_now != wait) & ~self._fits_twice
        if count == 1 or not alike[first] or len(self._relative) > 1:
            return self.rows[first : first + 1], wait
        among = np.flatnonzero(alike)
        order = among[np.argsort(-total[among], kind="stable")[:count]]
        return self.rows[order], wait

    def _update(self, at: Rows) -> None:
        look, fits = self._look(at)
        scores: Column | float = 0.0
        if fits.any():
            for plugin in self._all.scores:
                scores = scores + plugin.score(look)
        self.local[at] = np.where(fits, scores, UNFIT)
        self.fits_now[at] = look.fits_now
        settled = True
        for which, relative in enumerate(self._all.relative):
            settled &= self._update_relative(which, relative, at, look)
        if not settled:
            self.total = self.local + sum(self._relative)
        elif len(self._relative) == 1:
            self.total[at] = self.local[at] + self._relative[0][at]
        else:
            self.total[at] = self.local[at] + sum(column[at] for column in self._relative)

    def _update_relative(self, which: int, plugin: RelativeScore, at: Rows, look: NodeLook) -> bool:
        """Whether the extremes stayed where they were, so that nothing but these entries changed."""
        measure, (low, high) = self._measures[which], self._extremes[which]
        old, new = measure[at], plugin.measure(look)
        measure[at] = new
        inside = not (
            (new < low) | (new > high) | (old == low) | (old == high) | (np.isnan(old) != np.isnan(new))
        ).any()
        extremes = (low, high) if inside else (float(np.fmin.reduce(measure)), float(np.fmax.reduce(measure)))
        if extremes == (low, high):
            self._relative[which][at] = plugin.relative(new, low, high)
            return True
        self._extremes[which] = extremes
        self._relative[which] = plugin.relative(measure, *extremes)
        return False

    def _look(self, at: Rows) -> tuple[NodeLook, Mask]:
        """The nodes as the class sees them, and whether it fits counting what is being released."""
        trial, c = self.trial, self.pod_class
        nodes = self.rows[at]
        idle = trial.idle[:, nodes]
        free = idle + trial.releasing[:, nodes]
        need = self._all.need(c, nodes)
        fits = (free >= need).all(axis=0) & self._allowed[at]
        now: Mask = np.asarray((idle >= need).all(axis=0))
        sharable = np.zeros(len(nodes))
        if c.shared:
            sharable = self._sharable(nodes)
            fits &= np.floor(free[GPU]) + sharable >= c.devices
            fits &= trial.snapshot.nodes.gpu_memory[nodes] >= c.memory_mib
            now = now & (np.floor(idle[GPU]) + sharable >= c.devices)
        else:
            self._fits_twice[at] = (free >= 2 * need).all(axis=0)
        return NodeLook(trial, c, nodes, idle, free, now, sharable), fits

    def _sharable(self, nodes: Rows) -> Column:
        """Devices already shared on each node on which the class still fits."""
        trial, c = self.trial, self.pod_class
        counts = np.zeros(len(nodes))
        capacity = trial.snapshot.nodes.gpu_memory
        for at, node in enumerate(nodes.tolist()) if len(nodes) < len(trial.shares) else self._shared_among(nodes):
            shares = trial.shares.get(node)
            if shares:
                memory, size = trial.share_memory(c, node), float(capacity[node])
                counts[at] = sharable(shares.values(), memory, size)
        return counts

    def _shared_among(self, nodes: Rows) -> Iterator[tuple[int, int]]:
        at = {node: position for position, node in enumerate(nodes.tolist())}
        return ((at[node], node) for node in self.trial.shares if node in at)


def _inside(old: list[float], new: list[float], low: float, high: float) -> bool:
    """Whether entries that change from old to new surely leave the extremes of the whole column where they are."""
    return all((low < was < high and low <= now <= high) or was == now for was, now in zip(old, new, strict=True))
