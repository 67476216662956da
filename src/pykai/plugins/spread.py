"""Topology spread: how evenly the pods that a constraint selects are spread over the domains of a node label.

A domain is a value of the constraint's topology key. Domains count if one of their nodes is eligible: it carries the
keys of all constraints of the pod, and node affinity and taints allow the pod there where the constraint says so
(`nodeAffinityPolicy`, `nodeTaintsPolicy`). With the pod, a domain may hold at most `maxSkew` selected pods more than
the one that holds fewest; where fewer than `minDomains` domains count, the fewest is 0. Pods that leave do not count.
An empty selector counts no pod, no selector selects none: as in kube-scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import NodeResourceState, Rejection
from pykai.engine.pod_locations import PodCounts
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Mask, Rows
from pykai.model.snapshot import Snapshot
from pykai.objects.pod_template import PodTerm, SpreadConstraint
from pykai.plugins import node_labels
from pykai.plugins.affinity import TermCounts, with_label_keys
from pykai.plugins.node_filters import selected_nodes, untolerated_nodes

UNEVEN = "node(s) didn't match pod topology spread constraints"
NO_DOMAIN = "node(s) didn't match pod topology spread constraints (missing required label)"
SPREAD_WEIGHT = 2.0
"""Of a score from 0 to 100, as kube-scheduler weighs it among the preferences of a pod."""
MOST = np.iinfo(np.int64).max
"""The fewest pods of no domain: nothing is uneven."""


@dataclass(frozen=True, eq=False)
class Constraint:
    """A constraint of a class: the pods it selects, counted on eligible nodes."""

    counts: PodCounts
    codes: Rows
    """The domain of every node, eligible or not; 0: none."""
    domains: Rows
    """Those that count."""
    max_skew: int
    min_domains: int
    own: int
    """1 where the constraint selects pods of the class itself."""

    def uneven(self) -> Mask:
        """Nodes in whose domain another pod of the class would be one too many."""
        present = self.counts.present
        least = int(present[self.domains].min(initial=MOST)) if len(self.domains) >= self.min_domains else 0
        over = present > self.max_skew + least - self.own if least < MOST else np.zeros(len(present), dtype=bool)
        over[0] = False
        return np.asarray(over[self.codes])


class Constraints:
    """The constraints of classes, worked out once per cycle; it holds no cycle."""

    def __init__(self, cycle: Cycle) -> None:
        self._snapshot, self._counts = cycle.snapshot, cycle.state(TermCounts)
        self._known: dict[tuple[int, bool], tuple[Constraint, ...]] = {}

    def of(self, c: PodClass, required: bool) -> tuple[Constraint, ...]:
        known = self._known.get((c.row, required))
        if known is None:
            stated = [each for each in c.template.spread if each.required is required]
            known = self._known[c.row, required] = tuple([self._make(c, each, stated) for each in stated])
        return known

    def _make(self, c: PodClass, stated: SpreadConstraint, together: Sequence[SpreadConstraint]) -> Constraint:
        terms, labels = self._counts.terms, self._snapshot.nodes.derived(node_labels.labels)
        selector = with_label_keys(stated.label_selector, [("In", stated.match_label_keys)], c.labels)
        selects = terms.selects(PodTerm(label_selector=selector), c.namespace)
        own = int(selects[c.row])
        if selector is not None and not selector.keys:
            selects = np.zeros(len(selects), dtype=bool)
        among = np.logical_and.reduce([labels[each.topology_key].codes > 0 for each in together])
        if (
            stated.node_affinity_policy == "Honor"
            and (chosen := selected_nodes(self._snapshot, c.template)) is not None
        ):
            among &= chosen
        if stated.node_taints_policy == "Honor":
            tainted = untolerated_nodes(self._snapshot, c.template.tolerations)
            among = among if tainted is None else among & ~tainted
        codes = labels[stated.topology_key].codes
        counts = self._counts.of(selects, stated.topology_key, among)
        return Constraint(counts, codes, np.unique(codes[among]), stated.max_skew, stated.min_domains, own)


def stating(snapshot: Snapshot, required: bool) -> bool:
    """Whether some class has a constraint of a kind."""
    return any(each.required is required for c in snapshot.pods.classes for each in c.template.spread)


def _required(snapshot: Snapshot) -> bool:
    return stating(snapshot, required=True)


# ------------------------------------------------------------------------------------------------------ DoNotSchedule
@dataclass(frozen=True)
class TopologySpread:
    """Nodes on which the pod would break one of its constraints `DoNotSchedule`."""

    def open(self, cycle: Cycle) -> SpreadState | None:
        return SpreadState(cycle) if cycle.snapshot.derived(_required) else None


class SpreadState(NodeResourceState):
    """Constraints `DoNotSchedule`, and the pods they select at this moment."""

    def __init__(self, cycle: Cycle) -> None:
        self._trial, self._constraints = cycle.trial, cycle.state(Constraints)

    def concerns(self, pod_class: PodClass) -> bool:
        return bool(self._constraints.of(pod_class, required=True))

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        for each in self._constraints.of(self._trial.of_class(pod), required=True):
            if not each.codes.all():
                yield NO_DOMAIN, each.codes == 0
            uneven = each.uneven()
            if uneven.any():
                yield UNEVEN, uneven


# ----------------------------------------------------------------------------------------------------- ScheduleAnyway
@dataclass(frozen=True)
class SoftSpread:
    """Domains with fewer of the pods that constraints `ScheduleAnyway` select, from 0 to 200.

    Each constraint is weighted by the logarithm of the number of its domains, a larger `maxSkew` reduces differences,
    and nodes without one of the keys score 0.
    """

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return any(not each.required for each in pod_class.template.spread)

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None:
        c = cycle.trial.of_class(pod)
        constraints = cycle.state(Constraints).of(c, required=False)
        scored = np.logical_and.reduce([each.codes > 0 for each in constraints]) & cycle.node_facts.allowed(c)
        if not scored.any():
            return None
        crowded = np.zeros(len(scored))
        for each in constraints:
            weight = np.log(len(np.unique(each.codes[scored])) + 2)
            crowded += each.counts.present[each.codes] * weight + (each.max_skew - 1)
        crowded = np.rint(crowded)
        most, least = crowded[scored].max(), crowded[scored].min()
        even = np.floor(100 * (most + least - crowded) / most) if most else np.full(len(scored), 100.0)
        return np.where(scored, SPREAD_WEIGHT * even, 0.0)
