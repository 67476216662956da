"""What is to be known of nodes before any are compared: which a class may use, what it must find free there, what they
score whatever is placed, and how they are at this moment.

Thousands of pods that are all different mostly differ in amounts or names. What follows from constraints alone is
worked out once for all classes that a rule does not distinguish (`class_key` of filters and scores), and classes that
see the nodes alike share one ranking.
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
"""What a plugin distinguishes classes by; None where it does not say."""


class NodeFacts:
    """What all rankings of a cycle share."""

    def __init__(self, trial: Trial, policy: Policy) -> None:
        self.trial = trial
        self.filters = policy.of(NodeFilter)
        self.scores = policy.of(NodeScore)
        self.relative = policy.of(RelativeScore)
        self.reliefs: tuple[Relief, ...] = ()
        """What a class need not find free on nodes, [resource, node]."""
        self.every = np.arange(len(trial.snapshot.nodes))
        self.nothing = np.zeros(len(self.every))
        self._allowed: dict[int, Mask] = {}
        """By class row; equal masks are one object."""
        self._allowed_by_keys: dict[ClassKeys, Mask] = {}
        self._masks: dict[bytes, Mask] = {}
        self._allowed_lists: dict[int, list[bool]] = {}
        """By identity of the mask."""
        self._rejections: dict[tuple[int, Hashable], tuple[Rejection, ...]] = {}
        """By filter and key of the class."""
        self._steady_scores: dict[Hashable, SteadyScores] = {}
        self._keys: dict[int, int] = {}
        self._numbers: dict[Hashable, int] = {}
        """Numbers for what keys are made of: a number is hashed in no time."""
        self._constraints: dict[int, ClassKeys] = {}
        """Both by class row."""
        self._filter_keys: list[KeyOf] = [getattr(plugin, "class_key", None) for plugin in self.filters]
        self._score_keys: list[KeyOf] = [getattr(plugin, "class_key", None) for plugin in self.scores]

    @cached_property
    def seen(self) -> NodeStates:
        """How nodes were when `states` was last asked for."""
        return NodeStates(self.trial)

    def states(self) -> NodeStates:
        """How nodes are at this moment."""
        states = self.seen
        states.refresh()
        return states

    # -------------------------------------------------------------------------------------------- classes seen as one
    def key(self, pod_class: PodClass) -> int:
        """Equal for classes that find the same nodes free and score them alike."""
        known = self._keys.get(pod_class.row)
        if known is None:
            made = self._make_key(pod_class)
            known = self._keys[pod_class.row] = self._numbers.setdefault(made, len(self._numbers))
        return known

    def _make_key(self, c: PodClass) -> Hashable:
        if self.reliefs:
            return _Alone(c.row)
        share = (c.gpu_kind, c.devices, c.portion, c.memory_mib, c.compute_mode) if c.shared else None
        measured = tuple([plugin.measured(c) for plugin in self.relative])
        return id(self.allowed(c)), c.request.tobytes(), share, measured, self._score_key(c)

    def reasons_key(self, pod_class: PodClass) -> Hashable:
        """Equal for classes that see the nodes alike, and that filters reject for the same reasons."""
        return self.key(pod_class), self.constraints(pod_class), tuple(pod_class.overhead.items())

    def _score_key(self, c: PodClass) -> Hashable:
        keys = [None if key_of is None else key_of(c) for key_of in self._score_keys]
        return tuple([_Alone(c.row) if key is None else key for key in keys])

    @cached_property
    def steady(self) -> bool:
        """Whether the scores of a node follow from few facts, so that one node is scored by looking them up."""
        return not self.reliefs and all(getattr(plugin, "steady", False) for plugin in self.scores)

    def steady_scores(self, pod_class: PodClass) -> SteadyScores:
        """Scores of all nodes that follow from few facts; classes that score alike share them."""
        key = self._score_key(pod_class)
        known = self._steady_scores.get(key)
        if known is None:
            known = self._steady_scores[key] = SteadyScores(self.trial, self.scores, pod_class)
        return known

    # ----------------------------------------------------------------------------------------------------------- needs
    def need(self, pod_class: PodClass, nodes: Rows) -> Column:
        """What a class must find free, [resource, node], one column where that is the same on all nodes; -inf where
        it asks for nothing: a node that is short of something does not matter to who does not want it."""
        need = np.full((len(pod_class.request), 1), UNFIT)
        need[pod_class.dims, 0] = pod_class.request[pod_class.dims]
        for relief in self.reliefs:
            spared = relief(pod_class, nodes)
            if spared is not None:
                need = need - spared
        return need

    def least(self, pod_class: PodClass) -> Column:
        """What a class must find free at least, wherever it goes; read only."""
        least = pod_class.request
        for relief in self.reliefs:
            spared = relief(pod_class, self.every)
            if spared is not None:
                least = least - spared.max(axis=1, initial=0.0)
        return least

    def nowhere(self, pod_class: PodClass) -> bool:
        """Whether no node has enough of some resource: a proof by a few comparisons; False proves nothing."""
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
        """Why filters reject which nodes, in the order of the filters."""
        for at, key in enumerate(self.constraints(pod_class)):
            yield from self._rejected(at, key, pod_class)

    def constraints(self, pod_class: PodClass) -> ClassKeys:
        """One key for each filter: classes for which all are equal are rejected for the same reasons."""
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
        """Nodes no filter rejects for the class, whatever is placed where; read only, one object for equal masks."""
        mask = self._allowed.get(pod_class.row)
        if mask is None:
            keys = self.constraints(pod_class)
            mask = self._allowed_by_keys.get(keys)
            if mask is None:
                mask = self._open(keys, pod_class)
                mask = self._allowed_by_keys[keys] = self._masks.setdefault(mask.tobytes(), mask)
            self._allowed[pod_class.row] = mask
        return mask

    def allowed_list(self, mask: Mask) -> list[bool]:
        """A mask of `allowed` to be read one node at a time."""
        known = self._allowed_lists.get(id(mask))
        if known is None:
            known = self._allowed_lists[id(mask)] = mask.tolist()
        return known

    def _open(self, keys: ClassKeys, pod_class: PodClass) -> Mask:
        mask = np.ones(len(self.every), dtype=bool)
        for at, key in enumerate(keys):
            for _, rejected in self._rejected(at, key, pod_class):
                mask &= ~rejected
        return mask


class SteadyScores:
    """Scores of all nodes if the class fits at once on each or on none, and so for room on shared devices."""

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
        """The same to be read one at a time."""
        known = self._cells[now + 2 * shared]
        if known is None:
            known = self._cells[now + 2 * shared] = self.column(now, shared).tolist()
        return known


class _Alone(int):
    """The key of a class that is like no other for some rule: its row."""
