"""The judge's reading of constraints: may this pod be on this node, and do those who belong together stay together.

Part of `verify/judge.py`. Selectors, taints and topology levels are read here again, one pod and one node at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pykai.model.gangs import PodSet, SubGroupSet, TopologyRequirement
from pykai.model.plan import Bind
from pykai.model.snapshot import Snapshot
from pykai.model.status import IS_ACTIVE_ALLOCATED
from pykai.objects.kinds import Taint
from pykai.objects.pod_template import Expression, NodeTerm, PodTemplate, Toleration
from pykai.verify.capacity import portion
from pykai.verify.outcome import Outcome, Violation

Labels = Mapping[str, str]


# ---------------------------------------------------------------------------------------------------- pod on a node
def places_allowed(out: Outcome) -> Iterator[Violation]:
    """Every pod may be on its node: labels, taints and conditions."""
    snapshot = out.snapshot
    known: dict[tuple[int, int], str] = {}
    for placement in out.placements:
        c = snapshot.pods.of_class(placement.pod)
        pair = (c.row, placement.node)
        if pair not in known:
            known[pair] = "; ".join(_objections(snapshot, c.template, placement.node))
        if known[pair]:
            about = f"{snapshot.pods.title(placement.pod)} on {snapshot.nodes.names[placement.node]}"
            yield Violation("a node may have the pod", about, known[pair])


def _objections(snapshot: Snapshot, template: PodTemplate, node: int) -> Iterator[str]:
    nodes = snapshot.nodes
    yield from nodes.conditions[node]
    for taint in nodes.taints[node]:
        if taint.effect in ("NoSchedule", "NoExecute") and not _tolerated(taint, template.tolerations):
            yield f"taint {taint.key}={taint.value}:{taint.effect}"
    labels = nodes.labels[node]
    for key, value in template.node_selector.items():
        if labels.get(key) != value:
            yield f"selector {key}={value}, label {labels.get(key)!r}"
    affinity = template.affinity.node_affinity
    if affinity is not None and affinity.required is not None:
        fields = {"metadata.name": nodes.names[node]}
        if not any(_speaks_of(term, labels, fields) for term in affinity.required.node_selector_terms):
            yield "required node affinity"


def _tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(
        t.effect in ("", taint.effect)
        and t.key in ("", taint.key)
        and (t.operator == "Exists" or (t.operator in ("", "Equal") and t.value == taint.value))
        for t in tolerations
    )


def _speaks_of(term: NodeTerm, labels: Labels, fields: Labels) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_meets(labels, e) for e in term.match_expressions) and all(_meets(fields, e) for e in term.match_fields)


def _meets(labels: Labels, e: Expression) -> bool:
    value = labels.get(e.key)
    if e.operator in ("Exists", "DoesNotExist"):
        return (value is not None) == (e.operator == "Exists")
    if e.operator in ("In", "NotIn"):
        return (value in e.values) == (e.operator == "In")
    if e.operator not in ("Gt", "Lt") or value is None or len(e.values) != 1:
        return False
    try:
        return int(value) > int(e.values[0]) if e.operator == "Gt" else int(value) < int(e.values[0])
    except ValueError:
        return False


def devices_as_asked(out: Outcome) -> Iterator[Violation]:
    """Who shares devices gets as many as it asked for, all of them different; a bind says how much of each."""
    snapshot, rule = out.snapshot, "a pod gets the devices it asked for"
    for placement in out.placements:
        c, bind, about = snapshot.pods.of_class(placement.pod), placement.decision, snapshot.pods.title(placement.pod)
        wanted = c.devices if c.shared else 0
        if not len(placement.groups) == len(set(placement.groups)) == wanted:
            yield Violation(rule, about, f"{wanted} shared devices asked for, given {list(placement.groups)}")
        asked = (c.devices, portion(snapshot, c, placement.node))
        if isinstance(bind, Bind) and (bind.devices, bind.portion) != asked:
            figures = f"{bind.devices} times {bind.portion:g} instead of {asked[0]} times {asked[1]:g}"
            yield Violation(rule, about, figures)


# -------------------------------------------------------------------------------------------------------- togetherness
def topology_kept(out: Outcome) -> Iterator[Violation]:
    """All of a sub-group with a required level are in one domain of it; one that was split before is not judged."""
    gangs = out.snapshot.gangs
    for gang in out.by_gang:
        tree = gangs.trees.get(gang)
        for group in _all(tree) if tree is not None else ():
            wish = group.topology
            if wish is not None and wish.required in out.snapshot.topologies.get(wish.topology, ()):
                yield from _together(out, gang, group, wish)


def _all(group: PodSet | SubGroupSet) -> Iterator[PodSet | SubGroupSet]:
    yield group
    for child in group.children if isinstance(group, SubGroupSet) else ():
        yield from _all(child)


def _together(out: Outcome, gang: int, group: PodSet | SubGroupSet, wish: TopologyRequirement) -> Iterator[Violation]:
    snapshot, pods = out.snapshot, out.snapshot.pods
    levels = snapshot.topologies[wish.topology]
    depth = levels.index(wish.required) + 1
    rows = {group.row} if isinstance(group, PodSet) else {podset.row for podset in group.podsets()}

    def domain(node: int) -> tuple[str | None, ...]:
        """The labels down to the required level; a node without all labels of the topology is in no domain."""
        labels = snapshot.nodes.labels[node]
        return tuple(labels.get(key) for key in levels[:depth]) if all(k in labels for k in levels) else (None,)

    active = [p for p in snapshot.gangs.pods(gang) if pods.podset[p] in rows and IS_ACTIVE_ALLOCATED[pods.status[p]]]
    before = {domain(int(pods.node[p])) for p in active}
    given = {domain(p.node) for p in out.by_gang[gang] if pods.podset[p.pod] in rows}
    kept = {domain(int(pods.node[p])) for p in active if p not in out.evicted}
    found = given | kept
    if given and len(before) <= 1 and (None,) not in before and (len(found) > 1 or (None,) in given):
        about = f"{snapshot.gangs.title(gang)} {group.name}".strip()
        shown = ", ".join(sorted(".".join(map(str, d)) for d in found))
        yield Violation("a sub-group stays together", about, f"{wish.required} required, found in {shown}")
