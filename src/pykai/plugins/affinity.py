"""Pod affinity: which pods must, must not, should or should not be neighbours.

Neighbours are pods in the same domain of a term's topology key; a node without that label is in no domain. What counts
is where pods are present: those that run or were placed in this cycle, without those that leave. A pod may take a place
that a pod it must keep away from is leaving, but it waits until that one is gone.

A term selects pods by their labels and namespace, so it selects whole classes; its pods per topology domain are a
`PodCounts`. Terms that say the same are one, however many templates repeat them. `matchLabelKeys` and
`mismatchLabelKeys` add the pod's own labels to the selector, as the API server does when it admits a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec import json

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import Companions, NodeResourceState, Rejection
from pykai.engine.pod_locations import PodCounts
from pykai.kernels.selectors import LabelColumns, meeting, selected
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Mask, Rows
from pykai.model.snapshot import Snapshot
from pykai.objects.kinds import Expression, LabelSelector
from pykai.objects.pod_template import Affinity, PodTerm
from pykai.plugins import node_labels

NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_APART = "node(s) didn't match pod anti-affinity rules"
REPELLED = "node(s) didn't satisfy existing pods anti-affinity rules"
PREFERENCE = 1_000_000.0
"""Score per unit of weight."""
NAMESPACE_NAME = "kubernetes.io/metadata.name"
Weighted = tuple[int, PodTerm]
"""A preferred term with its weight, negative for anti-affinity."""
TermsOf = Callable[[Affinity], Iterable[Weighted]]


@dataclass(frozen=True, eq=False)
class OwnedTerm:
    """A term, the classes it selects, and the classes whose pods have it."""

    topology_key: str
    weight: int
    selects: Mask
    owners: Mask


def required_apart(affinity: Affinity) -> Sequence[PodTerm]:
    return affinity.pod_anti_affinity.required if affinity.pod_anti_affinity else ()


def required_near(affinity: Affinity) -> Sequence[PodTerm]:
    return affinity.pod_affinity.required if affinity.pod_affinity else ()


def preferred(affinity: Affinity) -> Iterator[Weighted]:
    near, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    yield from ((term.weight, term.pod_affinity_term) for term in (near.preferred if near else ()))
    yield from ((-term.weight, term.pod_affinity_term) for term in (apart.preferred if apart else ()))


class PodTerms:
    """All terms of a snapshot, with the classes that have them. `apart`: required anti-affinity."""

    def __init__(self, snapshot: Snapshot) -> None:
        classes = snapshot.pods.classes
        self._size = len(classes)
        self._labels = LabelColumns([c.labels for c in classes])
        self._snapshot_namespaces = snapshot.objects.namespaces
        self._namespace_of = [c.namespace for c in classes]
        self._selected: dict[tuple[str, bytes], Mask] = {}
        affine = [c for c in classes if _has_pod_affinity(c.template.affinity)]
        self.any = bool(affine)
        self.apart = self._owned(affine, lambda affinity: ((0, term) for term in required_apart(affinity)))
        self.preferred_terms = self._owned(affine, preferred)

    def apart_from(self, row: int) -> list[OwnedTerm]:
        """The required terms by which others keep away from pods of a class."""
        return [self.apart[at] for at in np.flatnonzero(self._apart_table[row]).tolist()]

    def preferring(self, row: int) -> list[OwnedTerm]:
        """The preferred terms that select pods of a class."""
        return [self.preferred_terms[at] for at in np.flatnonzero(self._preferred_table[row]).tolist()]

    @cached_property
    def _apart_table(self) -> Mask:
        return self._by_class(self.apart)

    @cached_property
    def _preferred_table(self) -> Mask:
        return self._by_class(self.preferred_terms)

    def _by_class(self, terms: Sequence[OwnedTerm]) -> Mask:
        """[class, term]: whether a term selects a class."""
        return np.array([term.selects for term in terms], dtype=bool).reshape(-1, self._size).T.copy()

    @cached_property
    def _namespaces(self) -> LabelColumns:
        """By class the labels of its namespace; every namespace has its name as a label."""
        known = self._snapshot_namespaces
        labels = {
            name: dict((known[name].metadata.labels if name in known else None) or ()) for name in self._namespace_of
        }
        for name, each in labels.items():
            each[NAMESPACE_NAME] = name
        return LabelColumns([labels[name] for name in self._namespace_of])

    def selects(self, term: PodTerm, namespace: str) -> Mask:
        """The classes a term selects for pods of a namespace."""
        key = (namespace, json.encode(term))
        if key not in self._selected:
            self._selected[key] = selected(self._labels, term.label_selector) & self._in_reach(term, namespace)
        return self._selected[key]

    def _in_reach(self, term: PodTerm, namespace: str) -> Mask:
        listed, selector = term.namespaces, term.namespace_selector
        if not listed and selector is None:
            listed = [namespace]
        mask = meeting(self._namespaces, [Expression(key=NAMESPACE_NAME, operator="In", values=list(listed))])
        if selector is not None:
            mask |= selected(self._namespaces, selector)
        return mask

    def _owned(self, classes: Iterable[PodClass], terms_of: TermsOf) -> list[OwnedTerm]:
        """The distinct terms of the classes, each with all classes that have it."""
        owners: dict[tuple[int, str, str, bytes], list[int]] = {}
        terms: dict[tuple[int, str, str, bytes], PodTerm] = {}
        for c in classes:
            for weight, stated in terms_of(c.template.affinity):
                term = resolved(stated, c.labels)
                key = (weight, term.topology_key, c.namespace, json.encode(term))
                terms[key] = term
                owners.setdefault(key, []).append(c.row)
        return [
            OwnedTerm(key[1], key[0], self.selects(term, key[2]), self.mask(owners[key])) for key, term in terms.items()
        ]

    def mask(self, rows: Sequence[int]) -> Mask:
        mask = np.zeros(self._size, dtype=bool)
        mask[rows] = True
        return mask


def _has_pod_affinity(affinity: Affinity) -> bool:
    return affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None


def resolved(term: PodTerm, labels: Mapping[str, str]) -> PodTerm:
    """A term of a pod with these labels, its label keys taken into the selector."""
    if not term.match_label_keys and not term.mismatch_label_keys:
        return term
    keys = [("In", term.match_label_keys), ("NotIn", term.mismatch_label_keys)]
    return PodTerm(
        label_selector=with_label_keys(term.label_selector, keys, labels),
        namespaces=term.namespaces,
        namespace_selector=term.namespace_selector,
        topology_key=term.topology_key,
    )


def with_label_keys(
    selector: LabelSelector | None, keys: Iterable[tuple[str, Sequence[str]]], labels: Mapping[str, str]
) -> LabelSelector | None:
    """A selector that also compares with a pod's own labels, as far as it has them; no selector selects nothing."""
    if selector is None:
        return None
    own = [
        Expression(key=key, operator=operator, values=[labels[key]])
        for operator, some in keys
        for key in some
        if key in labels
    ]
    return LabelSelector(match_labels=selector.match_labels, match_expressions=[*selector.match_expressions, *own])


# ---------------------------------------------------------------------------------------------------- counts of a cycle
class TermCounts:
    """Pods of some classes per domain of a topology key, kept up to date for the cycle."""

    def __init__(self, cycle: Cycle) -> None:
        self.snapshot = cycle.snapshot
        self._locations = cycle.pod_locations
        self._known: dict[tuple[str, bytes, bytes], PodCounts] = {}

    @property
    def terms(self) -> PodTerms:
        return self.snapshot.derived(PodTerms)

    def of(self, classes: Mask, topology_key: str, among: Mask | None = None) -> PodCounts:
        """`among`: nodes whose pods count; None: all."""
        key = (topology_key, classes.tobytes(), b"" if among is None else among.tobytes())
        if key not in self._known:
            column = self.snapshot.nodes.derived(node_labels.labels)[topology_key]
            domains = column.codes if among is None else np.where(among, column.codes, 0)
            pods = self.snapshot.pods.of_classes(np.flatnonzero(classes).tolist())
            self._known[key] = PodCounts(self._locations, pods, domains, column.size)
        return self._known[key]


# ------------------------------------------------------------------------------------------------------- required terms
@dataclass(frozen=True, eq=False)
class Rules:
    """The required (anti-)affinity of a class, and of other pods against it, as counts of pods by rule."""

    near: tuple[PodCounts, ...]
    """Pods that match all required affinity terms, per topology key."""
    apart: tuple[PodCounts, ...]
    repelled: tuple[PodCounts, ...]
    """Pods whose anti-affinity selects the class, without counts that are in `apart` as well."""
    starts_alone: bool
    """The class matches its own terms: its first pod may be placed in any domain."""

    def near_enough(self) -> Mask:
        """Nodes with all required neighbours or, for the first of its kind, those that are in some domain."""
        alone = self.starts_alone and not any(near.present.any() for near in self.near)
        mask: Mask = np.logical_and.reduce([near.domains > 0 if alone else near.nodes_present for near in self.near])
        return mask


@dataclass(frozen=True)
class RequiredPodAffinity:
    """Required affinity and anti-affinity, and the required anti-affinity of pods that are already there."""

    def open(self, cycle: Cycle) -> Neighbours:
        return Neighbours(cycle)


class Neighbours(NodeResourceState):
    """Required rules by class, worked out once per cycle."""

    def __init__(self, cycle: Cycle) -> None:
        self._trial, self._counts = cycle.trial, cycle.state(TermCounts)
        self._locations = cycle.pod_locations
        self._known: dict[int, Rules | None] = {}

    def concerns(self, pod_class: PodClass) -> bool:
        return self._rules(pod_class) is not None

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        rules = self._rules(self._trial.of_class(pod))
        if rules is None:
            return
        if rules.near:
            yield NOT_NEAR, ~rules.near_enough()
        yield from ((NOT_APART, apart.nodes_present) for apart in rules.apart)
        yield from ((REPELLED, repelled.nodes_present) for repelled in rules.repelled)

    def blockers(self, pod: int) -> Sequence[PodCounts]:
        rules = self._rules(self._trial.of_class(pod))
        return (*rules.apart, *rules.repelled) if rules is not None else ()

    def companions(self, pod: int) -> Sequence[Companions]:
        rules = self._rules(self._trial.of_class(pod))
        return [Companions(rules.near_enough(), rules.near[0])] if rules is not None and rules.near else ()

    def may_wait(self) -> bool:
        return self._locations.any_leaves()

    def must_wait(self, pod: int, nodes: Rows) -> Mask | None:
        """Nodes that pods are leaving which the pod must keep away from."""
        leaving = [counts for counts in self.blockers(pod) if counts.leaving.any()]
        return np.logical_or.reduce([c.leaving[c.domains[nodes]] > 0 for c in leaving]) if leaving else None

    def _rules(self, c: PodClass) -> Rules | None:
        if c.row not in self._known:
            self._known[c.row] = self._make(c) if self._counts.terms.any else None
        return self._known[c.row]

    def _make(self, c: PodClass) -> Rules | None:
        terms, counts = self._counts.terms, self._counts
        near = [resolved(term, c.labels) for term in required_near(c.template.affinity)]
        friends = np.logical_and.reduce([terms.selects(term, c.namespace) for term in near]) if near else None
        keys = list(dict.fromkeys(term.topology_key for term in near))
        apart = tuple(
            counts.of(terms.selects(resolved(term, c.labels), c.namespace), term.topology_key)
            for term in required_apart(c.template.affinity)
        )
        rules = Rules(
            near=tuple(counts.of(friends, key) for key in keys) if friends is not None else (),
            apart=apart,
            repelled=tuple(found for found in self._repelling(c.row) if found not in apart),
            starts_alone=friends is not None and bool(friends[c.row]),
        )
        return rules if rules.near or rules.apart or rules.repelled else None

    def _repelling(self, row: int) -> Iterable[PodCounts]:
        """Per topology key the pods that must keep away from a class, whichever of their terms says so."""
        terms = self._counts.terms.apart_from(row)
        for key in dict.fromkeys(term.topology_key for term in terms):
            owners = [term.owners for term in terms if term.topology_key == key]
            yield self._counts.of(owners[0] if len(owners) == 1 else np.logical_or.reduce(owners), key)


# ------------------------------------------------------------------------------------------------------ preferred terms
@dataclass(frozen=True)
class PreferredPodAffinity:
    """Per node the weights of the preferred terms that hold: the pod's own, and those of the pods that are there."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return bool(cycle.state(Preferences).of(pod_class))

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None:
        """Not None while a term is met nowhere yet: the first pod of a gang may change that."""
        found = cycle.state(Preferences).of(cycle.trial.of_class(pod))
        return PREFERENCE * np.add.reduce([weight * c.present[c.domains] for weight, c in found]) if found else None


class Preferences:
    """Weight and counts of every preferred term for or against pods of a class being somewhere."""

    def __init__(self, cycle: Cycle) -> None:
        self._counts = cycle.state(TermCounts)
        self._known: dict[int, list[tuple[int, PodCounts]]] = {}

    def of(self, c: PodClass) -> list[tuple[int, PodCounts]]:
        known = self._known.get(c.row)
        if known is None:
            known = self._known[c.row] = self._make(c) if self._counts.terms.any else []
        return known

    def _make(self, c: PodClass) -> list[tuple[int, PodCounts]]:
        terms, counts = self._counts.terms, self._counts.of
        own = [
            (weight, counts(terms.selects(resolved(term, c.labels), c.namespace), term.topology_key))
            for weight, term in preferred(c.template.affinity)
        ]
        return own + [(term.weight, counts(term.owners, term.topology_key)) for term in terms.preferring(c.row)]
