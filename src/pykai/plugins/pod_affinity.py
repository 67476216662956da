"""Pod affinity: which pods must, must not, should or should not be neighbours (spec/scheduling.md §6.2, §11).

Neighbours are pods in the same domain of a term's topology key; a node without that label is in no domain. What counts
is where pods stay: those that run or were placed in this cycle, without those that go. A pod may take a place that
somebody it must keep away from is leaving, but it waits until that one is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.points import Rejection
from pykai.engine.whereabouts import Tally
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Mask
from pykai.objects.pod_template import PodTerm
from pykai.plugins.pod_terms import Borne, PodTerms, preferred, required_apart, required_near, tally

NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_APART = "node(s) didn't match pod anti-affinity rules"
SHUNNED = "node(s) didn't satisfy existing pods anti-affinity rules"
WISH = 1_000_000.0
"""What one unit of weight is worth among the other scores."""


@dataclass(frozen=True, eq=False)
class Rules:
    """What a class demands of its neighbours, and they of it. Each tally counts the pods one rule speaks of."""

    near: tuple[Tally, ...]
    """Pods that match all required affinity terms, per topology key."""
    apart: tuple[Tally, ...]
    shunned: tuple[Tally, ...]
    """But for those of `apart`: pods of one kind that keep away from each other say so twice."""
    starts_alone: bool
    """The class matches its own terms: the first of its kind may go anywhere."""

    def company(self) -> Mask:
        """Nodes with all required neighbours or, for the first of its kind, those that are in some domain."""
        alone = self.starts_alone and not any(near.staying.any() for near in self.near)
        mask: Mask = np.logical_and.reduce([near.domains > 0 if alone else near.company for near in self.near])
        return mask


@dataclass(frozen=True)
class RequiredPodAffinity:
    """Required affinity and anti-affinity, and the required anti-affinity of pods that are already there."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return _rules(cycle, pod_class.row) is not None

    def closed(self, cycle: Cycle, pod: int) -> Iterable[Rejection]:
        rules = _rules(cycle, cycle.trial.klass[pod])
        if rules is None:
            return
        if rules.near:
            yield NOT_NEAR, ~rules.company()
        yield from ((NOT_APART, apart.company) for apart in rules.apart)
        yield from ((SHUNNED, shunned.company) for shunned in rules.shunned)

    def blockers(self, cycle: Cycle, pod: int) -> Sequence[Tally]:
        rules = _rules(cycle, cycle.trial.klass[pod])
        return (*rules.apart, *rules.shunned) if rules is not None else ()

    def must_wait(self, cycle: Cycle, pod: int, node: int) -> bool:
        rules = _rules(cycle, cycle.trial.klass[pod])
        return rules is not None and any(t.leaving[t.domains[node]] for t in (*rules.apart, *rules.shunned))

    def late(self, cycle: Cycle, pod: int) -> Mask | None:
        """Nodes that somebody is leaving whom the pod must keep away from."""
        rules = _rules(cycle, cycle.trial.klass[pod])
        leaving = [t.farewell for t in (*rules.apart, *rules.shunned) if t.leaving.any()] if rules else []
        return np.logical_or.reduce(leaving) if leaving else None


@dataclass(frozen=True)
class PreferredPodAffinity:
    """Per node the weights of the preferred terms that hold: the pod's own, and those of the pods that are there."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return bool(_wishes(cycle, pod_class.row))

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None:
        """Not None while there is a wish that no place fulfils yet: the first pod of a gang may change that."""
        wishes = _wishes(cycle, cycle.trial.klass[pod])
        return WISH * np.add.reduce([weight * t.staying[t.domains] for weight, t in wishes]) if wishes else None


def _terms(cycle: Cycle) -> PodTerms:
    return cycle.snapshot.derived(PodTerms)


def _rules(cycle: Cycle, row: int) -> Rules | None:
    """The rules of a class, worked out once per cycle; None where there are none."""
    memo: dict[int, Rules | None] = cycle.memo.setdefault("pod_affinity", {})
    if row not in memo:
        memo[row] = _make_rules(cycle, row) if _terms(cycle).any else None
    return memo[row]


def _make_rules(cycle: Cycle, row: int) -> Rules | None:
    terms, c = _terms(cycle), cycle.snapshot.pods.classes[row]
    near = required_near(c.template.affinity)
    friends = np.logical_and.reduce([terms.speaks_of(term, c.namespace) for term in near]) if near else None
    apart = tuple(_apart(cycle, c))
    rules = Rules(
        near=tuple(tally(cycle, friends, key) for key in _keys(near)) if friends is not None else (),
        apart=apart,
        shunned=tuple(tally for tally in _shunned(cycle, terms.apart_from(row)) if tally not in apart),
        starts_alone=friends is not None and bool(friends[row]),
    )
    return rules if rules.near or rules.apart or rules.shunned else None


def _keys(terms: Sequence[PodTerm]) -> list[str]:
    return list(dict.fromkeys(term.topology_key for term in terms))


def _apart(cycle: Cycle, c: PodClass) -> Iterable[Tally]:
    for term in required_apart(c.template.affinity):
        yield tally(cycle, _terms(cycle).speaks_of(term, c.namespace), term.topology_key)


def _shunned(cycle: Cycle, borne: Sequence[Borne]) -> Iterable[Tally]:
    """Per topology key the pods that must keep away, whichever of their terms says so."""
    for key in dict.fromkeys(term.topology_key for term in borne):
        bearers = [term.bearers for term in borne if term.topology_key == key]
        yield tally(cycle, bearers[0] if len(bearers) == 1 else np.logical_or.reduce(bearers), key)


def _wishes(cycle: Cycle, row: int) -> list[tuple[int, Tally]]:
    """Weight and tally of every preferred term that speaks for or against pods of a class being somewhere."""
    memo: dict[int, list[tuple[int, Tally]]] = cycle.memo.setdefault("preferred_pod_affinity", {})
    if row not in memo:
        memo[row] = _make_wishes(cycle, row) if _terms(cycle).any else []
    return memo[row]


def _make_wishes(cycle: Cycle, row: int) -> list[tuple[int, Tally]]:
    terms, c = _terms(cycle), cycle.snapshot.pods.classes[row]
    own = [
        (weight, tally(cycle, terms.speaks_of(term, c.namespace), term.topology_key))
        for weight, term in preferred(c.template.affinity)
    ]
    theirs = [(borne.weight, tally(cycle, borne.bearers, borne.topology_key)) for borne in terms.wishes_about(row)]
    return own + theirs
