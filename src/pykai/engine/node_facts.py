"""Facts about nodes that all rankings share: which nodes filters allow a class, what it must find free there, scores
that no placement changes, and the current state of each node.

Thousands of different pods mostly differ in amounts or names only. The results of filters and scores are computed once
for all classes with equal `class_key`, and classes with equal masks, needs and scores share one ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property

import numpy as np

from pykai.engine.node_states import NodeStates
from pykai.engine.plugin_api import NodeFilter, NodeLook, NodeScore, Rejection, RelativeScore
from pykai.engine.policy import Policy
from pykai.engine.ranked import UNFIT
from pykai.engine.trial import Trial
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Mask, Rows

Relief = Callable[[PodClass, Rows], Column | None]
ClassKeys = tuple[Hashable, ...]
KeyOf = Callable[..., Hashable] | None
"""The `class_key` of a plugin; None where it has none."""


class NodeFacts:
    """The facts about nodes that all rankings of a cycle share."""

    def __init__(self, trial: Trial, policy: Policy) -> None:
        self.trial = trial
        self.filters = policy.of(NodeFilter)
        self.scores = policy.of(NodeScore)
        self.relative = policy.of(RelativeScore)
        self.reliefs: tuple[Relief, ...] = ()
        """Functions that return what a class does not take from the node columns, [resource, node]."""
        self.every = np.arange(len(trial.snapshot.nodes))
        self.nothing = np.zeros(len(self.every))
        self._allowed: dict[int, Mask] = {}
        """By class row; equal masks are one object."""
        self._allowed_by_keys: dict[ClassKeys, Mask] = {}
        self._masks: dict[bytes, Mask] = {}
        self._cells: dict[int, bytes] = {}
        """Masks of `allowed` as bytes, by identity of the mask."""
        self._rejections: dict[tuple[int, Hashable], tuple[Rejection, ...]] = {}
        """By filter and key of the class."""
        self._steady_scores: dict[Hashable, SteadyScores] = {}
        self._keys: dict[int, int] = {}
        self._numbers: dict[Hashable, int] = {}
        """Keys -> consecutive numbers, which are cheap to hash."""
        self._constraints: dict[int, ClassKeys] = {}
        """By class row."""
        self._filter_keys: list[KeyOf] = [getattr(plugin, "class_key", None) for plugin in self.filters]
        self._score_keys: list[KeyOf] = [getattr(plugin, "class_key", None) for plugin in self.scores]

    @cached_property
    def seen(self) -> NodeStates:
        """The state of nodes as of the last call of `states`."""
        return NodeStates(self.trial)

    def states(self) -> NodeStates:
        """Return the current state of nodes."""
        states = self.seen
        states.refresh()
        return states

    # -------------------------------------------------------------------------------------------- classes seen as one
    def key(self, pod_class: PodClass) -> int:
        """Return a number that is equal for classes with the same feasible nodes and scores."""
        known = self._keys.get(pod_class.row)
        if known is None:
            made = self._make_key(pod_class)
            known = self._keys[pod_class.row] = self._numbers.setdefault(made, len(self._numbers))
        return known

    def _make_key(self, c: PodClass) -> Hashable:
        if self.reliefs:
            return _Alone(c.row)
        share = (c.gpu_kind, c.devices, c.portion, c.memory_mib, c.compute_mode) if c.shared else None
        return c.request.tobytes(), share, id(self.allowed(c)), self.ordering(c)

    def ordering(self, c: PodClass) -> Hashable:
        """Return a key that is equal for classes for which a node has the same score wherever they fit: their `key`
        differs in amounts, or in the nodes that filters allow."""
        return self.measured(c), self._score_key(c)

    def measured(self, c: PodClass) -> tuple[int | None, ...]:
        """Return the resource of each relative score."""
        return tuple([plugin.measured(c) for plugin in self.relative])

    def reasons_key(self, pod_class: PodClass) -> Hashable:
        """Return a key that is equal for classes with equal `key` that filters reject for the same reasons."""
        return self.key(pod_class), self.constraints(pod_class), tuple(pod_class.overhead.items())

    def _score_key(self, c: PodClass) -> Hashable:
        keys = [None if key_of is None else key_of(c) for key_of in self._score_keys]
        return tuple([_Alone(c.row) if key is None else key for key in keys])

    @cached_property
    def steady(self) -> bool:
        """Whether all scores are `steady`, so that a node is scored by table lookup."""
        return not self.reliefs and all(getattr(plugin, "steady", False) for plugin in self.scores)

    def steady_scores(self, pod_class: PodClass) -> SteadyScores:
        """Return the steady scores of all nodes; classes with equal score keys share them."""
        key = self._score_key(pod_class)
        known = self._steady_scores.get(key)
        if known is None:
            known = self._steady_scores[key] = SteadyScores(self.trial, self.scores, pod_class)
        return known

    # ----------------------------------------------------------------------------------------------------------- needs
    def need(self, pod_class: PodClass, nodes: Rows) -> Column:
        """Return what a class must find free, [resource, node], or one column if it is the same on all nodes. -inf
        where it requests nothing, so that an overcommitted resource does not matter to pods that do not request it."""
        need = np.full((len(pod_class.request), 1), UNFIT)
        need[pod_class.dims, 0] = pod_class.request[pod_class.dims]
        for relief in self.reliefs:
            spared = relief(pod_class, nodes)
            if spared is not None:
                need = need - spared
        return need

    def least(self, pod_class: PodClass) -> Column:
        """Return the least that a class must find free on any node, by resource; read only."""
        least = pod_class.request
        for relief in self.reliefs:
            spared = relief(pod_class, self.every)
            if spared is not None:
                least = least - spared.max(axis=1, initial=0.0)
        return least

    def nowhere(self, pod_class: PodClass) -> bool:
        """Whether some resource is short on every node, by a cheap upper bound; False proves nothing."""
        if self.reliefs or self.seen.most is None:
            return False
        most = self.states().most
        if most is not None:
            for row, need in pod_class.demand:
                if most[row] < need:
                    return True
        return False

    # --------------------------------------------------------------------------------------------------------- filters
    def rejections(self, pod_class: PodClass) -> Iterator[Rejection]:
        """Yield the rejections of all filters, in the order of the filters."""
        for at, key in enumerate(self.constraints(pod_class)):
            yield from self._rejected(at, key, pod_class)

    def constraints(self, pod_class: PodClass) -> ClassKeys:
        """Return one key per filter; classes with equal keys are rejected for the same reasons."""
        known = self._constraints.get(pod_class.row)
        if known is None:
            snapshot = self.trial.snapshot
            keys = [None if key_of is None else key_of(snapshot, pod_class) for key_of in self._filter_keys]
            known = tuple([_Alone(pod_class.row) if key is None else key for key in keys])
            self._constraints[pod_class.row] = known
        return known

    def _rejected(self, at: int, key: Hashable, pod_class: PodClass) -> tuple[Rejection, ...]:
        known = self._rejections.get((at, key))
        if known is None:
            known = tuple(self.filters[at].rejections(self.trial.snapshot, pod_class))
            if not isinstance(key, _Alone):
                self._rejections[at, key] = known
        return known

    def allowed(self, pod_class: PodClass) -> Mask:
        """Return the nodes that no filter rejects for the class; read only, one object for equal masks."""
        mask = self._allowed.get(pod_class.row)
        if mask is None:
            keys = self.constraints(pod_class)
            mask = self._allowed_by_keys.get(keys)
            if mask is None:
                mask = self._allowed_by_keys[keys] = self._shared(self._open(keys, pod_class))
            self._allowed[pod_class.row] = mask
        return mask

    def _shared(self, mask: Mask) -> Mask:
        """Return the one mask that stands for all equal ones."""
        cells = mask.tobytes()
        known = self._masks.get(cells)
        if known is None:
            known = self._masks[cells] = np.frombuffer(cells, dtype=bool)
            self._cells[id(known)] = cells
        return known

    def allowed_cells(self, pod_class: PodClass) -> bytes:
        """Return the mask of `allowed` as bytes, 0 or 1 by node: faster to read one at a time."""
        return self._cells[id(self.allowed(pod_class))]

    def _open(self, keys: ClassKeys, pod_class: PodClass) -> Mask:
        mask = np.ones(len(self.every), dtype=bool)
        for at, key in enumerate(keys):
            for _, rejected in self._rejected(at, key, pod_class):
                mask &= ~rejected
        return mask


class SteadyScores:
    """Scores of all nodes for each combination of "fits at once" and "a shared device has room"."""

    def __init__(self, trial: Trial, plugins: Sequence[NodeScore], pod_class: PodClass) -> None:
        self._trial, self._plugins, self._pod_class = trial, plugins, pod_class
        self._columns: list[Column | None] = [None] * 4
        self._cells: list[list[float] | None] = [None] * 4

    def column(self, now: bool, shared: bool) -> Column:
        known = self._columns[now + 2 * shared]
        if known is None:
            known = self._columns[now + 2 * shared] = self._scored(now, shared)
        return known

    def _scored(self, now: bool, shared: bool) -> Column:
        trial, count = self._trial, len(self._trial.snapshot.nodes)
        facts = (np.full(count, now), np.full(count, float(shared)))
        look = NodeLook(trial, self._pod_class, np.arange(count), trial.idle, trial.idle, *facts)
        scores = np.zeros(count)
        for plugin in self._plugins:
            scores = scores + plugin.score(look)
        return scores

    def cells(self, now: bool, shared: bool) -> list[float]:
        """Return `column` as a list, which is faster to read one node at a time."""
        known = self._cells[now + 2 * shared]
        if known is None:
            known = self._cells[now + 2 * shared] = self.column(now, shared).tolist()
        return known


class _Alone(int):
    """The key of a class that shares its result with no other: its row."""
