"""The pod affinity terms of a cluster, read class by class: whom a term speaks of, and whose term it is.

A term selects pods by their labels and namespace, so it selects whole classes; counting its pods per topology domain
is a Tally. Terms that say the same are one, however many templates repeat them.

Namespace objects are not known here. Of a namespace only its name is, so a namespace selector is followed where it is
empty (all namespaces) or speaks of the name label that every namespace carries; any other selects none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec import json

from pykai.engine.cycle import Cycle
from pykai.engine.whereabouts import Tally, whereabouts
from pykai.kernels.selectors import LabelColumns, meeting, requirements, selected
from pykai.model.pods import PodClass
from pykai.model.resources import Mask
from pykai.model.snapshot import Snapshot
from pykai.objects.pod_template import Affinity, Expression, LabelSelector, PodTerm
from pykai.plugins import node_labels

NAMESPACE_NAME = "kubernetes.io/metadata.name"
Weighted = tuple[int, PodTerm]
"""A preferred term with its weight, negative for anti-affinity."""
TermsOf = Callable[[Affinity], Iterable[Weighted]]


@dataclass(frozen=True, eq=False)
class Borne:
    """A term with the classes whose pods bear it."""

    topology_key: str
    weight: int
    speaks_of: Mask
    bearers: Mask


def required_apart(affinity: Affinity) -> Sequence[PodTerm]:
    return affinity.pod_anti_affinity.required if affinity.pod_anti_affinity else ()


def required_near(affinity: Affinity) -> Sequence[PodTerm]:
    return affinity.pod_affinity.required if affinity.pod_affinity else ()


def preferred(affinity: Affinity) -> Iterator[Weighted]:
    near, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    yield from ((term.weight, term.pod_affinity_term) for term in (near.preferred if near else ()))
    yield from ((-term.weight, term.pod_affinity_term) for term in (apart.preferred if apart else ()))


class PodTerms:
    """All terms of a snapshot. `apart` are required, `wishes` preferred; both by those that bear them."""

    def __init__(self, snapshot: Snapshot) -> None:
        classes = snapshot.pods.classes
        self._size = len(classes)
        self._labels = LabelColumns([c.labels for c in classes])
        self._namespaces = LabelColumns([{NAMESPACE_NAME: c.namespace} for c in classes])
        self._selected: dict[tuple[str, bytes], Mask] = {}
        affine = [c for c in classes if _has_pod_affinity(c.template.affinity)]
        self.any = bool(affine)
        self.apart = self._borne(affine, lambda affinity: ((0, term) for term in required_apart(affinity)))
        self.wishes = self._borne(affine, preferred)

    def apart_from(self, row: int) -> list[Borne]:
        """The required terms by which others keep away from pods of a class."""
        return [self.apart[at] for at in np.flatnonzero(self._apart_table[:, row]).tolist()]

    def wishes_about(self, row: int) -> list[Borne]:
        """The preferred terms that speak of pods of a class."""
        return [self.wishes[at] for at in np.flatnonzero(self._wish_table[:, row]).tolist()]

    @cached_property
    def _apart_table(self) -> Mask:
        return np.array([borne.speaks_of for borne in self.apart], dtype=bool).reshape(-1, self._size)

    @cached_property
    def _wish_table(self) -> Mask:
        return np.array([borne.speaks_of for borne in self.wishes], dtype=bool).reshape(-1, self._size)

    def speaks_of(self, term: PodTerm, namespace: str) -> Mask:
        """The classes a term selects when a pod of the given namespace bears it."""
        key = (namespace, json.encode(term))
        if key not in self._selected:
            self._selected[key] = selected(self._labels, term.label_selector) & self._in_reach(term, namespace)
        return self._selected[key]

    def _in_reach(self, term: PodTerm, namespace: str) -> Mask:
        listed, selector = term.namespaces, term.namespace_selector
        if not listed and selector is None:
            listed = [namespace]
        mask = meeting(self._namespaces, [Expression(key=NAMESPACE_NAME, operator="In", values=list(listed))])
        if selector is not None and _by_name_only(selector):
            mask |= selected(self._namespaces, selector)
        return mask

    def _borne(self, classes: Iterable[PodClass], terms_of: TermsOf) -> list[Borne]:
        """The distinct terms of the classes, each with all classes that bear it."""
        bearers: dict[tuple[int, str, str, bytes], list[int]] = {}
        terms: dict[tuple[int, str, str, bytes], PodTerm] = {}
        for c in classes:
            for weight, term in terms_of(c.template.affinity):
                key = (weight, term.topology_key, c.namespace, json.encode(term))
                terms[key] = term
                bearers.setdefault(key, []).append(c.row)
        return [
            Borne(key[1], key[0], self.speaks_of(term, key[2]), self.mask(bearers[key])) for key, term in terms.items()
        ]

    def mask(self, rows: Sequence[int]) -> Mask:
        mask = np.zeros(self._size, dtype=bool)
        mask[rows] = True
        return mask


def _has_pod_affinity(affinity: Affinity) -> bool:
    return affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None


def _by_name_only(selector: LabelSelector) -> bool:
    return all(requirement.key == NAMESPACE_NAME for requirement in requirements(selector))


def tally(cycle: Cycle, classes: Mask, topology_key: str) -> Tally:
    """Pods of some classes per domain of a topology key, kept up to date for the cycle."""
    known: dict[tuple[str, bytes], Tally] = cycle.memo.setdefault("pod_tallies", {})
    key = (topology_key, classes.tobytes())
    if key not in known:
        column = cycle.snapshot.nodes.derived(node_labels.labels)[topology_key]
        pods = classes[cycle.snapshot.pods.klass]
        known[key] = Tally(whereabouts(cycle), pods, column.codes, column.size)
    return known[key]
