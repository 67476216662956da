"""What pods prefer of nodes: preferred node affinity, and the absence of taints `PreferNoSchedule`. Even spread is in
`spread`, neighbours are in `affinity`.

Each is a score from 0 to 100 times the weight it has in kube-scheduler. Together they stay below what a node gains by
being available now: a preference orders nodes, it does not make a pod wait. They follow from nodes and class alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from msgspec import json

from pykai.engine.plugin_api import ANY, NodeLook
from pykai.kernels.selectors import in_some_term
from pykai.model.pods import PodClass
from pykai.model.resources import Column
from pykai.model.snapshot import NodeTable
from pykai.objects.kinds import Taint
from pykai.objects.pod_template import PreferredNodeTerm, Toleration
from pykai.plugins import node_labels
from pykai.plugins.node_filters import TaintGroups, grouped_taints, tolerated

FULL = 100.0
AFFINITY_WEIGHT = 2.0
TAINT_WEIGHT = 3.0
_PREFERRED = json.Decoder(list[PreferredNodeTerm])
_TOLERATIONS = json.Decoder(list[Toleration])


@dataclass(frozen=True)
class PreferredNodeAffinity:
    """The weights of the preferred node affinity terms that a node matches, 200 for the best node."""

    steady: ClassVar[bool] = True

    def class_key(self, pod_class: PodClass) -> Hashable:
        affinity = pod_class.template.affinity.node_affinity
        return json.encode(affinity.preferred) if affinity is not None and affinity.preferred else ANY

    def score(self, look: NodeLook) -> Column | float:
        key = self.class_key(look.pod_class)
        return 0.0 if key is ANY else look.trial.snapshot.nodes.derived(affinity_scores, key)[look.nodes]


def affinity_scores(nodes: NodeTable, preferred: bytes) -> Column:
    """By node; `preferred`: the terms as JSON."""
    labels, fields = nodes.derived(node_labels.labels), nodes.derived(node_labels.fields)
    weights = np.zeros(len(nodes))
    for term in _PREFERRED.decode(preferred):
        weights += term.weight * in_some_term(labels, fields, [term.preference])
    most = weights.max(initial=0.0)
    return AFFINITY_WEIGHT * np.floor(FULL * weights / most) if most > 0 else weights


@dataclass(frozen=True)
class PreferNoSchedule:
    """300 for nodes whose taints `PreferNoSchedule` are all tolerated, 0 for those with most that are not."""

    steady: ClassVar[bool] = True

    def class_key(self, pod_class: PodClass) -> Hashable:
        tolerations: Sequence[Toleration] = pod_class.template.tolerations
        relevant = [each for each in tolerations if each.effect in ("", "PreferNoSchedule")]
        return json.encode(relevant) if relevant else ANY

    def score(self, look: NodeLook) -> Column | float:
        groups = look.trial.snapshot.nodes.derived(discouraging_taints)
        if len(groups.lists) == 1:
            return 0.0
        return look.trial.snapshot.nodes.derived(taint_scores, self.class_key(look.pod_class))[look.nodes]


def discouraging_taints(nodes: NodeTable) -> TaintGroups:
    return grouped_taints(nodes, ("PreferNoSchedule",))


def taint_scores(nodes: NodeTable, key: Hashable) -> Column:
    """By node; `key`: the tolerations as JSON, or ANY."""
    tolerations = _TOLERATIONS.decode(key) if isinstance(key, bytes) else []
    groups = nodes.derived(discouraging_taints)
    untolerated = np.array([_untolerated(taints, tolerations) for taints in groups.lists])
    most = untolerated[groups.of].max(initial=0)
    if most == 0:
        return np.zeros(len(nodes))
    scores: Column = TAINT_WEIGHT * (FULL - np.floor(FULL * untolerated / most))
    return scores[groups.of]


def _untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int:
    return sum(not tolerated((taint,), tolerations) for taint in taints)
